"""Carriers, which are training jobs of the queue's own, and members, which share a carrier's instance (ADR 0079)."""
