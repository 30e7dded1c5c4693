"""Documents: the policy, scenario files, and the run of a scenario to its stable state."""
