"""A queue and CloudWatch in memory, whose jobs run by the clock of whoever waits; and processes that die."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

from api_contract.models import JobDetail
from sagemaker_queue.errors import NameTaken, NotFound

URL = "http://127.0.0.1:1/prod"
Script = Callable[[Mapping[str, Any]], list[str]]  # what a trial writes, one line at each tick


class Killed(BaseException):
    """The process is no more."""


@dataclass
class Job:
    tags: Mapping[str, str]
    lines: list[str]
    attempts: list[str | None] = field(default_factory=list)  # their outcomes
    state: str = "pending"
    written: list[list[str]] = field(default_factory=list)  # of each attempt
    reason: str | None = None


class Cluster:
    """Runs jobs: a tick starts those that wait, and lets each that runs write a line; then it has completed."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.jobs: dict[str, Job] = {}
        self.submissions: list[str] = []
        self.cancelled: list[str] = []
        self.calls_left: int | None = None  # before the process is killed
        self.config = SimpleNamespace(url=URL)
        self.preempt: set[str] = set()  # at their second line, once
        self.fail: dict[str, str] = {}
        self.errors: list[Exception] = []  # of the next questions
        self.before_tick: Callable[[], None] = lambda: None

    def start(self, trial: Any) -> None:
        """Submit a trial's job; the same request again is known."""
        self._may_die()
        known = self.jobs.get(trial.job)
        if known is not None and known.tags != trial.tags:
            raise NameTaken(f"{trial.job} is taken.")
        if known is None:
            self.submissions.append(trial.job)
            self.jobs[trial.job] = Job(dict(trial.tags), self.script(trial.params))
        self._may_die()

    def job(self, name: str) -> JobDetail:
        self._may_die()
        if self.errors:
            raise self.errors.pop(0)
        if name not in self.jobs:
            raise NotFound(name)
        job = self.jobs[name]
        now = datetime.now(timezone.utc).isoformat()
        return JobDetail.from_json(
            {
                "job": name,
                "state": job.state,
                "attempt": len(job.attempts),
                "reason": {"code": "X", "message": job.reason} if job.reason else None,
                "attempts": [
                    {
                        "attempt": number,
                        "trainingJobName": f"{name}-qstamp-{number}",
                        "outcome": outcome,
                        "ended": now if outcome else None,
                    }
                    for number, outcome in enumerate(job.attempts, start=1)
                ],
                "request": {"Tags": [{"Key": key, "Value": value} for key, value in job.tags.items()]},
            }
        )

    def cancel(self, name: str) -> None:
        self._may_die()
        self.cancelled.append(name)
        job = self.jobs[name]
        job.state = "stopped"
        if job.attempts and job.attempts[-1] is None:
            job.attempts[-1] = "stopped"
        self._may_die()

    def tick(self, _: float = 0) -> None:
        self.before_tick()
        for name, job in self.jobs.items():
            if job.state in ("pending", "preempted"):
                job.state = "running"
                job.attempts.append(None)
                job.written.append([])
            elif job.state == "running":
                self._write(name, job)

    def _write(self, name: str, job: Job) -> None:
        written = job.written[-1]
        if name in self.fail:
            self._end(job, "failed")
            job.reason = self.fail[name]
        elif len(written) == len(job.lines):
            self._end(job, "completed")
        elif name in self.preempt and len(written) == 1:
            self.preempt.remove(name)
            self._end(job, "preempted")
        else:
            written.append(job.lines[len(written)])

    @staticmethod
    def _end(job: Job, state: str) -> None:
        job.state = job.attempts[-1] = state

    def _may_die(self) -> None:
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise Killed

    # CloudWatch Logs

    def get_paginator(self, operation: str) -> Cluster:
        assert operation == "describe_log_streams"
        return self

    def paginate(self, *, logGroupName: str, logStreamNamePrefix: str) -> Iterator[dict[str, Any]]:  # noqa: N803
        lines = self._stream(logStreamNamePrefix)
        yield {"logStreams": [{"logStreamName": f"{logStreamNamePrefix}algo-1-1700000000"}] if lines else []}

    def get_log_events(self, *, logStreamName: str, nextToken: str = "0", **_: Any) -> dict[str, Any]:  # noqa: N803
        lines = self._stream(logStreamName)
        begin = int(nextToken)
        events = [{"timestamp": number, "message": line} for number, line in enumerate(lines)][begin:]
        return {"events": events, "nextForwardToken": str(len(lines))}

    def _stream(self, name: str) -> list[str]:
        job, _, number = name.partition("/")[0].rpartition("-qstamp-")
        return self.jobs[job].written[int(number) - 1]
