"""Scenario files: a snapshot written down, and the run from it to the stable state."""
