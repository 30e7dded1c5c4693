"""Answer calls for CloudWatch metrics of a job with the datapoints of all its attempts.

SageMaker publishes metrics under the names of attempts. The attempts of a job follow each other, so their datapoints
form one series. If one attempt ended and the next began within one period, the period's datapoints are combined by a
rule for their statistic. Without a rule, as for percentiles, the last attempt's value counts, and in expressions the
maximum. Averages are exact in answers of GetMetricStatistics only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean
from typing import Any

from sagemaker_queue.errors import InvalidRequest
from sagemaker_queue.integrations.boto.call import Answer, Call, Handler
from sagemaker_queue.integrations.boto.cloudwatch.logs import launched_attempts
from sagemaker_queue.integrations.boto.lookup import JobLookup
from sagemaker_queue.queue.attempt_clients import Place, is_elsewhere

_NAMESPACES = frozenset({"/aws/sagemaker/TrainingJobs"})
_DIMENSIONS = frozenset({"TrainingJobName", "Host"})  # a Host is <training job>/algo-<number>
_MOST_QUERIES = 500  # CloudWatch's maximum in one call
_PART_MARK = "_qstamp_"  # in the ids of queries for single attempts
# Statistic -> rule that combines the values of several attempts in one period
_JOIN: Mapping[str, Callable[[Iterable[float]], float]] = {
    "Sum": sum,
    "SampleCount": sum,
    "Minimum": min,
    "Maximum": max,
    "Average": fmean,
}
_MATH = {"Sum": "SUM", "SampleCount": "SUM", "Minimum": "MIN", "Maximum": "MAX", "Average": "AVG"}


_SEVERAL_PLACES = (
    "CloudWatch evaluates an expression in one region and account only, and an attempt ran in another one than the"
    " rest of the call. Request the metrics without the expression."
)


@dataclass(frozen=True)
class _JobAttempt:
    """An attempt of a job."""

    job: str
    training_job: str
    place: Place


@dataclass(frozen=True)
class _Query:
    """A query for CloudWatch. It runs in the region and account of an attempt; None: in the queue's own."""

    query: Mapping[str, Any]
    attempt: _JobAttempt | None

    @property
    def region_and_account(self) -> tuple[str | None, str | None]:
        """The region and account in which the query runs; None: the queue's own."""
        return (self.attempt.place.region, self.attempt.place.account) if self.attempt else (None, None)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the query runs in another region or account than the queue's."""
        return self.region_and_account != (None, None)


def get_statistics(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer GetMetricStatistics with the datapoints of all attempts."""
    attempts = _attempts(jobs, call.parameters)
    if attempts is None:
        return None
    requested = list(call.parameters.get("Statistics", []))
    more = (
        {"Statistics": [*requested, "SampleCount"]} if "Average" in requested and "SampleCount" not in requested else {}
    )
    points: dict[datetime, list[Mapping[str, Any]]] = {}
    for found in attempts:
        client = call.client_of(found.place, found.job)
        page = client.get_metric_statistics(**_translated({**call.parameters, **more}, found))
        for point in page["Datapoints"]:
            points.setdefault(point["Timestamp"], []).append(point)
    joined = [_combine_datapoints(parts) for _, parts in sorted(points.items())]
    if more:
        joined = [{name: value for name, value in point.items() if name != "SampleCount"} for point in joined]
    return {"Label": call.parameters.get("MetricName"), "Datapoints": joined}


def get_data(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer GetMetricData. A query that names a job is replaced by one query for each attempt of the job.

    If an expression of the call uses the original query, CloudWatch combines the results of the new queries, by an
    added expression. Otherwise this function combines these results. Attempts in other regions and accounts are queried
    there. Raises InvalidRequest for a call that has an expression and needs several regions or accounts, and for more
    than _MOST_QUERIES queries.
    """
    requested = list(call.parameters.get("MetricDataQueries", []))
    expressions = " ".join(str(query["Expression"]) for query in requested if "Expression" in query)
    queries: list[_Query] = []
    parts: dict[str, str] = {}  # id of each query whose results are combined here -> its statistic
    for query in requested:
        metric = query.get("MetricStat", {}).get("Metric", {})
        attempts = _attempts(jobs, metric) or []
        if not attempts:
            queries.append(_Query(query, None))
        elif len(attempts) == 1:
            queries.append(_Query(_for_attempt(query, attempts[0]), attempts[0]))
        elif re.search(rf"\b{re.escape(query['Id'])}\b", expressions):
            queries += [_Query(each, attempts[0]) for each in _by_expression(query, attempts)]
        else:
            parts[query["Id"]] = query["MetricStat"]["Stat"]
            queries += [
                _Query({**_for_attempt(query, attempt), "Id": f"{query['Id']}{_PART_MARK}{index}"}, attempt)
                for index, attempt in enumerate(attempts)
            ]
    if [each.query for each in queries] == requested:
        return None
    if len(queries) > _MOST_QUERIES:
        raise InvalidRequest(
            f"This call needs {len(queries)} queries of CloudWatch, one for each attempt. CloudWatch accepts "
            f"{_MOST_QUERIES} in one call. Request fewer jobs at once.",
            "MetricDataQueries",
        )
    answer = _query_all_places(call, queries, with_expressions=bool(expressions))
    descending = call.parameters.get("ScanBy", "TimestampDescending") == "TimestampDescending"
    return {**answer, "MetricDataResults": _combine_results(answer["MetricDataResults"], parts, descending=descending)}


HANDLERS: Mapping[str, Handler] = {"GetMetricStatistics": get_statistics, "GetMetricData": get_data}


def _query_all_places(call: Call, queries: Sequence[_Query], *, with_expressions: bool) -> Answer:
    """Send each query to the region and account of its attempt, and return all results in one answer.

    If there are several regions or accounts, the first page of the answer contains all results from outside the
    queue's region and account. Further pages contain only results from the queue's region and account.
    """
    places = {each.region_and_account: each.attempt for each in queries}
    if len(places) == 1 or not any(each.is_elsewhere for each in queries):
        only = next((each.attempt for each in queries if each.attempt), None)
        client = call.client_of(only.place, only.job) if only else call.client()
        answer: Answer = client.get_metric_data(
            **{**call.parameters, "MetricDataQueries": [each.query for each in queries]}
        )
        return answer
    if with_expressions:
        raise InvalidRequest(_SEVERAL_PLACES, "MetricDataQueries")
    answer = {"MetricDataResults": [], "Messages": []}
    first_page = {name: value for name, value in call.parameters.items() if name != "NextToken"}
    for place, attempt in places.items():
        place_queries = [each.query for each in queries if each.region_and_account == place]
        if attempt is None or not is_elsewhere(attempt.place):
            page = call.client().get_metric_data(**{**call.parameters, "MetricDataQueries": place_queries})
            answer = {**page, "MetricDataResults": [*answer["MetricDataResults"], *page["MetricDataResults"]]}
        elif "NextToken" not in call.parameters:
            pages = call.client_of(attempt.place, attempt.job).get_paginator("get_metric_data")
            for page in pages.paginate(**{**first_page, "MetricDataQueries": place_queries}):
                answer["MetricDataResults"] = [*answer["MetricDataResults"], *page["MetricDataResults"]]
    order = [each.query["Id"] for each in queries]
    answer["MetricDataResults"].sort(key=lambda result: order.index(result["Id"]))
    return answer


def _for_attempt(query: Mapping[str, Any], attempt: _JobAttempt) -> dict[str, Any]:
    translated = _translated(query["MetricStat"]["Metric"], attempt)
    return {**query, "MetricStat": {**query["MetricStat"], "Metric": translated}}


def _by_expression(query: Mapping[str, Any], attempts: Sequence[_JobAttempt]) -> list[dict[str, Any]]:
    """Return a query for each attempt, then an expression with the original id that combines the queries' results."""
    if len({(attempt.place.region, attempt.place.account) for attempt in attempts}) > 1:
        raise InvalidRequest(_SEVERAL_PLACES, "MetricDataQueries")
    attempt_queries = [
        {**_for_attempt(query, attempt), "Id": f"{query['Id']}{_PART_MARK}{index}", "ReturnData": False}
        for index, attempt in enumerate(attempts)
    ]
    function = _MATH.get(query["MetricStat"]["Stat"], "MAX")
    whole = {name: value for name, value in query.items() if name != "MetricStat"}
    label = whole.get("Label", query["MetricStat"]["Metric"].get("MetricName", query["Id"]))
    return [
        *attempt_queries,
        {**whole, "Label": label, "Expression": f"{function}([{', '.join(it['Id'] for it in attempt_queries)}])"},
    ]


def _combine_results(
    results: Iterable[Mapping[str, Any]], parts: Mapping[str, str], *, descending: bool
) -> list[Mapping[str, Any]]:
    combined: dict[str, dict[str, Any]] = {}  # by the original query's id, in the order of the results
    points: dict[str, dict[datetime, list[float]]] = {}
    for result in results:
        name = result["Id"].partition(_PART_MARK)[0]
        if name not in parts:
            combined[result["Id"]] = dict(result)
            continue
        first = combined.setdefault(name, {**result, "Id": name})
        if result.get("StatusCode") != "Complete":
            first["StatusCode"] = result.get("StatusCode")
        for time, value in zip(result["Timestamps"], result["Values"]):
            points.setdefault(name, {}).setdefault(time, []).append(value)
    for name in combined.keys() & parts.keys():
        found = sorted(points.get(name, {}).items(), reverse=descending)
        join = _JOIN.get(parts[name], _last)
        combined[name]["Timestamps"] = [time for time, _ in found]
        combined[name]["Values"] = [values[0] if len(values) == 1 else join(values) for _, values in found]
    return list(combined.values())


def _combine_datapoints(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine the datapoints of one period into one datapoint."""
    combined = dict(parts[-1])
    if len(parts) == 1:
        return combined
    for statistic, join in _JOIN.items():
        if statistic in combined:
            combined[statistic] = join([part[statistic] for part in parts if statistic in part])
    counts = [part.get("SampleCount", 0) for part in parts]
    if "Average" in combined and sum(counts):
        combined["Average"] = sum(part["Average"] * count for part, count in zip(parts, counts)) / sum(counts)
    return combined


def _last(values: Iterable[float]) -> float:
    return list(values)[-1]


def _attempts(jobs: JobLookup, metric: Mapping[str, Any]) -> list[_JobAttempt] | None:
    """Return the attempts of the job that the dimensions name; None if the queue has no such job."""
    if metric.get("Namespace") not in _NAMESPACES:
        return None
    for dimension in metric.get("Dimensions", []):
        if dimension["Name"] in _DIMENSIONS:
            name = str(dimension["Value"]).partition("/")[0]
            job = jobs.find_recent(name)
            if job is not None:
                return [_JobAttempt(name, training_job, attempt) for attempt, training_job in launched_attempts(job)]
    return None


def _translated(metric: Mapping[str, Any], attempt: _JobAttempt) -> dict[str, Any]:
    def value(dimension: Mapping[str, str]) -> str:
        first, slash, rest = dimension["Value"].partition("/")
        is_job = dimension["Name"] in _DIMENSIONS and first == attempt.job
        return f"{attempt.training_job}{slash}{rest}" if is_job else dimension["Value"]

    return {**metric, "Dimensions": [{**dimension, "Value": value(dimension)} for dimension in metric["Dimensions"]]}
