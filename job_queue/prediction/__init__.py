"""How long a job will run, from how long jobs like it ran. Pure: the standard library, no clock, no AWS."""
