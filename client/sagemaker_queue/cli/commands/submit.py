"""``smq submit``, ``resubmit`` and ``plan``: submit a command, submit a job's request again, print a dry run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from sagemaker_queue.cli.arguments import job_argument
from sagemaker_queue.cli.commands.interactive.shell import enter
from sagemaker_queue.cli.commands.policy.policy_preview import HOURS, capacities, hours_from, show_preview
from sagemaker_queue.cli.completion import files, projects
from sagemaker_queue.cli.job_command import RunCommand, WrapperCommand, job_command, job_from_options, job_options
from sagemaker_queue.cli.option_names import errors_with_options, with_options
from sagemaker_queue.cli.output import DONE, is_interactive, print_json, print_warning, width
from sagemaker_queue.cli.parser import (
    argument,
    checked,
    command,
    flag,
    json_flag,
    option,
    with_queue,
)
from sagemaker_queue.cli.progress_bars import TransferProgress
from sagemaker_queue.errors import (
    Conflict,
    Forbidden,
    InvalidOption,
    NameTaken,
    NotFound,
)
from sagemaker_queue.jobs.formatting import file_size, one_line
from sagemaker_queue.jobs.packaging.command import InteractiveSettings, next_name, resubmission, tags_with_options
from sagemaker_queue.jobs.packaging.job_options import JOB_OPTIONS, pair
from sagemaker_queue.presentation.documents import read_document
from sagemaker_queue.presentation.text.explanations import plan_page
from sagemaker_queue.presentation.text.submission_text import submission_line
from sagemaker_queue.queue.config.job_defaults import seconds
from sagemaker_queue.workflows.saved_checkpoints import choose_step, copy_step, list_checkpoints
from sagemaker_queue.workflows.submission import check_acceptance, check_storage, submit_request, upload_code

if TYPE_CHECKING:
    from sagemaker_queue.jobs.packaging.code import Code
    from sagemaker_queue.jobs.packaging.job_options import JobKeywords
    from sagemaker_queue.jobs.packaging.packing import Archive
    from sagemaker_queue.jobs.packaging.storage import S3Storage
    from sagemaker_queue.queue.client import QueueClient

IDLE_END = 3600  # seconds
_LARGE = 5_000_000  # bytes; larger uploads of code are announced
_REDACTED = "***"  # the queue returns this text in place of a value, except to the job's owner and administrators


preflight_option = flag(
    "--no-preflight",
    "preflight",
    flag_value=False,
    default=True,
    help="skip the checks that find jobs that are certain to fail",
)
_shell_option = partial(option, section="shells in the job")
_interactive = _shell_option(
    "--interactive",
    is_flag=True,
    help="submit a job for shells (smq shell). Within its project's quota it starts before training jobs and is not "
    "preempted; beyond the quota it waits. On a terminal, a shell opens when it runs. Without COMMAND, it only "
    "serves shells",
)
_idle_end = _shell_option(
    "--idle-end",
    metavar="TIME",
    type=checked(seconds),
    help="without COMMAND, end the job after this time without a shell or a forwarded port (default: the policy's, "
    "or 1h)",
)
_no_shell = _shell_option(
    "--no-shell", "opens_shell", is_flag=True, flag_value=False, default=True, help="open no shell"
)
_cancel_after_shell = _shell_option("--rm", "cancels", is_flag=True, help="cancel the job when the shell ends")
_wait = flag("--wait", help="print the log until the job has finished; the exit code tells the result")
_submission_json = json_flag("print the result as JSON; with --wait, an object for each line of the log")


@command(
    "submit",
    cls=RunCommand,
    help="run any command as a job",
    description="Run any command as a job. The working folder is packed and uploaded, without the files that "
    ".gitignore and .smqignore name. In the container, the folder is unpacked, compile.sh (or else "
    "compile.aml.sh) runs and requirements.txt is installed if they exist, and the command starts in "
    "the folder. The command begins with the first word that is neither an option of smq nor an "
    "option's value; -- before it is optional. In the command, {data:NAME} stands for the path of data "
    "in the container: NAME is the PATH of --data, of a data link of the profile, or the name of a "
    "channel.",
    examples=[
        "smq submit python train.py --data imagenet",
        "smq submit -- python train.py --lr 0.1",
        "smq submit -n 2 -t ml.p5.48xlarge --launcher torchrun -- python train.py",
        "smq submit --data data/imagenet=s3://datasets/imagenet --checkpoint -- python train.py --data imagenet",
        "smq submit --data imagenet=s3://datasets/imagenet -- python train.py --data {data:imagenet}",
        "smq submit --priority 5 --wait -- nvidia-smi",
        "smq submit --after train-large --after clean-up:any -- python evaluate.py",
        "smq submit --interactive -t ml.g5.xlarge --idle-end 2h",
    ],
)
@job_options
@_interactive
@_idle_end
@_no_shell
@_cancel_after_shell
@_wait
@preflight_option
@_submission_json
@flag("--dry-run", help="print the request; upload and submit nothing")
@flag("--list-files", help="print the files that would be packed; upload and submit nothing")
@job_command("the command and its arguments, as in the working folder")
@with_queue
def submit(
    queue: QueueClient,
    options: JobKeywords,
    interactive: bool,
    idle_end: int | None,
    opens_shell: bool,
    cancels: bool,
    wait: bool,
    preflight: bool,
    as_json: bool,
    dry_run: bool,
    list_files: bool,
    command: tuple[str, ...],
) -> int:
    """Pack a folder, upload it, and submit a job; optionally follow the job or open a shell."""
    if idle_end and (command or not interactive):
        raise InvalidOption("--idle-end needs --interactive without a command: a job with a command ends with it.")
    if interactive and wait:
        raise InvalidOption(
            "--wait and --interactive cannot be given together: to see the log, run smq logs -f in another terminal."
        )
    interactive_settings = InteractiveSettings(idle_end or IDLE_END) if interactive else None
    enters_shell = interactive and opens_shell and is_interactive() and not (as_json or dry_run or list_files)
    if enters_shell:
        from sagemaker_queue.workflows.remote_shell.plugin import find_plugin  # noqa: PLC0415  # needed only for a shell

        find_plugin()  # raises if there is no plugin, before the job holds an instance
    with job_from_options(queue, options, command, interactive_settings) as (job, code, storage):
        if list_files:
            return _list_files(code.archive, as_json)
        if dry_run:
            print(f"{code.archive}, not uploaded", file=sys.stderr)
            print_json(job.request())
            return DONE
        request = replace(
            job,
            name=_free_name(queue, job.name) if options.get("name") else job.name,
            idle_end=None if job.idle_end is None else _idle_end_of(queue, idle_end),
        ).request()
        upload(queue, request, code, storage, preflight=preflight, quiet=as_json)
    with errors_with_options(request):
        rewrite_warning = partial(with_options, request=request)
        exit_code = _queue_job(
            queue,
            request,
            preflight=preflight,
            wait=wait,
            as_json=as_json,
            rewrite_warning=rewrite_warning,
            relative_times=job.relative_times,
        )
    return _enter(queue, request["TrainingJobName"], cancels=cancels) if enters_shell else exit_code


def _idle_end_of(queue: QueueClient, requested: int | None) -> int:
    """Return the seconds without a session after which a job without a command ends.

    The default (``requested`` is None) is the policy's limit, or IDLE_END without a limit. Raises InvalidOption if
    ``requested`` exceeds the limit.
    """
    limit = (queue.policy().policy.get("interactive") or {}).get("idle_end")
    if limit is None:
        return requested or IDLE_END
    if requested and requested > limit:
        raise InvalidOption(f"--idle-end may be at most {int(limit)} seconds, by the policy (interactive.idle_end).")
    return requested or int(limit)


def _enter(queue: QueueClient, name: str, *, cancels: bool) -> int:
    code = enter(queue, name, follow=True)  # after an error or Ctrl-C here, the job stays in the queue
    if cancels and not queue.cancel(name).was_finished:
        print(f"{name} is cancelled", file=sys.stderr)
    return code


@command(
    "resubmit",
    help="submit a job's request again",
    description="Submit the request of a job again, under another name. Without --resume or --from, the new job "
    "starts from the beginning, with a checkpoint folder of its own. With --from, a checkpoint of that "
    "step is first copied into the new folder, inside S3 and with your own AWS credentials; the old job "
    "may still run.",
    examples=[
        "smq resubmit job1",
        "smq resubmit job1 --name job1-longer --resume --priority 5",
        "smq resubmit job1 --from 2000",
    ],
)
@job_argument
@option("--name", "new_name", metavar="NAME", help="name of the new job (default: JOB-r2, then JOB-r3)")
@option("--priority", metavar="P", type=int, help="priority of the new job (default: the same)")
@option("--project", metavar="X", shell_complete=projects, help="project of the new job (default: the same)")
@option(
    "--after",
    metavar="JOB[:any]",
    multiple=True,
    help="start the new job after this job has completed, or with :any has finished; replaces the old job's list",
)
@option(
    "--tag",
    metavar="K=V",
    type=checked(pair),
    multiple=True,
    help="set a tag of the new job, or replace the old job's; may be repeated",
)
@flag("--resume", exclusive_group="start", help="continue from the checkpoints of the job, which must have finished")
@option(
    "--from",
    "from_step",
    metavar="STEP",
    type=click.IntRange(min=0),
    exclusive_group="start",
    help="continue from a copy of this step (smq checkpoints JOB lists the steps)",
)
@_wait
@preflight_option
@_submission_json
@with_queue
def resubmit(
    queue: QueueClient,
    name: str,
    new_name: str | None,
    priority: int | None,
    project: str | None,
    after: tuple[str, ...],
    tag: tuple[tuple[str, str], ...],
    resume: bool,
    from_step: int | None,
    wait: bool,
    preflight: bool,
    as_json: bool,
) -> int:
    """Submit the request of a job again under another name."""
    job = queue.job(name)
    if resume and not job.finished:
        raise Conflict(f"{job.job} is {job.state}: only one job at a time may write to its checkpoints.")
    if (resume or from_step is not None) and "CheckpointConfig" not in job.request:
        raise InvalidOption(f"{job.job} keeps no checkpoints, so there is nothing to resume from.")
    if _is_redacted(job.request):
        raise Forbidden(
            f"{job.job} belongs to {job.owner}: you cannot see all of its request, so you cannot submit it again."
        )
    request = resubmission(
        job.request,
        new_name or next_name(job.job),
        tags=_new_tags(priority=priority, project=project, after=after, tag=dict(tag)),
        resume=resume,
        from_step=from_step,
    )
    if preflight:
        check_storage(queue, request)
    if from_step is not None:
        _copy_step(queue, job.job, from_step, request, quiet=as_json)
    return _queue_job(queue, request, preflight=preflight, wait=wait, as_json=as_json)


def _is_redacted(value: object) -> bool:
    """Return whether the queue has replaced a value anywhere in a request, or in a part of one."""
    parts = list(value.values()) if isinstance(value, Mapping) else value
    return any(_is_redacted(part) for part in parts) if isinstance(parts, list) else parts == _REDACTED


def _new_tags(**options: Any) -> dict[str, str]:
    """Return the tags that the options of ``resubmit`` set. Raises InvalidOption if two options contradict."""
    given = cast("JobKeywords", {name: value for name, value in options.items() if value not in (None, ())})
    return tags_with_options(given, lambda name: JOB_OPTIONS[name].names[-1])


def _copy_step(queue: QueueClient, name: str, step: int, request: Mapping[str, Any], *, quiet: bool) -> None:
    """Copy a step into the folder of the new job.

    If a job with the new name exists, copy nothing, because that job's folder may be in use.
    """
    with suppress(NotFound):
        queue.job(request["TrainingJobName"])
        return  # the submission will return the existing job, or report that the name is taken
    listed = list_checkpoints(queue, name)
    choose_step(listed, step)  # raises if there is no such step, before the request to the queue
    check_acceptance(queue, request)
    copied = copy_step(queue, listed, step, request, partial(TransferProgress, "Copying"))
    if not quiet:
        size = file_size(sum(one.size for one in copied))
        print(f"Step {step} of {name}, {size}, copied to {one_line(copied.address)}", file=sys.stderr)


@command(
    "plan",
    cls=WrapperCommand,
    usage="[OPTIONS] [FILE | -- COMMAND]",
    help="print what would happen to a job (dry run)",
    description="Print what would happen if a job were submitted now: whether it would start, on which instances, "
    "which jobs would be stopped for it and by which rule, or why it would wait. Nothing is uploaded, "
    "submitted or stopped. The job is a request in a file, or a command with the options of smq submit. "
    "With --capacity, print what would change for all jobs if pools had other numbers of instances.",
    examples=[
        "smq plan request.json",
        "smq plan --json - < request.json",
        "smq plan -n 2 -t ml.p5.48xlarge --priority 5 -- python train.py",
        "smq plan --capacity p5=10,p4=4 --hours 24",
    ],
)
@argument(
    "file",
    metavar="FILE",
    required=False,
    shell_complete=files,
    help="a CreateTrainingJob request in JSON; - is the standard input",
)
@option(
    "--capacity",
    metavar="POOL=N",
    type=checked(capacities),
    help="preview other numbers of instances instead of a job: p5=10, or p5=10,p4=4",
)
@option(
    "--hours",
    metavar="N",
    type=checked(hours_from),
    help=f"with --capacity: the hours to look ahead (default {HOURS:g})",
)
@job_options
@json_flag()
@with_queue
def plan(
    queue: QueueClient,
    file: str | None,
    capacity: dict[str, int] | None,
    hours: float | None,
    options: JobKeywords,
    as_json: bool,
    command: tuple[str, ...],
) -> int:
    """Print the dry run of a job, or a preview with other capacities."""
    if bool(file) + bool(command) + (capacity is not None) != 1:
        raise InvalidOption("Give either a file with a request, a command after --, or --capacity.")
    if options and not command:
        names = ", ".join(JOB_OPTIONS[name].names[-1] for name in options)
        other = "--capacity" if file is None else "a file with a request"
        raise InvalidOption(f"{names} cannot be given together with {other}: options of a job need a command after --.")
    if capacity is not None:
        return show_preview(queue.preview(capacity=capacity, hours=HOURS if hours is None else hours), as_json=as_json)
    if hours is not None:
        raise InvalidOption("--hours needs --capacity: the dry run of a job is for the present.")
    if file:
        request = read_document(file, sys.stdin)
    else:
        with job_from_options(queue, options, command) as (job, _, _):
            request = job.request()
    with errors_with_options(request) if command else nullcontext():
        forecast = queue.plan(request)
    if as_json:
        print_json(forecast.to_json())
        return DONE
    if command:
        warnings = tuple(with_options(warning, request) for warning in forecast.warnings)
        forecast = msgspec.structs.replace(forecast, warnings=warnings)
    print(plan_page(str(request.get("TrainingJobName", "The job")), forecast, width()))
    return DONE


def _list_files(archive: Archive, as_json: bool) -> int:
    if as_json:
        files = [{"name": name, "size": size} for name, size in archive.names if size is not None]
        print_json({"files": files, "keptBack": list(archive.kept_back)})
        return DONE
    for name, size in archive.names:
        if size is not None:
            print(f"{file_size(size):>14}  {one_line(name)}")
    print(archive, file=sys.stderr)
    return DONE


def _free_name(queue: QueueClient, name: str) -> str:
    """Return the first of name, name-r2, name-r3 and so on that is not the name of a finished job."""
    free = name
    try:
        while (job := queue.job(free)).finished:
            free, last = next_name(free), job.state
    except NotFound:
        pass
    except Forbidden:
        return name  # the submission will report a better error
    if free != name:
        print(f"smq: A finished job has the name {name} ({last}); the new job is {free}.", file=sys.stderr)
    return free


def upload(
    queue: QueueClient, request: Mapping[str, Any], code: Code, storage: S3Storage, *, preflight: bool, quiet: bool
) -> None:
    """Check a request, upload its code, and print the address, unless ``quiet``.

    On a terminal, print only a line before a large upload.
    """
    size = code.file.stat().st_size

    def announce_upload() -> None:
        if sys.stderr.isatty() and size >= _LARGE and not quiet:
            print(f"Uploading {code.archive} ...", file=sys.stderr)

    with errors_with_options(request):
        uploaded = upload_code(queue, request, code, storage, preflight=preflight, before=announce_upload)
    if not quiet and not sys.stderr.isatty():
        destination = f"uploaded to {code.address}" if uploaded else f"already in {code.address}"
        print(f"{code.archive}, {destination}", file=sys.stderr)


def _queue_job(
    queue: QueueClient,
    request: Mapping[str, Any],
    *,
    preflight: bool,
    wait: bool,
    as_json: bool,
    rewrite_warning: Callable[[str], str] = str,
    relative_times: Sequence[str] = (),
) -> int:
    """Submit a request and print the result; with ``wait``, follow the job. Return the exit code.

    ``rewrite_warning`` is called with each warning, to replace the request's fields in the text by options of ``smq``.
    """
    try:
        submission = submit_request(queue, request, preflight=preflight, relative_times=relative_times)
    except NameTaken as error:
        name = request["TrainingJobName"]
        raise NameTaken(
            f"Another request has the name {name}: give another --name. To cancel that job: smq cancel {name}"
        ) from error
    if as_json and not wait:
        print_json(submission.to_json())
        return DONE
    if not wait or submission.known:
        following = "shell" if request.get("RemoteDebugConfig", {}).get("EnableRemoteDebug") else None
        print(submission_line(submission, width(), following=following), file=sys.stderr if wait else sys.stdout)
    for warning in submission.warnings:
        print_warning(rewrite_warning(warning))
    if not wait:
        return DONE
    from sagemaker_queue.cli.commands.logs import follow  # noqa: PLC0415  # boto3
    from sagemaker_queue.workflows.job_logs.choice import LineChoice  # noqa: PLC0415

    return follow(queue, submission.job, LineChoice(as_json=as_json))
