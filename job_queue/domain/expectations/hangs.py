"""Hangs: running jobs that write no log line and no checkpoint while their GPUs are idle.

Missing data is not silence: a job whose activity is not known counts as active.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.job import Job, epoch
from job_queue.domain.policy import project_of
from job_queue.scheduler import JobState, OnHang, Policy

MOST_LOOKUPS = 10  # largest number of jobs whose logs and checkpoints one tick looks up
MOST_HANGS = 3  # largest number of stopped hung attempts of one job; later hangs of the job only lead to notices


@dataclass(frozen=True, slots=True)
class Activity:
    """The activity of an attempt in a period up to now. A field is None if the look-up gave no answer."""

    wrote_log: bool | None
    wrote_checkpoint: bool | None

    @property
    def is_silent(self) -> bool:
        """Whether the attempt certainly wrote neither a log line nor a checkpoint."""
        return self.wrote_log is False and self.wrote_checkpoint is False


def silence_of(job: Job, policy: Policy) -> float | None:
    """Return the seconds of silence after which a job hangs; None if hangs of the job are not detected."""
    project = project_of(policy, job.project)
    return project.silent if project is not None and project.silent is not None else policy.settings.silent


def may_hang(job: Job) -> bool:
    """Return whether a hang of the job's current attempt can be noticed. A hang is noticed once for each attempt.

    Interactive jobs are excluded, because they are idle while no user types. Members are excluded, because the metrics
    and the log of a shared instance are not separated by member. Carriers are excluded, because they belong to the
    queue.
    """
    return (
        job.state is JobState.RUNNING
        and job.launched is not None
        and job.started is not None
        and job.hung is None
        and not (job.interactive or job.cancelled or job.requeued_by is not None)
        and job.gpus is None
        and job.carries is None
    )


def suspects(cluster: ClusterState, idle: Mapping[str, float], now: float, turn: int) -> list[Job]:
    """Return jobs with idle GPUs, whose logs and checkpoints must be looked up: at most `MOST_LOOKUPS` jobs.

    :param idle: training job -> epoch seconds since which its GPUs have been idle.
    :param turn: a number that grows by 1 with each call. If there are more than `MOST_LOOKUPS` suspects, each call
        continues behind the suspects of the previous call.
    """
    found = [job for job in cluster.active.values() if may_hang(job) and _is_idle_for_long(job, cluster, idle, now)]
    found.sort(key=lambda job: job.name)
    begin = turn * MOST_LOOKUPS % len(found) if len(found) > MOST_LOOKUPS else 0
    return [*found[begin:], *found[:begin]][:MOST_LOOKUPS]


def _is_idle_for_long(job: Job, cluster: ClusterState, idle: Mapping[str, float], now: float) -> bool:
    silence, since = silence_of(job, cluster.applied.policy), idle.get(job.launched or "")
    if silence is None or since is None or job.started is None:
        return False
    return now - silence >= max(since, epoch(job.started))


def is_requeued(job: Job, policy: Policy) -> bool:
    """Return whether the queue stops a job that hangs, so that the job waits again: at most `MOST_HANGS` times.

    The job's tag decides, else its project, else the settings. A job that may not be preempted is stopped only if its
    own tag says so.
    """
    if job.hangs >= MOST_HANGS:
        return False
    if job.on_hang is not None:
        return job.on_hang == OnHang.REQUEUE
    project = project_of(policy, job.project)
    action = project.on_hang if project is not None and project.on_hang is not None else policy.settings.on_hang
    return job.may_be_preempted and action is OnHang.REQUEUE
