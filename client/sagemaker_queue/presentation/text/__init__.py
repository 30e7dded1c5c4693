"""Output of ``smq`` for users: tables, pages, the live screen, progress."""
