"""The simulated fleet: runs, attempts and carriers, and the slots that they leave free."""
