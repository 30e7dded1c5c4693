"""``QueueClient`` as people use it: the queue's API, and what ``smq`` does besides, for notebooks and scripts."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagemaker_queue import client
from sagemaker_queue.actions.grid import MOST, expanded, job_of, submit_all
from sagemaker_queue.actions.job_settings import described_job
from sagemaker_queue.actions.results import Fetched, fetch_results
from sagemaker_queue.actions.selection import Selection, jobs_meant
from sagemaker_queue.actions.submission import bring_code, storage_of
from sagemaker_queue.actions.usage.period import moment_of, past_attempts
from sagemaker_queue.actions.waiting import Left, until_ended
from sagemaker_queue.config.pace import POLL_SECONDS, Pace
from sagemaker_queue.config.queue_config import find_defaults
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.formatting import amount, file_size, one_line, state_sentence
from sagemaker_queue.job_logs.choice import LineChoice
from sagemaker_queue.job_logs.follower import Follower, Outage
from sagemaker_queue.models import JobDetail, JobSummary, PastAttempt, PlanAnswer, Submission
from sagemaker_queue.notebook import html
from sagemaker_queue.notebook.keywords import Command, JobKeywords, settings_of, shows_keywords, words_of
from sagemaker_queue.notebook.listing import Jobs, Listing, Sweep
from sagemaker_queue.notebook.log_lines import LogLines
from sagemaker_queue.notebook.progress import Progress
from sagemaker_queue.notebook.usage import UsageReport, usage_report
from sagemaker_queue.packaging.sweep import check_values

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sagemaker_queue.packaging.code import Code
    from sagemaker_queue.packaging.command import CommandJob
    from sagemaker_queue.packaging.storage import Progress as Moved
    from sagemaker_queue.packaging.storage import Storage

html.show_in_notebooks()


class QueueClient(client.QueueClient):
    """Talks to one queue.

    The queue is the one of ``config``, else the one that ``find_config`` finds from the keyword
    arguments, the environment and the profile file. ``boto_session`` gives credentials and region
    (default: the profile's, else the usual AWS ones). Methods raise the errors of
    ``sagemaker_queue.errors``; a lost connection, 429 and 5xx are retried first, ``tries`` times in all,
    with a random pause of at most ``pause_seconds``, doubled each time, between two tries. Submitting is
    retried too: the queue answers a request that it already knows with the job as it is.

    What its methods return is shown as tables by notebooks. A job is named, or given as any object that has its
    name, such as what ``submit`` returns.
    """

    @shows_keywords
    def submit(
        self, request: Mapping[str, Any] | Command, *, preflight: bool = True, **job: Unpack[JobKeywords]
    ) -> Submission:
        """Queue a command such as ``"python train.py --lr 0.1"``, or a CreateTrainingJob request.

        A command, one text or a list of words, runs in the working folder, which goes along as with ``smq submit``;
        the keywords are the options of ``smq submit``, and what they leave open is as the profile has it. The same
        request again returns the job as it is, and so does the same call with a ``name``. Without ``preflight``, what
        the queue would refuse as hopeless becomes a warning of the answer. Files that may hold secrets are not packed,
        and warned of.
        """
        if isinstance(request, Mapping):
            _refuse_keywords(job)
            return super().submit(request, preflight=preflight)
        with self._described(request, job) as (described, code, storage):
            wanted = described.request()
            bring_code(self, wanted, code, storage, preflight=preflight)
        return super().submit(wanted, preflight=preflight)

    @shows_keywords
    def sweep(
        self,
        command: Command,
        grid: Mapping[str, Sequence[object]],
        *,
        preflight: bool = True,
        yes: bool = False,
        **job: Unpack[JobKeywords],
    ) -> Sweep:
        """Queue a command once for each combination of values, as independent jobs of one group.

        ``{lr}`` in the command or in ``env`` stands for the values of ``grid={"lr": [0.1, 0.01]}``. The keywords are
        those of ``submit``. The same call again submits what is missing. Without ``yes``, more than 50 jobs are
        refused. If not all are accepted, the first error is raised, with what is missing; the others are queued.
        """
        grids = check_values(grid)
        with self._described(command, job) as (template, code, storage):
            group, runs = expanded(template, job.get("name"), grids)
            if len(runs) > MOST and not yes:
                raise InvalidOption(f"These are {len(runs)} jobs; yes=True submits more than {MOST}.")
            jobs = [job_of(template, group, run) for run in runs]
            first, *_ = [one.request() for one in jobs]  # of all, so that a wrong one is told before anything is sent
            bring_code(self, first, code, storage, preflight=preflight)
        submit = super().submit
        done = submit_all(jobs, lambda one: submit(one.request(), preflight=preflight))
        for error in filter(None, done.refused.values()):
            missing = ", ".join(done.refused)
            said = f"{len(done.refused)} of {amount(len(jobs), 'job')} not submitted: {missing}. {error}"
            raise type(error)(said) from error
        return Sweep(done.jobs)

    @shows_keywords
    def plan(self, request: Mapping[str, Any] | Command, **job: Unpack[JobKeywords]) -> PlanAnswer:
        """Tell what would become of a command, or of a request, were it submitted now; nothing is stored or uploaded.

        The keywords are those of ``submit``.
        """
        if isinstance(request, Mapping):
            _refuse_keywords(job)
            return super().plan(request)
        with self._described(request, job) as (described, _, _):
            return super().plan(described.request())

    def jobs(self, states: str | Iterable[str] = "live") -> Listing[JobSummary]:
        """List jobs: ``live``, ``finished``, ``all``, or those in the given states.

        Live jobs come in the queue's order: highest priority first, then first come first served. They are read page
        by page, as they are asked for.
        """
        return Listing(super().jobs(states), html.jobs)

    def history(
        self,
        since: datetime | str = "7d",
        until: datetime | str | None = None,
        *,
        owner: str | None = None,
        project: str | None = None,
    ) -> Listing[PastAttempt]:
        """List the attempts that ended in a time, the earliest end first; ``until`` is not part of it.

        Times are datetimes, or text: ``2026-11-22``, ``2026-11-22T10:00`` (UTC), or ``12h``, ``7d`` ago. ``owner`` is
        an ARN, which may contain ``*``. They are there also where their jobs are forgotten.
        """
        found = super().history(_time(since), None if until is None else _time(until), owner=owner, project=project)
        return Listing(found, html.attempts)

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
        """Sum up who used how much, by attempts that ended in a time, as ``smq usage``.

        ``by`` is ``project``, ``owner``, ``group``, ``pool``, ``department`` or ``day``; ``project``, ``owner`` and
        ``group`` are patterns of those that are meant. Times are as those of ``history``.
        """
        meant = Selection(projects=_several(project), owners=_several(owner), groups=_several(group))
        attempts = past_attempts(self, meant, _time(since), None if until is None else _time(until))
        return usage_report(self, by, attempts, meant.projects)

    def wait(
        self,
        *jobs: str | JobSummary | Iterable[str | JobSummary],
        group: str | None = None,
        timeout: float | None = None,
        silent: bool = False,
        poll: float = POLL_SECONDS,
    ) -> Jobs[JobDetail]:
        """Wait until jobs have ended, and return them; their ``state`` says how they did.

        Jobs are names, patterns such as ``"lr-*"``, objects with a name, or lists of these; or those of a ``group``. A
        notebook shows how far they are, a terminal has a line for it, unless ``silent``. To interrupt it stops the
        waiting alone. Raises NotFound, and TimeoutError after ``timeout`` seconds. Two looks are ``poll`` seconds apart
        at least; while nothing changes, they become rarer.
        """
        names = jobs_meant(self, _names(jobs), (group,) if group else (), "all")
        if not names:
            raise InvalidOption("Say which jobs to wait for, by name or by group.")
        deadline = None if timeout is None else time.monotonic() + timeout
        ended: dict[str, JobDetail] = {}

        pace = Pace(poll)

        def pause() -> None:
            seconds = pace.seconds()
            left = seconds if deadline is None else min(seconds, deadline - time.monotonic())
            if left < 0:
                raise TimeoutError(f"After {timeout:g} seconds, {len(ended)} of {amount(len(names), 'job')} ended.")
            time.sleep(left)

        with Progress(silent=silent) as progress:
            said = ""
            for event in until_ended(self, names, pace, pause):
                if isinstance(event, JobDetail):
                    ended[event.job] = event
                    said = f"{len(ended)} of {amount(len(names), 'job')} ended"
                    progress.note(state_sentence(event))
                elif isinstance(event, Left):
                    said = str(event)
                elif isinstance(event, Outage):
                    said = f"{event.error} The jobs are not affected; asking again."
                progress.show(said, html.progress(len(ended), len(names), said, list(ended.values())))
        return Jobs(ended[name] for name in names)

    def logs(
        self,
        job: str | JobSummary,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: datetime | str | None = None,
        attempt: int | None = None,
        instance: str | None = None,
        silent: bool = False,
        poll: float = POLL_SECONDS,
    ) -> LogLines:
        """Iterate over the lines that a job has written, all its attempts in order.

        Printed, a line is its text; it has ``message``, ``attempt``, ``instance`` and ``time``, too. With ``follow`` it
        goes on until the job has ended, through every preemption, and unless ``silent`` shows meanwhile where the job
        stands. ``tail`` leaves out all but the last so many of what there is at first, ``since`` what is earlier,
        ``attempt`` and ``instance`` (``algo-1`` or ``1``) others.
        """
        choice = LineChoice(attempt, instance, None if since is None else _time(since), tail)
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
        """Fetch what a job that has ended leaves in S3, its model and its other output, unpacked to files of a folder.

        The folder is ``to`` (default: named after the job), which must be empty, or not be there. With
        ``checkpoints`` it is what the job has saved so far, also while it lives. What was not fetched, and why, is in
        ``refused`` of the answer. ``max_size`` (GB) and ``max_files`` bound what the archives unpack to; the default is
        ten times their size, at least 10 GB, and 100,000 files. Raises NotFound if there is nothing, StorageError if
        the folder is not empty, an archive is beyond a bound, or the disk is too small.
        """
        (name,) = _names([job])

        @contextmanager
        def shown(total: int) -> Iterator[Moved]:
            moved, percent = 0, -1
            with Progress(silent=silent) as progress:

                def count(size: int) -> None:
                    nonlocal moved, percent
                    moved += size
                    if percent != (percent := 100 * moved // max(total, 1)):
                        said = f"Fetching {file_size(total)}: {percent} %"
                        progress.show(said, html.progress(moved, total, said))

                yield count

        return fetch_results(
            self,
            name,
            Path(to) if to is not None else None,
            checkpoints=checkpoints,
            shown=shown,
            max_size=max_size,
            max_files=max_files,
        )

    @contextmanager
    def _described(self, command: Command, job: JobKeywords) -> Iterator[tuple[CommandJob, Code, Storage]]:
        settings, more = settings_of(job)
        words = words_of(command)
        storage = storage_of(self)
        url, profile = self.named
        defaults = find_defaults(url=url, profile=profile)
        with described_job(settings, words, defaults, storage, more=more, spelt="{}=...".format) as (described, code):
            if code.archive.kept_back:
                names = ", ".join(map(one_line, code.archive.kept_back))
                warnings.warn(
                    f"Not packed, as keys and passwords may be in it: {names}. include_secrets=[...] packs it.",
                    stacklevel=4,  # who called submit
                )
            yield described, code, storage


def _time(time: datetime | str) -> datetime:
    return moment_of(time) if isinstance(time, str) else time


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
        raise TypeError(f"{next(iter(job))} is of a command: a request says all of a job itself.")
