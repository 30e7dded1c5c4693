"""Compute the metrics of a simulation: completion times, waits, slowdowns, lost work, and fairness (rho).

JCT (job completion time) is end - submission. Wait is JCT - work - first provisioning. Slowdown is JCT / max(10 s,
work). Lost work is the training since the last checkpoint at each preemption. Restart overhead is the time for stops
and repeated provisioning that preemptions cause. Lost work and restart overhead are ratios: their instance-seconds
divided by the useful instance-seconds.

rho of a project is its finish-time fairness (Mahajan et al., Themis, NSDI 2020). Two simulations are compared: rho is
the mean JCT of the project's jobs, divided by their mean JCT when the project is alone on the instances of its quota.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from job_queue.simulation.fleet.attempts import JobRun

MIN_SLOWDOWN_DIVISOR = 10.0  # seconds; the smallest divisor of a slowdown
LARGE_GANG_SIZE = 8  # instances; the smallest size of a large gang

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics of some jobs. Durations are seconds. Only `jobs` and `unfinished` include unfinished jobs."""

    jobs: int
    unfinished: int = 0  # jobs that never finished, because they could never start
    jct: float = 0  # mean job completion time
    wait: float = 0  # mean
    wait_median: float = 0
    wait_p95: float = 0
    wait_longest: float = 0
    slowdown: float = 0  # mean
    slowdown_worst: float = 0
    preemptions: float = 0  # mean per job
    preemptions_most: int = 0
    lost_work: float = 0  # lost instance-seconds divided by the useful instance-seconds
    restart_overhead: float = 0  # instance-seconds of restarts divided by the useful instance-seconds


def wait(run: JobRun) -> float:
    """Return the completion time minus useful training and first provisioning, in seconds.

    Lost training and restarts count as wait.
    """
    assert run.ended is not None
    return run.ended - run.job.submitted - run.job.work - run.provisioned


def slowdown(run: JobRun) -> float:
    """Return the completion time divided by the time of training, or by MIN_SLOWDOWN_DIVISOR if that is larger."""
    assert run.ended is not None
    return (run.ended - run.job.submitted) / max(MIN_SLOWDOWN_DIVISOR, run.job.work)


def metrics_of(runs: Sequence[JobRun]) -> Metrics:
    """Return the metrics of some jobs together."""
    ended = [run for run in runs if run.ended is not None]
    if not ended:
        return Metrics(len(runs), unfinished=len(runs))
    waits = sorted(wait(run) for run in ended)
    slowdowns = [slowdown(run) for run in ended]
    useful = sum(run.job.work * run.job.size for run in ended) or 1
    return Metrics(
        jobs=len(runs),
        unfinished=len(runs) - len(ended),
        jct=fmean(run.ended - run.job.submitted for run in ended if run.ended is not None),
        wait=fmean(waits),
        wait_median=percentile(waits, 50),
        wait_p95=percentile(waits, 95),
        wait_longest=waits[-1],
        slowdown=fmean(slowdowns),
        slowdown_worst=max(slowdowns),
        preemptions=fmean(run.preemptions for run in ended),
        preemptions_most=max(run.preemptions for run in ended),
        lost_work=sum(run.lost * run.job.size for run in ended) / useful,
        restart_overhead=sum(run.restarts * run.job.size for run in ended) / useful,
    )


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Return a percentile of ascending values, by the nearest-rank method."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def metrics_by(key: Callable[[JobRun], K], runs: Iterable[JobRun]) -> dict[K, Metrics]:
    """Return the metrics of each class of jobs.

    :param key: function that returns the class of a job.
    """
    classes: dict[K, list[JobRun]] = {}
    for run in runs:
        classes.setdefault(key(run), []).append(run)
    return {name: metrics_of(members) for name, members in classes.items()}


def size_class(run: JobRun) -> str:
    """Return the name that reports use for the class of a job's size."""
    instances = run.job.instances
    if run.job.gpus is not None:
        return "a part of 1"
    if instances == 1:
        return "1 instance"
    return f"2 to {LARGE_GANG_SIZE - 1}" if instances < LARGE_GANG_SIZE else f"{LARGE_GANG_SIZE} and more"


def gpus_at_work(runs: Iterable[JobRun]) -> float:
    """Return the mean number of GPUs that jobs needed and trained on, from the first submission to the last.

    A job on whole instances may have more GPUs than it needs. Such additional GPUs do not count.
    """
    runs = list(runs)
    first = min(run.job.submitted for run in runs)
    last = max(run.job.submitted for run in runs)
    at_work = sum(
        max(0.0, min(end, last) - begin) * run.job.needed_gpus for run in runs for begin, end in run.training_periods
    )
    return at_work / max(last - first, 1.0)


def finish_time_fairness(shared_runs: Sequence[JobRun], alone_runs: Sequence[JobRun]) -> float | None:
    """Return rho of a project, over the jobs that finish in both simulations.

    Return None if there are no such jobs, or if they take no time without other projects.
    """
    ends = {run.job.name: run.ended - run.job.submitted for run in alone_runs if run.ended is not None}
    both = [
        (run.ended - run.job.submitted, ends[run.job.name])
        for run in shared_runs
        if run.ended is not None and run.job.name in ends
    ]
    if not any(jct for _, jct in both):
        return None
    return fmean(jct for jct, _ in both) / fmean(jct for _, jct in both)
