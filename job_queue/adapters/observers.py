"""Observers, which are notified of the queue's records: the log, the metrics, the notifications.

The queue does not depend on them: an exception of an observer is logged.
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
    """An observer of the queue. This one ignores all notifications; others override its methods."""

    def queued(self, job: Job) -> None:
        """Notify of a new job that is stored."""

    def transitioned(self, transition: Transition) -> None:
        """Notify of a transition of a job that is recorded."""

    def cycle_ended(self, plan: Plan, loads: Mapping[str, ProjectLoad], seconds: float, lasting_refusals: int) -> None:
        """Notify of the end of a cycle.

        :param plan: the cycle's plan.
        :param loads: project -> its live jobs after the cycle.
        :param seconds: duration of the cycle.
        :param lasting_refusals: number of jobs and pools that SageMaker has refused for long.
        """

    def compared(self, seconds: float) -> None:
        """Notify once per tick of the seconds since the last successful comparison with SageMaker's list."""

    def idle(self, instances: Mapping[str, int]) -> None:
        """Notify of a look-up of idle jobs.

        :param instances: pool -> idle instances of jobs, for pools with jobs that were looked up.
        """

    def policy_applied(self, policy: StoredPolicy, restored: int | None) -> None:
        """Notify of a new policy.

        :param restored: the earlier version that was restored; None: a new document.
        """

    def forged(self, training_job: str, claimed: str) -> None:
        """Notify of a training job that has the queue's tags and no proof that the queue launched it.

        :param claimed: the job that its tags name.
        """

    def unrecorded(self, job: str) -> None:
        """Notify of a job that cannot be recorded, and that plans leave out for a while."""

    def lease_was_held(self) -> None:
        """Notify of an invocation without a cycle, because another one holds the lease."""


class Observers(Observer):
    """A group of observers. An error of one reaches neither the queue nor the others."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def queued(self, job: Job) -> None:
        """Notify each observer."""
        self._notify(lambda observer: observer.queued(job))

    def transitioned(self, transition: Transition) -> None:
        """Notify each observer."""
        self._notify(lambda observer: observer.transitioned(transition))

    def cycle_ended(self, plan: Plan, loads: Mapping[str, ProjectLoad], seconds: float, lasting_refusals: int) -> None:
        """Notify each observer."""
        self._notify(lambda observer: observer.cycle_ended(plan, loads, seconds, lasting_refusals))

    def compared(self, seconds: float) -> None:
        """Notify each observer."""
        self._notify(lambda observer: observer.compared(seconds))

    def idle(self, instances: Mapping[str, int]) -> None:
        """Notify each observer."""
        self._notify(lambda observer: observer.idle(instances))

    def policy_applied(self, policy: StoredPolicy, restored: int | None) -> None:
        """Notify each observer."""
        self._notify(lambda observer: observer.policy_applied(policy, restored))

    def forged(self, training_job: str, claimed: str) -> None:
        """Notify each observer."""
        self._notify(lambda observer: observer.forged(training_job, claimed))

    def unrecorded(self, job: str) -> None:
        """Notify each observer."""
        self._notify(lambda observer: observer.unrecorded(job))

    def lease_was_held(self) -> None:
        """Notify each observer."""
        self._notify(lambda observer: observer.lease_was_held())

    def _notify(self, call: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                call(observer)
            except Exception as error:
                log.exception("observer failed", exc_info=error)


class TransitionLog(Observer):
    """The log of each transition, with its cause, and of each cycle.

    The reason why each job waits is logged only at LOG_LEVEL=DEBUG, because it is a line for each waiting job and
    cycle.
    """

    def queued(self, job: Job) -> None:
        """Log a new job (see `Observer`)."""
        log.info("queued", job=job.name, project=job.project, priority=job.priority, owner=job.owner)

    def transitioned(self, transition: Transition) -> None:
        """Log a transition (see `Observer`). A change without a cause is not logged."""
        if transition.cause is not None:
            old, new = transition.old, transition.new
            attempt = new.launched or old.launched
            log.info(
                "transition", job=new.name, was=old.state, state=new.state, attempt=attempt, cause=transition.cause
            )

    def cycle_ended(self, plan: Plan, loads: Mapping[str, ProjectLoad], seconds: float, lasting_refusals: int) -> None:
        """Log a cycle (see `Observer`)."""
        for hold in plan.holds:
            log.debug("hold", job=hold.job, reason=hold.reason, why=hold.message)
        reasons = Counter(hold.reason.value for hold in plan.holds)
        starts, evictions = len(plan.begins), len(plan.evictions)
        log.info("cycle", starts=starts, evictions=evictions, waiting=reasons, seconds=round(seconds, 3))

    def policy_applied(self, policy: StoredPolicy, restored: int | None) -> None:
        """Log a new policy (see `Observer`)."""
        log.info("policy applied", version=policy.version, by=policy.applied_by, restored=restored)

    def forged(self, training_job: str, claimed: str) -> None:
        """Log a forged attempt (see `Observer`)."""
        log.warning("forged attempt", attempt=training_job, claimed=claimed)

    def lease_was_held(self) -> None:
        """Log that the lease is held by another invocation (see `Observer`)."""
        log.info("left to the holder of the lease")
