"""The order of a project's waiting jobs: priority, aging, past use of owners, warm pools, then submission time."""

from collections import Counter

from job_queue.scheduler.documents.policy_schema import Order, Policy, Settings
from job_queue.scheduler.model import UNKNOWN_RUNTIME, ActiveJob, Snapshot, WaitingJob
from job_queue.scheduler.sharing.lately import Lately, Owner
from job_queue.scheduler.sharing.spending import Spending

WaitingKey = tuple[bool, int, float, bool, float, str]

INTERACTIVE_OFFSET = 1 << 40  # added to the priority of an interactive job to get its rank
LOWEST_INTERACTIVE = INTERACTIVE_OFFSET >> 1  # above all priorities, below the ranks of all interactive jobs
EMPTY_CARRIER_PRIORITY = -(10**9)  # below all priorities: the priority of a carrier without members

DEFAULT_SETTINGS = Settings()
OVERSPENT_OFFSET = 1e12  # slots, added to the use of an owner with a spent soft budget; more than any real use


def waiting_order(
    job: WaitingJob | ActiveJob,
    now: float = 0,
    settings: Settings = DEFAULT_SETTINGS,
    owner_use: float = 0.0,
    *,
    interactive_first: bool = False,
) -> WaitingKey:
    """Return the sort key of a job among the jobs of its project. The job with the smallest key is served first.

    The order: interactive jobs, highest priority, least use of the owner, match with a warm pool, earliest entry, name.

    With `aging`, each `aging` seconds of waiting raise the priority by one. Aging changes only the order: preemption
    compares priorities without aging.

    With Order.SHORTEST, the sort time is entry time + `stretch` x expected runtime. So a shorter job B passes an
    earlier job A if B enters less than `stretch` x (difference of their expected runtimes) after A. A job that enters
    more than `stretch` x (expected runtime of A) after A never passes A. Jobs with equal expected runtimes keep the
    order of their entry.

    :param owner_use: past and present use of the job's owner, in slots; 0 if use does not count.
    :param interactive_first: whether interactive jobs come first.
    """
    age_bonus = int(max(0.0, now - job.entered) // settings.aging) if settings.aging else 0
    is_not_warm = not (isinstance(job, WaitingJob) and job.warm)
    comes_last = not (interactive_first and job.interactive)
    return (comes_last, -job.priority - age_bonus, owner_use, is_not_warm, sort_time(job, settings), job.name)


def rank(job: WaitingJob, policy: Policy) -> int:
    """Return the priority with which a job preempts in its project.

    If the policy puts interactive jobs first, they rank above all priorities.
    """
    return job.priority + INTERACTIVE_OFFSET if job.interactive and policy.interactive.first else job.priority


def sort_time(job: WaitingJob | ActiveJob, settings: Settings) -> float:
    """Return the time by which jobs of equal priority are sorted, in epoch seconds.

    A job of equal priority that enters after this time does not pass the given job.
    """
    if settings.order is Order.SUBMISSION or not isinstance(job, WaitingJob):
        return job.entered
    return job.entered + settings.stretch * expected_runtime(job)


def expected_runtime(job: WaitingJob) -> float:
    """Return the assumed runtime of a job in seconds: its prediction or its maximum, whichever is smaller.

    Without either, return UNKNOWN_RUNTIME.
    """
    if job.expected is None:
        return UNKNOWN_RUNTIME if job.max_runtime is None else job.max_runtime
    return job.expected if job.max_runtime is None else min(job.expected, job.max_runtime)


class WaitingOrder:
    """Order of a snapshot's waiting jobs. Calling an instance with a job returns the job's sort key.

    If past use counts (`usage_half_life`), jobs of one priority are ordered by the use of their owners. The use of an
    owner is a sum of slots: the average held lately, the slots held now, and the slots that the owner's earlier waiting
    jobs need. So owners with equal use take turns, and an owner with more use waits until the others have caught up.
    Owners with a spent soft budget come last.
    """

    def __init__(self, snapshot: Snapshot, lately: Lately | None, spending: Spending) -> None:
        self._now = snapshot.now
        self._settings = snapshot.policy.settings
        self._interactive_first = snapshot.policy.interactive.first
        self._owner_use: dict[str, float] = {}
        if lately or any(project.owner_budget for project in snapshot.policy.projects):
            ahead: Counter[Owner] = Counter()
            for job in sorted(snapshot.waiting, key=self):
                owner = job.project, job.owner
                owner_use = lately.owners.get(owner, 0.0) + ahead[owner] if lately else 0.0
                self._owner_use[job.name] = owner_use + OVERSPENT_OFFSET * spending.is_owner_overspent(*owner)
                if job.demand and not (job.held or job.after or spending.forbidding_account(job)):
                    ahead[owner] += sum(job.demand[0].values())

    def __call__(self, job: WaitingJob) -> WaitingKey:
        """Return the sort key of a job. The job with the smallest key is served first."""
        owner_use = self._owner_use.get(job.name, 0.0)
        return waiting_order(job, self._now, self._settings, owner_use, interactive_first=self._interactive_first)
