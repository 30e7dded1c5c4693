"""Carriers: the program that runs in them, and the messages between the program and the queue."""
