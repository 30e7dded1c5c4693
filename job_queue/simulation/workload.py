"""What is simulated: jobs that come, and what the fleet costs them."""

from dataclasses import dataclass

from job_queue.prediction.runtimes import JobTraits
from job_queue.scheduler import Slots


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job as it comes. Times are seconds since the simulation's beginning, durations are seconds."""

    name: str
    project: str
    priority: int
    demand: tuple[Slots, ...]  # alternatives, best first
    submitted: float
    work: float  # of training, once its instances are up
    owner: str = ""
    preemptible: bool = True
    max_runtime: float | None = None  # that the planner is told
    traits: JobTraits = JobTraits()  # by which its runtime is predicted

    @property
    def instances(self) -> int:
        """Of its first alternative."""
        return sum(self.demand[0].values())


@dataclass(frozen=True, slots=True)
class Overheads:
    """What SageMaker takes of an attempt's time, in seconds, and how much of it a preemption loses."""

    provisioning: float = 180  # from the launch until the work begins
    stopping: float = 120  # from the request until the instances are free
    checkpoint_every: float | None = 1800  # of work; None: a preempted job begins anew
