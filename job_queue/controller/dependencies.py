"""Jobs that wait for others to end (tag `after`): finds out what has ended, and lets them go or stops them.

A dependency that is in the cluster's state is alive. One that is not has ended, or waits behind the window: its record
says which. So nobody has to be told when a job ends, nothing can be lost, and a cycle without dependents reads nothing.
"""

from collections.abc import Callable, Iterable
from functools import partial

from job_queue.adapters.cluster_reader import Parallel
from job_queue.adapters.job_repository import JobRepository, transactions
from job_queue.adapters.metadata import Lease
from job_queue.adapters.telemetry import log
from job_queue.domain import state_machine
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.errors import LeaseLost, Refused, Unavailable, Unwritable
from job_queue.domain.job import Dependency, Job, JobRecord
from job_queue.domain.state_machine import Transition
from job_queue.scheduler import JobState

MOST_LOOKED_UP = 25  # records in one step; others each minute
LEVELS = 20  # of dependents of dependents that are stopped in one cycle

Ends = dict[Dependency, JobState | None]
"""How dependencies have ended; None: nobody knows any more."""


class Dependencies:
    """Lets dependents go, as the holder of the lease."""

    def __init__(self, repository: JobRepository, parallel: Parallel, clock: Callable[[], float]) -> None:
        self._repository = repository
        self._parallel = parallel
        self._clock = clock

    def settle(self, lease: Lease, cluster: ClusterState) -> tuple[ClusterState, bool]:
        """Record what has become of the dependents in the cluster's state, and of their dependents in turn.

        Gives the state with them, and whether another cycle may find more.
        """
        tried: set[str] = set()
        for _ in range(LEVELS):
            dependents = [job for job in cluster.waiting.values() if job.after and job.name not in tried]
            transitions = self.transitions(dependents, cluster)
            tried |= {transition.old.name for transition in transitions}
            recorded = self._record(lease, transitions)
            cluster = cluster.with_waiting_changed(transition.new for transition in recorded)
            if not any(transition.new.state.finished for transition in recorded):
                return cluster, False
        return cluster, True

    def transitions(self, jobs: Iterable[Job], cluster: ClusterState) -> list[Transition]:
        """What becomes of those jobs of which a dependency has ended."""
        now = self._clock()
        unrecorded = cluster.unrecorded(now)
        dependents = [job for job in jobs if job.after and job.state.waits and job.name not in unrecorded]
        if not dependents:
            return []
        ends = self._ends((it for job in dependents for it in job.after), cluster)
        return [
            state_machine.dependencies_ended(job, {it: ends[it] for it in job.after if it in ends}, now)
            for job in dependents
            if any(it in ends for it in job.after)
        ]

    def _ends(self, dependencies: Iterable[Dependency], cluster: ClusterState) -> Ends:
        """Those that have ended, as far as they are looked up now."""
        live = {(job.name, job.submission) for job in (*cluster.active.values(), *cluster.waiting.values())}
        unseen = [it for it in dict.fromkeys(dependencies) if (it.job, it.submission) not in live]
        names = sorted({it.job for it in unseen})
        first = int(self._clock() / 60) * MOST_LOOKED_UP % max(1, len(names))
        names = [*names[first:], *names[:first]][:MOST_LOOKED_UP]
        found = self._parallel([partial(self._repository.record, name) for name in names]) if names else []
        records = dict(zip(names, found, strict=True))
        return {
            it: _end(it, records[it.job]) for it in unseen if it.job in records and not _is_alive(it, records[it.job])
        }

    def _record(self, lease: Lease, transitions: list[Transition]) -> list[Transition]:
        parts = transactions(transitions) if transitions else ()
        return [transition for part in parts for transition in self._commit(lease, part)]

    def _commit(self, lease: Lease, part: list[Transition]) -> list[Transition]:
        """Record these together; where one of them cannot be recorded, each by itself. Gives those that are."""
        try:
            self._repository.commit(lease, part, self._clock())
        except LeaseLost:
            raise
        except (Refused, Unavailable) as error:  # who has changed one of them has it looked at again
            if len(part) > 1 and isinstance(error, Refused | Unwritable):
                return [transition for one in part for transition in self._commit(lease, [one])]
            log.info("dependents not recorded", jobs=[it.old.name for it in part], why=repr(error))
            return []
        return part


def is_waited_for(jobs: Iterable[Job], cluster: ClusterState) -> bool:
    """Whether one of these jobs has ended, and others of the cluster's state wait for it."""
    ended = {job.name for job in jobs if job.state.finished}
    return bool(ended) and any(it.job in ended for job in cluster.waiting.values() for it in job.after)


def _is_alive(dependency: Dependency, record: JobRecord | None) -> bool:
    return record is not None and record.job.submission == dependency.submission and not record.job.state.finished


def _end(dependency: Dependency, record: JobRecord | None) -> JobState | None:
    """None where the record is gone, or is another job's of that name."""
    return record.job.state if record is not None and record.job.submission == dependency.submission else None
