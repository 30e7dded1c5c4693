"""The queue: the code of its Lambda functions, which accept, schedule and launch jobs, and of the carriers' agent."""
