"""Who is told what the queue has done, once it is recorded: the log, the metrics, the notifications.

Nothing depends on it. What an observer raises is logged, and the queue goes on.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from job_queue.lifecycle import Move
from job_queue.records import Job
from job_queue.scheduler import Plan
from job_queue.telemetry import log


@dataclass(frozen=True, slots=True)
class Load:
    """The live jobs of a project, as far as a cycle reads its waiting lines (the policy's `window`)."""

    waiting: int = 0  # jobs
    active: int = 0  # jobs that hold slots
    instances: int = 0  # ... and how many


class Observer:
    """Is told what has happened. This one does nothing about it."""

    def queued(self, job: Job) -> None:
        """A new job is stored."""

    def moved(self, move: Move) -> None:
        """A transition of a job is recorded."""

    def cycled(self, plan: Plan, loads: Mapping[str, Load], seconds: float) -> None:
        """A cycle is over, which followed this plan and left this load: project -> its live jobs."""

    def lease_was_held(self) -> None:
        """News was left to another invocation, which holds the lease."""


class Observers(Observer):
    """Tells several; none can fail the queue or keep it from the others."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def queued(self, job: Job) -> None:
        """As `Observer` says."""
        self._tell(lambda observer: observer.queued(job))

    def moved(self, move: Move) -> None:
        """As `Observer` says."""
        self._tell(lambda observer: observer.moved(move))

    def cycled(self, plan: Plan, loads: Mapping[str, Load], seconds: float) -> None:
        """As `Observer` says."""
        self._tell(lambda observer: observer.cycled(plan, loads, seconds))

    def lease_was_held(self) -> None:
        """As `Observer` says."""
        self._tell(lambda observer: observer.lease_was_held())

    def _tell(self, what: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                what(observer)
            except Exception as error:
                log.exception("not observed", exc_info=error)


class TransitionLog(Observer):
    """One line for each transition, with its cause, and one for each cycle.

    Why each single job waits has lines at LOG_LEVEL=DEBUG only: that is as many in every cycle as jobs wait.
    """

    def queued(self, job: Job) -> None:
        """As `Observer` says."""
        log.info("queued", job=job.name, project=job.project, priority=job.priority, owner=job.owner)

    def moved(self, move: Move) -> None:
        """A note that is no transition has no line."""
        if move.cause is not None:
            old, new = move.old, move.new
            attempt = new.launched or old.launched
            log.info("moved", job=new.name, was=old.state, state=new.state, attempt=attempt, cause=move.cause)

    def cycled(self, plan: Plan, loads: Mapping[str, Load], seconds: float) -> None:
        """As `Observer` says."""
        for hold in plan.holds:
            log.debug("hold", job=hold.job, reason=hold.reason, why=hold.message)
        reasons = Counter(hold.reason.value for hold in plan.holds)
        starts, evictions = len(plan.starts), len(plan.evictions)
        log.info("cycle", starts=starts, evictions=evictions, waiting=reasons, seconds=round(seconds, 3))

    def lease_was_held(self) -> None:
        """As `Observer` says."""
        log.info("left to the holder of the lease")
