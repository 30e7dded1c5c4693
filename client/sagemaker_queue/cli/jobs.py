"""The commands of ``smq`` about jobs: ls, show, events, why, plan, set-priority, hold, release, cancel."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NoReturn

from sagemaker_queue.cli.arguments import add_job, add_jobs, add_json
from sagemaker_queue.cli.commands import Commands
from sagemaker_queue.cli.output import DONE, complain, print_json
from sagemaker_queue.documents import read_document
from sagemaker_queue.errors import ConfigError, NotAuthenticated, QueueError
from sagemaker_queue.explanations import plan_page, why_page
from sagemaker_queue.tables import ARTICLE, COLUMNS, WIDE, events_page, job_page, jobs_table

if TYPE_CHECKING:
    from sagemaker_queue.api import QueueClient


def add_job_commands(commands: Commands) -> None:
    """Add the commands about jobs."""
    _add_ls(commands)
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
    add_json(events)

    why = commands.add(
        "why",
        _why,
        help="tell why a job waits",
        description="Tell why a job waits, what is ahead of it, who holds what it needs, and what would change that.",
        examples=["smq why job1"],
    )
    add_job(why)
    add_json(why)

    plan = commands.add(
        "plan",
        _plan,
        help="tell what would become of a job",
        description="Tell what would become of a job, were it submitted now: whether it would start, on what, whom it "
        "would evict and by which rule, or why it would wait. Nothing is submitted and nobody is stopped.",
        examples=["smq plan request.json", "smq plan --json - < request.json"],
    )
    plan.add_argument("file", metavar="FILE", help="a CreateTrainingJob request in JSON; - is the standard input")
    add_json(plan)


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
        examples=["smq hold job1 job2"],
    )
    release = commands.add(
        "release",
        _release,
        help="let held jobs start",
        description="Let jobs start again that were put on hold.",
        examples=["smq release job1 job2"],
    )
    cancel = commands.add(
        "cancel",
        _cancel,
        help="end jobs",
        description="End jobs: one that waits at once; one that runs is stopped, which can take a few minutes.",
        examples=["smq cancel job1 job2"],
    )
    for parser in (hold, release, cancel):
        add_jobs(parser)


def _add_ls(commands: Commands) -> None:
    ls = commands.add(
        "ls", _list, help="list jobs", description="List the jobs of the queue.", examples=["smq ls --wide"]
    )
    which = ls.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="also those that have ended")
    which.add_argument("--state", metavar="STATES", help="only those in these states, such as running,pending")
    how = ls.add_mutually_exclusive_group()
    how.add_argument(
        "-o", "--columns", type=_columns, default=ARTICLE, metavar="COLUMNS", help=f"any of {','.join(COLUMNS)}"
    )
    how.add_argument(
        "--wide", dest="columns", action="store_const", const=WIDE, help=f"the same as -o {','.join(WIDE)}"
    )
    add_json(how, help="everything, for programs")


def _list(queue: QueueClient, arguments: argparse.Namespace) -> int:
    states = "all" if arguments.all else arguments.state
    jobs = list(queue.jobs(states or "live"))
    if arguments.json:
        print_json([job.to_json() for job in jobs])
    elif jobs:
        print(jobs_table(jobs, arguments.columns))
    else:
        print("There are no such jobs." if states else "The queue is empty.", file=sys.stderr)
    return DONE


def _show(queue: QueueClient, arguments: argparse.Namespace) -> int:
    job = queue.job(arguments.job)
    if arguments.json:
        print_json(job.to_json())
    else:
        print(job_page(job))
    return DONE


def _events(queue: QueueClient, arguments: argparse.Namespace) -> int:
    job = queue.job(arguments.job)
    if arguments.json:
        print_json([transition.to_json() for transition in job.history])
    else:
        print(events_page(job))
    return DONE


def _why(queue: QueueClient, arguments: argparse.Namespace) -> int:
    job = queue.job(arguments.job)
    if arguments.json:
        whole = job.to_json()
        print_json({member: whole[member] for member in ("job", "state", "position", "reason", "why")})
    else:
        print(why_page(job))
    return DONE


def _plan(queue: QueueClient, arguments: argparse.Namespace) -> int:
    request = read_document(arguments.file, sys.stdin)
    plan = queue.plan(request)
    if arguments.json:
        print_json(plan.to_json())
    else:
        print(plan_page(str(request.get("TrainingJobName", "The job")), plan))
    return DONE


def _set_priority(queue: QueueClient, arguments: argparse.Namespace) -> int:
    job = queue.change(arguments.job, priority=arguments.priority)
    print(f"{job.job} has priority {job.priority}")
    return DONE


def _hold(queue: QueueClient, arguments: argparse.Namespace) -> int:
    def hold(name: str) -> str:
        queue.change(name, held=True)
        return f"{name} is held"

    return _each(arguments.jobs, hold)


def _release(queue: QueueClient, arguments: argparse.Namespace) -> int:
    def release(name: str) -> str:
        queue.change(name, held=False)
        return f"{name} is released"

    return _each(arguments.jobs, release)


def _cancel(queue: QueueClient, arguments: argparse.Namespace) -> int:
    def cancel(name: str) -> str:
        job = queue.cancel(name)
        if job.was_finished:
            return f"{name} had already ended: {job.state}"
        return f"{name} is {'stopped' if job.finished else 'being stopped'}"

    return _each(arguments.jobs, cancel)


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


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        _refuse_columns(unknown)
    return names


def _refuse_columns(unknown: list[str]) -> NoReturn:
    raise argparse.ArgumentTypeError(f"no column {', '.join(map(repr, unknown))}; there are {', '.join(COLUMNS)}")
