"""The utilization of an attempt's GPUs and memory: the attempts to measure, and the figures from SageMaker's metrics.

SageMaker reports each instance once a minute. GPUUtilization and GPUMemoryUtilization are sums over the GPUs, each
0 to 100 percent: eight GPUs give up to 800. MemoryUtilization is 0 to 100 percent of the instance. Metrics arrive late,
so an attempt is measured some minutes after its end.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from job_queue.domain.accounting.attempts import AttemptRecord, MeasuredUtilization
from job_queue.domain.expectations.idleness import IDLE_BELOW
from job_queue.domain.job import epoch
from job_queue.scheduler import GPUS

GPU, GPU_MEMORY, MEMORY = "GPUUtilization", "GPUMemoryUtilization", "MemoryUtilization"
METRICS = (GPU, GPU_MEMORY, MEMORY)

SETTLED_SECONDS = 10 * 60.0  # time after the end of an attempt in which its last metrics arrive
SHORTEST_SECONDS = 60.0  # a shorter attempt is not measured: SageMaker reports once a minute
OLDEST_SECONDS = (
    14 * 24 * 3600.0
)  # an attempt that ended earlier is not measured; CloudWatch keeps one-minute figures for 15 days
MOST_HOSTS = 160  # largest number of measured instances; 160 x 3 metrics fit in one call of GetMetricData
MOST_POINTS = 200  # figures of one metric of one instance; 160 x 3 x 200 fit in one answer of GetMetricData
WITH_GPUS = frozenset(kind for kind in GPUS if not kind.startswith("ml.trn"))  # Trainium has accelerators, but no GPUs

Series = Mapping[float, float]
"""Time of a period (epoch seconds) -> average in this period."""


@dataclass(frozen=True, slots=True)
class MeasuredPeriod:
    """The instances and the time for which metrics are requested. Times are epoch seconds."""

    hosts: Sequence[str]
    since: float
    until: float
    period: int  # seconds that each figure covers


def is_measurable(record: AttemptRecord, now: float) -> bool:
    """Return whether an attempt had GPUs of its own, ran for a minute, is not too old, and was not measured before.

    The GPUs of a member's attempt are measured with its carrier.
    """
    return (
        record.utilization is None
        and record.began is not None
        and record.carrier is None
        and any(kind in WITH_GPUS for kind in record.instances)
        and epoch(record.ended) - epoch(record.began) >= SHORTEST_SECONDS
        and now - epoch(record.ended) <= OLDEST_SECONDS
    )


def is_settled(record: AttemptRecord, now: float) -> bool:
    """Return whether the attempt ended so long ago that its metrics have arrived."""
    return now - epoch(record.ended) >= SETTLED_SECONDS


def period_of(record: AttemptRecord) -> MeasuredPeriod:
    """Return the instances and the time of an attempt that has run.

    CloudWatch accepts multiples of a minute as periods, but only multiples of 5 minutes for a time more than 15 days
    ago. An attempt that began so long ago ran for more than a day, so its period is such a multiple.
    """
    began, ended = epoch(record.began or record.ended), epoch(record.ended)
    minutes = ceil((ended - began) / 60 / MOST_POINTS)
    period = 60 * minutes if minutes < 5 else 300 * ceil(minutes / 5)  # noqa: PLR2004 - five minutes
    since = began // period * period
    count = min(sum(record.instances.values()), MOST_HOSTS)
    return MeasuredPeriod(
        hosts=[f"{record.training_job_name}/algo-{number}" for number in range(1, count + 1)],
        since=since,
        until=ceil(ended / period) * period,
        period=period,
    )


def utilization_of(record: AttemptRecord, found: Mapping[str, Mapping[str, Series]]) -> MeasuredUtilization:
    """Return the mean and the 95th percentile of each metric over an attempt, in percent. A missing metric is None.

    The figure of each period is the mean of the instances that report the metric. The figures of GPUs are None if the
    attempt's instances have different numbers of GPUs.

    :param found: metric -> host -> series.
    """
    counts = {GPUS[kind] for kind in record.instances if kind in WITH_GPUS}
    gpus = counts.pop() if len(counts) == 1 else None
    gpu = _figures(found.get(GPU, {}), gpus)
    gpu_memory = _figures(found.get(GPU_MEMORY, {}), gpus)
    memory = _figures(found.get(MEMORY, {}), 1)
    return MeasuredUtilization(*gpu, *gpu_memory, *memory, idle=_idle_seconds(record, found.get(GPU, {})))


def _idle_seconds(record: AttemptRecord, by_host: Mapping[str, Series]) -> int | None:
    """Return the seconds of the periods in which all reporting instances were idle; None without reports."""
    highest: dict[float, float] = {}
    for series in by_host.values():
        for time, value in series.items():
            highest[time] = max(value, highest.get(time, 0.0))
    if not highest:
        return None
    period = period_of(record).period
    ran = epoch(record.ended) - epoch(record.began or record.ended)
    return round(min(ran, period * sum(value < IDLE_BELOW for value in highest.values())))


def _figures(by_host: Mapping[str, Series], parts: int | None) -> tuple[int | None, int | None]:
    """Return the mean and the 95th percentile over time, in whole percent of one part.

    :param parts: GPUs of each instance, or 1; None: the figures are None.
    """
    at: dict[float, list[float]] = {}
    for series in by_host.values():
        for time, value in series.items():
            at.setdefault(time, []).append(value)
    if parts is None or not at:
        return None, None
    over_time = sorted(sum(values) / len(values) / parts for values in at.values())
    return round(sum(over_time) / len(over_time)), round(_percentile(over_time, 95))


def _percentile(rising: Sequence[float], percent: float) -> float:
    """Return the smallest value that is at least as large as this percentage of the values."""
    return rising[max(0, ceil(len(rising) * percent / 100) - 1)]


def due(pending: Iterable[AttemptRecord], now: float) -> list[AttemptRecord]:
    """Return the attempts whose metrics have arrived, the earliest end first."""
    return sorted((it for it in pending if is_settled(it, now)), key=lambda it: (it.ended, it.training_job_name))
