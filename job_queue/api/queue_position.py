"""Where each waiting job stands in the queue, and why it waits."""

from collections.abc import Sequence
from datetime import datetime

from api_contract.models import Expectation, Why
from api_contract.models import Reason as Explanation
from job_queue.api.expectations import ask_again_after, expectation, rounded
from job_queue.domain.expectations.outlook import Outlook
from job_queue.domain.expectations.published_plan import PublishedPlan
from job_queue.domain.job import Job, epoch
from job_queue.scheduler import Hold, Reason, clock, join, sentence
from job_queue.scheduler.model import JobState

_WITHOUT_POSITION = frozenset(
    {
        Reason.HELD_BY_USER,
        Reason.DEPENDENCY,
        Reason.NO_SUCH_POOL,
        Reason.NEVER_FITS,
        Reason.OVER_BUDGET,
        Reason.GROUP_LIMIT,
        Reason.OWNER_LIMIT,
    }
)
_UNSCHEDULABLE = frozenset({Reason.NO_SUCH_POOL, Reason.NEVER_FITS})


class QueuePosition:
    """Where each waiting job stands, and why it waits, as it was planned last.

    :param outlook: what is expected of live jobs.
    """

    def __init__(self, plan: PublishedPlan, outlook: Outlook | None = None) -> None:
        waiting = [hold.job for hold in plan.holds if hold.reason not in _WITHOUT_POSITION]
        self._positions = {job: position for position, job in enumerate(waiting, start=1)}
        self._holds: dict[str, Hold] = {hold.job: hold for hold in plan.holds}
        self._plan = plan
        self._outlook = outlook or Outlook()

    @classmethod
    def nowhere(cls) -> "QueuePosition":
        """Return the position of a job that does not wait."""
        return cls(PublishedPlan())

    def position(self, job: Job) -> int | None:
        """Its place among the jobs that wait, 1 is the next; None if it does not wait or is too far behind to say."""
        return self._positions.get(job.name) if job.state.waits else None

    def expectation(self, job: Job) -> Expectation | None:
        """When it is expected to start; None if it does not wait, or nobody has looked ahead lately."""
        estimate = self._outlook.estimates.get(job.name) if job.name in self._holds and job.state.waits else None
        return expectation(estimate, self._outlook.at) if estimate else None

    def ask_again_after(self, job: Job) -> int | None:
        """Return for how many seconds followers need not ask again; None if they decide themselves."""
        if not job.state.waits or not self._plan.has_seen(job):
            return None
        estimate = self._outlook.estimates.get(job.name)
        return ask_again_after(epoch(job.since), estimate.start if estimate else None, self._plan.asked)

    def expected_end(self, job: Job) -> datetime | None:
        """When it is expected to end; None if nobody can tell, or nobody has looked ahead lately."""
        return rounded(self._outlook.end(job))

    def idle_since(self, job: Job) -> datetime | None:
        """Since when it holds instances whose GPUs do nothing; None if they work, or nobody knows."""
        return rounded(self._outlook.idle_since(job, self._outlook.asked))

    def never_starts(self, job: Job) -> str | None:
        """Why the job would wait for ever, if it would."""
        hold = self._holds.get(job.name)
        return hold.message if hold and hold.reason in _UNSCHEDULABLE else None

    def reason(self, job: Job) -> Explanation | None:
        """Why it waits, or why it ended; None where there is nothing to explain."""
        if job.state in (JobState.FAILED, JobState.STOPPED):
            return Explanation(job.state.value.upper(), job.reason or "")
        if not job.state.waits:
            return None
        reason = self._waits(job)
        return Explanation(reason.code, f"{reason.message} {self._plan.age}") if self._plan.age else reason

    def _waits(self, job: Job) -> Explanation:
        if (hold := self._holds.get(job.name)) and self._plan.has_seen(job):
            last = (
                f" (last: {job.reason})"
                if hold.reason is Reason.BACKOFF and job.reason and job.reason not in hold.message
                else ""
            )
            return Explanation(hold.reason.value, hold.message + last)
        return self._not_planned(job)

    def _not_planned(self, job: Job) -> Explanation:
        """Why a job waits that the plan does not hold."""
        if job.name in self._plan.unrecorded:
            message = "What becomes of it cannot be stored, so it is left out. Cancel it and submit it again."
            return Explanation("NOT_RECORDED", message)
        if (kept_back := _kept_back(job)) is not None:
            return kept_back
        if job.reason is None and not self._plan.has_seen(job):
            message = "The queue has not planned since it was submitted or changed; it plans at least once a minute."
            return Explanation("NOT_PLANNED_YET", message)
        return self._not_held(job)

    def _not_held(self, job: Job) -> Explanation:
        """Why a job waits that was planned, and is not kept waiting by the plan."""
        starts = job.name in self._plan.starting
        if job.waiting_queue in self._plan.cut and not starts:
            window = self._plan.window
            ahead = f"the first {window} jobs" if window > 1 else "the first job"
            message = f"Waits behind {ahead} of its queue: a cycle looks no further (the policy's window)."
            return Explanation("BEYOND_WINDOW", message)
        if job.reason is not None:  # its last launch was refused, or its last attempt failed
            return Explanation(Reason.BACKOFF.value, _tried_again_message(job.reason, refused=job.refusals > 0))
        if self._plan.left_out and not starts:
            return Explanation("NOT_LISTED", "It waits. So many jobs wait that its reason is not kept: smq why asks.")
        return Explanation("STARTING_SOON", "It starts within a minute.")

    def why(self, job: Job, advice: Sequence[str]) -> Why | None:
        """What is ahead of a waiting job, who blocks it, and what would change that."""
        hold = self._holds.get(job.name) if job.state.waits else None
        return Why(tuple(hold.ahead), tuple(hold.blockers), tuple(advice)) if hold else None


def _kept_back(job: Job) -> Explanation | None:
    """Why a job waits that is behind the window, as far as it says so itself."""
    if job.parked is not None and job.held:
        return Explanation(Reason.HELD_BY_USER.value, "It is held: it starts only once it is released.")
    if job.after:
        waits_for = join([f"{it.job} to {'end' if it.any_outcome else 'complete'}" for it in job.after])
        return Explanation(Reason.DEPENDENCY.value, f"Waits for {waits_for}.")
    if job.parked is not None and job.parked_for == Reason.GROUP_LIMIT:
        message = f"Jobs of its group {job.group} come first, and only so many may be active at a time (max_parallel)."
        return Explanation(Reason.GROUP_LIMIT.value, message)
    if job.parked is not None and job.parked_for == Reason.OVER_BUDGET:
        message = "A hard budget is spent, its project's or its owner's in it; it is looked at again at"
        return Explanation(Reason.OVER_BUDGET.value, f"{message} {clock(job.parked)}.")
    return None if job.parked is None else Explanation(Reason.BACKOFF.value, _parked_message(job))


def _tried_again_message(reason: str, *, refused: bool) -> str:
    """Say that the next cycle tries a job again, with what SageMaker said the last time."""
    if not refused:
        return f"It is tried again within a minute (last: {reason})."
    return f"SageMaker refused its last launch. {sentence(reason)} It is tried again within a minute."


def _parked_message(job: Job) -> str:
    last = f" (last: {job.reason})" if job.reason else ""
    again = clock(job.parked or 0)
    return f"It could not start when it was last looked at, and is looked at again at {again}{last}."
