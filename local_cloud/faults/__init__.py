"""Injected faults, and time that passes faster."""
