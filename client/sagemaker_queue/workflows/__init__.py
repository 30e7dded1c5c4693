"""The steps of work with jobs: select, follow, wait, fetch results, send notices, open a shell, examine faults."""
