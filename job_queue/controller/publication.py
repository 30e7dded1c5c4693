"""Publish the plan of each cycle (the table row that API requests read), so that requests need not plan.

A plan is published after the release of the lease, and a failed write does not fail the cycle. A plan is not written
again if it has nothing new for readers.
"""

from job_queue.adapters.metadata import Lease
from job_queue.adapters.records.published_plan import StoredPlan, to_stored
from job_queue.adapters.telemetry import log
from job_queue.controller.part import Backend, ControllerPart
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.expectations.published_plan import PublishedPlan
from job_queue.scheduler import Plan

PAUSE_SECONDS = 5  # shortest time between two writes of one process while its cycles follow each other at once


class Publication(ControllerPart):
    """The publication of the plans of one process."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        # The plan to publish, and the fencing token of its cycle.
        self._unpublished: tuple[StoredPlan, int] | None = None
        self._digest: str | None = None  # digest of the published plan; None: not known
        self._token = 0  # fencing token of the lease at the end of the last cycle in this process
        self._written = 0.0  # epoch seconds of the last write

    def prepare(self, first_token: int, lease: Lease, cluster: ClusterState, decided: Plan, now: float) -> None:
        """Keep the plan of a cycle that has ended, until `publish`.

        :param first_token: the fencing token with which the cycle began.
        :param now: epoch seconds of the plan.
        """
        try:
            new = to_stored(PublishedPlan.of(cluster, decided, now))
        except Exception as error:  # readers get the previous plan and its age
            log.exception("plan for readers not serialised", exc_info=error)
            return
        if first_token != self._token + 1:  # another process has run cycles meanwhile, and may have published a plan
            self._digest = None
        self._token = lease.fencing_token
        self._unpublished = None if new.digest == self._digest else (new, lease.fencing_token)

    def publish(self, *, is_last: bool) -> None:
        """Publish the plan of the latest cycle if readers do not know it yet.

        :param is_last: whether no cycle follows at once. Otherwise the plan may wait, because writes cost by size.
        """
        if self._unpublished is None or not (is_last or self._clock() >= self._written + PAUSE_SECONDS):
            return
        (plan, token), self._unpublished, self._digest = self._unpublished, None, None
        try:
            self._repository.published.replace(plan, token)
        except Exception as error:
            log.warning("plan not published", exc_info=error)
            return
        self._digest, self._written = plan.digest, self._clock()
