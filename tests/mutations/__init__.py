"""Rules broken on purpose, one line at a time: the scheduler's tests have to notice each."""
