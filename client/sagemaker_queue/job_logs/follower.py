"""A job followed through all its attempts: where it stands, what its instances write, who preempts it, how it ends.

Following asks; it changes nothing, and whoever stops following stops nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any, TypeVar, Union

from botocore.exceptions import BotoCoreError, ClientError

from sagemaker_queue.client import QueueClient
from sagemaker_queue.config.pace import POLL_SECONDS, Pace
from sagemaker_queue.errors import Unavailable
from sagemaker_queue.job_logs.attempt_logs import AttemptLog, LogLine
from sagemaker_queue.job_logs.choice import LineChoice
from sagemaker_queue.models import Attempt, JobDetail

T = TypeVar("T")
OUTAGES_ENDURED = 10  # in a row, while following a job that may take days
_LONG_AGO = timedelta(minutes=1)  # after its end an attempt's last lines have reached CloudWatch


@dataclass(frozen=True)
class StateReport:
    """The job as the queue describes it now."""

    job: JobDetail


@dataclass(frozen=True)
class Outage:
    """The queue, or CloudWatch, could not be asked; it is asked again."""

    error: Exception


@dataclass(frozen=True)
class AttemptEnded:
    """An attempt has ended, and all its lines have come."""

    job: JobDetail
    attempt: Attempt

    @property
    def cause(self) -> str:
        """What the queue's record says of it, such as ``made room for job2``."""
        ends = [transition for transition in self.job.history if transition.attempt == self.attempt.attempt]
        return ends[-1].cause if ends else ""


JobEvent = Union[StateReport, Outage, AttemptEnded, LogLine]


class Follower:
    """Follows one job. ``logs`` is a boto3 client of CloudWatch Logs, or None to follow without the lines.

    ``lines`` says which of its lines are wanted, and whether only one attempt is. The queue is asked at the pace of
    ``config.pace``, but not more often than each ``poll`` seconds; while the job runs, its log is read about each
    ``poll`` seconds. ``pause`` sleeps.
    """

    def __init__(
        self,
        queue: QueueClient,
        logs: Any,
        *,
        poll: float = POLL_SECONDS,
        lines: LineChoice | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._queue = queue
        self._logs = logs
        self._pace = Pace(poll, pause)
        self._log_looks = 0  # that are left before the queue is asked again
        self._log_pause = 0.0  # seconds between them
        self._choice = lines or LineChoice()
        self._only = self._choice.attempt
        self._tail = self._choice.tail  # until the first look is over
        self._pause = pause
        self._running: tuple[JobDetail, Attempt] | None = None  # as the queue told last, if it runs
        self._read: AttemptLog | None = None  # the attempt that is being read
        self._done = 0  # the number of the last attempt all of whose events were given
        self._awaits_last_lines = False  # it has ended, and its last lines may still be on their way

    def follow(self, name: str) -> Iterator[JobEvent]:
        """Yield what happens until the job has ended.

        Raises NotFound; ClientError if the logs may not be read; and what keeps going wrong, after many times in a row.
        """
        yield from polled(partial(self._look, name), OUTAGES_ENDURED, self._rest, self._pace.failed)

    def _rest(self) -> None:
        """Pause until the queue, or the log of a job that runs, is looked at again."""
        if self._log_looks == 0:
            seconds = self._pace.seconds()
            reads_on = self._running and self._logs is not None and self._pace.least > 0
            looks = max(1, round(seconds / self._pace.least)) if reads_on else 1
            self._log_looks, self._log_pause = looks, seconds / looks
        self._log_looks -= 1
        self._pause(self._log_pause)

    def _look(self, name: str) -> Generator[JobEvent, None, bool]:
        if self._log_looks and self._running:
            yield from self._lines(*self._running)
            return False
        job = self._queue.job(name)
        self._pace.saw((job.state, job.attempt, job.cancel_requested), job.ask_again_after)
        live = [attempt for attempt in self._wanted(job) if attempt.outcome is None]
        self._running = (job, live[-1]) if live and not job.finished else None
        yield from self._last(self._new_events(job))
        self._tail = None
        if self._awaits_last_lines:
            return False
        yield StateReport(job)
        return job.finished or (self._only is not None and self._done >= self._only)

    def so_far(self, name: str) -> Iterator[JobEvent]:
        """Yield what there is by now, and do not wait for more."""
        job = self._queue.job(name)
        yield from self._last(self._all_events(job))
        yield StateReport(job)

    def _all_events(self, job: JobDetail) -> Iterator[JobEvent]:
        for attempt in self._wanted(job):
            yield from self._lines(job, attempt)
            if attempt.outcome is not None:
                yield AttemptEnded(job, attempt)

    def _last(self, events: Iterator[JobEvent]) -> Iterator[JobEvent]:
        """Yield the last lines of what there was at first, and all that is no line."""
        if self._tail is None:
            yield from events
            return
        known = list(events)
        skipped = sum(isinstance(event, LogLine) for event in known) - self._tail
        for event in known:
            if isinstance(event, LogLine) and skipped > 0:
                skipped -= 1
            else:
                yield event

    def _new_events(self, job: JobDetail) -> Iterator[JobEvent]:
        """Yield what is new of the attempts; the events of one come to their end before those of the next."""
        for attempt in self._wanted(job):
            if attempt.attempt <= self._done:
                continue
            if attempt.outcome is None:
                yield StateReport(job)
            yield from self._lines(job, attempt)
            if attempt.outcome is None:
                return
            # Whoever wants the last lines only has them of the present attempt: those of an earlier one need not wait.
            over = _long_ago(attempt) or (self._tail is not None and attempt != job.attempts[-1])
            if not self._awaits_last_lines and self._logs is not None and not over:
                self._awaits_last_lines = True
                return
            self._awaits_last_lines, self._done = False, attempt.attempt
            yield AttemptEnded(job, attempt)

    def _wanted(self, job: JobDetail) -> list[Attempt]:
        return [attempt for attempt in job.attempts if self._only in (None, attempt.attempt)]

    def _lines(self, job: JobDetail, attempt: Attempt) -> list[LogLine]:
        if self._logs is None or attempt.training_job_name is None:
            return []
        # A launch that SageMaker refuses leaves no attempt behind: the next one has this number, or its own.
        if self._read is None or self._read.training_job != attempt.training_job_name:
            instances = attempt.instances or job.instances
            self._read = AttemptLog(self._logs, attempt.attempt, attempt.training_job_name, instances, attempt.carrier)
        return [line for line in self._read.new_lines() if line in self._choice]


def polled(
    look: Callable[[], Generator[T, None, bool]],
    endured: int,
    pause: Callable[[], None],
    failed: Callable[[float | None], None] = lambda retry_after: None,
) -> Iterator[T | Outage]:
    """Yield what each look finds, until one returns that it was the last.

    ``failed`` is told of each outage, and for how many seconds not to ask again, where the answer says that.
    Raises what goes wrong if it is a refusal, or more than ``endured`` times in a row; else yields it as an Outage.
    """
    outages = 0
    while True:
        try:
            if (yield from look()):
                return
            outages = 0
        except (Unavailable, ClientError, BotoCoreError) as error:
            outages += 1
            if outages > endured or is_denied(error):
                raise
            failed(getattr(error, "retry_after", None))
            yield Outage(error)
        pause()


def is_denied(error: Exception) -> bool:
    """Tell whether asking again is no use: AWS says that one may not."""
    return isinstance(error, ClientError) and error.response["Error"]["Code"].startswith("AccessDenied")


def _long_ago(attempt: Attempt) -> bool:
    return attempt.ended is not None and datetime.now(timezone.utc) - attempt.ended > _LONG_AGO
