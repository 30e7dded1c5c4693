"""Expectations about live jobs, such as runtimes, starts and hangs, derived from attempt records and metrics."""
