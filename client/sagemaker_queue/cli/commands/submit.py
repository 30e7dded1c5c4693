"""The commands of ``smq`` that submit jobs: submit, resubmit, plan."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sagemaker_queue.cli.arguments import add_job, add_json
from sagemaker_queue.cli.documents import read_document
from sagemaker_queue.cli.job_options import add_job_options, described_job
from sagemaker_queue.cli.output import DONE, print_json, width
from sagemaker_queue.cli.parser import Commands
from sagemaker_queue.cli.render.explanations import plan_page
from sagemaker_queue.errors import Conflict, InvalidOption
from sagemaker_queue.packaging.command import next_name, resubmitted
from sagemaker_queue.text import state_and_reason

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient
    from sagemaker_queue.models import JobSummary, Submission
    from sagemaker_queue.packaging.code import Code
    from sagemaker_queue.packaging.links import S3Address
    from sagemaker_queue.packaging.storage import Storage

_OF_MANY_PROGRAMS = frozenset({"-c", "-h", "--help"})  # sh -c is no doubtful case
_COMMAND = "the command and its arguments, as you would type it in the working folder"


def add_submit_commands(commands: Commands) -> None:
    """Add submit, resubmit and plan."""
    submit = commands.add(
        "submit",
        _submit,
        help="run any command as a job",
        description="Run any command as a job. The working folder goes along, without what .gitignore and .smqignore "
        "name; in the container it is unpacked, compile.sh is run and requirements.txt is installed if they are "
        "there, and the command starts in it.",
        examples=[
            "smq submit -- python train.py --lr 0.1",
            "smq submit -n 2 -t ml.p5.48xlarge --launcher torchrun -- python train.py",
            "smq submit --data data/imagenet=s3://datasets/imagenet --checkpoint -- python train.py --data imagenet",
            "smq submit --priority 5 --wait -- nvidia-smi",
        ],
    )
    add_job_options(submit)
    add_submission_options(submit)
    submit.add_argument(
        "--dry-run", action="store_true", help="print the request, and neither upload nor submit anything"
    )
    add_command(submit, _COMMAND)

    resubmit = commands.add(
        "resubmit",
        _resubmit,
        help="submit a job's request again",
        description="Submit the request of a job again, under another name. It starts from the beginning, with a "
        "checkpoint folder of its own, unless it is to resume.",
        examples=["smq resubmit job1", "smq resubmit job1 --name job1-longer --resume --priority 5"],
    )
    add_job(resubmit)
    resubmit.add_argument("--name", help="of the new job (default: JOB-r2, and so on)")
    resubmit.add_argument("--priority", metavar="P", type=int, help="of the new job (default: the same)")
    resubmit.add_argument(
        "--resume", action="store_true", help="go on from the checkpoints of the job, which must have ended"
    )
    add_submission_options(resubmit)

    plan = commands.add(
        "plan",
        _plan,
        help="tell what would become of a job",
        description="Tell what would become of a job, were it submitted now: whether it would start, on what, whom it "
        "would evict and by which rule, or why it would wait. Nothing is uploaded or submitted, and nobody is stopped. "
        "The job is a request in a file, or a command with the options of smq submit.",
        examples=[
            "smq plan request.json",
            "smq plan --json - < request.json",
            "smq plan -n 2 -t ml.p5.48xlarge --priority 5 -- python train.py",
        ],
    )
    plan.add_argument(
        "file", metavar="FILE", nargs="?", help="a CreateTrainingJob request in JSON; - is the standard input"
    )
    plan.usage = f"{plan.prog} [OPTIONS] [FILE | -- COMMAND]"
    plan.set_defaults(after_dashes=[])
    add_job_options(plan)
    add_json(plan)


def announce(code: Code, storage: Storage, *, quiet: bool) -> None:
    """Upload the code, and say what was packed."""
    uploaded = code.upload(storage)
    if not quiet:
        where = f"uploaded to {code.address}" if uploaded else f"already in {code.address}"
        print(f"{code.archive}, {where}", file=sys.stderr)


def _submit(queue: QueueClient, arguments: argparse.Namespace) -> int:
    with described_job(queue, arguments, words(arguments)) as (job, code, storage):
        request = job.request()
        if arguments.dry_run:
            print(f"{code.archive}, not uploaded", file=sys.stderr)
            print_json(request)
            return DONE
        look_first(queue, request, arguments, to_come=code.address)
        announce(code, storage, quiet=arguments.json)
    return _queued(queue, request, arguments)


def _resubmit(queue: QueueClient, arguments: argparse.Namespace) -> int:
    job = queue.job(arguments.job)
    if arguments.resume and not job.finished:
        raise Conflict(f"{job.job} is {job.state}: only one job at a time may write to its checkpoints.")
    if arguments.resume and "CheckpointConfig" not in job.request:
        raise InvalidOption(f"{job.job} keeps no checkpoints, so there is nothing to resume from.")
    name = arguments.name or next_name(job.job)
    request = resubmitted(job.request, name, priority=arguments.priority, resume=arguments.resume)
    look_first(queue, request, arguments)
    return _queued(queue, request, arguments)


def _plan(queue: QueueClient, arguments: argparse.Namespace) -> int:
    if bool(arguments.file) == bool(arguments.after_dashes):
        raise InvalidOption("Give either a file with a request, or a command after --.")
    if arguments.file:
        request = read_document(arguments.file, sys.stdin)
    else:
        with described_job(queue, arguments, arguments.after_dashes) as (job, _, _):
            request = job.request()
    plan = queue.plan(request)
    if arguments.json:
        print_json(plan.to_json())
    else:
        print(plan_page(str(request.get("TrainingJobName", "The job")), plan, width()))
    return DONE


def add_submission_options(parser: argparse.ArgumentParser, *, wait: bool = True) -> None:
    """Add the options that say how to submit."""
    if wait:
        parser.add_argument(
            "--wait", action="store_true", help="show what it writes until it has ended; the exit code says how it did"
        )
    parser.add_argument(
        "--no-preflight", action="store_true", help="submit it even if it is certain to fail, as far as one can see"
    )
    lines = "; with --wait, an object for each line that it writes" if wait else ""
    add_json(parser, help=f"what became of it, for programs{lines}")


def _queued(queue: QueueClient, request: Mapping[str, Any], arguments: argparse.Namespace) -> int:
    submission = queue.submit(request, preflight=not arguments.no_preflight)
    if arguments.json and not arguments.wait:
        print_json(submission.to_json())
        return DONE
    if not arguments.wait or submission.known:
        print(_line(submission), file=sys.stderr if arguments.wait else sys.stdout)
    for warning in submission.warnings:
        print(f"smq: warning: {warning}", file=sys.stderr)
    if not arguments.wait:
        return DONE
    from sagemaker_queue.cli.commands.logs import follow  # noqa: PLC0415  # boto3

    return follow(queue, submission.job, as_json=arguments.json)


def look_first(
    queue: QueueClient, request: Mapping[str, Any], arguments: argparse.Namespace, to_come: S3Address | None = None
) -> None:
    """Raise InvalidRequest if something that the request names in S3 is not there, but for what is yet to come."""
    if arguments.no_preflight:
        return
    from sagemaker_queue.packaging.storage import aws_session  # noqa: PLC0415
    from sagemaker_queue.preflight import check, refuse  # noqa: PLC0415  # boto3

    refuse(check(request, aws_session(queue.config), to_come=str(to_come.folder) if to_come else None))


def add_command(parser: argparse.ArgumentParser, help: str) -> None:
    """Add the command of a job, which takes all that is left."""
    parser.usage = f"{parser.prog} [OPTIONS] -- COMMAND"
    parser.set_defaults(options=frozenset(parser._option_string_actions) - _OF_MANY_PROGRAMS)
    parser.add_argument("command", metavar="-- COMMAND", nargs=argparse.REMAINDER, help=help)


def words(arguments: argparse.Namespace) -> list[str]:
    """Return the command without the -- before it.

    Raises InvalidOption if the -- is missing and what follows may be meant for smq.
    """
    command: list[str] = arguments.command
    if command[:1] == ["--"]:
        return command[1:]
    if doubtful := [word for word in command if word.partition("=")[0] in arguments.options]:
        raise InvalidOption(
            f"Is {doubtful[0]} for smq or for the command? Write smq's own options first, then --, then the command."
        )
    return command


def _line(job: Submission) -> str:
    if job.known:
        return f"{job.job} was submitted before: it is {job.state}"
    return f"{job.job} is {standing(job)}"


def standing(job: JobSummary) -> str:
    """Return the state of a job, and why it is so, in one line."""
    return state_and_reason(job, "of all that wait")
