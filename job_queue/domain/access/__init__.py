"""Access rules: patterns, rights of callers, the resources of a project's jobs, and the places where jobs write."""
