"""Documents: the policy, and scenario files with the run from one to its stable state."""
