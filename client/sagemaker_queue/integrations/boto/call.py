"""A call of an AWS operation by a program, and the type of its handlers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

import boto3

from sagemaker_queue.integrations.boto.lookup import JobLookup

Answer = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One call of an AWS operation by a program."""

    operation: str
    parameters: Mapping[str, Any]
    region: str
    session: boto3.Session
    preflight: bool
    client: Callable[[], Any]
    """Returns a client of the same service, region and endpoint as the client that is called."""


Handler = Callable[[JobLookup, Call], Optional[Answer]]
"""Returns the answer to a call, or None to let the call pass to AWS. Raises QueueError or ClientError."""
