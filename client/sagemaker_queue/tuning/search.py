"""Running a search: trials are submitted, watched, given up where they are hopeless, and their figures are kept.

Nothing is held here that is not in the study or in the queue, so that a search may end at any time and go on later.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from sagemaker_queue.client import QueueClient
from sagemaker_queue.config.pace import POLL_SECONDS, Pace
from sagemaker_queue.errors import NameTaken, NotFound
from sagemaker_queue.job_logs.follower import Outage, polled
from sagemaker_queue.models import JobDetail
from sagemaker_queue.tuning.metric_log import MetricLog
from sagemaker_queue.tuning.plan import STUDY_TAG, TrialRow

if TYPE_CHECKING:
    from sagemaker_queue.tuning.study import KeptStudy, KeptTrial

OUTAGES_ENDURED = 60  # in a row: five minutes at least, each with tries of its own
GIVE_UP_AFTER = 5  # trials that fail, and not one that does not: something is wrong with all of them

# Makes a trial's job, and gives it to the queue; the same trial again must be the same request.
Submit = Callable[["KeptTrial"], None]


@dataclass(frozen=True)
class TrialChanged:
    """A trial has begun, its job is in another state, or it has ended."""

    trial: TrialRow  # its state is the job's, such as running, until it is completed, pruned or failed
    attempt: int
    found_again: bool  # an earlier process has begun it
    best: bool  # the best so far


@dataclass(frozen=True)
class Standing:
    """How far the search is; comes after each look at the jobs."""

    ended: int
    total: int
    states: Mapping[str, int]  # of the jobs that live: how many are in each
    best: TrialRow | None


SearchEvent = Union[TrialChanged, Standing, Outage]


class Search:
    """Runs the trials of a study: ``trials`` in all, of which ``parallel`` live at a time.

    ``logs`` is a boto3 client of CloudWatch Logs. The jobs are looked at as ``sagemaker_queue.config.pace``
    says, but not more often than each ``poll`` seconds.
    """

    def __init__(
        self,
        study: KeptStudy,
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
        self._logs = logs
        self._submit = submit
        self._trials = trials
        self._parallel = parallel
        self._pace = Pace(poll, pause)
        self._clock = clock
        self._live: dict[int, _Live] = {}
        self._failed = 0  # without one that did not
        self.gave_up = False

    def run(self) -> Iterator[SearchEvent]:
        """Yield what happens until all trials have ended.

        Raises NameTaken if a job has the name of a trial and is not one; what the queue has against the request; and
        what keeps going wrong, after many times in a row. The trials are as they were then.
        """
        for trial in self._study.running():
            self._live[trial.number] = self._watched(trial, found_again=True)
        yield from polled(self._look, OUTAGES_ENDURED, self._pace.pause, self._pace.failed)

    def _look(self) -> Generator[SearchEvent, None, bool]:
        yield from self._look_at_all()
        self._pace.saw([(number, live.state, live.attempt) for number, live in self._live.items()])
        yield self._standing()
        return not self._live

    def _look_at_all(self) -> Iterator[SearchEvent]:
        for live in list(self._live.values()):
            yield from self._look_at(live)
        while len(self._live) < self._parallel and self._study.count() < self._trials:
            self.gave_up = self._failed >= GIVE_UP_AFTER
            if self.gave_up:
                return
            trial = self._study.ask()
            live = self._live[trial.number] = self._watched(trial, found_again=False)
            yield from self._begin(live)

    def _watched(self, trial: KeptTrial, *, found_again: bool) -> _Live:
        return _Live(trial, MetricLog(self._logs, self._study.plan.metric, self._clock), found_again)

    def _look_at(self, live: _Live) -> Iterator[SearchEvent]:
        if not live.trial.submitted:
            yield from self._begin(live)
            return
        try:
            job = self._queue.job(live.trial.job)
        except NotFound:
            yield self._ended(live, "failed", reason="the queue does not know its job any more")
            return
        if live.found_again:
            self._check_whose(live.trial, job)
        hopeless = live.trial.is_hopeless(live.figures.read(job))
        if job.finished:
            yield from self._finish(live, job)
            return
        if live.trial.pruning or hopeless:
            self._give_up(live.trial, job)
        yield from self._changed(live, job.state, job.attempt)

    def _begin(self, live: _Live) -> Iterator[SearchEvent]:
        """Submit a trial's job, unless an earlier process has done so and had no time to note it."""
        trial = live.trial
        job: JobDetail | None = None
        if live.found_again:
            try:
                job = self._queue.job(trial.job)
                self._check_whose(trial, job)
            except NotFound:
                job = None
        if job is None:
            self._submit(trial)
        trial.note_submitted()
        yield from self._changed(live, job.state if job else "submitted", job.attempt if job else 0)

    def _check_whose(self, trial: KeptTrial, job: JobDetail) -> None:
        tags = {tag["Key"]: tag["Value"] for tag in job.request.get("Tags", [])}
        if tags.get(STUDY_TAG) != trial.tags[STUDY_TAG]:
            raise NameTaken(
                f"There is a job {trial.job} that is not this study's: take another name for the study, which the "
                "names of its jobs begin with."
            )

    def _give_up(self, trial: KeptTrial, job: JobDetail) -> None:
        if not trial.pruning:
            trial.note_pruning()
        if not job.cancel_requested:
            self._queue.cancel(trial.job)

    def _finish(self, live: _Live, job: JobDetail) -> Iterator[SearchEvent]:
        reason = job.reason.message if job.reason else "it says nothing of why"
        if job.state == "failed":
            yield self._ended(live, "failed", reason=reason)
        elif job.state == "stopped" and live.trial.pruning:
            yield self._ended(live, "pruned")
        elif job.state == "stopped":
            yield self._ended(live, "failed", reason=f"its job was stopped: {reason}")
        elif live.figures.is_complete(job):
            value = live.figures.last
            if value is None:
                pattern = self._study.plan.metric.regex
                yield self._ended(live, "failed", reason=f"nothing in its log is as {pattern!r} says")
            elif math.isnan(value):
                yield self._ended(live, "failed", reason=f"its {self._study.plan.metric.name} is not a number")
            else:
                yield self._ended(live, "completed", value=value)

    def _ended(self, live: _Live, state: str, *, value: float | None = None, reason: str | None = None) -> TrialChanged:
        trial = live.trial
        if state == "completed":
            assert value is not None
            trial.complete(value)
        elif state == "pruned":
            trial.prune()
            value = live.figures.last
        else:
            trial.fail(reason or "")
        del self._live[trial.number]
        self._failed = self._failed + 1 if state == "failed" and self._failed >= 0 else -1
        best = self._study.best()
        is_best = state == "completed" and best is not None and best.number == trial.number
        row = TrialRow(trial.number, trial.job, state, value, trial.params, reason)
        return TrialChanged(row, live.attempt, live.found_again, is_best)

    def _changed(self, live: _Live, state: str, attempt: int) -> Iterator[TrialChanged]:
        if (live.state, live.attempt) != (state, attempt):
            live.state, live.attempt = state, attempt
            row = TrialRow(live.trial.number, live.trial.job, state, live.figures.last, live.trial.params)
            yield TrialChanged(row, attempt, live.found_again, best=False)

    def _standing(self) -> Standing:
        states: dict[str, int] = {}
        for live in self._live.values():
            states[live.state] = states.get(live.state, 0) + 1
        ended = self._study.count() - len(self._live)
        return Standing(ended, max(self._trials, self._study.count()), states, self._study.best())


@dataclass
class _Live:
    """A trial that has not ended, as it was seen last."""

    trial: KeptTrial
    figures: MetricLog
    found_again: bool
    state: str = ""
    attempt: int = 0
