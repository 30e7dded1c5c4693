"""Calls of CloudWatch's metrics, for jobs of the queue: SageMaker publishes them under the names of attempts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sagemaker_queue.integrations.boto.call import Answer, Call, Handler
from sagemaker_queue.integrations.boto.lookup import JobLookup

_NAMESPACES = frozenset({"/aws/sagemaker/TrainingJobs"})
_DIMENSIONS = frozenset({"TrainingJobName", "Host"})  # a Host is <training job>/algo-<number>


def get_statistics(jobs: JobLookup, call: Call) -> Answer | None:
    """GetMetricStatistics: the datapoints of all attempts."""
    attempts = _attempts(jobs, call.parameters)
    if attempts is None:
        return None
    answer: Answer = {"Label": call.parameters.get("MetricName"), "Datapoints": []}
    for name, attempt in attempts:
        page = call.client().get_metric_statistics(**_translated(call.parameters, name, attempt))
        answer["Datapoints"] += page["Datapoints"]
    return answer


def get_data(jobs: JobLookup, call: Call) -> Answer | None:
    """GetMetricData: each query finds the last attempt of the job that it names."""
    queries = [_latest(jobs, query) for query in call.parameters.get("MetricDataQueries", [])]
    if queries == call.parameters.get("MetricDataQueries"):
        return None
    answer: Answer = call.client().get_metric_data(**{**call.parameters, "MetricDataQueries": queries})
    return answer


HANDLERS: Mapping[str, Handler] = {"GetMetricStatistics": get_statistics, "GetMetricData": get_data}


def _latest(jobs: JobLookup, query: Mapping[str, Any]) -> Mapping[str, Any]:
    metric = query.get("MetricStat", {}).get("Metric", {})
    attempts = _attempts(jobs, metric)
    if not attempts:
        return query
    translated = _translated(metric, *attempts[-1])
    return {**query, "MetricStat": {**query["MetricStat"], "Metric": translated}}


def _attempts(jobs: JobLookup, metric: Mapping[str, Any]) -> list[tuple[str, str]] | None:
    """Return the job that the dimensions name, with each of its attempts; None if it is none of the queue's."""
    if metric.get("Namespace") not in _NAMESPACES:
        return None
    for dimension in metric.get("Dimensions", []):
        if dimension["Name"] in _DIMENSIONS:
            name = str(dimension["Value"]).partition("/")[0]
            job = jobs.find_recent(name)
            if job is not None:
                names = [attempt.training_job_name for attempt in job.attempts]
                return [(name, attempt) for attempt in names if attempt]
    return None


def _translated(metric: Mapping[str, Any], name: str, attempt: str) -> dict[str, Any]:
    def value(dimension: Mapping[str, str]) -> str:
        first, slash, rest = dimension["Value"].partition("/")
        return f"{attempt}{slash}{rest}" if dimension["Name"] in _DIMENSIONS and first == name else dimension["Value"]

    return {**metric, "Dimensions": [{**dimension, "Value": value(dimension)} for dimension in metric["Dimensions"]]}
