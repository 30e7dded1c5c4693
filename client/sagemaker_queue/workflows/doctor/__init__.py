"""Check step by step for the usual problems between a user's machine and the queue.

`findings` defines the results of the steps. `network`, `caller`, `jobs` and others are the steps. `examination` runs
all steps in order.
"""
