"""A call of an AWS operation by a program, and the type of the functions that answer such calls."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

import boto3

from sagemaker_queue.integrations.boto.lookup import JobLookup
from sagemaker_queue.queue.attempt_clients import Place, is_elsewhere

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
    elsewhere: Callable[[Place, str], Any]
    """Returns a client of the same service for an attempt of the named job in another region or account.

    Raises NoAccountProfile."""

    def client_of(self, place: Place, job: str) -> Any:
        """Return the client for an attempt of a job, wherever the attempt runs. Raises NoAccountProfile."""
        return self.elsewhere(place, job) if is_elsewhere(place) else self.client()


Handler = Callable[[JobLookup, Call], Optional[Answer]]
"""Returns the answer to a call, or None to let the call pass to AWS. Raises QueueError or ClientError."""
