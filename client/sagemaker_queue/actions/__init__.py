"""Workflows shared by the commands of ``smq`` and the methods of ``QueueClient``; they print nothing."""
