"""A call of an AWS operation by somebody's program, and what answers it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

import boto3

from sagemaker_queue.integrations.boto.lookup import JobLookup

Answer = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One call of an operation by somebody's program."""

    operation: str
    parameters: Mapping[str, Any]
    region: str
    session: boto3.Session
    preflight: bool
    client: Callable[[], Any]
    """Returns a client like the one that is called: of the same service, region and endpoint."""


Handler = Callable[[JobLookup, Call], Optional[Answer]]
"""Answers a call, or lets it pass (None). Raises QueueError or ClientError."""
