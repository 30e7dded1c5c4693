"""Configuration from arguments, the environment and the profile file: the queue's address, and defaults of jobs."""
