"""Follow a job through all its attempts: its states, its log lines, its preemptions and its end.

Following a job has no effect on the job: the job continues if the follower ends early.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any, TypeVar, Union

from botocore.exceptions import BotoCoreError, ClientError

from api_contract.models import Attempt, JobDetail
from sagemaker_queue.errors import Unavailable
from sagemaker_queue.queue.attempt_clients import AttemptClients
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.queue.config.pace import POLL_SECONDS, PollingPace, first_pause
from sagemaker_queue.workflows.job_logs.attempt_logs import AttemptLog, LogLine
from sagemaker_queue.workflows.job_logs.choice import LineChoice

T = TypeVar("T")
OUTAGES_ENDURED = 10  # a follower gives up after more consecutive failures than this
_LONG_AGO = timedelta(minutes=1)  # after this time, the last lines of an ended attempt have reached CloudWatch


@dataclass(frozen=True)
class StateReport:
    """The latest description of the job by the queue."""

    job: JobDetail


@dataclass(frozen=True)
class Outage:
    """A failed request to the queue or to CloudWatch, which is repeated."""

    error: Exception


@dataclass(frozen=True)
class AttemptEnded:
    """The end of an attempt. All log lines of the attempt come before this event."""

    job: JobDetail
    attempt: Attempt

    @property
    def cause(self) -> str:
        """The cause of the end in the job's history, such as ``made room for job2``; empty if none is recorded."""
        ends = [transition for transition in self.job.history if transition.attempt == self.attempt.attempt]
        return ends[-1].cause if ends else ""


JobEvent = Union[StateReport, Outage, AttemptEnded, LogLine]


class Follower:
    """A reader of one job's events. ``logs`` is a boto3 client of CloudWatch Logs, or None to leave out log lines.

    ``logs`` reads the attempts in the queue's region and account. For attempts elsewhere, clients are created.

    ``lines`` selects log lines, and possibly a single attempt. The queue is polled at the pace of ``config.pace``;
    ``poll`` is the usual pause in seconds. While the job runs, its log is read about every ``poll`` seconds.
    ``pause`` sleeps for a number of seconds.
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
        self._clients = AttemptClients(queue, "logs", logs) if logs is not None else None
        self._pace = PollingPace(poll, pause, first=first_pause(poll))
        self._log_reads_left = 0  # remaining reads of the log before the next request to the queue
        self._log_pause = 0.0  # seconds between two reads of the log
        self._choice = lines or LineChoice()
        self._only = self._choice.attempt
        self._tail = self._choice.tail  # None after the first poll
        self._pause = pause
        self._running: tuple[JobDetail, Attempt] | None = None  # the queue's latest answer, if an attempt runs
        self._attempt_log: AttemptLog | None = None  # the log that is being read
        self._last_finished_attempt = 0  # number of the last attempt with all its events yielded
        self._awaits_last_lines = False  # the attempt has ended, and its last lines may still arrive

    def follow(self, name: str) -> Iterator[JobEvent]:
        """Yield the job's events until the job has finished.

        Raises NotFound, NoAccountProfile if an attempt is in an account without a profile, and ClientError if access to
        the logs is denied. Raises the last error after more than OUTAGES_ENDURED consecutive failures.
        """
        yield from polled(partial(self._poll, name), OUTAGES_ENDURED, self._pause_between_polls, self._pace.failed)

    def _pause_between_polls(self) -> None:
        """Pause until the next request to the queue, or the next read of a running job's log."""
        if self._log_reads_left == 0:
            seconds = self._pace.seconds()
            reads_on = self._running and self._clients is not None and self._pace.least > 0
            reads = max(1, round(seconds / self._pace.least)) if reads_on else 1
            self._log_reads_left, self._log_pause = reads, seconds / reads
        self._log_reads_left -= 1
        self._pause(self._log_pause)

    def _poll(self, name: str) -> Generator[JobEvent, None, bool]:
        if self._log_reads_left and self._running:
            yield from self._lines(*self._running)
            return False
        job = self._queue.job(name)
        self._pace.observe((job.state, job.attempt, job.cancel_requested), job.ask_again_after)
        live = [attempt for attempt in self._selected_attempts(job) if attempt.outcome is None]
        self._running = (job, live[-1]) if live and not job.finished else None
        yield from self._limited_to_tail(self._new_events(job))
        self._tail = None
        if self._awaits_last_lines:
            return False
        yield StateReport(job)
        return job.finished or (self._only is not None and self._last_finished_attempt >= self._only)

    def so_far(self, name: str) -> Iterator[JobEvent]:
        """Yield the events up to now, without waiting for later events."""
        job = self._queue.job(name)
        yield from self._limited_to_tail(self._all_events(job))
        yield StateReport(job)

    def _all_events(self, job: JobDetail) -> Iterator[JobEvent]:
        for attempt in self._selected_attempts(job):
            yield from self._lines(job, attempt)
            if attempt.outcome is not None:
                yield AttemptEnded(job, attempt)

    def _limited_to_tail(self, events: Iterator[JobEvent]) -> Iterator[JobEvent]:
        """Yield all events, but only the last ``tail`` log lines of the first poll."""
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
        """Yield the new events of the attempts: all events of one attempt before the events of the next attempt."""
        for attempt in self._selected_attempts(job):
            if attempt.attempt <= self._last_finished_attempt:
                continue
            if attempt.outcome is None:
                yield StateReport(job)
            yield from self._lines(job, attempt)
            if attempt.outcome is None:
                return
            # With ``tail``, only the present attempt's lines matter: do not wait for an earlier attempt's last lines.
            log_is_complete = _long_ago(attempt) or (self._tail is not None and attempt != job.attempts[-1])
            if not self._awaits_last_lines and self._clients is not None and not log_is_complete:
                self._awaits_last_lines = True
                return
            self._awaits_last_lines, self._last_finished_attempt = False, attempt.attempt
            yield AttemptEnded(job, attempt)

    def _selected_attempts(self, job: JobDetail) -> list[Attempt]:
        return [attempt for attempt in job.attempts if self._only in (None, attempt.attempt)]

    def _lines(self, job: JobDetail, attempt: Attempt) -> list[LogLine]:
        if self._clients is None or attempt.training_job_name is None:
            return []
        # A launch that SageMaker refuses leaves no attempt behind, and the next attempt may have the same number.
        # So attempts are distinguished by their names.
        if self._attempt_log is None or self._attempt_log.training_job != attempt.training_job_name:
            instances = attempt.instances or job.instances
            client = self._clients.of(attempt, job.job)
            self._attempt_log = AttemptLog(
                client, attempt.attempt, attempt.training_job_name, instances, attempt.carrier
            )
        return [line for line in self._attempt_log.new_lines() if line in self._choice]


def polled(
    poll: Callable[[], Generator[T, None, bool]],
    max_outages: int,
    pause: Callable[[], None],
    failed: Callable[[float | None], None] = lambda retry_after: None,
) -> Iterator[T | Outage]:
    """Call ``poll`` repeatedly and yield its results, until ``poll`` returns True.

    Each temporary error is yielded as an Outage. Raises the error if access is denied, or after more than
    ``max_outages`` consecutive errors. ``failed`` is called for each outage, with the seconds to wait before the next
    request if the answer contains this number. ``pause`` is called between two calls of ``poll``.
    """
    outages = 0
    while True:
        try:
            if (yield from poll()):
                return
            outages = 0
        except (Unavailable, ClientError, BotoCoreError) as error:
            outages += 1
            if outages > max_outages or is_denied(error):
                raise
            failed(getattr(error, "retry_after", None))
            yield Outage(error)
        pause()


def is_denied(error: Exception) -> bool:
    """Return whether AWS denied access, so that a retry is useless."""
    return isinstance(error, ClientError) and error.response["Error"]["Code"].startswith("AccessDenied")


def _long_ago(attempt: Attempt) -> bool:
    return attempt.ended is not None and datetime.now(timezone.utc) - attempt.ended > _LONG_AGO
