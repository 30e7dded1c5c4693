"""The commands of ``smq`` about jobs: show, events, why, set-priority, hold, release, requeue, cancel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sagemaker_queue.cli.arguments import JobSet, job_argument, job_set_arguments, live_job_argument
from sagemaker_queue.cli.output import DONE, REFUSED, confirmed, is_interactive, print_error, print_json, width
from sagemaker_queue.cli.parser import argument, command, flag, json_flag, with_queue
from sagemaker_queue.errors import ConfigError, NotAuthenticated, QueueError
from sagemaker_queue.presentation.text.explanations import why_page
from sagemaker_queue.presentation.text.job_text import events_page, job_page

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient

_NAMED = 5  # maximum number of names in the question before a cancellation


@command(
    "show",
    help="tell all about a job",
    description="Tell all that is known of a job.",
    examples=["smq show job1", "smq show job1 --json"],
)
@job_argument
@json_flag("everything, and the whole request, for programs")
@with_queue
def show(queue: QueueClient, name: str, as_json: bool) -> int:
    """Print the page about a job, or its JSON."""
    job = queue.job(name)
    if as_json:
        print_json(job.to_json())
    else:
        print(job_page(job, width()))
    return DONE


@command(
    "events",
    help="tell what happened to a job",
    description="Tell what happened to a job: each change of its state, when it was and why, the oldest first.",
    examples=["smq events job1"],
)
@job_argument
@json_flag("the same for programs: a list of at, state, attempt, cause")
@with_queue
def events(queue: QueueClient, name: str, as_json: bool) -> int:
    """Print the transitions of a job."""
    job = queue.job(name)
    if as_json:
        print_json([transition.to_json() for transition in job.history])
    else:
        print(events_page(job, width()))
    return DONE


@command(
    "why",
    help="tell why a job waits",
    description="Tell why a job waits, what is ahead of it, who holds what it needs, and what would change that.",
    examples=["smq why job1"],
)
@live_job_argument
@json_flag("the same for programs: job, state, position, reason, why")
@with_queue
def why(queue: QueueClient, name: str, as_json: bool) -> int:
    """Print why a job waits, as text or JSON."""
    job = queue.job(name, advice=True)
    if as_json:
        whole = job.to_json()
        print_json({member: whole[member] for member in ("job", "state", "position", "reason", "why")})
    else:
        print(why_page(job, width()))
    return DONE


@command(
    "set-priority",
    help="give a job another priority",
    description="Give a job another priority. The higher it is, the sooner the job runs, within its project.",
    examples=["smq set-priority job1 5"],
    context_settings={"ignore_unknown_options": True},  # -5 is a priority, not an option
)
@live_job_argument
@argument("priority", metavar="N", type=int, help="a whole number")
@with_queue
def set_priority(queue: QueueClient, name: str, priority: int) -> int:
    """Change the priority of a job."""
    job = queue.change(name, priority=priority)
    print(f"{job.job} has priority {job.priority}")
    return DONE


@command(
    "hold",
    help="keep waiting jobs from starting, and with --now stop running ones",
    description="Keep waiting jobs from starting until they are released. They keep their positions in the queue. "
    "With --now, jobs that run are stopped as by a preemption, and resume from their checkpoints after their release.",
    examples=["smq hold job1 job2", "smq hold --group lr-sweep", "smq hold --now job3"],
)
@job_set_arguments
@flag("--now", help="also stop jobs that run; without it, they cannot be held")
@with_queue
def hold(queue: QueueClient, jobs: JobSet, now: bool) -> int:
    """Hold jobs; with ``--now``, also jobs that run."""

    def change(name: str) -> str:
        job = queue.change(name, held=True, now=now)
        return f"{name} is held" if job.waits else f"Stopping {name}, which is then held ..."

    return _for_each(jobs.resolve(queue), change)


@command(
    "release",
    help="let held jobs start",
    description="Let jobs start again that were put on hold.",
    examples=["smq release job1 job2", "smq release --group lr-sweep"],
)
@job_set_arguments
@with_queue
def release(queue: QueueClient, jobs: JobSet) -> int:
    """Release jobs."""

    def change(name: str) -> str:
        queue.change(name, held=False)
        return f"{name} is released"

    return _for_each(jobs.resolve(queue), change)


@command(
    "requeue",
    help="stop running jobs and let them wait again",
    description="Stop running jobs as by a preemption: they get time to save a checkpoint, wait again in their old "
    "positions, and resume when it is their turn. If nothing else comes first, that is at once: "
    "smq hold --now keeps them from starting.",
    examples=["smq requeue job1", "smq requeue --group lr-sweep"],
)
@job_set_arguments
@with_queue
def requeue(queue: QueueClient, jobs: JobSet) -> int:
    """Requeue jobs."""

    def requeue_job(name: str) -> str:
        job = queue.requeue(name)
        return f"{name} waits again" if job.waits else f"Stopping {name}, which then waits again ..."

    return _for_each(jobs.resolve(queue), requeue_job)


@command(
    "cancel",
    help="end jobs",
    description="End jobs: one that waits at once; one that runs is stopped, which can take a few minutes. "
    "For more than one job you are asked on a terminal.",
    examples=["smq cancel job1 job2", "smq cancel 'resnet-*'", "smq cancel --group lr-sweep --yes"],
)
@job_set_arguments
@flag("--yes", help="do not ask; without a terminal nobody is asked")
@with_queue
def cancel(queue: QueueClient, jobs: JobSet, yes: bool) -> int:
    """Cancel jobs. Without ``--yes``, ask first if there are several jobs and a user can answer."""

    def cancel_job(name: str) -> str:
        job = queue.cancel(name)
        if job.was_finished:
            return f"{name} had already ended: {job.state}"
        return f"{name} is stopped" if job.finished else f"Stopping {name} ..."

    names = jobs.resolve(queue)
    if len(names) > 1 and not yes and is_interactive():
        others = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        if not confirmed(f"Cancel {len(names)} jobs: {', '.join(names[:_NAMED])}{others}?"):
            print("Nothing is cancelled.")
            return REFUSED
    return _for_each(names, cancel_job)


def _for_each(names: Iterable[str], act: Callable[[str], str]) -> int:
    """Call ``act`` for each job and print the result; continue after a job is refused.

    Returns the highest exit code.
    """
    code = DONE
    for name in names:
        try:
            print(act(name))
        except (ConfigError, NotAuthenticated):
            raise  # every other job would fail in the same way
        except QueueError as error:
            code = max(code, print_error(error))
    return code
