"""Who can be served at all, whatever is free."""

from dataclasses import dataclass
from functools import cached_property

from job_queue.scheduler.decisions import Reason
from job_queue.scheduler.model import Policy, Pool, Slots, Snapshot, WaitingJob
from job_queue.scheduler.ordering import line_order

Wish = tuple[str, tuple[tuple[tuple[str, int], ...], ...]]


@dataclass(frozen=True)
class Candidate:
    """A waiting job that starts as soon as there is room for one of its alternatives."""

    job: WaitingJob
    alternatives: tuple[Slots, ...]  # those that its pools could ever hold, best first

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.name

    @cached_property
    def pools(self) -> frozenset[str]:
        """Every pool in which it could run."""
        return frozenset(pool for need in self.alternatives for pool in need)

    @cached_property
    def wish(self) -> Wish:
        """Its project and what it asks for: who wishes the same later in line has no better chances."""
        return (self.job.project, tuple(tuple(sorted(need.items())) for need in self.alternatives))


def sort_out(snapshot: Snapshot) -> tuple[list[Candidate], dict[str, Reason]]:
    """The candidates in the order in which they are served, and why each other waiting job is none."""
    candidates: list[Candidate] = []
    refused: dict[str, Reason] = {}
    pools_of = _PoolsOfProjects(snapshot.policy)
    for job in sorted(snapshot.waiting, key=line_order):
        verdict = _judge(job, snapshot.now, pools_of[job.project])
        if isinstance(verdict, Reason):
            refused[job.name] = verdict
        else:
            candidates.append(verdict)
    return candidates, refused


def pools_of_project(policy: Policy, project: str) -> dict[str, Pool]:
    """The pools that a project's jobs may use, by name."""
    allowed = next((known.pools for known in policy.projects if known.name == project), ())
    return {pool.name: pool for pool in policy.pools if not allowed or pool.name in allowed}


def _judge(job: WaitingJob, now: float, pools: dict[str, Pool]) -> Candidate | Reason:
    if job.held:
        return Reason.HELD_BY_USER
    if job.backoff_until is not None and job.backoff_until > now:
        return Reason.BACKOFF
    known = [need for need in job.demand if need and all(pool in pools for pool in need)]
    if not known:
        return Reason.NO_SUCH_POOL
    possible = [need for need in known if all(count <= pools[pool].capacity for pool, count in need.items())]
    if not possible:
        return Reason.NEVER_FITS
    return Candidate(job, tuple(possible))


class _PoolsOfProjects(dict[str, dict[str, Pool]]):
    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self._policy = policy

    def __missing__(self, project: str) -> dict[str, Pool]:
        self[project] = pools_of_project(self._policy, project)
        return self[project]
