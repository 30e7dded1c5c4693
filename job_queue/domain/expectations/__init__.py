"""What is to be expected of live jobs, from those that have ended, pure."""
