"""Notices for people: what became of their jobs, and the ways in which they are told."""
