"""The queue as notebooks and scripts use it: commands as jobs, tables and frames of them, progress."""
