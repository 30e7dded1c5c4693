"""Which jobs hold instances whose GPUs do nothing, by what SageMaker tells CloudWatch of each instance.

SageMaker reports GPUUtilization of each instance once a minute: the sum of its GPUs, from 0 to 100 for each of them.
"""

from collections.abc import Mapping, Sequence

from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.job import Job, epoch
from job_queue.scheduler import JobState

LEAST = 5.0  # percent of one GPU: an instance that stays below, all its GPUs together, does nothing
PERIOD = 300.0  # seconds that a figure is the maximum of
MAY_LACK = 2  # figures: the latest come late, and the first minutes have none

Figures = Sequence[float]
"""The maximum of each period of a time, in percent."""


def to_look_at(cluster: ClusterState, now: float, seconds: float, with_gpus: frozenset[str]) -> list[Job]:
    """Jobs that have run for so long, on instances that may have GPUs.

    :param with_gpus: instance types.
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
    """What CloudWatch calls the instances of a job's attempt."""
    return [f"{job.launched}/algo-{number}" for number in range(1, job.instances + 1)]


def does_nothing(job: Job, figures: Mapping[str, Figures], seconds: float, with_gpus: frozenset[str]) -> bool:
    """Whether all instances with GPUs have done nothing for so long. Where figures are lacking, nobody knows.

    :param figures: of hosts, from the last so many seconds.
    """
    told = [figures[host] for host in hosts(job) if figures.get(host)]
    enough = max(1, int(seconds // PERIOD) - MAY_LACK)
    return len(told) >= _gpu_instances(job, with_gpus) and all(len(it) >= enough and max(it) < LEAST for it in told)


def idle_instances(jobs: Sequence[Job], idle: Mapping[str, float]) -> dict[str, int]:
    """Pool -> instances that do nothing, of all pools that these jobs hold any of.

    :param idle: training jobs that do nothing.
    """
    counts: dict[str, int] = {}
    for job in jobs:
        for pool, count in job.slots.items():
            counts[pool] = counts.get(pool, 0) + (count if job.launched in idle else 0)
    return counts


def _gpu_instances(job: Job, with_gpus: frozenset[str]) -> int:
    """How many instances with GPUs it has, as far as what it asked for tells: that many have to be heard of."""
    sizes = [it for it in job.demand if sum(it.values()) == job.instances] or job.demand
    return max(sum(count for kind, count in it.items() if kind in with_gpus) for it in sizes)
