"""Division of pools among projects, past use, and budgets."""
