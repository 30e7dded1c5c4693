"""CloudWatch Logs Insights for jobs of the queue: a query for a job's log streams finds its attempts' log streams.

Jobs on shared instances are not found, because their lines are in the streams of carriers.

The rows of the answer come from CloudWatch unchanged. So a field ``@logStream`` has the name of an attempt's stream.
A query runs in the queue's region and account, so the query does not find attempts in other regions or accounts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from api_contract.models import JobDetail
from sagemaker_queue.integrations.boto.call import Answer, Call, Handler
from sagemaker_queue.integrations.boto.cloudwatch.logs import launched_attempts
from sagemaker_queue.integrations.boto.lookup import JobLookup
from sagemaker_queue.queue.attempt_clients import is_elsewhere
from sagemaker_queue.workflows.job_logs.attempt_logs import LOG_GROUP, instance_of, list_streams

_NAME = r"(?P<name>[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62})"
_CONDITION = re.compile(
    r"(?P<field>@logStream\s*)(?P<operator>\blike\b|=~|=)(?P<space>\s*)"
    r"""(?:(?P<quote>["'])(?P<text>[^"']*)(?P=quote)|/(?P<pattern>(?:[^/\\\n]|\\.)+)/)"""
)
_IN_TEXT = re.compile(rf"{_NAME}/(?P<rest>.*)", re.DOTALL)
_IN_PATTERN = re.compile(rf"(?P<start>\^?){_NAME}(?:\\/|/)")


def start_query(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer StartQuery: rewrite the conditions =, like and =~ on ``@logStream`` whose value begins with ``<job>/``.

    The rewritten condition names the streams of the job's attempts, as a list or a pattern. Other conditions stay.
    """
    parameters = call.parameters
    query = str(parameters.get("queryString", ""))
    if LOG_GROUP not in _groups(parameters) or "@logStream" not in query:
        return None

    def translated(condition: re.Match[str]) -> str:
        return _translated(jobs, call, condition) or condition[0]

    rewritten = _CONDITION.sub(translated, query)
    if rewritten == query:
        return None
    answer: Answer = call.client().start_query(**{**parameters, "queryString": rewritten})
    return answer


HANDLERS: Mapping[str, Handler] = {"StartQuery": start_query}


def _groups(parameters: Mapping[str, Any]) -> set[str]:
    names = [parameters.get("logGroupName"), *parameters.get("logGroupNames", [])]
    identifiers = [str(it).rpartition(":log-group:")[2] or str(it) for it in parameters.get("logGroupIdentifiers", [])]
    return {str(name) for name in names if name} | {it.partition(":")[0] for it in identifiers}


def _translated(jobs: JobLookup, call: Call, condition: re.Match[str]) -> str | None:
    """Rewrite a condition on a job to match the job's attempts; return None for other conditions."""
    in_text = condition["text"] is not None
    found = _IN_TEXT.fullmatch(condition["text"]) if in_text else _IN_PATTERN.match(condition["pattern"])
    job = jobs.find_recent(found["name"]) if found else None
    names = [name for attempt, name in launched_attempts(job) if not is_elsewhere(attempt)] if job else []
    if found is None or job is None or not names:
        return None
    any_attempt = f"(?:{'|'.join(names)})\\/"  # names contain no special characters of patterns
    field = condition["field"]
    if condition["operator"] == "=":
        streams = _streams(call, job, condition["text"]) if in_text else []
        return f"{field}in [{', '.join(f'{chr(34)}{stream}{chr(34)}' for stream in streams)}]" if streams else None
    if in_text:
        return f"{field}like /{any_attempt}{_escaped(found['rest'])}/"
    rest = condition["pattern"][found.end() :]
    return f"{field}{condition['operator']}{condition['space']}/{found['start']}{any_attempt}{rest}/"


def _streams(call: Call, job: JobDetail, stream: str) -> list[str]:
    client, instance = call.client(), instance_of(stream)
    return [
        found["logStreamName"]
        for attempt, name in launched_attempts(job)
        if not is_elsewhere(attempt)
        for found in list_streams(client, name, instance)
        if instance_of(found["logStreamName"]) == instance
    ]


def _escaped(text: str) -> str:
    return re.sub(r"([^\w-])", r"\\\1", text)
