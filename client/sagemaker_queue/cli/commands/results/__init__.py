"""What comes of a job: waiting for its end, and fetching what it leaves."""
