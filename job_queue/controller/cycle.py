"""The scheduling cycle. Each change wakes the controller; the holder of the lease runs cycles, one at a time.

A cycle reads the cluster's state, plans, records its intents, and only then calls SageMaker.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from job_queue.adapters.cluster_reader import Parallel, read_cluster_state
from job_queue.adapters.job_repository import JobRepository, transactions
from job_queue.adapters.metadata import WAITING_QUEUE_UNUSED_SECONDS, Lease, Policies
from job_queue.adapters.observers import Observer
from job_queue.adapters.sagemaker import LaunchResult, SageMakerTraining, StopResult
from job_queue.adapters.telemetry import log
from job_queue.controller.checkpoints import CheckpointTimes
from job_queue.controller.intents import eviction_transitions, leftover_transitions, start_transitions
from job_queue.controller.launcher import Launcher
from job_queue.controller.reconciler import Adoption, Reconciler
from job_queue.controller.training_plans import TrainingPlans, cut_off_notices
from job_queue.controller.warm_pools import WarmPools, kept_warm
from job_queue.domain.cluster_state import ClusterState, Metadata
from job_queue.domain.errors import LeaseLost, QueueError, Refused, Signal, Unavailable
from job_queue.domain.fleet.warm_pools import place
from job_queue.domain.job import Job
from job_queue.domain.state_machine import Transition
from job_queue.scheduler import JobState, Plan, Policy, plan

LEASE_GRACE_SECONDS = 10  # the lease outlives the invocation, so nobody else starts while it may still act
LAUNCH_SECONDS = 15  # that must be left of an invocation to launch a job
CYCLE_SECONDS = LAUNCH_SECONDS + 5  # ... and to begin a cycle


@dataclass(frozen=True, slots=True)
class Invocation:
    """One invocation of the function, in which the queue runs."""

    holder: str  # of the lease; unique
    remaining: Callable[[], float]  # seconds until it is killed
    may_go_on: Callable[[], bool]  # whether to start a further cycle


class Controller:
    """Runs scheduling cycles.

    :param clock: gives seconds since the epoch.
    :param parallel: runs independent AWS calls.
    :param newest_object: gives when an object was last written under an address in S3; None: nobody may look there.
    :param observer: notified of cycles, and of invocations that run none as another one holds the lease.
    """

    def __init__(
        self,
        repository: JobRepository,
        training: SageMakerTraining,
        policies: Policies,
        clock: Callable[[], float],
        parallel: Parallel,
        observer: Observer | None = None,
        newest_object: Callable[[str], float | None] | None = None,
    ) -> None:
        self._repository = repository
        self._training = training
        self._policies = policies
        self._clock = clock
        self._parallel = parallel
        self._observer = observer or Observer()
        self.reconciler = Reconciler(repository, training, policies, clock)
        self._checkpoints = CheckpointTimes(repository, newest_object, clock, parallel) if newest_object else None
        self._warm_pools = WarmPools(repository, training, clock)
        self._training_plans = TrainingPlans(repository, training, policies, clock)
        self._launcher = Launcher(repository, training, self.reconciler, clock)

    def wake(self, invocation: Invocation) -> None:
        """Raise the generation and run cycles; or leave them to the holder of the lease, which will see the generation.

        An error ends this invocation's cycles only: what is recorded stays, and the next invocation continues from it.
        """
        self._run(invocation, [])

    def tick(self, invocation: Invocation) -> None:
        """Compare the records with what SageMaker knows, then do as `wake` does.

        SageMaker is asked before the lease is taken, so that nobody waits for it.
        """
        adoptions: list[Adoption] = []
        try:
            self._training_plans.refresh(self._repository.metadata())
        except Exception as error:
            log.exception("training plans not looked up", exc_info=error)
        try:
            metadata = self._repository.metadata()
            adoptions = self.reconciler.compare(
                metadata, lambda: invocation.remaining() > CYCLE_SECONDS and invocation.may_go_on()
            )
        except Exception as error:  # SageMaker did not answer: the cycle plans with what is recorded
            log.exception("reconciliation failed", exc_info=error)
        self._run(invocation, adoptions)

    def _run(self, invocation: Invocation, adoptions: list[Adoption]) -> None:
        try:
            self._wake(invocation, adoptions)
        except Signal as signal:
            log.info("left to the next cycle", why=repr(signal))
        except QueueError as error:
            log.warning("left to the next cycle", why=error.message, exc_info=error)
        except Exception as error:
            log.exception("left to the next cycle", exc_info=error)  # whoever submitted a job need not know

    def _wake(self, invocation: Invocation, adoptions: list[Adoption]) -> None:
        planned = self._repository.raise_generation()
        again = False
        while invocation.remaining() > CYCLE_SECONDS:
            now = self._clock()
            expires = now + invocation.remaining() + LEASE_GRACE_SECONDS
            acquire = partial(self._repository.acquire, invocation.holder, now, expires)
            lease, metadata = self._parallel([acquire, self._repository.metadata])
            if lease is None:
                self._observer.lease_was_held()
                return
            log.append_keys(cycle=lease.fencing_token)
            try:
                more, again = self._cycle(lease, invocation, metadata, adoptions, one_by_one=again)
            finally:
                self._repository.release(lease)
            # Read after the release: who raised it while the lease was held has left the cycle to this invocation.
            generation = self._repository.generation()
            if (generation == planned and not more and not again) or not invocation.may_go_on():
                return
            planned = generation

    # --- one cycle -------------------------------------------------------------------------------

    def _cycle(
        self,
        lease: Lease,
        invocation: Invocation,
        metadata: Metadata,
        adoptions: list[Adoption],
        *,
        one_by_one: bool,
    ) -> tuple[bool, bool]:
        """One cycle. Gives whether another one may do more, and whether some of its plan could not be recorded.

        :param metadata: as it was read while the lease was taken.
        :param adoptions: attempts that a comparison has found; empty afterwards.
        :param one_by_one: record each transition in its own transaction, so that one that cannot be recorded does not
            keep the others from being recorded.
        """
        began = self._clock()
        # 1. Record the attempts that a comparison with SageMaker has found.
        self.reconciler.adopt(lease, adoptions)
        adoptions.clear()
        # 2. Read the cluster's state. The metadata, read while the lease was taken, is valid if no holder wrote in
        # between. Who has registered a waiting queue or applied a policy since then raises the generation afterwards.
        current = metadata.fencing_token in (lease.fencing_token - 1, lease.fencing_token)
        cluster = read_cluster_state(self._repository, self._policies, self._parallel, metadata if current else None)
        if self._training_plans.learn_new(cluster):
            cluster = replace(cluster, metadata=self._repository.metadata())
        now = self._clock()
        # 3. Continue what was decided before: stops of cancelled jobs, launches without an answer.
        leftovers = leftover_transitions(cluster, lease, now)
        cluster = cluster.with_active(_new(leftovers))
        # 4. Plan.
        decided = plan(cluster.snapshot(now))
        if decided.evictions and self._checkpoints and (seen := self._checkpoints.look_up(cluster, decided)):
            cluster = seen
            decided = plan(cluster.snapshot(now))
        placement = place(cluster, decided)
        decided = placement.plan
        starts, deferred = start_transitions(cluster, decided, lease, now)
        starts = kept_warm(starts, placement)
        leaving = [*leftovers, *eviction_transitions(cluster, decided, now)]
        notices = cut_off_notices(cluster, {job.name for job in _new(leaving)}, now)
        transitions = [*leaving, *starts, *notices]
        # 5. Record every intent before acting on it. The requests of the jobs to launch are read at the same time.
        launching = [job.name for job in _new(transitions) if job.state is JobState.STARTING]
        recording = partial(self._record, lease, cluster, decided, transitions, now, one_by_one=one_by_one)
        (recorded, unplanned), *records = self._parallel(
            [recording, *(partial(self._repository.record, name) for name in launching)]
        )
        # 6. Act on what is recorded.
        details = {record.job.name: record.details for record in records if record}
        self._warm_pools.take(placement, _new(recorded))
        more = self._warm_pools.release(placement)
        more = self._stop_all(cluster, recorded) or more
        more = self._launch_all(lease, invocation, cluster.applied.policy, recorded, details) or more
        # 7. Forget what is not needed any more.
        self._forget_waiting_queues(cluster)
        self._forget_capacity_backoffs(cluster)
        loads = cluster.loads(_new(recorded))
        self._observer.cycle_ended(decided, loads, self._clock() - began)
        return more or deferred, unplanned

    def _record(
        self,
        lease: Lease,
        cluster: ClusterState,
        decided: Plan,
        transitions: list[Transition],
        now: float,
        *,
        one_by_one: bool,
    ) -> tuple[list[Transition], bool]:
        """Record transitions; gives those that are recorded, and whether to plan again for the others."""
        unchanged = cluster.metadata.reservations == decided.reservations
        reservations = None if unchanged else decided.reservations
        recorded: list[Transition] = []
        if not transitions and unchanged:
            return recorded, False
        alone = [[transition] for transition in transitions]
        for part in alone if one_by_one and transitions else transactions(transitions):
            try:
                self._repository.commit(
                    lease, part, now, policy_version=cluster.applied.version, reservations=reservations
                )
            except LeaseLost:
                if not self._repository.still_held(lease):
                    raise
                return recorded, True
            except (Refused, Unavailable) as error:
                if not one_by_one:
                    log.info("not recorded: planning again", why=repr(error))
                    return recorded, True
                log.error("transitions cannot be recorded", jobs=[job.name for job in _new(part)], exc_info=error)
                continue
            recorded += part
            reservations = None
        return recorded, False

    def _stop_all(self, cluster: ClusterState, recorded: list[Transition]) -> bool:
        """Ask for every intended stop, again in each cycle. True if one of the attempts has ended already."""
        intended = {job.name: job for job in cluster.active.values() if job.state is JobState.STOPPING}
        intended |= {job.name: job for job in _new(recorded) if job.state is JobState.STOPPING}
        return any(self._parallel([partial(self._stop, job) for job in intended.values()]))

    def _stop(self, job: Job) -> bool:
        if self._training.stop(job.launched or "") is not StopResult.ENDED_ALREADY:
            return False
        try:
            return self.reconciler.examine(job.launched or "")
        except QueueError as error:
            log.warning("attempt cannot be stopped", job=job.name, attempt=job.launched, why=error.message)
            return False

    def _launch_all(
        self,
        lease: Lease,
        invocation: Invocation,
        policy: Policy,
        recorded: list[Transition],
        details: Mapping[str, str],
    ) -> bool:
        """Ask SageMaker for every recorded launch, and record the results one after the other."""
        launches = [job for job in _new(recorded) if job.state is JobState.STARTING and job.name in details]
        results = self._parallel(
            [partial(self._launch, invocation, policy, job, details[job.name]) for job in launches]
        )
        more = False
        for job, result in zip(launches, results, strict=True):
            if result is not None:
                more = self._settle(lease, job, result) or more
        return more

    def _settle(self, lease: Lease, job: Job, result: tuple[LaunchResult, str]) -> bool:
        try:
            return self._launcher.settle(lease, job, *result)
        except LeaseLost:
            raise
        except (QueueError, Refused) as error:  # this launch stays unanswered; the other results are recorded
            log.warning("launch result not recorded", job=job.name, exc_info=error)
            return False

    def _launch(
        self, invocation: Invocation, policy: Policy, job: Job, details: str
    ) -> tuple[LaunchResult, str] | None:
        if invocation.remaining() < LAUNCH_SECONDS:
            return None  # its intent is recorded; a later cycle asks
        return self._launcher.create(job, details, policy)

    def _forget_waiting_queues(self, cluster: ClusterState) -> None:
        in_use = {job.waiting_queue for job in cluster.waiting.values()}
        for key, last_used in cluster.metadata.waiting_queues.items():
            if key not in in_use and last_used + WAITING_QUEUE_UNUSED_SECONDS < self._clock():
                self._repository.forget_waiting_queue(key, last_used)

    def _forget_capacity_backoffs(self, cluster: ClusterState) -> None:
        for backoff in cluster.metadata.capacity_backoffs.values():
            if backoff.is_forgotten(self._clock()):
                self._repository.end_capacity_backoff(backoff)


def _new(transitions: Iterable[Transition]) -> list[Job]:
    """The jobs as the transitions make them."""
    return [transition.new for transition in transitions]
