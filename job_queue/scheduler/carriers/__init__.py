"""Shared instances: carriers hold instances, and members get allocations on their GPUs (ADR 0079)."""
