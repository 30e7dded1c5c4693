"""Observers are notified of what the queue has recorded: the log, the metrics, the notifications.

The queue does not depend on them: what an observer raises is logged.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from job_queue.adapters.telemetry import log
from job_queue.domain.cluster_state import ProjectLoad
from job_queue.domain.job import Job
from job_queue.domain.policy import StoredPolicy
from job_queue.domain.state_machine import Transition
from job_queue.scheduler import Plan


class Observer:
    """Is notified of what has happened. This one ignores it."""

    def queued(self, job: Job) -> None:
        """A new job is stored."""

    def transitioned(self, transition: Transition) -> None:
        """A transition of a job is recorded."""

    def cycle_ended(self, plan: Plan, loads: Mapping[str, ProjectLoad], seconds: float, lasting_refusals: int) -> None:
        """A cycle has ended.

        :param plan: its plan.
        :param loads: project -> its live jobs after the cycle.
        :param seconds: its length.
        :param lasting_refusals: jobs and pools that SageMaker has refused for long.
        """

    def compared(self, seconds: float) -> None:
        """Take the time since a comparison of the records with SageMaker's list last succeeded, once per tick."""

    def idle(self, instances: Mapping[str, int]) -> None:
        """The queue has looked what the GPUs of jobs do.

        :param instances: pool -> how many that jobs hold do nothing, of pools with jobs that were looked at.
        """

    def policy_applied(self, policy: StoredPolicy, restored: int | None) -> None:
        """A policy is applied.

        :param restored: the earlier version that it is, if it is one.
        """

    def forged(self, training_job: str, claimed: str) -> None:
        """A training job has the queue's tags and no proof that the queue launched it.

        :param claimed: the job that its tags name.
        """

    def unrecorded(self, job: str) -> None:
        """A job cannot be recorded any more, and is planned without for a while."""

    def lease_was_held(self) -> None:
        """This invocation runs no cycle, as another one holds the lease."""


class Observers(Observer):
    """Notifies several observers; an error of one reaches neither the queue nor the others."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def queued(self, job: Job) -> None:
        """As `Observer` says."""
        self._notify(lambda observer: observer.queued(job))

    def transitioned(self, transition: Transition) -> None:
        """As `Observer` says."""
        self._notify(lambda observer: observer.transitioned(transition))

    def cycle_ended(self, plan: Plan, loads: Mapping[str, ProjectLoad], seconds: float, lasting_refusals: int) -> None:
        """As `Observer` says."""
        self._notify(lambda observer: observer.cycle_ended(plan, loads, seconds, lasting_refusals))

    def compared(self, seconds: float) -> None:
        """As `Observer` says."""
        self._notify(lambda observer: observer.compared(seconds))

    def idle(self, instances: Mapping[str, int]) -> None:
        """As `Observer` says."""
        self._notify(lambda observer: observer.idle(instances))

    def policy_applied(self, policy: StoredPolicy, restored: int | None) -> None:
        """As `Observer` says."""
        self._notify(lambda observer: observer.policy_applied(policy, restored))

    def forged(self, training_job: str, claimed: str) -> None:
        """As `Observer` says."""
        self._notify(lambda observer: observer.forged(training_job, claimed))

    def unrecorded(self, job: str) -> None:
        """As `Observer` says."""
        self._notify(lambda observer: observer.unrecorded(job))

    def lease_was_held(self) -> None:
        """As `Observer` says."""
        self._notify(lambda observer: observer.lease_was_held())

    def _notify(self, call: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                call(observer)
            except Exception as error:
                log.exception("observer failed", exc_info=error)


class TransitionLog(Observer):
    """Logs each transition, with its cause, and each cycle.

    The reason why each job waits is logged at LOG_LEVEL=DEBUG only: a line for each waiting job in every cycle.
    """

    def queued(self, job: Job) -> None:
        """As `Observer` says."""
        log.info("queued", job=job.name, project=job.project, priority=job.priority, owner=job.owner)

    def transitioned(self, transition: Transition) -> None:
        """As `Observer` says. A change without a cause is not logged."""
        if transition.cause is not None:
            old, new = transition.old, transition.new
            attempt = new.launched or old.launched
            log.info(
                "transition", job=new.name, was=old.state, state=new.state, attempt=attempt, cause=transition.cause
            )

    def cycle_ended(self, plan: Plan, loads: Mapping[str, ProjectLoad], seconds: float, lasting_refusals: int) -> None:
        """As `Observer` says."""
        for hold in plan.holds:
            log.debug("hold", job=hold.job, reason=hold.reason, why=hold.message)
        reasons = Counter(hold.reason.value for hold in plan.holds)
        starts, evictions = len(plan.begins), len(plan.evictions)
        log.info("cycle", starts=starts, evictions=evictions, waiting=reasons, seconds=round(seconds, 3))

    def policy_applied(self, policy: StoredPolicy, restored: int | None) -> None:
        """As `Observer` says."""
        log.info("policy applied", version=policy.version, by=policy.applied_by, restored=restored)

    def forged(self, training_job: str, claimed: str) -> None:
        """As `Observer` says."""
        log.warning("forged attempt", attempt=training_job, claimed=claimed)

    def lease_was_held(self) -> None:
        """As `Observer` says."""
        log.info("left to the holder of the lease")
