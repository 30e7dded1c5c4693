"""What usually is wrong between a person and the queue, looked at step by step.

`findings` are what is found, `network` and `caller` and `jobs` are the steps, `examination` goes through them.
"""
