"""Accounting: attempt records, which are kept after their jobs are deleted."""
