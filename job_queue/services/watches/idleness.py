"""Detect running jobs with idle GPUs, every few minutes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from job_queue.adapters.telemetry import log
from job_queue.domain.accounting.utilization import WITH_GPUS
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.domain_events import IdleInstances, Notify
from job_queue.domain.errors import QueueError
from job_queue.domain.expectations.idleness import (
    PERIOD_SECONDS,
    Figures,
    hosts,
    idle_candidates,
    idle_instances,
    is_idle,
)
from job_queue.domain.expectations.outlook import Outlook
from job_queue.domain.fleet.sites import Site
from job_queue.domain.job import Job

LOOK_SECONDS = 300  # time between two look-ups, as CloudWatch charges for each instance


class Utilization(Protocol):
    """A source of GPU utilization, such as `GpuUtilization`."""

    def __call__(
        self, hosts: Sequence[str], since: float, until: float, period: float, may_go_on: Callable[[], bool]
    ) -> Mapping[str, Figures]:
        """Return the maximum utilization in each period, by host.

        :param since: epoch seconds, like `until`.
        :param period: seconds.
        """


class IdleWatch:
    """A detector of running jobs with idle GPUs.

    :param utilization_at: returns the source for a site.
    :param minutes: the time for which GPUs must be idle.
    :param notify: tells the observers the number of idle instances in each pool.
    """

    def __init__(self, utilization_at: Callable[[Site | None], Utilization], minutes: int, notify: Notify) -> None:
        self._utilization_at = utilization_at
        self._seconds = minutes * 60.0
        self._notify = notify

    def check(
        self, cluster: ClusterState, before: Outlook, now: float, may_go_on: Callable[[], bool]
    ) -> tuple[float, Mapping[str, float]]:
        """Return the time of the last look-up, and the time since which each idle training job is idle (epoch seconds).

        CloudWatch is called at most every LOOK_SECONDS. In between, the result of the last look-up is returned, without
        jobs that no longer run.

        :param before: the last outlook, with the result of the last look-up.
        :param now: epoch seconds.
        :param may_go_on: after its first result of False, no further hosts are looked up.
        """
        jobs = idle_candidates(cluster, now, self._seconds, WITH_GPUS)
        checked_at, idle = before.idle_at, before.idle
        if jobs and now >= checked_at + LOOK_SECONDS:
            checked_at, idle = now, self._idle(jobs, before.idle, now, may_go_on)
        idle = {job.launched: idle[job.launched] for job in jobs if job.launched and job.launched in idle}
        if jobs:
            self._notify(IdleInstances(idle_instances(jobs, idle)))
        return checked_at, idle

    def _idle(
        self, jobs: Sequence[Job], before: Mapping[str, float], now: float, may_go_on: Callable[[], bool]
    ) -> dict[str, float]:
        """Return the time since which each idle training job is idle (epoch seconds).

        Jobs are left out if the utilization at their site cannot be read.
        """
        until = now // PERIOD_SECONDS * PERIOD_SECONDS
        since = until - self._seconds
        figures: dict[str, Figures] = {}
        for site in dict.fromkeys(job.site for job in jobs):
            hosts_at_site = [host for job in jobs if job.site == site for host in hosts(job)]
            try:
                figures |= self._utilization_at(site)(hosts_at_site, since, until, PERIOD_SECONDS, may_go_on)
            except QueueError as error:
                log.warning("idle jobs not looked up", site=site.key if site else None, exc_info=error)
        return {
            job.launched: before.get(job.launched, since)
            for job in jobs
            if job.launched and is_idle(job, figures, self._seconds, WITH_GPUS)
        }
