"""Reasons and messages for each waiting job, computed from a finished plan state."""
