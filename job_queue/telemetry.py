"""Structured logs. One line per decision, with the job and why."""

from aws_lambda_powertools import Logger

log = Logger()
