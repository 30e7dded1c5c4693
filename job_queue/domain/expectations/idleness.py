"""Idle jobs: jobs whose instances have idle GPUs, according to SageMaker's metrics in CloudWatch.

SageMaker reports GPUUtilization of each instance once a minute. The value is the sum over all GPUs of the instance, and
each GPU adds 0 to 100 percent.
"""

from collections.abc import Mapping, Sequence

from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.job import Job, epoch
from job_queue.scheduler import JobState

IDLE_BELOW = 5.0  # percent of one GPU; an instance is idle if the sum over all its GPUs is smaller
PERIOD_SECONDS = 300.0  # seconds; each figure is the maximum of one period of this length
MISSING_ALLOWED = 2  # figures that may be missing: the latest arrive late, and the first minutes have no figures

Figures = Sequence[float]
"""The maximum of each consecutive period, in percent of one GPU."""


def idle_candidates(cluster: ClusterState, now: float, seconds: float, with_gpus: frozenset[str]) -> list[Job]:
    """Return the running jobs that started long enough ago, on instances that may have GPUs.

    :param seconds: minimum time since the start.
    :param with_gpus: instance types that have GPUs.
    """
    return [
        job
        for job in cluster.active.values()
        if job.state is JobState.RUNNING
        and job.launched
        and job.started
        and epoch(job.started) <= now - seconds
        and _gpu_instances(job, with_gpus)
    ]


def hosts(job: Job) -> list[str]:
    """Return the names of the instances of a job's attempt in CloudWatch: `<attempt>/algo-<n>`."""
    return [f"{job.launched}/algo-{number}" for number in range(1, job.instances + 1)]


def is_idle(job: Job, figures: Mapping[str, Figures], seconds: float, with_gpus: frozenset[str]) -> bool:
    """Return whether all instances with GPUs were idle for `seconds`. Return False if too many figures are missing.

    :param figures: figures of the last `seconds`, by host.
    """
    reported = [figures[host] for host in hosts(job) if figures.get(host)]
    enough = max(1, int(seconds // PERIOD_SECONDS) - MISSING_ALLOWED)
    return len(reported) >= _gpu_instances(job, with_gpus) and all(
        len(it) >= enough and max(it) < IDLE_BELOW for it in reported
    )


def idle_instances(jobs: Sequence[Job], idle: Mapping[str, float]) -> dict[str, int]:
    """Return the number of idle instances by pool, for all pools in which these jobs hold instances.

    :param idle: training job -> epoch seconds since which its GPUs have been idle.
    """
    counts: dict[str, int] = {}
    for job in jobs:
        for pool, count in job.slots.items():
            counts[pool] = counts.get(pool, 0) + (count if job.launched in idle else 0)
    return counts


def _gpu_instances(job: Job, with_gpus: frozenset[str]) -> int:
    """Return the largest number of instances with GPUs that a job may have.

    The job can count as idle only if at least this number of instances have figures.
    """
    sizes = [it for it in job.demand if sum(it.values()) == job.instances] or job.demand
    return max(sum(count for kind, count in it.items() if kind in with_gpus) for it in sizes)
