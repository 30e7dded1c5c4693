"""The queue in simulated time: the planner itself, with jobs that only count seconds. No module here imports AWS."""
