"""Requests: their typed values, and the scheduling options in their tags."""
