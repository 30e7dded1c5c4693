"""The ``smq`` command: see the queue, a job of it, and cancel jobs."""

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import NoReturn

import sagemaker_queue
from sagemaker_queue.api import QueueClient
from sagemaker_queue.config import API_ID_VARIABLE, DEFAULT_FILE, PROFILE_VARIABLE, URL_VARIABLE
from sagemaker_queue.errors import ConfigError, NotAuthenticated, NotFound, QueueError
from sagemaker_queue.tables import ARTICLE, COLUMNS, WIDE, job_page, jobs_table

DONE, REFUSED, USAGE, NOT_FOUND, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 130, 141

_EPILOG = f"""\
examples:
  smq ls                        the queue: who runs, who waits, in order
  smq ls --wide                 the same, with positions, owners and reasons
  smq ls -o job,age,reason      only these columns
  smq ls --state failed --json  the failed jobs, for a program
  smq show job1                 why job1 waits, its attempts, its history
  smq cancel job1 job2          end two jobs
  smq -c research ls            the queue of the profile "research"

where the queue is (the first that is given):
  --url or --profile; {URL_VARIABLE} (with {API_ID_VARIABLE} for
  a VPC endpoint's address); {PROFILE_VARIABLE}; default = "NAME" in
  {DEFAULT_FILE}

exit codes:
  {DONE}    done
  {REFUSED}    the queue refused, failed or could not be reached
  {USAGE}    wrong usage, no queue configured, or no AWS credentials
  {NOT_FOUND}    no such job
  {INTERRUPTED}  interrupted (Ctrl-C)
  {BROKEN_PIPE}  whoever read the output has gone
"""


def main(argv: list[str] | None = None) -> int:
    """Run ``smq`` with the arguments (default: the process's own) and return its exit code."""
    try:
        code = _run(argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more at exit, and would complain of the pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


def _run(argv: list[str] | None) -> int:
    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as exit_:  # argparse has printed its help, or what was wrong
        return int(exit_.code or DONE)
    command: Callable[[QueueClient, argparse.Namespace], int] = arguments.command
    try:
        return command(QueueClient(url=arguments.url, profile=arguments.profile), arguments)
    except QueueError as error:
        return _complain(error)


def _list(queue: QueueClient, arguments: argparse.Namespace) -> int:
    states = "all" if arguments.all else arguments.state
    jobs = list(queue.jobs(states or "live"))
    if arguments.json:
        _print_json([job.to_json() for job in jobs])
    elif jobs:
        print(jobs_table(jobs, arguments.columns))
    else:
        print("There are no such jobs." if states else "The queue is empty.", file=sys.stderr)
    return DONE


def _show(queue: QueueClient, arguments: argparse.Namespace) -> int:
    job = queue.job(arguments.job)
    if arguments.json:
        _print_json(job.to_json())
    else:
        print(job_page(job))
    return DONE


def _cancel(queue: QueueClient, arguments: argparse.Namespace) -> int:
    code = DONE
    for name in arguments.jobs:
        try:
            job = queue.cancel(name)
        except (ConfigError, NotAuthenticated):
            raise  # the same for every job
        except QueueError as error:
            code = max(code, _complain(error))
            continue
        if job.was_finished:
            print(f"{name} had already ended: {job.state}")
        else:
            print(f"{name} is {'stopped' if job.finished else 'being stopped'}")
    return code


def _complain(error: QueueError) -> int:
    print(f"smq: {error}", file=sys.stderr)
    if isinstance(error, NotFound):
        return NOT_FOUND
    return USAGE if isinstance(error, ConfigError | NotAuthenticated) else REFUSED


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``smq``; docs/cli.md describes every command and option of it."""
    parser = argparse.ArgumentParser(
        prog="smq",
        description="The priority queue for SageMaker training jobs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"smq {sagemaker_queue.__version__}")
    _add_queue_options(parser, default=None)
    anywhere = argparse.ArgumentParser(add_help=False)  # "smq ls -c research" is understood too
    _add_queue_options(anywhere, default=argparse.SUPPRESS)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    ls = commands.add_parser("ls", parents=[anywhere], help="list jobs", description="List the jobs of the queue.")
    ls.set_defaults(command=_list)
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
    how.add_argument("--json", action="store_true", help="everything, for programs")

    show = commands.add_parser(
        "show", parents=[anywhere], help="tell all about a job", description="Tell all that is known of a job."
    )
    show.set_defaults(command=_show)
    show.add_argument("job", metavar="JOB")
    show.add_argument("--json", action="store_true", help="everything, and the whole request, for programs")

    cancel = commands.add_parser(
        "cancel",
        parents=[anywhere],
        help="end jobs",
        description="End jobs: one that waits at once; one that runs is stopped, which can take a few minutes.",
    )
    cancel.set_defaults(command=_cancel)
    cancel.add_argument("jobs", metavar="JOB", nargs="+")
    return parser


def _add_queue_options(parser: argparse.ArgumentParser, default: str | None) -> None:
    parser.add_argument("-c", "--profile", metavar="NAME", default=default, help="the profile of the queue to use")
    parser.add_argument("--url", default=default, help="the address of the queue to use")


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        _refuse_columns(unknown)
    return names


def _refuse_columns(unknown: list[str]) -> NoReturn:
    raise argparse.ArgumentTypeError(f"no column {', '.join(map(repr, unknown))}; there are {', '.join(COLUMNS)}")
