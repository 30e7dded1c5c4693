"""Select jobs by owner, project, group, name or pattern, and sort them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Any

from api_contract.history import PastAttempt
from api_contract.models import ACTIVE, WAITING, JobSummary
from sagemaker_queue.errors import NotFound
from sagemaker_queue.jobs.formatting import short_owner
from sagemaker_queue.queue.identity import matches, owner_of

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient

_LAST = datetime.max.replace(tzinfo=timezone.utc)
QUEUE_ORDER = "queue"


def _since(job: JobSummary, states: frozenset[str]) -> datetime:
    return job.state_since or _LAST if job.state in states else _LAST


@dataclass(frozen=True)
class JobOrder:
    """A stable order of jobs: jobs with equal keys stay in the queue's order."""

    meaning: str
    key: Callable[[JobSummary], Any]


ORDERS: dict[str, JobOrder] = {
    QUEUE_ORDER: JobOrder("the order of the queue", lambda job: 0),
    "position": JobOrder("the next to start first", lambda job: (job.position is None, job.position or 0)),
    "priority": JobOrder("the highest first", lambda job: -job.priority),
    "running": JobOrder("the longest running first", lambda job: _since(job, ACTIVE)),
    "waiting": JobOrder("the longest waiting first", lambda job: _since(job, WAITING)),
    "age": JobOrder("the oldest first", lambda job: job.entry_time or _LAST),
    "name": JobOrder("A to Z", lambda job: job.job),
    "project": JobOrder("A to Z", lambda job: job.project or ""),
    "owner": JobOrder("A to Z", lambda job: short_owner(job.owner) or ""),
    "instances": JobOrder("the largest first", lambda job: (job.gpus is not None, -(job.gpus or job.instances))),
}


@dataclass(frozen=True)
class Selection:
    """Conditions on jobs. A job must match one pattern (with ``*`` and ``?``) of every condition that is not empty."""

    names: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    # ARNs (a role's ARN also matches its sessions), or owners as tables show them: ann, Role/session, session
    owners: tuple[str, ...] = ()
    mine: str | None = None  # the exact ARN of the owner, in place of `owners`

    def __contains__(self, job: JobSummary | PastAttempt) -> bool:
        """Return whether the job or attempt meets all conditions."""
        return (
            _matches(self.names, job.job)
            and _matches(self.projects, job.project or "")
            and _matches(self.groups, job.group or "")
            and self._is_owner(owner_of(job.owner or ""))
        )

    def _is_owner(self, arn: str) -> bool:
        if self.mine is not None:
            return arn == self.mine
        short = short_owner(arn) or ""
        shown = _matches(self.owners, short, short.rpartition("/")[2], f"{short}/")  # Role/* includes the role itself
        return shown or any(matches(pattern, arn) for pattern in self.owners)

    def of(
        self,
        jobs: Iterable[JobSummary],
        order: str = QUEUE_ORDER,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[JobSummary]:
        """Yield the selected jobs, sorted. For the queue's own order, read only as much of ``jobs`` as needed.

        Carriers, which are the queue's own jobs, are selected only if ``names`` is set.
        """
        selected: Iterable[JobSummary] = (job for job in jobs if job in self and (not job.is_carrier or self.names))
        if order != QUEUE_ORDER or reverse:
            selected = sorted(selected, key=ORDERS[order].key)
            selected = selected[::-1] if reverse else selected
        return islice(selected, limit)


def _matches(patterns: tuple[str, ...], *texts: str) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns for text in texts)


def matching_job_names(
    queue: QueueClient, names: Iterable[str], groups: tuple[str, ...] = (), states: str = "live"
) -> list[str]:
    """Return the names of jobs given by name, pattern or group.

    The waiting jobs of a pattern or group come first, for callers that cancel the jobs in this order. If a running job
    were cancelled first, a waiting job would start. Raises NotFound for a pattern or group without a job in ``states``.
    """
    found: list[str] = []
    if groups:
        found += _jobs(queue, states, Selection(groups=groups), f"in the group {', '.join(groups)}")
    for name in names:
        is_pattern = any(letter in name for letter in "*?[")
        found += _jobs(queue, states, Selection(names=(name,)), f"match {name}") if is_pattern else [name]
    return list(dict.fromkeys(found))


def _jobs(queue: QueueClient, states: str, selection: Selection, which: str) -> list[str]:
    found = sorted(selection.of(queue.jobs(states)), key=lambda job: job.state not in WAITING)
    if not found:
        raise NotFound(f"No {'live ' if states == 'live' else ''}jobs {which}.")
    return [job.job for job in found]
