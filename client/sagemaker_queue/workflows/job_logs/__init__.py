"""Follow a job through all its attempts, with the log lines of its instances."""
