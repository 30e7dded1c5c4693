"""Who may do what: patterns, rights of callers, what a project's jobs may use, and the places they write to."""
