"""Where the queue is, and what jobs have in common: the profile file, the environment, arguments."""
