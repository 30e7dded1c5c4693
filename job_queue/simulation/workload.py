"""The workload of a simulation: its jobs, and the time that SageMaker adds to their attempts."""

from dataclasses import dataclass

from job_queue.prediction.runtimes import JobTraits
from job_queue.scheduler import Slots


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job of the workload. Times are seconds since the beginning of the simulation, durations are seconds."""

    name: str
    project: str
    priority: int
    demand: tuple[Slots, ...]  # alternatives, in order of preference
    submitted: float
    work: float  # seconds of training
    owner: str = ""
    preemptible: bool = True
    interactive: bool = False
    max_runtime: float | None = None  # known to the planner; None: unknown
    traits: JobTraits = JobTraits()  # for the prediction of its runtime
    gpus: int | None = None  # tenths of GPUs of one instance, if it is a member
    kind: str = ""  # only members of the same kind share an instance
    uses: float = 0  # GPUs that it really needs, which may be fewer than it is given; 0: unknown
    part: float = 1  # part of each instance that it needs

    @property
    def instances(self) -> int:
        """The number of instances of its first alternative."""
        return sum(self.demand[0].values())

    @property
    def size(self) -> float:
        """The number of instances, or the part of one."""
        return self.instances * self.part


@dataclass(frozen=True, slots=True)
class Overheads:
    """The seconds that SageMaker adds to an attempt, and the interval of checkpoints.

    The interval decides how much work a preemption loses.
    """

    provisioning: float = 180  # from the launch until the training begins
    stopping: float = 120  # from the stop request until the instances are free
    checkpoint_every: float | None = 1800  # seconds of training; None: a preempted job starts from the beginning
    seating: float = 5  # from a member's start on a running carrier until it trains; also from its stop to its end

    def starting(self, job: SimulatedJob) -> float:
        """Return the seconds from a start until the training begins."""
        return self.provisioning if job.gpus is None else self.seating

    def kept(self, done: float, worked: float) -> float:
        """Return the seconds of work that the last checkpoint holds.

        :param done: work of earlier attempts.
        :param worked: work of this attempt.
        """
        every = self.checkpoint_every
        if every is None:
            return 0.0
        return done + (worked // every * every if every else worked)
