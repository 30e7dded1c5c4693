"""What was used, and what is left of budgets."""
