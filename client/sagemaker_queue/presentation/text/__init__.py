"""Output of ``smq`` for users: tables, pages, one-line results and the live screen."""
