"""Shares of an instance: carriers hold instances, members get seats on their GPUs (ADR 0079)."""
