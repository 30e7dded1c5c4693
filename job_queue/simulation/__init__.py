"""Simulate the queue: its real planner, with simulated jobs in simulated time. No module here has access to AWS."""
