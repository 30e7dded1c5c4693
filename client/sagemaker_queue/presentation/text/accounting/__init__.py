"""History, usage and budgets as text and JSON."""
