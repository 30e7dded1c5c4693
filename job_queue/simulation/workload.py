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
    interactive: bool = False
    max_runtime: float | None = None  # that the planner is told
    traits: JobTraits = JobTraits()  # by which its runtime is predicted
    gpus: int | None = None  # of a member: tenths of GPUs of one instance
    kind: str = ""  # of a member: with whom it may share an instance
    uses: float = 0  # GPUs that it really needs, whatever it is given; 0: not known
    part: float = 1  # of each instance that it needs

    @property
    def instances(self) -> int:
        """Of its first alternative."""
        return sum(self.demand[0].values())

    @property
    def size(self) -> float:
        """Instances, or the part of one."""
        return self.instances * self.part


@dataclass(frozen=True, slots=True)
class Overheads:
    """What SageMaker takes of an attempt's time, in seconds, and how much of it a preemption loses."""

    provisioning: float = 180  # from the launch until the work begins
    stopping: float = 120  # from the request until the instances are free
    checkpoint_every: float | None = 1800  # of work; None: a preempted job begins anew
    seating: float = 5  # until a member works on a carrier that runs, and until it is gone

    def starting(self, job: SimulatedJob) -> float:
        """From a start until the work begins."""
        return self.provisioning if job.gpus is None else self.seating

    def kept(self, done: float, worked: float) -> float:
        """What its last checkpoint holds of a job's work: of what it had done before, and has in this attempt."""
        every = self.checkpoint_every
        if every is None:
            return 0.0
        return done + (worked // every * every if every else worked)
