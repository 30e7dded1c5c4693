"""Structured logs: a line for each decision and each transition, with the job, the reason and the `cycle`.

`cycle` is the lease's fencing token when the cycle began. No two cycles have the same value.
"""

from aws_lambda_powertools import Logger

log = Logger()
