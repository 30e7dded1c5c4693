"""Calls of CloudWatch Logs for jobs of the queue.

A job's log streams look like one training job's log streams. Each instance has one stream, such as
``<job>/algo-1-...``, with the lines of all attempts in order. So programs that read the streams of a training job to
the end, as the SDKs do, continue across preemptions, and read no line twice. A stream prefix ``<job>`` selects only
this job, like the prefix ``<job>/``. The prefix does not select other jobs whose names begin with ``<job>``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from api_contract.models import Attempt, JobDetail
from sagemaker_queue.integrations.boto.call import Answer, Call, Handler
from sagemaker_queue.integrations.boto.lookup import JobLookup
from sagemaker_queue.queue.attempt_clients import is_elsewhere
from sagemaker_queue.workflows.job_logs.attempt_logs import LOG_GROUP, LogSource, instance_of, list_streams

_MOST_EVENTS = 10_000  # CloudWatch's maximum number of events on a page
_MOST_CALLS = 20  # maximum number of CloudWatch calls for one page of an answer


def describe_streams(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer DescribeLogStreams for the prefix ``<job>`` or ``<job>/...`` with all matching streams, on one page."""
    name, _, rest = str(call.parameters.get("logStreamNamePrefix", "")).partition("/")
    job = job_of_group(jobs, call.parameters, name)
    if job is None:
        return None
    streams: dict[str, dict[str, Any]] = {}  # by instance
    for attempt, source in _sources(job):
        for stream in list_streams(call.client_of(attempt, job.job), source.folder):
            instance = instance_of(stream["logStreamName"])
            latest = {key: stream[key] for key in ("lastEventTimestamp", "lastIngestionTime") if key in stream}
            first = streams.get(instance) or {**stream, "logStreamName": _of_job(job, stream["logStreamName"])}
            streams[instance] = first | latest
    return {
        "logStreams": [stream for stream in streams.values() if stream["logStreamName"].startswith(f"{name}/{rest}")]
    }


def get_events(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer GetLogEvents for a job's stream. Pages and their tokens continue from one attempt to the next."""
    stream = str(call.parameters.get("logStreamName", ""))
    job = job_of_group(jobs, call.parameters, stream.partition("/")[0])
    if job is None:
        return None
    pages = _Pages(call, job, instance_of(stream))
    forward = bool(call.parameters.get("startFromHead"))
    # A token is "<index of the attempt>@<CloudWatch's token>".
    number, at, token = str(call.parameters.get("nextToken", "")).partition("@")
    if not at or not number.isdecimal():
        return pages.read_page(0 if forward else pages.last, None, forward=forward)
    if int(number) > max(pages.last, 0):
        raise _invalid_token(call.operation)
    # CloudWatch's own tokens begin with their direction: "f" for forward, "b" for backward.
    return pages.read_page(int(number), token or None, forward=token.startswith("f") if token else forward)


def _invalid_token(operation: str) -> ClientError:
    """Return CloudWatch's error for a token that is not one of its own tokens."""
    error = {"Code": "InvalidParameterException", "Message": "The specified nextToken is invalid."}
    return ClientError({"Error": error, "ResponseMetadata": {"HTTPStatusCode": 400}}, operation)  # type: ignore[typeddict-item]


def filter_events(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer FilterLogEvents for a job's prefix or streams: return the events attempt by attempt.

    All events are on one page if possible: empty pages of CloudWatch are skipped, with at most _MOST_CALLS calls for
    one page of the answer.
    """
    streams = [str(stream) for stream in call.parameters.get("logStreamNames", [])]
    prefix = str(call.parameters.get("logStreamNamePrefix", ""))
    name, _, rest = (prefix or (streams or [""])[0]).partition("/")
    job = job_of_group(jobs, call.parameters, name)
    if job is None:
        return None
    sources = _sources(job)
    number, _, inner = str(call.parameters.get("nextToken") or "0@").partition("@")
    at, token = int(number) if number.isdecimal() else 0, inner or None
    shared_parameters = {
        key: value
        for key, value in call.parameters.items()
        if key not in ("logStreamNames", "logStreamNamePrefix", "nextToken", "limit")
    }
    wanted_instances = {instance_of(stream) for stream in streams}
    remaining = int(call.parameters.get("limit", _MOST_EVENTS))
    events: list[dict[str, Any]] = []
    for _ in range(_MOST_CALLS):
        if at >= len(sources) or remaining <= 0:
            break
        attempt, source = sources[at]
        more, folder = {"nextToken": token} if token else {}, source.folder
        page = call.client_of(attempt, job.job).filter_log_events(
            **_parameters_for(shared_parameters, attempt),
            **more,
            logStreamNamePrefix=f"{folder}/{rest if prefix else ''}",
            limit=remaining,
        )
        found = [
            {**event, "logStreamName": _of_job(job, event["logStreamName"])}
            for event in source.events_of_attempt(page["events"])
            if event["logStreamName"].startswith(f"{folder}/")
            and (not wanted_instances or instance_of(event["logStreamName"]) in wanted_instances)
        ]
        events += found
        remaining -= len(found)
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
    """The pages of one instance's streams in all attempts of a job."""

    def __init__(self, call: Call, job: JobDetail, instance: str) -> None:
        self._sources = _sources(job)
        self._call = call
        self._job = job.job
        self._instance = instance
        self._shared_parameters = {
            key: value
            for key, value in call.parameters.items()
            if key not in ("nextToken", "logStreamName", "startFromHead", "limit")
        }
        self._limit = int(call.parameters.get("limit", _MOST_EVENTS))

    @property
    def last(self) -> int:
        """The index of the last attempt; -1 if there are no attempts."""
        return len(self._sources) - 1

    def read_page(self, at: int, token: str | None, *, forward: bool) -> Answer:
        """Return one page of events, up to the limit: from ``token`` in attempt ``at``, then from the next attempts.

        With ``forward``, the next attempts are later ones, else earlier ones. ``token`` is CloudWatch's own token; None
        means the first page in the direction.
        """
        next_key = "nextForwardToken" if forward else "nextBackwardToken"
        answer: Answer = {"events": [], "nextForwardToken": f"{max(at, 0)}@", "nextBackwardToken": f"{max(at, 0)}@"}
        remaining, empty = self._limit, True
        for index in range(at, self.last + 1) if forward else range(min(at, self.last), -1, -1):
            attempt, source = self._sources[index]
            client = self._call.client_of(attempt, self._job)
            stream = self._stream(client, source)
            page_token = token if index == at else None
            while stream and remaining > 0:
                page = self._page(client, self._sources[index], stream, page_token, remaining, forward=forward)
                events = answer["events"]
                answer["events"] = events + page["events"] if forward else page["events"] + events
                tokens = {key: f"{index}@{page[key]}" for key in answer if key != "events"}
                answer |= tokens if empty else {next_key: tokens[next_key]}
                remaining, empty = remaining - len(page["events"]), False
                # Only an unchanged token marks the end: a page before the end may be empty.
                if page[next_key] == page_token:
                    break
                page_token = page[next_key]
        return answer

    def _stream(self, client: Any, source: LogSource) -> str | None:
        """Return the instance's stream in an attempt; None if the instance has written nothing in that attempt."""
        for stream in list_streams(client, source.folder, self._instance):
            if instance_of(stream["logStreamName"]) == self._instance:
                return str(stream["logStreamName"])
        return None

    def _page(
        self,
        client: Any,
        attempt_source: tuple[Attempt, LogSource],
        stream: str,
        token: str | None,
        limit: int,
        *,
        forward: bool,
    ) -> Answer:
        attempt, source = attempt_source
        more = {"nextToken": token} if token else {}
        page: Answer = client.get_log_events(
            **_parameters_for(self._shared_parameters, attempt),
            **more,
            logStreamName=stream,
            limit=limit,
            startFromHead=forward,
        )
        return {**page, "events": list(source.events_of_attempt(page["events"]))}


def job_of_group(jobs: JobLookup, parameters: Mapping[str, Any], name: str) -> JobDetail | None:
    """Return the job called ``name`` if the call is for the log group of training jobs; else return None."""
    group = parameters.get("logGroupName") or str(parameters.get("logGroupIdentifier", "")).rpartition(":")[2]
    return jobs.find_recent(name) if name and group == LOG_GROUP else None


def _parameters_for(parameters: Mapping[str, Any], attempt: Attempt) -> Mapping[str, Any]:
    """Return a call's parameters for an attempt.

    In another region or account, the log group's name replaces its ARN, since the ARN contains region and account.
    """
    if not is_elsewhere(attempt) or "logGroupIdentifier" not in parameters:
        return parameters
    others = {name: value for name, value in parameters.items() if name != "logGroupIdentifier"}
    return {**others, "logGroupName": LOG_GROUP}


def launched_attempts(job: JobDetail) -> list[tuple[Attempt, str]]:
    """Return a job's attempts that have a training job, each with the name of its training job."""
    return [(attempt, attempt.training_job_name) for attempt in job.attempts if attempt.training_job_name]


def _sources(job: JobDetail) -> list[tuple[Attempt, LogSource]]:
    return [(attempt, LogSource(name, attempt.carrier)) for attempt, name in launched_attempts(job)]


def _of_job(job: JobDetail, stream: str) -> str:
    return f"{job.job}/{stream.partition('/')[2]}"
