"""Compute the usage of finished attempts, and the remaining hours of budgets."""
