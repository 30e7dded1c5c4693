"""Following a job through all its attempts, with what its instances write."""
