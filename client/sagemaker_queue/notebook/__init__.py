"""The client for notebooks and scripts: commands as jobs, tables, data frames and progress."""
