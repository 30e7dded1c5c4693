"""What ``smq`` prints for people: tables, pages, the live screen, progress."""
