"""Read policies and scenario files, and plan a scenario until nothing changes any more."""
