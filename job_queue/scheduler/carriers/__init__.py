"""Shares of an instance: carriers hold instances, members get allocations on their GPUs (ADR 0079)."""
