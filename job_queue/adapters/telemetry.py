"""Structured logs. One line for each decision and each transition, with the job, why, and the `cycle` that made it.

`cycle` is the lease's token when the cycle began: no two cycles have the same.
"""

from aws_lambda_powertools import Logger

log = Logger()
