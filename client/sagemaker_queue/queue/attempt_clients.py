"""Clients of an AWS service in the regions and accounts in which the attempts of jobs run."""

from __future__ import annotations

from typing import Any, Protocol

from sagemaker_queue.queue.client import QueueClient


class Place(Protocol):
    """An attempt, or a job with its latest attempt. None in a field stands for the queue's region or account."""

    @property
    def region(self) -> str | None:
        """The region of the training job."""

    @property
    def account(self) -> str | None:
        """The account of the training job."""


def is_elsewhere(place: Place) -> bool:
    """Return whether a training job is in another region or account than the queue."""
    return place.region is not None or place.account is not None


class AttemptClients:
    """One client of an AWS service for each region and account, created at its first use.

    ``home`` is the client for the queue's region and account (default: created from ``queue``).
    """

    def __init__(self, queue: QueueClient, service: str, home: Any = None) -> None:
        self._queue = queue
        self._service = service
        self._clients: dict[tuple[str | None, str | None], Any] = {}
        if home is not None:
            self._clients[None, None] = home

    def of(self, place: Place, job: str) -> Any:
        """Return the client for an attempt.

        Raises NoAccountProfile if the attempt's account has no profile; the message names ``job``.
        """
        key = (place.region, place.account)
        if key not in self._clients:
            self._clients[key] = self._queue.aws_client(self._service, *key, job=job)
        return self._clients[key]
