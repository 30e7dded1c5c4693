"""Sharing over time: past use, budgets, and the division of a pool by them."""
