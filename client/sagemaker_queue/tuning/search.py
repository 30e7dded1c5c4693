"""Run a search: submit trials, watch their jobs, cancel hopeless trials and store the metric values.

All state is in the study or in the queue. So a search may end at any time and continue later.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from api_contract.models import JobDetail
from sagemaker_queue.errors import NameTaken, NotFound
from sagemaker_queue.queue.attempt_clients import AttemptClients
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.queue.config.pace import POLL_SECONDS, PollingPace
from sagemaker_queue.tuning.metric_log import MetricLog
from sagemaker_queue.tuning.plan import STUDY_TAG, TrialRow
from sagemaker_queue.workflows.job_logs.follower import Outage, polled

if TYPE_CHECKING:
    from sagemaker_queue.tuning.study import StoredStudy, StoredTrial

# A search ends after more consecutive failures than this. The pauses between them add up to at least five minutes.
OUTAGES_ENDURED = 60
# If this many trials fail before any other outcome, no more trials start: probably all trials have the same fault.
GIVE_UP_AFTER = 5

# Creates a trial's job, and submits the job to the queue. A repeated call for one trial must send the same request.
Submit = Callable[["StoredTrial"], None]


@dataclass(frozen=True)
class TrialChanged:
    """The start of a trial, a new state of the trial's job, or the end of the trial."""

    # The row contains the state of the trial's job, such as running; after the trial's end, completed, pruned or
    # failed.
    trial: TrialRow
    attempt: int
    resumed: bool  # whether an earlier process started the trial
    best: bool  # whether the trial is the best so far


@dataclass(frozen=True)
class SearchProgress:
    """The progress of a search, yielded after each poll of the jobs."""

    ended: int
    total: int
    states: Mapping[str, int]  # number of live jobs by state
    best: TrialRow | None


SearchEvent = Union[TrialChanged, SearchProgress, Outage]


class Search:
    """A run of a study's trials: ``trials`` in all, and at most ``parallel`` at the same time.

    ``logs`` is a boto3 client of CloudWatch Logs in the queue's region and account. The jobs are polled at the pace of
    ``sagemaker_queue.queue.config.pace``, with pauses of at least ``poll`` seconds.
    """

    def __init__(
        self,
        study: StoredStudy,
        queue: QueueClient,
        logs: Any,
        submit: Submit,
        *,
        trials: int,
        parallel: int,
        poll: float = POLL_SECONDS,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._study = study
        self._queue = queue
        self._logs = AttemptClients(queue, "logs", logs)
        self._submit = submit
        self._trials = trials
        self._parallel = parallel
        self._pace = PollingPace(poll, pause)
        self._clock = clock
        self._live: dict[int, _Live] = {}
        # Number of failed trials; -1 once a trial has ended in another way, also in an earlier process.
        self._failed = -1 if any(row.state in ("completed", "pruned") for row in study.rows()) else 0
        self.gave_up = False

    def run(self) -> Iterator[SearchEvent]:
        """Yield the events of the search until all trials have ended.

        If the first GIVE_UP_AFTER trials of this run fail, start no more trials and set ``gave_up``.

        Raises NameTaken if a trial's job name belongs to a job of another study. Raises the queue's error if the queue
        refuses a request, and the last error after more than OUTAGES_ENDURED consecutive failures. After an error the
        stored trials remain unchanged, so the search can be continued.
        """
        for trial in self._study.running():
            self._live[trial.number] = self._live_trial(trial, resumed=True)
        yield from polled(self._poll, OUTAGES_ENDURED, self._pace.pause, self._pace.failed)

    def _poll(self) -> Generator[SearchEvent, None, bool]:
        yield from self._poll_trials()
        self._pace.observe([(number, live.state, live.attempt) for number, live in self._live.items()])
        yield self._progress()
        return not self._live

    def _poll_trials(self) -> Iterator[SearchEvent]:
        for live in list(self._live.values()):
            yield from self._poll_trial(live)
        while len(self._live) < self._parallel and self._study.count() < self._trials:
            self.gave_up = self._failed >= GIVE_UP_AFTER
            if self.gave_up:
                return
            trial = self._study.ask()
            live = self._live[trial.number] = self._live_trial(trial, resumed=False)
            yield from self._begin(live)

    def _live_trial(self, trial: StoredTrial, *, resumed: bool) -> _Live:
        return _Live(trial, MetricLog(self._logs, self._study.plan.metric, self._clock), resumed)

    def _poll_trial(self, live: _Live) -> Iterator[SearchEvent]:
        if not live.trial.submitted:
            yield from self._begin(live)
            return
        try:
            job = self._queue.job(live.trial.job)
        except NotFound:
            yield self._end_trial(live, "failed", reason="the queue does not know its job any more")
            return
        if live.resumed:
            self._check_study(live.trial, job)
        hopeless = live.trial.is_hopeless(live.metric_log.read(job))
        if job.finished:
            yield from self._finish(live, job)
            return
        if live.trial.pruning or hopeless:
            self._cancel_hopeless(live.trial, job)
        yield from self._changed(live, job.state, job.attempt)

    def _begin(self, live: _Live) -> Iterator[SearchEvent]:
        """Submit a trial's job, unless an earlier process submitted the job and ended before it stored this fact."""
        trial = live.trial
        job: JobDetail | None = None
        if live.resumed:
            try:
                job = self._queue.job(trial.job)
                self._check_study(trial, job)
            except NotFound:
                job = None
        if job is None:
            self._submit(trial)
        trial.note_submitted()
        yield from self._changed(live, job.state if job else "submitted", job.attempt if job else 0)

    def _check_study(self, trial: StoredTrial, job: JobDetail) -> None:
        tags = {tag["Key"]: tag["Value"] for tag in job.request.get("Tags", [])}
        if tags.get(STUDY_TAG) != trial.tags[STUDY_TAG]:
            raise NameTaken(
                f"There is a job {trial.job} that is not this study's: take another name for the study, which the "
                "names of its jobs begin with."
            )

    def _cancel_hopeless(self, trial: StoredTrial, job: JobDetail) -> None:
        if not trial.pruning:
            trial.note_pruning()
        if not job.cancel_requested:
            self._queue.cancel(trial.job)

    def _finish(self, live: _Live, job: JobDetail) -> Iterator[SearchEvent]:
        reason = job.reason.message if job.reason else "no reason is known"
        if job.state == "failed":
            yield self._end_trial(live, "failed", reason=reason)
        elif job.state == "stopped" and live.trial.pruning:
            yield self._end_trial(live, "pruned")
        elif job.state == "stopped":
            yield self._end_trial(live, "failed", reason=f"its job was stopped: {reason}")
        elif live.metric_log.is_complete(job):
            value = live.metric_log.last
            if value is None:
                pattern = self._study.plan.metric.regex
                yield self._end_trial(live, "failed", reason=f"no line of its log matches {pattern!r}")
            elif math.isnan(value):
                yield self._end_trial(live, "failed", reason=f"its {self._study.plan.metric.name} is not a number")
            else:
                yield self._end_trial(live, "completed", value=value)

    def _end_trial(
        self, live: _Live, state: str, *, value: float | None = None, reason: str | None = None
    ) -> TrialChanged:
        trial = live.trial
        if state == "completed":
            assert value is not None
            trial.complete(value)
        elif state == "pruned":
            trial.prune()
            value = live.metric_log.last
        else:
            trial.fail(reason or "")
        del self._live[trial.number]
        self._failed = self._failed + 1 if state == "failed" and self._failed >= 0 else -1
        best = self._study.best()
        is_best = state == "completed" and best is not None and best.number == trial.number
        row = TrialRow(trial.number, trial.job, state, value, trial.params, reason)
        return TrialChanged(row, live.attempt, live.resumed, is_best)

    def _changed(self, live: _Live, state: str, attempt: int) -> Iterator[TrialChanged]:
        if (live.state, live.attempt) != (state, attempt):
            live.state, live.attempt = state, attempt
            row = TrialRow(live.trial.number, live.trial.job, state, live.metric_log.last, live.trial.params)
            yield TrialChanged(row, attempt, live.resumed, best=False)

    def _progress(self) -> SearchProgress:
        states: dict[str, int] = {}
        for live in self._live.values():
            states[live.state] = states.get(live.state, 0) + 1
        ended = self._study.count() - len(self._live)
        return SearchProgress(ended, max(self._trials, self._study.count()), states, self._study.best())


@dataclass
class _Live:
    """A trial that has not ended, with the latest state of its job."""

    trial: StoredTrial
    metric_log: MetricLog
    resumed: bool
    state: str = ""
    attempt: int = 0
