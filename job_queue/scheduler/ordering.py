"""Whose turn it is among the waiting jobs of a project."""

from collections import Counter

from job_queue.scheduler.model import ActiveJob, Order, Policy, Settings, Snapshot, WaitingJob
from job_queue.scheduler.sharing.lately import Lately, Owner
from job_queue.scheduler.sharing.spending import Spending

WaitingKey = tuple[bool, int, float, bool, float, str]

ABOVE_ALL = 1 << 40  # what the rank of an interactive job is above its priority
LOWEST_INTERACTIVE = ABOVE_ALL >> 1  # above all priorities, and below the ranks of all interactive jobs

DEFAULTS = Settings()
UNKNOWN_RUNTIME = 24 * 3600.0  # seconds, of a job of which nothing is known: SageMaker's own MaxRuntimeInSeconds
LAST = 1e12  # slots, behind all owners whose budget is not spent


def waiting_order(
    job: WaitingJob | ActiveJob,
    now: float = 0,
    settings: Settings = DEFAULTS,
    behind: float = 0.0,
    *,
    first: bool = False,
) -> WaitingKey:
    """Who of a project is served first: interactive jobs, then highest priority, then whose owner has held less, then
    whom warm instances fit, then longest in the queue, then name.

    With `aging`, waiting raises a job's place by a priority for each so many seconds. Only its place: preempting
    compares nominal priorities.

    By order of shortest, a job is as if it had come later by `stretch` times its expected runtime. So it is passed by
    nobody who comes later than that: one job passes another if it comes before `stretch` times what the other is
    expected to run longer has gone by. And for as long as all are expected to run for the same time, who came first is
    first.

    :param behind: how far its owner has come; 0 where nobody counts that.
    :param first: whether interactive jobs come first.
    """
    raised = int(max(0.0, now - job.entered) // settings.aging) if settings.aging else 0
    cold = not (isinstance(job, WaitingJob) and job.warm)
    last = not (first and job.interactive)
    return (last, -job.priority - raised, behind, cold, place_in_time(job, settings), job.name)


def rank(job: WaitingJob, policy: Policy) -> int:
    """Return the priority with which a job preempts jobs of its project: an interactive one stands above all others."""
    return job.priority + ABOVE_ALL if job.interactive and policy.interactive.first else job.priority


def place_in_time(job: WaitingJob | ActiveJob, settings: Settings) -> float:
    """Since when a job waits, for its place among those of its priority; nobody who comes after that passes it."""
    if settings.order is Order.SUBMISSION or not isinstance(job, WaitingJob):
        return job.entered
    return job.entered + settings.stretch * expected_runtime(job)


def expected_runtime(job: WaitingJob) -> float:
    """For how long it is taken to run: as predicted, and no longer than it may. Nothing known: as long as it may."""
    if job.expected is None:
        return UNKNOWN_RUNTIME if job.max_runtime is None else job.max_runtime
    return job.expected if job.max_runtime is None else min(job.expected, job.max_runtime)


class WaitingOrder:
    """The order of a snapshot's waiting jobs, as a key of each.

    Where past use counts, jobs of one priority are compared by what their owners have held lately, hold, and would hold
    with those of their own jobs that come before: so equals take turns, and who has had more waits until the others
    have caught up. Owners whose soft budget is spent come last.
    """

    def __init__(self, snapshot: Snapshot, lately: Lately | None, spending: Spending) -> None:
        self._now = snapshot.now
        self._settings = snapshot.policy.settings
        self._first = snapshot.policy.interactive.first
        self._behind: dict[str, float] = {}
        if lately or any(project.owner_budget for project in snapshot.policy.projects):
            ahead: Counter[Owner] = Counter()
            for job in sorted(snapshot.waiting, key=self):
                owner = job.project, job.owner
                behind = lately.owners.get(owner, 0.0) + ahead[owner] if lately else 0.0
                self._behind[job.name] = behind + LAST * spending.comes_last(*owner)
                if job.demand and not (job.held or job.after or spending.forbids(job)):
                    ahead[owner] += sum(job.demand[0].values())

    def __call__(self, job: WaitingJob) -> WaitingKey:
        """Who has the smallest one is served first."""
        return waiting_order(job, self._now, self._settings, self._behind.get(job.name, 0.0), first=self._first)
