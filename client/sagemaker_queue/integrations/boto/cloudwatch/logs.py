"""Calls of CloudWatch Logs, for jobs of the queue.

A job's log streams look as if it had been one training job: there is one for each instance, ``<job>/algo-1-...``,
which has the lines of all attempts, in order. So programs that read the streams of a training job to the end, as the
SDKs do, read on across preemptions, and read nothing twice. A prefix that is a job's whole name means that job,
with or without the slash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sagemaker_queue.integrations.boto.call import Answer, Call, Handler
from sagemaker_queue.integrations.boto.lookup import JobLookup
from sagemaker_queue.job_logs.attempt_logs import LOG_GROUP, LogSource, instance_of, list_streams
from sagemaker_queue.models import JobDetail

_MOST_EVENTS = 10_000  # of CloudWatch on one page
_MOST_CALLS = 20  # of CloudWatch for one page of ours


def describe_streams(jobs: JobLookup, call: Call) -> Answer | None:
    """DescribeLogStreams of the prefix ``<job>`` or ``<job>/...``: all of them, on one page."""
    name, _, rest = str(call.parameters.get("logStreamNamePrefix", "")).partition("/")
    job = job_of_group(jobs, call.parameters, name)
    if job is None:
        return None
    client = call.client()
    streams: dict[str, dict[str, Any]] = {}  # by instance
    for source in _sources(job):
        for stream in list_streams(client, source.folder):
            instance = instance_of(stream["logStreamName"])
            latest = {key: stream[key] for key in ("lastEventTimestamp", "lastIngestionTime") if key in stream}
            first = streams.get(instance) or {**stream, "logStreamName": _of_job(job, stream["logStreamName"])}
            streams[instance] = first | latest
    return {
        "logStreams": [stream for stream in streams.values() if stream["logStreamName"].startswith(f"{name}/{rest}")]
    }


def get_events(jobs: JobLookup, call: Call) -> Answer | None:
    """GetLogEvents of such a stream: a page that goes on from one attempt to the next, as its tokens do."""
    stream = str(call.parameters.get("logStreamName", ""))
    job = job_of_group(jobs, call.parameters, stream.partition("/")[0])
    if job is None:
        return None
    pages = _Pages(call, job, instance_of(stream))
    forward = bool(call.parameters.get("startFromHead"))
    number, at, token = str(call.parameters.get("nextToken", "")).partition("@")  # of the attempt, and CloudWatch's own
    if not at or not number.isdecimal():
        return pages.turn(0 if forward else pages.last, None, forward=forward)
    # CloudWatch's own tokens say in which direction they lead.
    return pages.turn(int(number), token or None, forward=token.startswith("f") if token else forward)


def filter_events(jobs: JobLookup, call: Call) -> Answer | None:
    """FilterLogEvents, by such a prefix or by such streams: one attempt after the other, on one page if there is room.

    Pages of CloudWatch that have nothing are gone over, as many as one page of ours may cost.
    """
    named = [str(stream) for stream in call.parameters.get("logStreamNames", [])]
    prefix = str(call.parameters.get("logStreamNamePrefix", ""))
    name, _, rest = (prefix or (named or [""])[0]).partition("/")
    job = job_of_group(jobs, call.parameters, name)
    if job is None:
        return None
    sources = _sources(job)
    number, _, inner = str(call.parameters.get("nextToken") or "0@").partition("@")
    at, token = int(number) if number.isdecimal() else 0, inner or None
    same = {
        key: value
        for key, value in call.parameters.items()
        if key not in ("logStreamNames", "logStreamNamePrefix", "nextToken", "limit")
    }
    wanted = {instance_of(stream) for stream in named}
    room = int(call.parameters.get("limit", _MOST_EVENTS))
    events: list[dict[str, Any]] = []
    client = call.client()
    for _ in range(_MOST_CALLS):
        if at >= len(sources) or room <= 0:
            break
        more, folder = {"nextToken": token} if token else {}, sources[at].folder
        page = client.filter_log_events(
            **same, **more, logStreamNamePrefix=f"{folder}/{rest if prefix else ''}", limit=room
        )
        found = [
            {**event, "logStreamName": _of_job(job, event["logStreamName"])}
            for event in sources[at].own(page["events"])
            if event["logStreamName"].startswith(f"{folder}/")
            and (not wanted or instance_of(event["logStreamName"]) in wanted)
        ]
        events += found
        room -= len(found)
        token = page.get("nextToken")
        at += not token
    answer: Answer = {"events": events, "searchedLogStreams": []}
    if at < len(sources):
        answer["nextToken"] = f"{at}@{token or ''}"
    return answer


HANDLERS: Mapping[str, Handler] = {
    "DescribeLogStreams": describe_streams,
    "GetLogEvents": get_events,
    "FilterLogEvents": filter_events,
}


class _Pages:
    """The pages of one instance's streams, through the attempts of its job."""

    def __init__(self, call: Call, job: JobDetail, instance: str) -> None:
        self._sources = _sources(job)
        self._client = call.client()
        self._instance = instance
        self._same = {
            key: value
            for key, value in call.parameters.items()
            if key not in ("nextToken", "logStreamName", "startFromHead", "limit")
        }
        self._limit = int(call.parameters.get("limit", _MOST_EVENTS))

    @property
    def last(self) -> int:
        """The last attempt that is there; -1 if there is none."""
        return len(self._sources) - 1

    def turn(self, at: int, token: str | None, *, forward: bool) -> Answer:
        """Return the page at a token, which goes on in the next attempts that have a stream, up to the limit."""
        leads_on = "nextForwardToken" if forward else "nextBackwardToken"
        answer: Answer = {"events": [], "nextForwardToken": f"{max(at, 0)}@", "nextBackwardToken": f"{max(at, 0)}@"}
        room, empty = self._limit, True
        for index in range(at, self.last + 1) if forward else range(at, -1, -1):
            stream = self._stream(self._sources[index])
            reached = token if index == at else None
            while stream and room > 0:
                page = self._page(self._sources[index], stream, reached, room, forward=forward)
                events = answer["events"]
                answer["events"] = events + page["events"] if forward else page["events"] + events
                tokens = {key: f"{index}@{page[key]}" for key in answer if key != "events"}
                answer |= tokens if empty else {leads_on: tokens[leads_on]}
                room, empty = room - len(page["events"]), False
                if page[leads_on] == reached:  # which alone means the end: a page may be empty before it
                    break
                reached = page[leads_on]
        return answer

    def _stream(self, source: LogSource) -> str | None:
        """Return the instance's stream in an attempt; None if it wrote nothing there."""
        for stream in list_streams(self._client, source.folder, self._instance):
            if instance_of(stream["logStreamName"]) == self._instance:
                return str(stream["logStreamName"])
        return None

    def _page(self, source: LogSource, stream: str, token: str | None, limit: int, *, forward: bool) -> Answer:
        more = {"nextToken": token} if token else {}
        page: Answer = self._client.get_log_events(
            **self._same, **more, logStreamName=stream, limit=limit, startFromHead=forward
        )
        return {**page, "events": list(source.own(page["events"]))}


def job_of_group(jobs: JobLookup, parameters: Mapping[str, Any], name: str) -> JobDetail | None:
    """Return the job of that name, if the log group of training jobs is meant."""
    group = parameters.get("logGroupName") or str(parameters.get("logGroupIdentifier", "")).rpartition(":")[2]
    return jobs.find_recent(name) if name and group == LOG_GROUP else None


def attempts_of(job: JobDetail) -> list[str]:
    """Return the names of the training jobs that were launched for a job."""
    return [attempt.training_job_name for attempt in job.attempts if attempt.training_job_name]


def _sources(job: JobDetail) -> list[LogSource]:
    return [LogSource(each.training_job_name, each.carrier) for each in job.attempts if each.training_job_name]


def _of_job(job: JobDetail, stream: str) -> str:
    return f"{job.job}/{stream.partition('/')[2]}"
