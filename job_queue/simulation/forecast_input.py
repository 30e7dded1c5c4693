"""The input of a forecast: the present queue, likely runtimes, and jobs that may arrive later."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from job_queue.scheduler import Snapshot
from job_queue.simulation.forecast import Arrivals, no_arrivals, repeat_arrivals
from job_queue.simulation.workload import Overheads, SimulatedJob

UNKNOWN_WORK = -1.0  # stands for the `work` of a recently submitted job that has not finished yet


@dataclass(frozen=True, slots=True)
class ForecastInput:
    """The arguments of `forecast`, as one value."""

    snapshot: Snapshot
    runtimes: Mapping[str, Sequence[float]] = field(default_factory=dict)  # see `forecast`
    arrivals: Arrivals = no_arrivals
    overheads: Overheads = Overheads()


def with_repeated_arrivals(
    snapshot: Snapshot,
    runtimes: Mapping[str, Sequence[float]],
    lately: Sequence[SimulatedJob],
    span: float,
    overheads: Overheads,
) -> ForecastInput:
    """Return inputs in which the arrivals of the last `span` seconds are repeated.

    :param lately: the jobs that arrived in these seconds. If the work of a job is `UNKNOWN_WORK`, each future draws the
        work from the job's likely runtimes. Without likely runtimes the work is 0.
    """

    def work(job: SimulatedJob, random: Random) -> float:
        likely = runtimes.get(job.name) if job.work < 0 else None
        return max(0.0, job.work if likely is None else random.choice(likely) - overheads.starting(job))

    return ForecastInput(snapshot, runtimes, repeat_arrivals(lately, snapshot.now, span, work), overheads)
