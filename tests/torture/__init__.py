"""A simulated world for the queue's shell, in which everything fails: docs/developers/testing.md."""
