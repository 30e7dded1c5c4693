"""Who holds what of a simulated fleet, and what is free."""
