"""Finished attempts as text, and budgets as text and JSON."""
