"""Accounting: attempt records, which remain when the jobs are long forgotten."""
