"""The commands of ``smq`` about jobs: show, events, why, set-priority, hold, release, cancel."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sagemaker_queue.cli.arguments import add_job, add_jobs, add_json, named_jobs
from sagemaker_queue.cli.commands.ls import add_ls
from sagemaker_queue.cli.output import DONE, complain, print_json, width
from sagemaker_queue.cli.parser import Commands
from sagemaker_queue.cli.render.explanations import why_page
from sagemaker_queue.cli.render.jobs import events_page, job_page
from sagemaker_queue.errors import ConfigError, NotAuthenticated, QueueError

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient


def add_job_commands(commands: Commands) -> None:
    """Add the commands about jobs."""
    add_ls(commands)
    _add_questions(commands)
    _add_changes(commands)


def _add_questions(commands: Commands) -> None:
    show = commands.add(
        "show",
        _show,
        help="tell all about a job",
        description="Tell all that is known of a job.",
        examples=["smq show job1", "smq show job1 --json"],
    )
    add_job(show)
    add_json(show, help="everything, and the whole request, for programs")

    events = commands.add(
        "events",
        _events,
        help="tell what happened to a job",
        description="Tell what happened to a job: each change of its state, when it was and why, the oldest first.",
        examples=["smq events job1"],
    )
    add_job(events)
    add_json(events, help="the same for programs: a list of at, state, attempt, cause")

    why = commands.add(
        "why",
        _why,
        help="tell why a job waits",
        description="Tell why a job waits, what is ahead of it, who holds what it needs, and what would change that.",
        examples=["smq why job1"],
    )
    add_job(why)
    add_json(why, help="the same for programs: job, state, position, reason, why")


def _add_changes(commands: Commands) -> None:
    priority = commands.add(
        "set-priority",
        _set_priority,
        help="give a job another priority",
        description="Give a job another priority. The higher it is, the sooner the job runs, within its project.",
        examples=["smq set-priority job1 5"],
    )
    add_job(priority)
    priority.add_argument("priority", metavar="N", type=int, help="a whole number")

    hold = commands.add(
        "hold",
        _hold,
        help="keep waiting jobs from starting",
        description="Keep waiting jobs from starting until they are released. They keep their places in the line.",
        examples=["smq hold job1 job2", "smq hold --group lr-sweep"],
    )
    release = commands.add(
        "release",
        _release,
        help="let held jobs start",
        description="Let jobs start again that were put on hold.",
        examples=["smq release job1 job2", "smq release --group lr-sweep"],
    )
    cancel = commands.add(
        "cancel",
        _cancel,
        help="end jobs",
        description="End jobs: one that waits at once; one that runs is stopped, which can take a few minutes.",
        examples=["smq cancel job1 job2", "smq cancel 'resnet-*'", "smq cancel --group lr-sweep"],
    )
    for parser in (hold, release, cancel):
        add_jobs(parser)


def _show(queue: QueueClient, arguments: argparse.Namespace) -> int:
    job = queue.job(arguments.job)
    if arguments.json:
        print_json(job.to_json())
    else:
        print(job_page(job, width()))
    return DONE


def _events(queue: QueueClient, arguments: argparse.Namespace) -> int:
    job = queue.job(arguments.job)
    if arguments.json:
        print_json([transition.to_json() for transition in job.history])
    else:
        print(events_page(job, width()))
    return DONE


def _why(queue: QueueClient, arguments: argparse.Namespace) -> int:
    job = queue.job(arguments.job)
    if arguments.json:
        whole = job.to_json()
        print_json({member: whole[member] for member in ("job", "state", "position", "reason", "why")})
    else:
        print(why_page(job, width()))
    return DONE


def _set_priority(queue: QueueClient, arguments: argparse.Namespace) -> int:
    job = queue.change(arguments.job, priority=arguments.priority)
    print(f"{job.job} has priority {job.priority}")
    return DONE


def _hold(queue: QueueClient, arguments: argparse.Namespace) -> int:
    def hold(name: str) -> str:
        queue.change(name, held=True)
        return f"{name} is held"

    return _each(named_jobs(queue, arguments), hold)


def _release(queue: QueueClient, arguments: argparse.Namespace) -> int:
    def release(name: str) -> str:
        queue.change(name, held=False)
        return f"{name} is released"

    return _each(named_jobs(queue, arguments), release)


def _cancel(queue: QueueClient, arguments: argparse.Namespace) -> int:
    def cancel(name: str) -> str:
        job = queue.cancel(name)
        if job.was_finished:
            return f"{name} had already ended: {job.state}"
        return f"{name} is {'stopped' if job.finished else 'being stopped'}"

    return _each(named_jobs(queue, arguments), cancel)


def _each(names: Iterable[str], act: Callable[[str], str]) -> int:
    """Act on each job and print what became of it; one that is refused does not keep the others from it."""
    code = DONE
    for name in names:
        try:
            print(act(name))
        except (ConfigError, NotAuthenticated):
            raise  # the same for every job
        except QueueError as error:
            code = max(code, complain(error))
    return code
