"""Read a metric's values from the logs of all attempts of a job, while the logs grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from api_contract.models import Attempt, JobDetail
from sagemaker_queue.queue.attempt_clients import AttemptClients
from sagemaker_queue.tuning.metric import SearchMetric
from sagemaker_queue.workflows.job_logs.attempt_logs import AttemptLog

GRACE_SECONDS = 60.0  # after this time, no more lines of an ended attempt are expected in CloudWatch


class MetricLog:
    """The metric's values of one job. ``logs`` has the clients of CloudWatch Logs."""

    def __init__(self, logs: AttemptClients, metric: SearchMetric, clock: Callable[[], float] = time.monotonic) -> None:
        self._logs = logs
        self._metric = metric
        self._clock = clock
        self._attempt_logs: dict[str, AttemptLog] = {}  # by the name of the training job
        self._ended: dict[str, float] = {}  # training job -> time of `clock` at which its end was first seen
        self._read: set[str] = set()  # training jobs whose logs are complete
        self._found = 0
        self._last: tuple[tuple[int, datetime, int], float] | None = None

    @property
    def last(self) -> float | None:
        """Last value of the last attempt with a value; None if no attempt has a value yet."""
        return self._last[1] if self._last else None

    def read(self, job: JobDetail) -> list[tuple[int, float]]:
        """Return the new values, each with its step: the pattern's step, or else the number of earlier values."""
        figures: list[tuple[int, float]] = []
        for attempt in job.attempts:
            name = attempt.training_job_name
            if name is not None and name not in self._read:
                figures += self._figures(job, attempt, name)
        return figures

    def is_complete(self, job: JobDetail) -> bool:
        """Return whether the job has finished and its last value is known, because all logs were read to their end.

        Without a value, or if a log cannot be read to its end, return True after GRACE_SECONDS.
        """
        names = {attempt.training_job_name for attempt in job.attempts if attempt.training_job_name}
        if not job.finished or not self._ended.keys() >= names:
            return False
        waited = all(self._clock() - self._ended[name] > GRACE_SECONDS for name in names)
        return waited or (self._last is not None and self._read >= names)

    def _figures(self, job: JobDetail, attempt: Attempt, name: str) -> list[tuple[int, float]]:
        log = self._attempt_logs.get(name)
        if log is None:
            client, instances = self._logs.of(attempt, job.job), attempt.instances or job.instances
            log = self._attempt_logs[name] = AttemptLog(client, attempt.attempt, name, instances, attempt.carrier)
        figures = []
        for line in log.new_lines():
            for step, value in self._metric.find(line.message):
                figures.append((self._found if step is None else step, value))
                self._found += 1
                place = (line.attempt, line.time, self._found)
                if self._last is None or place > self._last[0]:  # a line of an earlier attempt may arrive late
                    self._last = place, value
        if attempt.outcome is not None:
            if name in self._ended:  # an earlier read saw the end, so the last lines have probably arrived by now
                self._read.add(name)
            self._ended.setdefault(name, self._clock())
        return figures
