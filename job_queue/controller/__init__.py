"""The scheduling cycle."""
