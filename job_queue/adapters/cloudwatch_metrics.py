"""The queue's metrics, collected during an invocation and printed to the log, where CloudWatch reads them.

Dimensions are the service and, for some metrics, the project or the pool. A job is never a dimension, because
CloudWatch bills each value of a dimension as a metric of its own.
"""

from collections import defaultdict
from collections.abc import Mapping
from enum import Enum
from threading import Lock

from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from job_queue.domain.cluster_state import ProjectLoad
from job_queue.domain.domain_events import (
    ComparisonAge,
    CycleEnded,
    DomainEvent,
    ForgedAttempt,
    IdleInstances,
    JobEvent,
    LeaseConflict,
    SilentSites,
    UnrecordedJob,
    job_event,
)
from job_queue.domain.job import epoch
from job_queue.domain.state_machine import JobTransition

NAMESPACE = "TrainingJobQueue"
SERVICE = "training-job-queue"
LONGEST_DIMENSION = 250  # characters


class Metric(Enum):
    """The metrics, with their names in CloudWatch and their units."""

    # of projects
    WAITING_JOBS = ("WaitingJobs", MetricUnit.Count)
    ACTIVE_JOBS = ("ActiveJobs", MetricUnit.Count)
    INSTANCES_IN_USE = ("InstancesInUse", MetricUnit.Count)
    WAIT_TIME = ("WaitTime", MetricUnit.Seconds)  # from a job's submission to its first start
    PREEMPTIONS = ("Preemptions", MetricUnit.Count)
    BACKOFFS = ("Backoffs", MetricUnit.Count)
    # of pools
    IDLE_INSTANCES = ("IdleInstances", MetricUnit.Count)  # instances of jobs whose GPUs are idle
    # of the queue
    CYCLE_TIME = ("CycleTime", MetricUnit.Milliseconds)
    RECONCILIATION_AGE = ("MinutesSinceReconciliation", MetricUnit.NoUnit)  # since the last comparison with SageMaker
    LASTING_REFUSALS = ("LastingRefusals", MetricUnit.Count)  # jobs and pools that SageMaker has refused for long
    FORGED_ATTEMPTS = ("ForgedAttempts", MetricUnit.Count)  # training jobs with the queue's tags and no proof
    UNSTOPPABLE_ATTEMPTS = ("UnstoppableAttempts", MetricUnit.Count)  # attempts that the queue may not stop
    UNRECORDED_JOBS = ("UnrecordedJobs", MetricUnit.Count)  # jobs whose rows cannot be written; plans leave them out
    LEASE_CONFLICTS = ("LeaseConflicts", MetricUnit.Count)
    SILENT_SITES = ("SilentSites", MetricUnit.Count)  # other sites whose events did not report the end of an attempt
    LOST_NOTIFICATIONS = ("LostNotifications", MetricUnit.Count)


Values = dict[Metric, list[float]]
Dimension = tuple[str, str]  # name and value of the dimension


class QueueMetrics:
    """The values of all metrics in an invocation, until they are printed."""

    def __init__(self) -> None:
        self._lock = Lock()  # the calls of a cycle run concurrently
        self._measured: dict[Dimension | None, Values] = _no_values()
        self._loads: Mapping[str, ProjectLoad] = {}
        self._lasting_refusals: int | None = None

    def add(self, metric: Metric, value: float = 1, *, project: str | None = None, pool: str | None = None) -> None:
        """Add a value to a metric of a project or of a pool, or of the queue if neither is given."""
        dimension = ("project", project) if project is not None else ("pool", pool) if pool is not None else None
        with self._lock:
            self._measured[dimension][metric].append(value)

    def notify(self, event: DomainEvent) -> None:
        """Add the values of an event to the metrics. The loads of a cycle replace the loads of the cycle before."""
        match event:
            case JobTransition():
                self._measure_transition(event)
            case CycleEnded(loads=loads, seconds=seconds, lasting_refusals=lasting_refusals):
                self._loads = loads
                self._lasting_refusals = lasting_refusals
                self.add(Metric.CYCLE_TIME, 1000 * seconds)
            case ComparisonAge(seconds):
                self.add(Metric.RECONCILIATION_AGE, round(seconds / 60, 2))
            case SilentSites(count):
                self.add(Metric.SILENT_SITES, count)
            case IdleInstances(counts):
                for pool, count in counts.items():
                    self.add(Metric.IDLE_INSTANCES, count, pool=pool)
            case ForgedAttempt():
                self.add(Metric.FORGED_ATTEMPTS)
            case UnrecordedJob():
                self.add(Metric.UNRECORDED_JOBS)
            case LeaseConflict():
                self.add(Metric.LEASE_CONFLICTS)

    def _measure_transition(self, transition: JobTransition) -> None:
        job = transition.new
        match job_event(transition):
            case JobEvent.STARTED:
                self.add(Metric.WAIT_TIME, epoch(job.since) - epoch(job.entered), project=job.project)
            case JobEvent.PREEMPTED:
                self.add(Metric.PREEMPTIONS, project=job.project)
            case JobEvent.UNSTOPPABLE:
                self.add(Metric.UNSTOPPABLE_ATTEMPTS)
            case JobEvent.BACKED_OFF:
                self.add(Metric.BACKOFFS, project=job.project)

    def flush(self) -> None:
        """Print the measured values: a line for the queue, and one for each project and pool."""
        for project, load in self._loads.items():
            self.add(Metric.WAITING_JOBS, load.waiting, project=project)
            self.add(Metric.ACTIVE_JOBS, load.active, project=project)
            self.add(Metric.INSTANCES_IN_USE, load.instances, project=project)
        if self._lasting_refusals is not None:
            self.add(Metric.LASTING_REFUSALS, self._lasting_refusals)
            self._lasting_refusals = None
        with self._lock:
            measured, self._measured, self._loads = self._measured, _no_values(), {}
        for dimension, values in measured.items():
            _print(dimension, values)


def _no_values() -> dict[Dimension | None, Values]:
    return defaultdict(lambda: defaultdict(list))


def _dimension(name: str) -> str:
    """Return a project's or pool's name in the form that CloudWatch accepts: ASCII, not blank, and not too long."""
    return name.strip().encode("ascii", "backslashreplace").decode()[:LONGEST_DIMENSION] or "?"


def _print(dimension: Dimension | None, measured: Values) -> None:
    lines = EphemeralMetrics(namespace=NAMESPACE, service=SERVICE)
    if dimension is not None:
        kind, name = dimension
        lines.add_dimension(kind, _dimension(name))
    for metric, values in measured.items():
        name, unit = metric.value
        for value in values:
            lines.add_metric(name, unit, value)  # prints the line when it is full, and begins the next line
    if lines.metric_set:
        lines.flush_metrics()
