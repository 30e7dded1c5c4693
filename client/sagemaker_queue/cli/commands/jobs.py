"""The commands of ``smq`` about jobs: show, events, why, set-priority, hold, release, requeue, cancel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sagemaker_queue.cli.arguments import JobSet, job_argument, job_set_arguments, live_job_argument
from sagemaker_queue.cli.output import DONE, REFUSED, confirmed, for_each, is_interactive, print_json, width
from sagemaker_queue.cli.parser import argument, command, flag, json_flag, with_queue
from sagemaker_queue.presentation.text.explanations import why_page
from sagemaker_queue.presentation.text.job_text import events_page, job_page

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient

_NAMED = 5  # maximum number of names in the question before a cancellation


@command(
    "show",
    help="print all facts about a job",
    description="Print all facts about a job: its state, attempts, history and request.",
    examples=["smq show job1", "smq show job1 --json"],
)
@job_argument
@json_flag("print all data and the whole request as JSON")
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
    help="print the history of a job",
    description="Print the history of a job: each change of its state with time and cause, the oldest first.",
    examples=["smq events job1"],
)
@job_argument
@json_flag("print JSON: a list of at, state, attempt, cause")
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
    help="print why a job waits",
    description="Print why a job waits, the jobs ahead of it, the jobs that hold the instances it needs, and how to "
    "start it sooner.",
    examples=["smq why job1"],
)
@live_job_argument
@json_flag("print JSON: job, state, position, reason, why")
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
    help="change the priority of a job",
    description="Change the priority of a job. Within a project, jobs with a higher priority start first.",
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
    help="put waiting jobs on hold; with --now, also running jobs",
    description="Put waiting jobs on hold: they do not start until smq release, and keep their positions in the "
    "queue. With --now, running jobs are stopped as by a preemption, and resume from their checkpoints "
    "after the release.",
    examples=["smq hold job1 job2", "smq hold --group lr-sweep", "smq hold --now job3"],
)
@job_set_arguments
@flag("--now", help="also stop running jobs; without --now, only waiting jobs can be held")
@with_queue
def hold(queue: QueueClient, jobs: JobSet, now: bool) -> int:
    """Hold jobs; with ``--now``, also jobs that run."""

    def change(name: str) -> str:
        job = queue.change(name, held=True, now=now)
        return f"{name} is on hold" if job.waits else f"Stopping {name}, which is then on hold ..."

    return _print_for_each(jobs.resolve(queue), change)


@command(
    "release",
    help="end the hold of jobs",
    description="End the hold of jobs, so that they can start.",
    examples=["smq release job1 job2", "smq release --group lr-sweep"],
)
@job_set_arguments
@with_queue
def release(queue: QueueClient, jobs: JobSet) -> int:
    """End the hold of each job, and print the results."""

    def change(name: str) -> str:
        queue.change(name, held=False)
        return f"{name} is no longer on hold"

    return _print_for_each(jobs.resolve(queue), change)


@command(
    "requeue",
    help="stop running jobs, which then wait again",
    description="Stop running jobs as by a preemption: each job gets time to save a checkpoint, waits again in its "
    "old position, and resumes at its turn. If no other job comes first, it resumes at once; to prevent "
    "that, use smq hold --now.",
    examples=["smq requeue job1", "smq requeue --group lr-sweep"],
)
@job_set_arguments
@with_queue
def requeue(queue: QueueClient, jobs: JobSet) -> int:
    """Stop the attempt of each job, which then waits again, and print the results."""

    def requeue_job(name: str) -> str:
        job = queue.requeue(name)
        return f"{name} waits again" if job.waits else f"Stopping {name}, which then waits again ..."

    return _print_for_each(jobs.resolve(queue), requeue_job)


@command(
    "cancel",
    help="cancel jobs",
    description="Cancel jobs. A waiting job ends at once; a running job is stopped, which can take a few minutes. "
    "On a terminal, the command asks before it cancels more than one job.",
    examples=["smq cancel job1 job2", "smq cancel 'resnet-*'", "smq cancel --group lr-sweep --yes"],
)
@job_set_arguments
@flag("--yes", help="do not ask for confirmation; without a terminal, the command never asks")
@with_queue
def cancel(queue: QueueClient, jobs: JobSet, yes: bool) -> int:
    """Cancel jobs. Without ``--yes``, ask before several jobs are cancelled, if a user can answer."""

    def cancel_job(name: str) -> str:
        job = queue.cancel(name)
        if job.was_finished:
            return f"{name} had already finished: {job.state}"
        return f"{name} is stopped" if job.finished else f"Stopping {name} ..."

    names = jobs.resolve(queue)
    if len(names) > 1 and not yes and is_interactive():
        others = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        if not confirmed(f"Cancel {len(names)} jobs: {', '.join(names[:_NAMED])}{others}?"):
            print("Nothing is cancelled.")
            return REFUSED
    return _print_for_each(names, cancel_job)


def _print_for_each(names: Iterable[str], act: Callable[[str], str]) -> int:
    """Call ``act`` for each job, print the results and errors, and return the highest exit code."""
    return for_each(names, lambda name: print(act(name)))
