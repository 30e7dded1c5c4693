"""Find the dependencies (tag `after`) that have ended, and release or stop their dependents.

A dependency in the cluster's state is alive. Any other dependency has ended, or is waiting beyond the policy's
`window`. This process remembers the ends that it has recorded. For the other dependencies, the cycle reads at most
`MOST_LOOKED_UP` records in one step. An ended job does not notify its dependents, because a message could be lost. A
cycle without dependents reads nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import islice

from job_queue.adapters.metadata import Lease
from job_queue.controller.part import Backend, ControllerPart
from job_queue.domain import state_machine
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.job import Dependency, Job, JobRecord
from job_queue.domain.state_machine import JobTransition
from job_queue.scheduler import JobState

MOST_LOOKED_UP = 25  # records read in one step; other records are read in later steps and cycles
MOST_REMEMBERED = 20_000  # number of names, and of owners, whose last look-up is remembered
LEVELS = 20  # levels of dependents of dependents that are stopped in one cycle

Ends = dict[Dependency, JobState | None]
"""The final states of ended dependencies; None: the state is not known any more."""


class Dependencies(ControllerPart):
    """The release and the stop of dependents, for the holder of the lease."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._lookups = Lookups()

    def settle(self, lease: Lease, cluster: ClusterState) -> tuple[ClusterState, bool]:
        """Record the transitions of dependents, then those of the stopped jobs' own dependents, and so on.

        Return the state with these changes, and whether another cycle may find more.
        """
        tried: set[str] = set()
        for _ in range(LEVELS):
            dependents = [job for job in cluster.waiting.values() if job.after and job.name not in tried]
            transitions = self.transitions(dependents, cluster)
            tried |= {transition.old.name for transition in transitions}
            recorded = self._record_all(lease, transitions, "dependents")
            cluster = cluster.with_waiting_changed(transition.new for transition in recorded)
            if not any(transition.new.state.finished for transition in recorded):
                return cluster, False
        return cluster, True

    def transitions(self, jobs: Iterable[Job], cluster: ClusterState) -> list[JobTransition]:
        """Return a transition for each of these jobs with at least one ended dependency."""
        now = self._clock()
        unrecorded = cluster.unrecorded(now)
        dependents = [job for job in jobs if job.after and job.state.waits and job.name not in unrecorded]
        if not dependents:
            return []
        ends = self._ends(dependents, cluster)
        return [
            state_machine.dependencies_ended(job, {it: ends[it] for it in job.after if it in ends}, now)
            for job in dependents
            if any(it in ends for it in job.after)
        ]

    def _ends(self, dependents: Iterable[Job], cluster: ClusterState) -> Ends:
        """Return the dependencies that are known to have ended, after at most `MOST_LOOKED_UP` reads."""
        live = {(job.name, job.submission) for job in (*cluster.active.values(), *cluster.waiting.values())}
        ends: Ends = {}
        unseen: dict[Dependency, None] = {}
        names: defaultdict[str, dict[str, None]] = defaultdict(dict)  # names to look up, by owner of the dependents
        for job in dependents:
            for it in job.after:
                recorded = self._repository.recorded_ends.state(it.job, it.submission)
                if recorded is not None:
                    ends[it] = recorded
                elif (it.job, it.submission) in live:
                    self._lookups.forget(it.job)
                else:
                    unseen[it] = None
                    names[job.owner][it.job] = None
        looked_up = self._lookups.choose(names, self._clock())
        found = self._parallel([partial(self._repository.record, name) for name in looked_up]) if looked_up else []
        records = dict(zip(looked_up, found, strict=True))
        for it in unseen:
            if it.job in records and not _is_alive(it, records[it.job]):
                ends[it] = _final_state(it, records[it.job])
        return ends


class Lookups:
    """The choice of records to look up. The look-ups are shared fairly between the owners of dependents."""

    def __init__(self) -> None:
        self._last_by_name: dict[str, int] = {}  # name -> number of its last look-up
        self._last_by_owner: dict[str, int] = {}
        self._count = 0

    def forget(self, name: str) -> None:
        """Forget the last look-up of a live job, so that the job is looked up early after it has left the state."""
        self._last_by_name.pop(name, None)

    def choose(self, names: Mapping[str, Iterable[str]], now: float) -> list[str]:
        """Return at most `MOST_LOOKED_UP` names, one per owner in turn: new names first, then the oldest look-ups.

        A name is looked up again only if its job was alive. So jobs that were not looked up are likelier to have ended.
        A new process remembers no look-ups, so it begins at another position of the sorted names in each minute.

        :param names: owner of dependents -> names of their dependencies.
        """
        minute = int(now / 60)
        entries: list[tuple[int, int, int, str, str]] = []
        for owner, wanted in names.items():
            queue = _rotated(sorted(wanted), minute * MOST_LOOKED_UP)
            queue.sort(key=lambda name: self._last_by_name.get(name, 0))
            served = self._last_by_owner.get(owner, 0)
            entries += [(turn, served, len(queue), owner, name) for turn, name in enumerate(queue)]
        chosen: dict[str, None] = {}
        for *_, owner, name in sorted(entries):
            if len(chosen) == MOST_LOOKED_UP:
                break
            if name not in chosen:
                chosen[name] = None
                self._note(owner, name)
        return list(chosen)

    def _note(self, owner: str, name: str) -> None:
        self._count += 1
        for numbers, key in ((self._last_by_owner, owner), (self._last_by_name, name)):
            numbers.pop(key, None)  # keeps the mapping in the order of the look-ups, oldest first
            numbers[key] = self._count
            for oldest in list(islice(numbers, max(0, len(numbers) - MOST_REMEMBERED))):
                del numbers[oldest]


def _rotated(names: list[str], by: int) -> list[str]:
    first = by % max(1, len(names))
    return [*names[first:], *names[:first]]


def has_dependents(jobs: Iterable[Job], cluster: ClusterState) -> bool:
    """Return whether one of these jobs has finished and is a dependency of a job in the cluster's state."""
    ended = {job.name for job in jobs if job.state.finished}
    return bool(ended) and any(it.job in ended for job in cluster.waiting.values() for it in job.after)


def _is_alive(dependency: Dependency, record: JobRecord | None) -> bool:
    return record is not None and record.job.submission == dependency.submission and not record.job.state.finished


def _final_state(dependency: Dependency, record: JobRecord | None) -> JobState | None:
    """Return the final state of a dependency, or None if its record is gone or belongs to another submission."""
    return record.job.state if record is not None and record.job.submission == dependency.submission else None
