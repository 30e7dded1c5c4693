"""``smq shell``: open a terminal in the container of a job, run a command there, or forward a port."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from sagemaker_queue.cli.arguments import live_job_argument
from sagemaker_queue.cli.job_command import WrapperCommand
from sagemaker_queue.cli.output import DONE, ENDED_OTHERWISE, REFUSED, raw
from sagemaker_queue.cli.parser import checked, command, flag, option, with_queue
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.jobs.formatting import clean, in_words, ordinal, state_sentence

if TYPE_CHECKING:
    from api_contract.models import Attempt, JobDetail
    from sagemaker_queue.queue.client import QueueClient
    from sagemaker_queue.workflows.job_logs.renderer import JobLogRenderer
    from sagemaker_queue.workflows.remote_shell.command_lines import MarkedCommand
    from sagemaker_queue.workflows.remote_shell.job_sessions import JobSessions
    from sagemaker_queue.workflows.remote_shell.session import Port, Session

_LARGEST_PORT = 65535


def _ports(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,5})(?::(\d{1,5}))?", text)
    remote, local = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not (1 <= remote <= _LARGEST_PORT and 1 <= local <= _LARGEST_PORT):
        raise InvalidOption(f"{text!r} is not a port: write PORT, or PORT:LOCAL such as 8888:9999.")
    return remote, local


def _instance(text: str) -> int:
    number = text[len("algo-") :] if text.startswith("algo-") else text
    if not number.isdecimal():
        raise InvalidOption(f"{text!r} is not an instance: write algo-1 or 1.")
    return int(number)


@command(
    "shell",
    cls=WrapperCommand,
    help="open a shell in a job, run a command there, or forward a port",
    description="Open a shell in the container of a job's current attempt. For jobs of smq submit, the shell has the "
    "job's working folder and variables. With COMMAND, run the command there without input, and exit with its exit "
    "code, or with 4 if the attempt ends without completing. With --forward, forward a port of this machine to the "
    "container. If the job was submitted without remote debugging, the queue "
    "enables it in the running attempt, for owners, administrators of the project and administrators of "
    "the queue. The shell uses AWS's Session Manager, whose plugin must be installed on this machine. "
    "The job continues after the shell. An interactive job without a command ends some time after the last session.",
    examples=[
        "smq shell job1",
        "smq shell job1 --instance 2",
        "smq shell job1 -- nvidia-smi",
        "smq shell job1 -- sh -c 'tail -5 $SM_OUTPUT_DATA_DIR/log.txt'",
        "smq shell job1 --forward 8888            # then http://localhost:8888",
    ],
    usage="[OPTIONS] JOB [-- COMMAND]",
)
@live_job_argument
@option(
    "--instance",
    metavar="I",
    type=checked(_instance),
    default="1",
    help="the instance, such as algo-2 or 2 (default: algo-1)",
)
@option(
    "--forward",
    metavar="PORT[:LOCAL]",
    type=checked(_ports),
    help="forward the local port LOCAL (default: PORT) to PORT in the container, until Ctrl-C",
)
@flag(
    "--follow/--no-follow",
    "follow",
    default=None,
    help="wait until the job runs, and open a new shell or port in each later attempt (default: on a terminal)",
)
@with_queue
def shell(
    queue: QueueClient,
    name: str,
    instance: int,
    forward: tuple[int, int] | None,
    follow: bool | None,
    command: tuple[str, ...],
) -> int:
    """Open a session in a job: a shell, a command or a forwarded port."""
    if forward and command:
        raise InvalidOption("--forward and a command need two sessions: run two commands side by side.")
    from sagemaker_queue.workflows.remote_shell.command_lines import MarkedCommand  # noqa: PLC0415
    from sagemaker_queue.workflows.remote_shell.session import Port  # noqa: PLC0415  # boto3

    purpose = MarkedCommand(command) if command else Port(*forward) if forward else None
    followed = sys.stdout.isatty() if follow is None else follow
    return enter(queue, name, purpose, instance=instance, follow=followed)


def enter(
    queue: QueueClient, name: str, purpose: MarkedCommand | Port | None = None, *, instance: int = 1, follow: bool
) -> int:
    """Open a session in the job's container, print how the session ended, and return the exit code.

    With ``follow``, wait until the job runs, and open a new session in the next attempt. A command is run only once. In
    both cases, wait for the container of a running attempt. Raises QueueError.
    """
    from sagemaker_queue.workflows.job_logs.renderer import JobLogRenderer  # noqa: PLC0415
    from sagemaker_queue.workflows.remote_shell.job_sessions import JobSessions  # noqa: PLC0415
    from sagemaker_queue.workflows.remote_shell.plugin import find_plugin  # noqa: PLC0415

    sessions = JobSessions(queue, find_plugin(), name, instance)
    notes = JobLogRenderer(raw(sys.stdout), raw(sys.stderr))
    while True:
        session = _open_session(sessions, purpose, notes, name, follow=follow)
        status = session.run(_liveness_check(sessions), sys.stdout.buffer if purpose is not None else None)
        job, attempt = sessions.state_after_session()
        if attempt.outcome is None:
            return _note_session_end(job, purpose, status, notes.note)
        notes.note(_end_sentence(job, attempt))
        if not follow or job.finished or _is_command(purpose):
            return ENDED_OTHERWISE if attempt.outcome != "completed" else DONE if status is None else status


def _open_session(
    sessions: JobSessions, purpose: MarkedCommand | Port | None, notes: JobLogRenderer, name: str, *, follow: bool
) -> Session:
    from api_contract.models import JobDetail  # noqa: PLC0415
    from sagemaker_queue.workflows.remote_shell.job_sessions import LastingNote  # noqa: PLC0415

    try:
        for step in sessions.enter(purpose, wait=follow):
            if isinstance(step, LastingNote):
                notes.note(step)
            elif isinstance(step, (JobDetail, str)):
                notes.status(state_sentence(step) if isinstance(step, JobDetail) else step)
            else:
                return step
    except KeyboardInterrupt:
        notes.note(f"{name} stays in the queue. To enter it later: smq shell {name}; to cancel it: smq cancel {name}")
        raise
    finally:
        notes.close()
    raise AssertionError("it yields a session or raises")


def _liveness_check(sessions: JobSessions) -> Callable[[], bool]:
    """Return a function that checks whether the attempt is alive, and prints the cause of a stop once.

    The terminal may be in raw mode, so lines end with a carriage return and a line feed.
    """
    printed: list[str] = []

    def is_attempt_running() -> bool:
        alive = sessions.is_attempt_running()
        if alive and sessions.stop_cause is not None and not printed:
            printed.append(sessions.stop_cause)
            sentence = clean(f"{sessions.name} is being stopped: {sessions.stop_cause}. Save what you need.")
            raw(sys.stderr).write(f"\r\nsmq: {sentence}\r\n")
            raw(sys.stderr).flush()
        return alive

    return is_attempt_running


def _note_session_end(
    job: JobDetail, purpose: MarkedCommand | Port | None, status: int | None, note: Callable[[str], None]
) -> int:
    """Print a note after a session while the job still runs, and return the exit code.

    After a command with a known exit code, print nothing.
    """
    if _is_command(purpose):
        if status is None:
            note("The session ended before the command, so the exit code is not known.")
        return REFUSED if status is None else status
    idle_end = job.request.get("HyperParameters", {}).get("idle_end", "")
    ends = f" The job ends by itself {in_words(int(idle_end))} after the last session." if idle_end.isdecimal() else ""
    note(
        f"{job.job} continues to run.{ends} To enter it again: smq shell {job.job}; to cancel it: smq cancel {job.job}"
    )
    return DONE if status is None else status


def _end_sentence(job: JobDetail, attempt: Attempt) -> str:
    """Return a text about the end of an attempt, with the cause, and about the job's position if the job waits."""
    from api_contract.models import INTERRUPTED  # noqa: PLC0415

    causes = [change.cause for change in job.history if change.attempt == attempt.attempt and change.cause]
    because = f": {causes[-1]}" if causes else ""
    is_interrupted = attempt.outcome in (*INTERRUPTED, "stopped")
    outcome = f"was {attempt.outcome}" if is_interrupted else f"has ended ({attempt.outcome})"
    place = f" The job waits, {ordinal(job.position)} in the queue." if job.position else ""
    cause_text = because if because.endswith(".") else f"{because}."
    return f"{job.job} {outcome}{cause_text}{place}"


def _is_command(purpose: MarkedCommand | Port | None) -> bool:
    from sagemaker_queue.workflows.remote_shell.command_lines import MarkedCommand  # noqa: PLC0415

    return isinstance(purpose, MarkedCommand)
