"""Answer calls for CloudWatch metrics of a job with the datapoints of all its attempts.

SageMaker publishes metrics under the names of attempts. The attempts of a job follow each other, so their datapoints
form one series. If one attempt ended and the next began within one period, the period's datapoints are combined by the
rule of their statistic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from statistics import fmean
from typing import Any

from sagemaker_queue.errors import InvalidRequest
from sagemaker_queue.integrations.boto.call import Answer, Call, Handler
from sagemaker_queue.integrations.boto.cloudwatch.logs import attempts_of
from sagemaker_queue.integrations.boto.lookup import JobLookup

_NAMESPACES = frozenset({"/aws/sagemaker/TrainingJobs"})
_DIMENSIONS = frozenset({"TrainingJobName", "Host"})  # a Host is <training job>/algo-<number>
_MOST_QUERIES = 500  # CloudWatch's maximum in one call
_OF_ATTEMPT = "_qstamp_"
# Statistic -> rule that combines the values of several attempts in one period. The rule for averages is approximate.
_JOIN: Mapping[str, Callable[[Iterable[float]], float]] = {
    "Sum": sum,
    "SampleCount": sum,
    "Minimum": min,
    "Maximum": max,
    "Average": fmean,
}
_MATH = {"Sum": "SUM", "SampleCount": "SUM", "Minimum": "MIN", "Maximum": "MAX", "Average": "AVG"}


def get_statistics(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer GetMetricStatistics with the datapoints of all attempts."""
    attempts = _attempts(jobs, call.parameters)
    if attempts is None:
        return None
    asked = list(call.parameters.get("Statistics", []))
    more = {"Statistics": [*asked, "SampleCount"]} if "Average" in asked and "SampleCount" not in asked else {}
    points: dict[datetime, list[Mapping[str, Any]]] = {}
    for name, attempt in attempts:
        page = call.client().get_metric_statistics(**_translated({**call.parameters, **more}, name, attempt))
        for point in page["Datapoints"]:
            points.setdefault(point["Timestamp"], []).append(point)
    joined = [_one(parts) for _, parts in sorted(points.items())]
    if more:
        joined = [{name: value for name, value in point.items() if name != "SampleCount"} for point in joined]
    return {"Label": call.parameters.get("MetricName"), "Datapoints": joined}


def get_data(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer GetMetricData. A query that names a job is replaced by one query for each attempt of the job.

    The results of the new queries are combined here. If an expression of the call uses the query, an expression that
    combines the results in CloudWatch is added.
    """
    asked = list(call.parameters.get("MetricDataQueries", []))
    expressions = " ".join(str(query.get("Expression", "")) for query in asked)
    queries: list[Mapping[str, Any]] = []
    parts: dict[str, str] = {}  # id of each query whose results are combined here -> its statistic
    for query in asked:
        metric = query.get("MetricStat", {}).get("Metric", {})
        attempts = _attempts(jobs, metric) or []
        if not attempts:
            queries.append(query)
        elif len(attempts) == 1:
            queries.append(_for_attempt(query, *attempts[0]))
        elif re.search(rf"\b{re.escape(query['Id'])}\b", expressions):
            queries += _by_expression(query, attempts)
        else:
            parts[query["Id"]] = query["MetricStat"]["Stat"]
            queries += [
                {**_for_attempt(query, *attempt), "Id": f"{query['Id']}{_OF_ATTEMPT}{number}"}
                for number, attempt in enumerate(attempts)
            ]
    if queries == asked:
        return None
    if len(queries) > _MOST_QUERIES:
        raise InvalidRequest(
            f"These are {len(queries)} queries of CloudWatch, one for each attempt of each job; it takes "
            f"{_MOST_QUERIES} in one call. Ask for fewer jobs at once.",
            "MetricDataQueries",
        )
    answer: Answer = call.client().get_metric_data(**{**call.parameters, "MetricDataQueries": queries})
    descending = call.parameters.get("ScanBy", "TimestampDescending") == "TimestampDescending"
    return {**answer, "MetricDataResults": _put_together(answer["MetricDataResults"], parts, descending=descending)}


HANDLERS: Mapping[str, Handler] = {"GetMetricStatistics": get_statistics, "GetMetricData": get_data}


def _for_attempt(query: Mapping[str, Any], name: str, attempt: str) -> dict[str, Any]:
    translated = _translated(query["MetricStat"]["Metric"], name, attempt)
    return {**query, "MetricStat": {**query["MetricStat"], "Metric": translated}}


def _by_expression(query: Mapping[str, Any], attempts: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return a query for each attempt, and finally an expression, with the original id, that combines their results."""
    each = [
        {**_for_attempt(query, *attempt), "Id": f"{query['Id']}{_OF_ATTEMPT}{number}", "ReturnData": False}
        for number, attempt in enumerate(attempts)
    ]
    function = _MATH.get(query["MetricStat"]["Stat"], "MAX")
    whole = {name: value for name, value in query.items() if name != "MetricStat"}
    label = whole.get("Label", query["MetricStat"]["Metric"].get("MetricName", query["Id"]))
    return [*each, {**whole, "Label": label, "Expression": f"{function}([{', '.join(it['Id'] for it in each)}])"}]


def _put_together(
    results: Iterable[Mapping[str, Any]], parts: Mapping[str, str], *, descending: bool
) -> list[Mapping[str, Any]]:
    whole: dict[str, dict[str, Any]] = {}  # by the original query's id, in the order of the results
    points: dict[str, dict[datetime, list[float]]] = {}
    for result in results:
        name = result["Id"].partition(_OF_ATTEMPT)[0]
        if name not in parts:
            whole[result["Id"]] = dict(result)
            continue
        first = whole.setdefault(name, {**result, "Id": name})
        if result.get("StatusCode") != "Complete":
            first["StatusCode"] = result.get("StatusCode")
        for time, value in zip(result["Timestamps"], result["Values"]):
            points.setdefault(name, {}).setdefault(time, []).append(value)
    for name in whole.keys() & parts.keys():
        found = sorted(points.get(name, {}).items(), reverse=descending)
        join = _JOIN.get(parts[name], _last)
        whole[name]["Timestamps"] = [time for time, _ in found]
        whole[name]["Values"] = [values[0] if len(values) == 1 else join(values) for _, values in found]
    return list(whole.values())


def _one(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine the datapoints of one period into one datapoint."""
    whole = dict(parts[-1])
    if len(parts) == 1:
        return whole
    for statistic, join in _JOIN.items():
        if statistic in whole:
            whole[statistic] = join([part[statistic] for part in parts if statistic in part])
    counts = [part.get("SampleCount", 0) for part in parts]
    if "Average" in whole and sum(counts):
        whole["Average"] = sum(part["Average"] * count for part, count in zip(parts, counts)) / sum(counts)
    return whole


def _last(values: Iterable[float]) -> float:
    return list(values)[-1]


def _attempts(jobs: JobLookup, metric: Mapping[str, Any]) -> list[tuple[str, str]] | None:
    """Return (job, attempt) for each attempt of the job that the dimensions name; None if the queue has no such job."""
    if metric.get("Namespace") not in _NAMESPACES:
        return None
    for dimension in metric.get("Dimensions", []):
        if dimension["Name"] in _DIMENSIONS:
            name = str(dimension["Value"]).partition("/")[0]
            job = jobs.find_recent(name)
            if job is not None:
                return [(name, attempt) for attempt in attempts_of(job)]
    return None


def _translated(metric: Mapping[str, Any], name: str, attempt: str) -> dict[str, Any]:
    def value(dimension: Mapping[str, str]) -> str:
        first, slash, rest = dimension["Value"].partition("/")
        return f"{attempt}{slash}{rest}" if dimension["Name"] in _DIMENSIONS and first == name else dimension["Value"]

    return {**metric, "Dimensions": [{**dimension, "Value": value(dimension)} for dimension in metric["Dimensions"]]}
