"""The public ``QueueClient``: the queue's API, and the functions of ``smq``, for notebooks and scripts."""

from __future__ import annotations

import inspect
import shlex
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timezone
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast

import msgspec

from api_contract.history import PastAttempt
from api_contract.models import JobDetail, JobSummary, PlanAnswer, Submission
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.jobs.checkpoint_warning import with_remedy
from sagemaker_queue.jobs.formatting import amount, did_you_mean, file_size, one_line, state_sentence
from sagemaker_queue.jobs.packaging.command import packed_job
from sagemaker_queue.jobs.packaging.job_options import JOB_OPTIONS, JobKeywords
from sagemaker_queue.jobs.packaging.sweep import check_values
from sagemaker_queue.notebook import html
from sagemaker_queue.notebook.iterators import Jobs, Listing, LogLines, Sweep, attempts_text, jobs_text
from sagemaker_queue.notebook.progress import Progress
from sagemaker_queue.notebook.usage_report import FailureReport, UsageReport, failure_report, usage_report
from sagemaker_queue.queue import client
from sagemaker_queue.queue.config.pace import POLL_SECONDS, PollingPace, first_pause
from sagemaker_queue.workflows.grid import MOST, job_for_run, submit_all, sweep_runs
from sagemaker_queue.workflows.job_logs.choice import LineChoice
from sagemaker_queue.workflows.job_logs.follower import Follower, Outage
from sagemaker_queue.workflows.results import Fetched, fetch_results
from sagemaker_queue.workflows.saved_checkpoints import (
    JobCheckpoints,
    list_checkpoints,
    prunable,
    remove_checkpoints,
)
from sagemaker_queue.workflows.selection import Selection, matching_job_names
from sagemaker_queue.workflows.submission import submit_request, upload_code
from sagemaker_queue.workflows.usage.period import moment_of, past_attempts
from sagemaker_queue.workflows.waiting import UnfinishedJobs, wait_until_finished

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sagemaker_queue.jobs.packaging.code import Code
    from sagemaker_queue.jobs.packaging.command import CommandJob
    from sagemaker_queue.jobs.packaging.storage import Progress as CountBytes
    from sagemaker_queue.jobs.packaging.storage import S3Storage

Warned = TypeVar("Warned", Submission, PlanAnswer)
Method = TypeVar("Method", bound=Callable[..., Any])
Command = Union[str, Sequence[str]]
"""A command as one text, or as a list of words."""

html.show_in_notebooks()


def _with_keywords(answer: Warned) -> Warned:
    """Return the answer with the keyword ``checkpoint=True`` as the remedy in a warning about missing checkpoints."""
    warnings = tuple(with_remedy(warning, "give checkpoint=True.") for warning in answer.warnings)
    return msgspec.structs.replace(answer, warnings=warnings)


def _with_job_keywords(method: Method) -> Method:
    """Replace ``**job`` in a method's signature by the keywords of jobs, so that notebooks complete and show them."""
    signature = inspect.signature(method)
    kept = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=row.__origin__.__forward_arg__)
        for name, row in JobKeywords.__annotations__.items()
    ]
    cast(Any, method).__signature__ = signature.replace(parameters=[*kept, *added])
    return method


class QueueClient(client.QueueClient):
    """A client of one queue.

    ``config`` names the queue. Without ``config``, ``find_config`` finds the queue by the keyword arguments, the
    environment and the profile file. ``boto_session`` provides credentials and region (default: the profile's, else the
    usual AWS defaults). Methods raise the errors of ``sagemaker_queue.errors``. After a lost connection, 429 or 5xx, a
    request is repeated, up to ``tries`` tries in all. The pause between two tries is random; its maximum is
    ``pause_seconds`` and doubles each time. Submissions can be repeated safely: the queue answers a known request with
    the present state of its job.

    Notebooks show the results of methods as tables. Methods accept the name of a job, or an object with that name, such
    as the result of ``submit``.
    """

    @_with_job_keywords
    def submit(
        self, request: Mapping[str, Any] | Command, *, preflight: bool = True, **job: Unpack[JobKeywords]
    ) -> Submission:
        """Submit a command such as ``"python train.py --lr 0.1"``, or a CreateTrainingJob request.

        A command, as one text or a list of words, runs in the working folder, which is packed and uploaded as by
        ``smq submit``. The keywords are the options of ``smq submit``; the profile provides the defaults. A repeated
        request, or a repeated call with the same ``name``, returns the present state of the job. Without
        ``preflight``, the queue accepts a job that is certain to fail, and returns the reason as a warning. Files that
        may contain secrets are not packed, and a Python warning names them.
        """
        if isinstance(request, Mapping):
            _refuse_keywords(job)
            return super().submit(request, preflight=preflight)
        with self._job_from_keywords(request, job) as (described, code, storage):
            built_request = described.request()
            upload_code(self, built_request, code, storage, preflight=preflight)
            times = described.relative_times
        return _with_keywords(submit_request(self, built_request, preflight=preflight, relative_times=times))

    @_with_job_keywords
    def sweep(
        self,
        command: Command,
        grid: Mapping[str, Sequence[object]],
        *,
        preflight: bool = True,
        yes: bool = False,
        **job: Unpack[JobKeywords],
    ) -> Sweep:
        """Submit a command once for each combination of values, as independent jobs of one group.

        ``{lr}`` in the command or in ``env`` is replaced by each value of ``grid={"lr": [0.1, 0.01]}``. The keywords
        are the same as for ``submit``. The same call again submits only the missing jobs. Without ``yes``, more than 50
        jobs are refused. If a job is invalid or too large, or its name is taken, the others are still submitted. After
        any other error, no further jobs are submitted. In both cases, the first error is raised with the names of the
        missing jobs.
        """
        grids = check_values(grid)
        with self._job_from_keywords(command, job) as (template, code, storage):
            group, runs = sweep_runs(template, job.get("name"), grids)
            if len(runs) > MOST and not yes:
                raise InvalidOption(f"These are {len(runs)} jobs; yes=True submits more than {MOST}.")
            jobs = [job_for_run(template, group, run) for run in runs]
            first, *_ = [one.request() for one in jobs]  # an invalid request fails here, before the upload
            upload_code(self, first, code, storage, preflight=preflight)
        times = template.relative_times
        result = submit_all(
            jobs, lambda one: submit_request(self, one.request(), preflight=preflight, relative_times=times)
        )
        for error in filter(None, result.refused.values()):
            missing = ", ".join(result.refused)
            message = f"{len(result.refused)} of {amount(len(jobs), 'job')} not submitted: {missing}. {error}"
            raise type(error)(message) from error
        return Sweep(result.jobs)

    @_with_job_keywords
    def plan(self, request: Mapping[str, Any] | Command, **job: Unpack[JobKeywords]) -> PlanAnswer:
        """Return the dry run of a command or of a request: whether the job would start now, or why it would wait.

        Nothing is stored or uploaded. The keywords are the same as for ``submit``.
        """
        if isinstance(request, Mapping):
            _refuse_keywords(job)
            return super().plan(request)
        with self._job_from_keywords(request, job) as (described, _, _):
            return _with_keywords(super().plan(described.request()))

    def jobs(self, states: str | Iterable[str] = "live") -> Listing[JobSummary]:
        """List jobs: ``live`` jobs, ``finished`` jobs, ``all`` jobs, or the jobs in the given states.

        Live jobs are in the queue's order: the highest priority first, then the earliest submission. Pages of jobs are
        read during the iteration.
        """
        return Listing(super().jobs(states), html.jobs, jobs_text)

    def history(
        self,
        since: datetime | str = "7d",
        until: datetime | str | None = None,
        *,
        owner: str | None = None,
        project: str | None = None,
    ) -> Listing[PastAttempt]:
        """List the attempts that ended at ``since`` or later, and before ``until``, the earliest end first.

        Times are datetimes, or text: ``2026-11-22``, ``2026-11-22T10:00`` (UTC), or ``12h``, ``7d`` for a time ago.
        ``owner`` is an ARN, which may contain ``*``. Attempts are kept longer than their jobs.
        """
        found = super().history(_time(since), None if until is None else _time(until), owner=owner, project=project)
        return Listing(found, html.attempts, attempts_text)

    def usage(
        self,
        by: str = "project",
        since: datetime | str = "30d",
        until: datetime | str | None = None,
        *,
        project: str | Iterable[str] = (),
        owner: str | Iterable[str] = (),
        group: str | Iterable[str] = (),
    ) -> UsageReport:
        """Sum the usage of attempts that ended in a period, as ``smq usage`` does.

        ``by`` is ``project``, ``owner``, ``group``, ``pool``, ``department``, ``region``, ``account``, ``day`` or
        ``cause`` (such as useful or lost). ``project``, ``owner`` and ``group`` are patterns that select attempts.
        Times are as for ``history``.
        """
        selection = Selection(projects=_several(project), owners=_several(owner), groups=_several(group))
        attempts = past_attempts(self, selection, _time(since), None if until is None else _time(until))
        return usage_report(self, by, attempts, selection.projects)

    def failures(
        self,
        by: str = "class",
        since: datetime | str = "30d",
        until: datetime | str | None = None,
        *,
        project: str | Iterable[str] = (),
        owner: str | Iterable[str] = (),
        group: str | Iterable[str] = (),
    ) -> FailureReport:
        """Sum the attempts that failed in a period, as ``smq failures`` does.

        ``by`` is ``class``, ``project``, ``owner``, ``instance-type`` or ``gpu``. ``project``, ``owner`` and ``group``
        are patterns that select attempts. Times are as for ``history``. ``job(name).failure`` is the failure of one
        job.
        """
        selection = Selection(projects=_several(project), owners=_several(owner), groups=_several(group))
        attempts = past_attempts(self, selection, _time(since), None if until is None else _time(until))
        return failure_report(by, attempts)

    def wait(
        self,
        *jobs: str | JobSummary | Iterable[str | JobSummary],
        group: str | None = None,
        timeout: float | None = None,
        silent: bool = False,
        poll: float = POLL_SECONDS,
    ) -> Jobs[JobDetail]:
        """Wait until jobs have finished, and return them with their final ``state``.

        Give names, patterns such as ``"lr-*"``, objects with a name, or lists of these; or give ``group`` for all its
        jobs. Notebooks show the progress as a table and terminals as a line, unless ``silent``. An interrupt
        stops only the waiting, not the jobs. Raises NotFound, and TimeoutError after ``timeout`` seconds. ``poll`` is
        the usual pause between two requests, in seconds. By default the first pauses are shorter. While nothing
        changes, the pauses grow.
        """
        names = matching_job_names(self, _names(jobs), (group,) if group else (), "all")
        if not names:
            raise InvalidOption("Name the jobs to wait for, or give a group.")
        deadline = None if timeout is None else time.monotonic() + timeout
        ended: dict[str, JobDetail] = {}

        pace = PollingPace(poll, first=first_pause(poll))

        def pause() -> None:
            seconds = pace.seconds()
            left = seconds if deadline is None else min(seconds, deadline - time.monotonic())
            if left < 0:
                raise TimeoutError(f"After {timeout:g} seconds, {len(ended)} of {amount(len(names), 'job')} ended.")
            time.sleep(left)

        with Progress(silent=silent) as progress:
            message = ""
            for event in wait_until_finished(self, names, pace, pause):
                if isinstance(event, JobDetail):
                    ended[event.job] = event
                    message = f"{len(ended)} of {amount(len(names), 'job')} ended"
                    progress.note(state_sentence(event))
                elif isinstance(event, UnfinishedJobs):
                    message = str(event)
                elif isinstance(event, Outage):
                    message = f"{event.error} The jobs are not affected; asking again."
                progress.show(message, html.progress(len(ended), len(names), message, list(ended.values())))
        return Jobs(ended[name] for name in names)

    def logs(
        self,
        job: str | JobSummary,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: datetime | str | None = None,
        attempt: int | None = None,
        instance: str | int | None = None,
        silent: bool = False,
        poll: float = POLL_SECONDS,
    ) -> LogLines:
        """Iterate over the lines of a job's log, all attempts in order.

        ``str`` of a line is its text; a line also has ``message``, ``attempt``, ``instance`` and ``time``. With
        ``follow`` the iteration continues until the job has finished, through every preemption, and shows the state of
        the job, unless ``silent``. With ``tail``, only the last ``tail`` of the lines that already exist are returned.
        ``since`` is the earliest time. ``attempt`` and ``instance`` (``algo-1`` or ``1``) select lines.
        """
        number = None if instance is None else str(instance)
        choice = LineChoice(attempt, number, None if since is None else _time(since), tail)
        follower = Follower(self, self.aws_client("logs"), poll=poll, lines=choice)
        (name,) = _names([job])
        return LogLines(follower.follow(name) if follow else follower.so_far(name), silent=silent or not follow)

    def results(
        self,
        job: str | JobSummary,
        to: str | PathLike[str] | None = None,
        *,
        checkpoints: bool = False,
        silent: bool = False,
        max_size: float | None = None,
        max_files: int | None = None,
    ) -> Fetched:
        """Download a finished job's results (its model and other output) from S3, and unpack the results to a folder.

        The folder is ``to`` (default: named after the job), which must be empty or missing. With ``checkpoints``,
        download the checkpoints so far instead, even of a live job. The result's ``refused`` lists the files that were
        not downloaded, with reasons. ``max_size`` (GB) and ``max_files`` bound the unpacked content. The defaults are
        ten times the archives' size, at least 10 GB, and 100,000 files. Raises NotFound if there are no results. Raises
        StorageError if the folder is not empty, an archive exceeds a bound, or the disk is too small.
        """
        (name,) = _names([job])
        return fetch_results(
            self,
            name,
            Path(to) if to is not None else None,
            checkpoints=checkpoints,
            shown=_transfer("Fetching", silent=silent),
            max_size=max_size,
            max_files=max_files,
        )

    def checkpoints(self, job: str | JobSummary) -> JobCheckpoints:
        """List the checkpoints that a job has saved in S3, by folder and step, as ``smq checkpoints`` does.

        A checkpoint has ``name``, ``step``, ``layout``, ``files``, ``size`` and ``modified``. ``incomplete`` is the
        reason why a library would not load the checkpoint. ``resumes`` says whether the job would resume from the
        checkpoint. Raises NotFound if the job has no checkpoint folder.
        """
        (name,) = _names([job])
        return list_checkpoints(self, name)

    def prune_checkpoints(
        self, job: str | JobSummary, keep: int, *, dry_run: bool = False, silent: bool = False
    ) -> JobCheckpoints:
        """Remove a job's checkpoints except the newest ``keep`` complete ones of each folder; return the removed ones.

        Checkpoints from which a job may resume always stay, as ``smq checkpoints prune`` describes. With ``dry_run``,
        nothing is removed, and the checkpoints that would be removed are returned. Raises InvalidOption if ``keep`` is
        less than 1.
        """
        listed = self.checkpoints(job)
        chosen = prunable(listed, keep)
        if not dry_run:
            remove_checkpoints(self, listed, chosen, _transfer("Removing", silent=silent))
        return JobCheckpoints(listed.job, listed.address, tuple(chosen), storage=listed.storage)

    @contextmanager
    def _job_from_keywords(self, command: Command, job: JobKeywords) -> Iterator[tuple[CommandJob, Code, S3Storage]]:
        """Yield the job of a command and keywords, its packed code and its storage; warn of files left out."""
        options, words = _given_keywords(job), _words_of(command)
        with packed_job(self, options, words, option_text="{}=...".format) as (described, code, storage):
            if code.archive.kept_back:
                names = ", ".join(map(one_line, code.archive.kept_back))
                warnings.warn(
                    f"Not packed, as keys and passwords may be in it: {names}. include_secrets=[...] packs it.",
                    stacklevel=4,  # the caller of submit, sweep or plan
                )
            yield described, code, storage


def _transfer(verb: str, *, silent: bool) -> Callable[[int], AbstractContextManager[CountBytes]]:
    """Return a function from a total in bytes to a context manager, which shows the progress of a transfer."""

    @contextmanager
    def show_transfer(total: int) -> Iterator[CountBytes]:
        moved, percent = 0, -1
        with Progress(silent=silent) as progress:

            def count(size: int) -> None:
                nonlocal moved, percent
                moved += size
                if percent != (percent := 100 * moved // max(total, 1)):
                    message = f"{verb} {file_size(total)}: {percent} %"
                    progress.show(message, html.progress(moved, total, message))

            yield count

    return show_transfer


def _words_of(command: Command) -> tuple[str, ...]:
    """Return the words of a command, split as by a shell. Raises InvalidOption if there are no words."""
    try:
        words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    except ValueError as error:
        raise InvalidOption(
            f"The command {command!r} cannot be split into words ({error}): close the quotation, or give a list of "
            "words."
        ) from error
    if not words:
        raise InvalidOption('No command is given, such as "python train.py".')
    return tuple(words)


def _given_keywords(job: JobKeywords) -> JobKeywords:
    """Return the keywords that are not None. Raises TypeError for an unknown keyword."""
    given = {name: value for name, value in job.items() if value is not None}
    for name in given:
        if name not in JOB_OPTIONS:
            raise TypeError(f"There is no keyword {name!r}.{did_you_mean(name, JOB_OPTIONS)}")
    return cast(JobKeywords, given)


def _time(time: datetime | str) -> datetime:
    """Return a time in UTC. A text without a zone is in UTC; a datetime without a zone is local time, as in Python."""
    return moment_of(time) if isinstance(time, str) else time.astimezone(timezone.utc)


def _several(patterns: str | Iterable[str]) -> tuple[str, ...]:
    return (patterns,) if isinstance(patterns, str) else tuple(patterns)


def _names(jobs: Iterable[str | JobSummary | Iterable[str | JobSummary]]) -> Iterator[str]:
    for job in jobs:
        if isinstance(job, str):
            yield job
        elif isinstance(job, JobSummary):
            yield job.job
        else:
            yield from _names(job)


def _refuse_keywords(job: JobKeywords) -> None:
    if job:
        raise TypeError(f"{next(iter(job))} is a keyword for commands: a request describes the whole job.")
