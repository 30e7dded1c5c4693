"""History, usage and budgets as text for people."""
