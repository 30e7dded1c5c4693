"""Observers of domain events: the log, besides the metrics and the notifications. The queue does not depend on them."""

from collections import Counter

from job_queue.adapters.telemetry import log
from job_queue.domain.domain_events import (
    CycleEnded,
    DomainEvent,
    ForgedAttempt,
    JobQueued,
    LeaseConflict,
    Notify,
    PolicyApplied,
)
from job_queue.domain.state_machine import Transition


def notify_all(*observers: Notify) -> Notify:
    """Return a function that notifies all observers. An error of one is logged, and reaches no other."""

    def notify(event: DomainEvent) -> None:
        for observer in observers:
            try:
                observer(event)
            except Exception as error:
                log.exception("observer failed", exc_info=error)

    return notify


def log_event(event: DomainEvent) -> None:
    """Log a transition with its cause, a cycle, or another event. A transition without a cause is not logged.

    The reason why each job waits is logged only at LOG_LEVEL=DEBUG, because it is a line for each waiting job and
    cycle.
    """
    match event:
        case JobQueued(job):
            log.info("queued", job=job.name, project=job.project, priority=job.priority, owner=job.owner)
        case Transition(old=old, new=new, cause=str(cause)):
            attempt = new.launched or old.launched
            log.info("transition", job=new.name, was=old.state, state=new.state, attempt=attempt, cause=cause)
        case CycleEnded(plan=plan, seconds=seconds):
            for hold in plan.holds:
                log.debug("hold", job=hold.job, reason=hold.reason, why=hold.message)
            reasons = Counter(hold.reason.value for hold in plan.holds)
            starts, evictions = len(plan.begins), len(plan.evictions)
            log.info("cycle", starts=starts, evictions=evictions, waiting=reasons, seconds=round(seconds, 3))
        case PolicyApplied(policy, restored):
            log.info("policy applied", version=policy.version, by=policy.applied_by, restored=restored)
        case ForgedAttempt(training_job, claimed):
            log.warning("forged attempt", attempt=training_job, claimed=claimed)
        case LeaseConflict():
            log.info("left to the holder of the lease")
