"""Preview another policy, or other capacities, on the live queue."""
