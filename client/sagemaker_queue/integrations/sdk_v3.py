"""Show a queued job's states and logs in ``ModelTrainer.train(wait=True)`` of the SDK v3: patch ``TrainingJob.wait``.

``ModelTrainer.train(wait=True)`` calls ``TrainingJob.wait``. Hooks on botocore cannot change this method. The method
creates its own boto3 session for CloudWatch Logs, and shows nothing while a job waits or is preempted. For jobs of the
queue, the patch follows the job first. The original method then finds the job finished, and returns or raises as usual.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sagemaker_queue.workflows.job_logs.follower import Follower
from sagemaker_queue.workflows.job_logs.renderer import JobLogRenderer, render_events

if TYPE_CHECKING:
    import boto3

    from sagemaker_queue.integrations.boto.lookup import JobLookup

JobsOf = Callable[["boto3.Session | None"], "tuple[boto3.Session, JobLookup] | None"]
"""Takes a session (None: boto3's default one).

Returns the session and the jobs of its queue; None if the session has no hooks.
"""

_MODULE = "sagemaker.core.resources"
_FOLLOWS = "_follows_the_queue"


def follow_waits(jobs_of: JobsOf) -> None:
    """Patch ``TrainingJob.wait`` to follow jobs of the queue, if the SDK v3 is loaded and not patched yet."""
    job_class = getattr(sys.modules.get(_MODULE), "TrainingJob", None)
    if job_class is not None and not hasattr(job_class.wait, _FOLLOWS):
        job_class.wait = _following(job_class.wait, jobs_of)


def leave_waits() -> None:
    """Undo the patch of ``follow_waits``."""
    job_class = getattr(sys.modules.get(_MODULE), "TrainingJob", None)
    if job_class is not None and hasattr(job_class.wait, _FOLLOWS):
        job_class.wait = job_class.wait.__wrapped__


def _following(wait: Callable[..., None], jobs_of: JobsOf) -> Callable[..., None]:
    @functools.wraps(wait)
    def follow_and_wait(
        self: Any, poll: int = 5, timeout: int | None = None, logs: bool | None = False, **others: Any
    ) -> None:
        hooked = jobs_of(getattr(self, "_session", None))
        if hooked is None or not hooked[1].may_have(self.training_job_name):
            wait(self, poll=poll, timeout=timeout, logs=logs, **others)
            return
        session, jobs = hooked
        client = session.client("logs", region_name=getattr(self, "_region", None)) if logs else None
        follower = Follower(jobs.queue, client, poll=poll)
        job = render_events(follower.follow(self.training_job_name), JobLogRenderer(sys.stdout, sys.stderr), timeout)
        # The job has finished, or the time is up. The SDK's method returns or raises at once in both cases.
        wait(self, poll=poll, timeout=None if job and job.finished else 0, logs=False, **others)

    setattr(follow_and_wait, _FOLLOWS, True)
    return follow_and_wait
