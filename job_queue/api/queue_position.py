"""The positions of waiting jobs in the queue, and the reasons why these jobs wait."""

from collections.abc import Sequence
from datetime import datetime

from api_contract.models import Expectation, Reason, Why
from job_queue.api.expectations import ask_again_after, expectation, rounded
from job_queue.domain.expectations.outlook import Outlook
from job_queue.domain.expectations.published_plan import PublishedPlan
from job_queue.domain.job import Job, epoch
from job_queue.scheduler import (
    UNTIL_POLICY_CHANGES,
    WITHOUT_POSITION,
    Hold,
    JobState,
    WaitReason,
    join,
    sentence,
    time_text,
)


class QueuePosition:
    """The positions of waiting jobs and the reasons why these jobs wait, according to a plan.

    :param plan: usually the last published plan.
    :param outlook: expected starts and ends of live jobs, and the jobs with idle GPUs.
    """

    def __init__(self, plan: PublishedPlan, outlook: Outlook | None = None) -> None:
        waiting = [hold.job for hold in plan.holds if hold.reason not in WITHOUT_POSITION]
        self._positions = {job: position for position, job in enumerate(waiting, start=1)}
        self._holds: dict[str, Hold] = {hold.job: hold for hold in plan.holds}
        self._plan = plan
        self._outlook = outlook or Outlook()

    def position(self, job: Job) -> int | None:
        """Return a job's place among the waiting jobs, from 1; None if the job has no place.

        A job has no place if it does not wait, or if the plan has no `Hold` for it. A job also has no place if its
        reason to wait does not depend on the order, such as a dependency or a hold by a user.
        """
        return self._positions.get(job.name) if job.state.waits else None

    def expectation(self, job: Job) -> Expectation | None:
        """Return the expected start of a waiting job; None if it is not known.

        The start is known only if the plan has a `Hold` (reason to wait) for the job, the outlook has an estimate for
        it, and no user holds the job. An estimate that was made while a user held the job is not used.
        """
        outlook = self._outlook
        is_planned = job.name in self._holds and job.state.waits and not job.held
        found = outlook.interval(job) if is_planned else None
        if found is not None and outlook.estimates[job.name].reason is WaitReason.HELD_BY_USER:
            return None  # a user held the job when the estimate was made
        if found is None:
            return None
        read_at = outlook.at if outlook.read_at is None else outlook.read_at
        return expectation(outlook.estimates[job.name], found, outlook.at, read_at)

    def ask_again_after(self, job: Job) -> int | None:
        """Return the seconds after which a client should request a waiting job again; None: no suggestion."""
        if not job.state.waits or not self._plan.has_seen(job):
            return None
        estimate = self._outlook.estimates.get(job.name)
        return ask_again_after(epoch(job.since), estimate.start if estimate else None, self._plan.read_at)

    def expected_end(self, job: Job) -> datetime | None:
        """Return the expected end of a live job; None if the end is unknown or the outlook is too old."""
        return rounded(self._outlook.end(job))

    def idle_since(self, job: Job) -> datetime | None:
        """Return the time since which a job's GPUs are idle; None if they are in use or this is not known."""
        return rounded(self._outlook.idle_since(job, self._outlook.read_at))

    def unsaved_since(self, job: Job) -> datetime | None:
        """Return since when a job runs without a checkpoint; None if it has a checkpoint or this is not known."""
        return rounded(self._outlook.unsaved_since(job, self._outlook.read_at))

    def unschedulable_message(self, job: Job) -> str | None:
        """Return why a job cannot start until the policy changes; None if the plan has no such reason."""
        hold = self._holds.get(job.name)
        return hold.message if hold and hold.reason in UNTIL_POLICY_CHANGES else None

    def reason(self, job: Job) -> Reason | None:
        """Return why a job waits, failed or was stopped; None for other jobs."""
        if job.state in (JobState.FAILED, JobState.STOPPED):
            return Reason(job.state.value.upper(), job.reason or "")
        if not job.state.waits:
            return None
        reason = self._reason_to_wait(job)
        return Reason(reason.code, f"{reason.message} {self._plan.age}") if self._plan.age else reason

    def _reason_to_wait(self, job: Job) -> Reason:
        if (hold := self._holds.get(job.name)) and self._plan.has_seen(job):
            last = (
                f" The last try: {sentence(job.reason)}"
                if hold.reason is WaitReason.BACKOFF and job.reason and job.reason not in hold.message
                else ""
            )
            return Reason(hold.reason.value, hold.message + last)
        return self._reason_without_hold(job)

    def _reason_without_hold(self, job: Job) -> Reason:
        """Return why a job waits if the plan has no `Hold` for the job, or if the job has changed since the plan."""
        if job.name in self._plan.unrecorded:
            message = "The queue cannot store its next state, so plans leave it out. Cancel it and submit it again."
            return Reason("NOT_RECORDED", message)
        if (recorded := _recorded_reason(job)) is not None:
            return recorded
        if job.reason is None and not self._plan.has_seen(job):
            message = "The queue has not planned since the job was submitted or changed. It plans every minute."
            return Reason("NOT_PLANNED_YET", message)
        return self._reason_after_plan(job)

    def _reason_after_plan(self, job: Job) -> Reason:
        """Return why a job waits that is neither parked nor a dependent, and has no current `Hold` in the plan."""
        starts = job.name in self._plan.starting
        if job.waiting_queue in self._plan.truncated_queues and not starts:
            window = self._plan.window
            ahead = f"the first {window} jobs" if window > 1 else "the first job"
            message = f"It waits behind {ahead} of its waiting queue. Plans look no further (window in the policy)."
            return Reason("BEYOND_WINDOW", message)
        if job.reason is not None:  # the last launch was refused, or the last attempt failed
            return Reason(WaitReason.BACKOFF.value, _tried_again_message(job.reason, refused=job.refused is not None))
        if self._plan.left_out and not starts:
            message = "It waits. Too many jobs wait to store each reason; smq why computes it."
            return Reason("NOT_LISTED", message)
        return Reason("STARTING_SOON", "It starts within a minute.")

    def why(self, job: Job, advice: Sequence[str]) -> Why | None:
        """Return the jobs ahead of a waiting job, its blockers, and advice; None without a `Hold` in the plan."""
        hold = self._holds.get(job.name) if job.state.waits else None
        return Why(tuple(hold.ahead), tuple(hold.blockers), tuple(advice)) if hold else None


def _recorded_reason(job: Job) -> Reason | None:
    """Return the reason to wait of a parked job or a dependent, from its own record; None for other jobs.

    Such a job may have no `Hold` in the plan.
    """
    if job.parked is not None and job.held:
        return Reason(WaitReason.HELD_BY_USER.value, "It is on hold: it starts only after it is released.")
    if job.parked is not None and job.parked_for == WaitReason.NOT_BEFORE and job.not_before is not None:
        message = f"It may not start before {time_text(job.not_before)} (tag not_before)."
        return Reason(WaitReason.NOT_BEFORE.value, message)
    if job.after:
        waits_for = join([f"{it.job} to {'end' if it.any_outcome else 'complete'}" for it in job.after])
        return Reason(WaitReason.DEPENDENCY.value, f"Waits for {waits_for}.")
    if job.parked is not None and job.parked_for == WaitReason.GROUP_LIMIT:
        message = f"Its group {job.group} has as many active jobs as its tag max_parallel allows."
        return Reason(WaitReason.GROUP_LIMIT.value, message)
    if job.parked is not None and job.parked_for == WaitReason.OVER_BUDGET:
        message = "The hard budget of its project, or of its owner in this project, is spent. The next check is at"
        return Reason(WaitReason.OVER_BUDGET.value, f"{message} {time_text(job.parked)}.")
    return None if job.parked is None else Reason(WaitReason.BACKOFF.value, _parked_message(job))


def _tried_again_message(reason: str, *, refused: bool) -> str:
    """Return the message that the queue tries a job again, with the reason of the last refusal or failure.

    :param refused: whether SageMaker refused the last launch. Otherwise the last attempt failed.
    """
    if not refused:
        return f"The queue tries again within a minute. The last try: {sentence(reason)}"
    return f"SageMaker refused its last launch. {sentence(reason)} The queue tries again within a minute."


def _parked_message(job: Job) -> str:
    last = f" The last try: {sentence(job.reason)}" if job.reason else ""
    return f"It could not start at the last check. The next check is at {time_text(job.parked or 0)}.{last}"
