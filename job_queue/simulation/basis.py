"""What a look ahead begins with: the queue as it is, and what is known of how it will go on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from job_queue.scheduler import Snapshot
from job_queue.simulation.forecast import Arrivals, as_lately, nobody_comes
from job_queue.simulation.workload import Overheads, SimulatedJob

UNKNOWN = -1.0  # the work of a job that came lately and lives


@dataclass(frozen=True, slots=True)
class Basis:
    """What `forecast` needs."""

    snapshot: Snapshot
    runtimes: Mapping[str, Sequence[float]] = field(default_factory=dict)  # of live jobs, as `forecast` has them
    arrivals: Arrivals = nobody_comes
    overheads: Overheads = Overheads()


def basis_of(
    snapshot: Snapshot,
    runtimes: Mapping[str, Sequence[float]],
    lately: Sequence[SimulatedJob],
    span: float,
    overheads: Overheads,
) -> Basis:
    """What is known, where those come again who came in the last `span` seconds.

    :param lately: who they were; the work of one that lives is `UNKNOWN`, and one of its likely runtimes is drawn.
    """

    def work(job: SimulatedJob, random: Random) -> float:
        likely = runtimes.get(job.name) if job.work < 0 else None
        return max(0.0, job.work if likely is None else random.choice(likely) - overheads.starting(job))

    return Basis(snapshot, runtimes, as_lately(lately, snapshot.now, span, work), overheads)
