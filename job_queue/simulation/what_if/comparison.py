"""Compare two policies, or other capacities, on the live queue: changed starts, evictions and waits."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from job_queue.scheduler import Evict, Hold, JobState, Plan, Slots, Snapshot, Start, WaitingJob, WaitReason, plan
from job_queue.simulation.forecast_input import ForecastInput
from job_queue.simulation.what_if.futures import PairedFutures, Starts

NOTICEABLE = 300.0  # smallest reported difference of a wait, in seconds; futures have steps of at least this size
NOTICEABLE_PART = 0.1  # smallest reported difference as a part of the shorter wait; the larger of both limits applies


@dataclass(frozen=True, slots=True)
class UnstartableJob:
    """A waiting job that could start on an idle fleet under the policy in force, but not under the other policy."""

    job: str
    project: str
    reason: WaitReason
    message: str


@dataclass(frozen=True, slots=True)
class WaitChange:
    """A waiting job that waits noticeably longer or shorter. Starts are epoch seconds."""

    job: str
    project: str
    before: float  # start under the policy in force; inf: never, or after the horizon
    after: float  # start under the other policy

    @property
    def difference(self) -> float:
        """The seconds by which the wait becomes longer; negative if the wait becomes shorter."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class ProjectFigures:
    """The figures of a project under both policies."""

    project: str
    waiting: int  # number of waiting jobs
    known: int  # waiting jobs that no user holds, and whose start is known, or known to be after the horizon
    wait_before: float | None  # mean wait of the `known` jobs from now on, in seconds; each at most the horizon
    wait_after: float | None  # the same under the other policy
    used_before: Slots  # slots in use after the present plan is carried out; reserved slots count as used
    used_after: Slots  # the same under the other policy


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """The differences of another policy from the policy in force.

    `starts`, `kept_waiting` and `evictions` compare the present plans under both policies.
    """

    starts: tuple[Start, ...]
    kept_waiting: tuple[str, ...]  # jobs that start now under the policy in force, but not under the other policy
    evictions: tuple[Evict, ...]
    unstartable: tuple[UnstartableJob, ...]
    waits: tuple[WaitChange, ...]  # the largest change first; jobs in `starts` are left out
    projects: tuple[ProjectFigures, ...]
    waiting: int  # all waiting jobs
    known: int  # waiting jobs whose start is known under both policies, or known to be after the horizon
    futures: int  # number of simulated futures
    all_examined: bool  # whether there was time to examine all jobs for `unstartable`


def compare(
    before: ForecastInput,
    after: ForecastInput,
    horizon: float,
    may_go_on: Callable[[], bool] = lambda: True,
    on_progress: Callable[[float], None] = lambda done: None,
) -> PolicyComparison:
    """Compare two policies on the same jobs.

    :param before: the queue under the policy in force.
    :param after: the same jobs, runtimes and arrivals under another policy.
    :param horizon: seconds from now that are simulated; 0: only the present plans are compared.
    :param may_go_on: called before each slow step. After False, the comparison contains the results so far.
    :param on_progress: called with the finished part of the first future. An error that this function raises ends the
        comparison.
    """
    now, then = plan(before.snapshot), plan(after.snapshot)
    starts_now, starts_then = set(now.started), set(then.started)
    evicted_now = {(evict.job, evict.claimant) for evict in now.evictions}
    futures = PairedFutures(before, after, horizon, may_go_on, on_progress)
    if horizon > 0:
        futures.simulate(1)  # comes first, so that on_progress can end a slow comparison early
    unstartable, all_examined = _newly_unstartable(before.snapshot, after.snapshot, starts_then, may_go_on)
    if horizon > 0:
        futures.simulate()
    expected = futures.starts()
    known = expected.before.keys() & expected.after.keys()
    return PolicyComparison(
        starts=tuple(Start(name, slots) for name, slots in then.started.items() if name not in starts_now),
        kept_waiting=tuple(name for name in now.started if name not in starts_then),
        evictions=tuple(evict for evict in then.evictions if (evict.job, evict.claimant) not in evicted_now),
        unstartable=unstartable,
        waits=_changed_waits(before.snapshot, expected, starts_then - starts_now),
        projects=tuple(_figures(before.snapshot, after.snapshot, now, then, expected, horizon)),
        waiting=len(before.snapshot.waiting),
        known=sum(job.name in known for job in before.snapshot.waiting),
        futures=expected.futures,
        all_examined=all_examined,
    )


# --- jobs that cannot start -------------------------------------------------------------------------


def _newly_unstartable(
    before: Snapshot, after: Snapshot, starting: set[str], may_go_on: Callable[[], bool]
) -> tuple[tuple[UnstartableJob, ...], bool]:
    as_before = {job.name: job for job in before.waiting}
    found: list[UnstartableJob] = []
    known: dict[object, Hold | None] = {}
    for job in after.waiting:
        if job.name in starting:
            continue
        same = (_needs(job), _needs(as_before[job.name]))
        if same not in known:
            if not may_go_on():
                return tuple(found), False
            hold = _hold_on_an_idle_fleet(after, job)
            known[same] = hold if hold and not _hold_on_an_idle_fleet(before, as_before[job.name]) else None
        hold = known[same]
        if hold:
            found.append(UnstartableJob(job.name, job.project, hold.reason, hold.message))
    return tuple(found), True


def _needs(job: WaitingJob) -> object:
    """Return all attributes that decide whether a job starts on an idle fleet."""
    demand = tuple(tuple(sorted(need.items())) for need in job.demand)
    limit = None if job.max_preemptions is None else (job.max_preemptions, job.preempted_in_all, job.preemptions)
    return job.project, job.owner, demand, job.preemptible, limit, job.interactive, job.kinds, job.gpus


def _hold_on_an_idle_fleet(snapshot: Snapshot, job: WaitingJob) -> Hold | None:
    """Return why a job would wait even without other jobs, in idle pools, and without delays such as a user's hold.

    Return None if the job would start.
    """
    free = replace(job, held=False, backoff_until=None, not_before=None, after=(), more_wait=False, max_runtime=None)
    empty = replace(snapshot, active=(), carriers=(), external={}, reserved={}, paused={}, calendars={}, drains={})
    decided = plan(replace(empty, waiting=(free,)))
    return None if decided.started else decided.holds[0]


# --- changed waits ----------------------------------------------------------------------------------


def _changed_waits(snapshot: Snapshot, expected: Starts, reported: set[str]) -> tuple[WaitChange, ...]:
    changed = [
        WaitChange(job.name, job.project, expected.before[job.name], expected.after[job.name])
        for job in snapshot.waiting
        if job.name in expected.before and job.name in expected.after and job.name not in reported
    ]
    noticeable = [wait for wait in changed if _is_noticeable(wait, snapshot.now)]
    return tuple(sorted(noticeable, key=lambda wait: (-abs(wait.difference), wait.job)))


def _is_noticeable(wait: WaitChange, now: float) -> bool:
    if wait.before == wait.after:  # includes the case that both are after the horizon
        return False
    return abs(wait.difference) >= max(NOTICEABLE, NOTICEABLE_PART * (min(wait.before, wait.after) - now))


# --- projects ---------------------------------------------------------------------------------------


def _figures(
    before: Snapshot, after: Snapshot, now: Plan, then: Plan, expected: Starts, horizon: float
) -> Iterator[ProjectFigures]:
    names = dict.fromkeys(project.name for it in (after, before) for project in it.policy.projects)
    used_before, used_after = _used(before, now), _used(after, then)
    held = {hold.job for hold in now.holds if hold.reason is WaitReason.HELD_BY_USER}  # no policy starts these jobs
    for name in names:
        waiting = [job.name for job in before.waiting if job.project == name]
        known = [it for it in waiting if it in expected.before and it in expected.after and it not in held]
        yield ProjectFigures(
            name,
            len(waiting),
            len(known),
            _mean_wait(expected.before, known, before.now, horizon),
            _mean_wait(expected.after, known, before.now, horizon),
            used_before.get(name, {}),
            used_after.get(name, {}),
        )


def _mean_wait(starts: Mapping[str, float], jobs: list[str], now: float, horizon: float) -> float | None:
    if not jobs:
        return None
    return sum(min(max(0.0, starts[job] - now), horizon) for job in jobs) / len(jobs)


def _used(snapshot: Snapshot, decided: Plan) -> dict[str, Counter[str]]:
    """Return the slots that each project uses after the plan is carried out. Reserved slots count as used."""
    used: dict[str, Counter[str]] = defaultdict(Counter)
    leaving = {evict.job for evict in decided.evictions} | set(decided.carriers_to_close)
    projects = {job.name: job.project for job in snapshot.active} | {job.name: job.project for job in snapshot.waiting}
    for active in snapshot.active:
        if active.name not in leaving and active.state is not JobState.STOPPING:
            used[active.project].update(active.slots)
    for carrier in snapshot.carriers:
        if carrier.name not in leaving and carrier.state is not JobState.STOPPING:
            used[carrier.project][carrier.pool] += 1
    for name, slots in decided.started.items():
        used[projects[name]].update(slots)
    for name, slots in decided.reservations.items():
        used[projects[name]].update(slots)
    return used
