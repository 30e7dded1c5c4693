"""The log as an observer of domain events, and a function that notifies all observers.

Metrics and notifications have modules of their own. The queue does not depend on its observers.
"""

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
    PoolDrained,
    PoolUndrained,
    UnsavedJob,
)
from job_queue.domain.job import iso
from job_queue.domain.state_machine import JobTransition


def notify_all(*observers: Notify) -> Notify:
    """Return a function that notifies all observers. Errors of observers are only logged."""

    def notify(event: DomainEvent) -> None:
        for observer in observers:
            try:
                observer(event)
            except Exception as error:
                log.exception("observer failed", exc_info=error)

    return notify


def log_event(event: DomainEvent) -> None:
    """Log an event. Transitions without a cause, and events that only metrics use, are not logged.

    Reasons why jobs wait are logged only at LOG_LEVEL=DEBUG, because each cycle prints a line for each waiting job.
    """
    match event:
        case JobQueued(job):
            log.info("queued", job=job.name, project=job.project, priority=job.priority, owner=job.owner)
        case JobTransition(old=old, new=new, cause=str(cause)):
            attempt = new.launched or old.launched
            log.info("transition", job=new.name, was=old.state, state=new.state, attempt=attempt, cause=cause)
        case CycleEnded(plan=plan, seconds=seconds):
            for hold in plan.holds:
                log.debug("hold", job=hold.job, reason=hold.reason, why=hold.message)
            reasons = Counter(hold.reason.value for hold in plan.holds)
            starts, evictions = len(plan.started), len(plan.evictions)
            log.info("cycle", starts=starts, evictions=evictions, waiting=reasons, seconds=round(seconds, 3))
        case PolicyApplied(policy, restored):
            log.info("policy applied", version=policy.version, by=policy.applied_by, restored=restored)
        case PoolDrained(pool, drain):
            at, stops = iso(drain.at), drain.stops.value
            log.info("pool drained", pool=pool, at=at, by=drain.by, reason=drain.reason, stops=stops)
        case PoolUndrained(pool, drain, by):
            log.info("pool undrained", pool=pool, by=by, drained_by=drain.by)
        case UnsavedJob(job, has_folder):
            log.info("no checkpoint", job=job.name, attempt=job.launched, folder=has_folder)
        case ForgedAttempt(training_job, claimed):
            log.warning("forged attempt", attempt=training_job, claimed=claimed)
        case LeaseConflict():
            log.info("left to the holder of the lease")
