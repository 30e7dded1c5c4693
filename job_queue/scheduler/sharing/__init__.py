"""Sharing over time: what was used before, budgets, and how a pool is divided by them."""
