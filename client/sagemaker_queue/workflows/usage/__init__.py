"""Usage of finished attempts, and the rest of budgets."""
