"""Estimate the runtimes of live jobs, the time of provisioning, and the next submissions from attempt records."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping

from job_queue.domain.accounting.attempts import AttemptRecord
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.expectations.outlook import ARRIVAL_SECONDS, DEFAULT_LIMIT_SECONDS, Arrival, Outlook
from job_queue.domain.job import INTERRUPTED, Job, epoch
from job_queue.domain.policy import alternatives
from job_queue.prediction.runtimes import JobTraits, RuntimePredictor
from job_queue.scheduler import WHOLE, Policy
from job_queue.simulation.workload import Overheads

LIKELY = 12  # number of equally likely runtimes that describe the uncertain runtime of a job
UNFINISHED = 20_000  # largest number of interrupted submissions with known work; the oldest are forgotten first
MOST_ARRIVALS = 1_000  # remembered arrivals of finished jobs; the oldest are forgotten first
PROVISIONED = 50  # latest launches, from which the provisioning time is estimated
FEW_PROVISIONED = 5  # number of launches below which a default time is used


class PastRuntimes:
    """Statistics of ended attempts, from which the outlook of live jobs is computed."""

    def __init__(self) -> None:
        self._predictor = RuntimePredictor()
        self._done: OrderedDict[str, float] = OrderedDict()  # submission -> seconds of work kept from ended attempts
        self._provisioned: deque[float] = deque(maxlen=PROVISIONED)
        self._arrivals: deque[Arrival] = deque(maxlen=MOST_ARRIVALS)

    def learn(self, record: AttemptRecord) -> None:
        """Learn from an ended attempt. Attempts of one job must be given in the order of their ends."""
        if record.began is None:
            return
        began, ended = epoch(record.began), epoch(record.ended)
        if record.carrier is None:  # the instance of a member exists before the member starts
            self._provisioned.append(began - epoch(record.launched))
        if record.carries is not None:
            return  # the runtimes and arrivals of carriers depend on their members
        before = self._done.pop(record.submission, 0.0)
        if record.outcome in INTERRUPTED:
            # If the lost work is not known, all work of the attempt counts as kept.
            self._done[record.submission] = before + max(0.0, ended - began - (record.lost or 0))
            if len(self._done) > UNFINISHED:
                self._done.popitem(last=False)
            return
        runtime, size = before + ended - began, _size(record.instances or record.slots, record.gpus)
        self._predictor.learn(JobTraits(record.project, record.owner, record.job, size=size), runtime)
        submitted = epoch(record.submitted)
        slots = ({pool: max(1, count) for pool, count in record.slots.items()},)
        arrival = Arrival(
            record.job, record.project, record.owner, record.priority, slots, submitted, runtime, record.gpus
        )
        if record.slots:
            self._arrivals.append(arrival)

    def outlook(self, cluster: ClusterState, now: float) -> Outlook:
        """Return the outlook of the live jobs, without expected starts."""
        live = [job for job in (*cluster.active.values(), *cluster.waiting.values()) if job.carries is None]
        provisioning = self._provisioning()
        expected, likely = dict[str, float](), dict[str, tuple[float, ...]]()
        for job in live:
            starting = provisioning if job.gpus is None else Overheads().member_overhead
            done, ran = self._progress(job, now, starting)
            prediction = self._predictor.predict(_traits(job), ran, job.attempt_limit)
            if prediction is not None:
                expected[job.name] = starting + max(0.0, prediction.median - done)
            if runtimes := self._likely(job, ran):
                likely[job.name] = tuple(starting + max(0.0, it - done) for it in runtimes)
        arrivals = (
            *_live_arrivals(live, cluster.applied.policy, now),
            *(it for it in self._arrivals if _is_recent(it, now)),
        )
        return Outlook(now, expected, likely, arrivals, provisioning)

    def _provisioning(self) -> float:
        """Return the seconds until instances are ready, as the median of the latest launches."""
        few = len(self._provisioned) < FEW_PROVISIONED
        return Overheads().provisioning if few else sorted(self._provisioned)[len(self._provisioned) // 2]

    def _likely(self, job: Job, ran: float) -> tuple[float, ...] | None:
        likely = self._predictor.likely(_traits(job), LIKELY, ran, job.attempt_limit)
        if likely is None and job.attempt_limit is not None and job.attempt_limit < DEFAULT_LIMIT_SECONDS:
            left = max(0.0, job.attempt_limit - ran)
            return tuple(ran + left * (place + 0.5) / LIKELY for place in range(LIKELY))
        return likely

    def _progress(self, job: Job, now: float, starting: float) -> tuple[float, float]:
        """Return the seconds of work kept from earlier attempts, and the same including the present attempt."""
        done = self._done.get(job.submission, 0.0)
        if not job.state.holds_slots or job.started is None:
            return done, done
        return done, done + max(0.0, now - epoch(job.started) - starting)


def _live_arrivals(live: Iterable[Job], policy: Policy, now: float) -> Iterable[Arrival]:
    for job in live:
        demand = alternatives(job, policy)
        arrival = Arrival(job.name, job.project, job.owner, job.priority, demand, epoch(job.entered), gpus=job.gpus)
        if _is_recent(arrival, now):
            yield arrival


def _is_recent(arrival: Arrival, now: float) -> bool:
    return now - ARRIVAL_SECONDS <= arrival.submitted < now


def _traits(job: Job) -> JobTraits:
    held = sum(job.slots.values())
    asked = next((it for it in job.demand if sum(it.values()) == held), job.demand[0])
    return JobTraits(job.project, job.owner, job.name, size=_size(asked, job.gpus))


def _size(instances: Mapping[str, int], gpus: int | None) -> str:
    if gpus is not None:
        return f"{gpus / WHOLE:g} GPUs"
    return " ".join(f"{count} {kind}" for kind, count in sorted(instances.items()))
