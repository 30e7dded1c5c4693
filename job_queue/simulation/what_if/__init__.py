"""The comparison of two policies, or capacities, on the live queue."""
