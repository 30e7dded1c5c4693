"""Columns, rows and sentences about jobs and the fleet, for the terminal, notebooks and ``smq ui``."""
