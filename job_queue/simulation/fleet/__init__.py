"""The simulated fleet: jobs, attempts and carriers, and the slots that they leave free."""
