"""Carriers: the program that runs in them, and what the queue and it tell each other."""
