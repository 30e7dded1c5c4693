"""The workload of a simulation: its jobs, and the time that SageMaker adds to their attempts."""

from dataclasses import dataclass

from job_queue.prediction.runtimes import JobTraits
from job_queue.scheduler import Slots


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job of the workload. Times are on the simulator's clock (`Simulator.now`), durations are seconds."""

    name: str
    project: str
    priority: int
    demand: tuple[Slots, ...]  # alternatives, best first
    submitted: float
    work: float  # seconds of training
    owner: str = ""
    preemptible: bool = True
    interactive: bool = False
    max_runtime: float | None = None  # seconds, known to the planner; None: unknown
    traits: JobTraits = JobTraits()  # properties for the prediction of the runtime
    gpus: int | None = None  # for a member: the needed GPUs of one instance, in tenths
    kind: str = ""  # only members of the same kind share an instance
    needed_gpus: float = 0  # GPUs that the job really needs, which may be fewer than its instances have; 0: unknown
    max_preemptions: int | None = None  # the job's own limit on its preemptions
    part: float = 1  # part of each instance that the job needs
    group: str | None = None  # name that the owner gave to a group of jobs in the project
    max_parallel: int | None = None  # number of jobs of the group that may be active at a time

    @property
    def instances(self) -> int:
        """The number of instances of the job's first alternative."""
        return sum(self.demand[0].values())

    @property
    def size(self) -> float:
        """The number of instances, or the part of one instance that the job needs."""
        return self.instances * self.part


@dataclass(frozen=True, slots=True)
class Overheads:
    """The seconds that SageMaker adds to an attempt, and the interval of checkpoints.

    The interval decides how much work a preemption loses.
    """

    provisioning: float = 180  # seconds from the launch until the training begins
    stopping: float = 120  # seconds from the stop request until the instances are free
    checkpoint_every: float | None = 1800  # seconds of training; None: a preempted job starts from the beginning
    member_overhead: float = 5  # seconds from a member's start until it trains, and from its stop request to its end

    def starting(self, job: SimulatedJob) -> float:
        """Return the seconds from a start until the training begins."""
        return self.provisioning if job.gpus is None else self.member_overhead

    def kept(self, done: float, worked: float) -> float:
        """Return the seconds of work that the last checkpoint has saved.

        :param done: seconds of work of earlier attempts.
        :param worked: seconds of work of this attempt.
        """
        every = self.checkpoint_every
        if every is None:
            return 0.0
        return done + (worked // every * every if every else worked)
