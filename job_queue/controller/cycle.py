"""Run scheduling cycles: read the cluster's state, plan, record the intents, and only then call SageMaker.

A change of a job, the policy or a drain wakes the controller. Only the holder of the lease runs cycles, one at a time.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from job_queue.adapters.carriers.training import Training
from job_queue.adapters.cluster_reader import Parallel
from job_queue.adapters.job_repository import JobRepository, transactions
from job_queue.adapters.metadata import Lease, LeaseHeld, Policies
from job_queue.adapters.sagemaker import LaunchResult
from job_queue.adapters.telemetry import log
from job_queue.controller.carriers import Carriers
from job_queue.controller.fleet.checkpoints import CheckpointTimes, NewestAt
from job_queue.controller.fleet.training_plans import TrainingPlans, cut_off_announcements
from job_queue.controller.fleet.warm_pools import WarmPools, with_keep_warm
from job_queue.controller.intents import (
    eviction_transitions,
    relaunch_transitions,
    requested_stops,
    start_transitions,
    with_deferred,
    with_paced_starts,
)
from job_queue.controller.launcher import Launcher, new_call
from job_queue.controller.opening import CycleOpener, CyclePromise, OpenedCycle
from job_queue.controller.part import Backend, ControllerPart
from job_queue.controller.publication import Publication
from job_queue.controller.reconciler import Adoption, Comparison, LastLines, Prefetched, Reconciler
from job_queue.controller.stops import Stops
from job_queue.controller.waiting.deadlines import MissedStarts, next_deadlines
from job_queue.controller.waiting.dependencies import Dependencies, has_dependents
from job_queue.controller.waiting.parking import Parking
from job_queue.domain.cluster_state import ClusterState, Metadata
from job_queue.domain.domain_events import ComparisonAge, CycleEnded, LeaseConflict, SilentSites, UnrecordedJob
from job_queue.domain.errors import LeaseLost, QueueError, Refused, Signal, Unavailable, Unwritable
from job_queue.domain.fleet.sites import Origin, Site, site_of_event
from job_queue.domain.fleet.warm_pools import Placement, claims_of, in_drained_pools, place_starts
from job_queue.domain.job import Job
from job_queue.domain.launching.launch_rate import CreateRate, TokenBucket
from job_queue.domain.state_machine import JobTransition
from job_queue.scheduler import JobState, Plan, Policy, WaitReason, plan

LAUNCH_SECONDS = 15  # time of an invocation that must be left to launch a job
CYCLE_SECONDS = LAUNCH_SECONDS + 5  # time of an invocation that must be left to begin a cycle
SHORTEST_WAIT = 0.05  # seconds
SPARE_SECONDS = 1.0  # time that is left after the longest sleep, to wake another invocation
UNAVAILABLE_SECONDS = 2.0  # pause before the next try, if AWS did not answer a call of a cycle
UNRECORDED_SECONDS = 10 * 60  # time for which plans leave out a job whose row cannot be written
MOST_UNRECORDED = 500  # largest number of jobs that are left out because their rows cannot be written


@dataclass(frozen=True, slots=True)
class Invocation:
    """One invocation of the function."""

    holder: str  # unique name of this invocation as the holder of the lease
    remaining: Callable[[], float]  # returns the seconds until the invocation is killed
    may_go_on: Callable[[], bool]  # returns whether to start a further cycle
    may_wait: bool = False  # whether the invocation may sleep until more is due, as no caller waits for its answer
    woken_by: str | None = None  # the holder whose promise (`opening.CyclePromise`) this invocation keeps

    def has_time(self) -> bool:
        """Return whether there is time for more work and for a cycle after it."""
        return self.remaining() > CYCLE_SECONDS and self.may_go_on()


@dataclass(slots=True)
class _RemainingWork:
    """The work that remains after a cycle."""

    may_do_more: bool = False  # whether another cycle may do more at once
    must_plan_again: bool = False  # whether to plan again at once, because changes were not recorded
    due: float | None = None  # epoch seconds from which another cycle may do more


class Controller(ControllerPart):
    """The controller that runs scheduling cycles.

    :param clock: returns seconds since the epoch.
    :param parallel: runs independent AWS calls.
    :param newest_object_at: see `NewestAt`. None: no bucket may be listed.
    :param failure_log: returns the last log lines of a failed attempt. None: no lines are read.
    :param create_rate: the rate at which attempts may be launched.
    :param sleep: waits for a number of seconds.
    :param wake_up: starts another invocation, which may sleep. The argument is the holder whose promise of a later
        cycle the new invocation keeps.
    """

    def __init__(
        self,
        repository: JobRepository,
        training: Training,
        policies: Policies,
        clock: Callable[[], float],
        parallel: Parallel,
        newest_object_at: NewestAt | None = None,
        failure_log: LastLines | None = None,
        *,
        create_rate: CreateRate | None = None,
        sleep: Callable[[float], None] = lambda seconds: None,
        wake_up: Callable[[str], None] = lambda by: None,
    ) -> None:
        backend = Backend(repository, training, policies, clock, parallel)
        super().__init__(backend)
        self._backend = backend
        self._create_rate = create_rate or CreateRate()
        self._sleep = sleep
        self._wake_up = wake_up
        self.reconciler = Reconciler(backend, failure_log)
        self._checkpoints = CheckpointTimes(backend, newest_object_at) if newest_object_at else None
        self._warm_pools = WarmPools(backend)
        self._training_plans = TrainingPlans(backend)
        self._dependencies = Dependencies(backend)
        self._missed_starts = MissedStarts(backend)
        self._parking = Parking(backend, self._dependencies)
        self._stops = Stops(backend, self.reconciler)
        self._launcher = Launcher(backend, self.reconciler)
        self._carriers = Carriers(backend, self.reconciler)
        self._publication = Publication(backend)

    def training_job_changed(
        self,
        detail: Mapping[str, Any],
        invocation: Invocation,
        origin: Origin | None = None,
    ) -> None:
        """Apply a `SageMaker Training Job State Change`, and run cycles if there may be more to do now.

        :param origin: the region and account of the event; None: those of the stack. An event is ignored if its site is
            neither the home site nor the site of a pool.
        """
        metadata, prefetched, site = None, None, None
        if origin and not origin.is_home:
            metadata = self._repository.metadata()
            site = site_of_event(self._policies.of(metadata.policy).policy, origin)
            if site is None:
                log.warning("event of a site without a pool", account=origin.account, region=origin.region)
                return
        if (name := self.reconciler.job_of_ended_attempt(detail, site)) is not None:
            record, metadata = self._parallel([partial(self._repository.record, name), self._repository.metadata])
            prefetched = Prefetched(record, metadata)
        if self.reconciler.handle_event(detail, prefetched, site):
            self.wake(invocation, metadata)

    def mailboxes_changed(self, reported: Iterable[tuple[str, str | None]], invocation: Invocation) -> None:
        """Apply reports that agents have written into their mailboxes, and run cycles if there may be more to do now.

        :param reported: pairs of a carrier's attempt and the attempt of a member that has ended. None in place of the
            member stands for the agent's first report, which contains the agent's key.
        """
        if self._carriers.apply_reports(reported):
            self.wake(invocation)

    def wake(self, invocation: Invocation, seen: Metadata | None = None) -> None:
        """Raise the generation, then run cycles. If another invocation holds the lease, that holder runs the cycles.

        An error ends only this invocation's cycles: the records stay, and the next invocation continues from them.

        :param seen: the metadata, if the caller read it before it stored the change. With `seen`, the lease and the
            state may be requested at the same time.
        """
        self._run(invocation, seen, [])

    def tick(self, invocation: Invocation) -> None:
        """Compare the records with SageMaker, then raise the generation and run cycles as in `wake`.

        The comparison is made before the lease is taken, so that no other invocation waits for SageMaker's answers.
        Mailboxes are read after the cycles, because users can fill mailboxes so that reading takes long. Without
        carriers, no mailbox is read.
        """
        compared = Comparison()
        try:
            metadata = self._repository.metadata()
            compared = replace(compared, reconciled=metadata.reconciled)
            self._refresh_training_plans(metadata)
            compared = self.reconciler.compare(metadata, invocation.has_time)
        except Exception as error:  # the cycle plans with the records as they are
            log.exception("reconciliation failed", exc_info=error)
        if compared.reconciled is not None:
            self._repository.notify(ComparisonAge(max(0.0, self._clock() - compared.reconciled)))
        if compared.sites_with_missed_ends is not None:
            self._repository.notify(SilentSites(compared.sites_with_missed_ends))
        self._run(invocation, None, compared.adoptions)
        if compared.has_carriers and self._check_mailboxes(invocation):
            self._run(invocation, None, [])

    def _check_mailboxes(self, invocation: Invocation) -> bool:
        """Read the mailboxes of carriers. Return whether a cycle may do more now."""
        try:
            return self._carriers.check_mailboxes(invocation.has_time)
        except Exception as error:
            log.exception("mailboxes not read", exc_info=error)
            return False

    def _refresh_training_plans(self, metadata: Metadata) -> None:
        """Refresh the training plans for the next cycle. Only log an error, so that the comparison follows."""
        try:
            self._training_plans.refresh(metadata)
        except Exception as error:
            log.exception("training plans not looked up", exc_info=error)

    def _run(self, invocation: Invocation, seen: Metadata | None, adoptions: list[Adoption]) -> None:
        try:
            self._run_cycles(invocation, seen, adoptions)
        except Signal as signal:
            log.info("left to the next cycle", why=repr(signal))
        except QueueError as error:
            log.warning("left to the next cycle", why=error.message, exc_info=error)
        except Exception as error:
            log.exception("left to the next cycle", exc_info=error)  # not raised, because the caller's change is stored

    def _run_cycles(self, invocation: Invocation, seen: Metadata | None, adoptions: list[Adoption]) -> None:
        opener = CycleOpener(self._backend, invocation.holder)
        promised_by = invocation.woken_by
        promise = CyclePromise(
            self._repository, self._clock, promised_by or invocation.holder, was_woken=promised_by is not None
        )
        planned_generation, opened = opener.begin(seen)
        work, unfinished, has_run = _RemainingWork(), _RemainingWork(), False
        while invocation.remaining() > CYCLE_SECONDS:
            if isinstance(opened, LeaseHeld):
                self._repository.notify(LeaseConflict())
                # The holder may have been killed, so try again after the lease has expired.
                if not self._wait_for_next_cycle(invocation, promise, opened.expires + 1):
                    return
            else:
                log.append_keys(cycle=opened.lease.fencing_token)
                has_run = True
                try:
                    work = self._cycle(opener, opened, invocation, adoptions, one_by_one=work.must_plan_again)
                except Unavailable as error:
                    if not _may_sleep(invocation, UNAVAILABLE_SECONDS):
                        raise
                    log.warning("cycle not finished: trying again", why=error.message, exc_info=error)
                    work = unfinished
                finally:
                    self._repository.release(opened.lease)
                if work is unfinished:
                    self._sleep(UNAVAILABLE_SECONDS)  # after this time DynamoDB accepts calls for a throttled key again
                    opened = opener.acquire()
                    continue
                # Read the generation after the release: invocations that raised it during the lease rely on this read.
                generation = self._repository.generation()
                more = generation != planned_generation or work.may_do_more or work.must_plan_again
                # Read the generation again after the end of the promise. An invocation that relied on the promise
                # raised the generation before the promise ended, so this read sees the raised generation.
                if not more and work.due is None and promise.withdraw():
                    more = self._repository.generation() != generation
                planned_generation = generation
                ends = not (more and invocation.may_go_on())
                self._publication.publish(is_last=ends)
                if ends:
                    due = self._clock() if more else work.due
                    if due is None or not self._wait_for_next_cycle(invocation, promise, due):
                        return
            opened = opener.acquire()
        self._hand_over(invocation, promise, opened, has_run=has_run)

    def _hand_over(
        self, invocation: Invocation, promise: CyclePromise, opened: OpenedCycle | LeaseHeld, *, has_run: bool
    ) -> None:
        """Release the lease, and wake another invocation for a cycle, because no time is left for a cycle here.

        Invocations that met this lease or promise rely on this invocation. An invocation that was woken and had no time
        for any cycle wakes no other, because such wake-ups could repeat without end.
        """
        if isinstance(opened, OpenedCycle):
            self._repository.release(opened.lease)
        if has_run or invocation.woken_by is None:
            due = opened.expires + 1 if isinstance(opened, LeaseHeld) else self._clock()
            self._wait_for_next_cycle(invocation, promise, due)

    def _wait_for_next_cycle(self, invocation: Invocation, promise: CyclePromise, due: float) -> bool:
        """Wait until another cycle is due. Return False if another invocation or the tick will run that cycle.

        If this invocation has too little time for the wait, wake another one.
        """
        if not promise.make(due):
            return False
        seconds = max(SHORTEST_WAIT, due - self._clock())
        if not _may_sleep(invocation, seconds):
            # If the wait is too long for this invocation, sleep as long as possible, then wake the next invocation.
            longest = invocation.remaining() - CYCLE_SECONDS - SPARE_SECONDS
            if seconds > longest > SHORTEST_WAIT and _may_sleep(invocation, longest):
                self._sleep(longest)
            self._wake_up(promise.holder)
            return False
        self._sleep(seconds)
        return True

    # --- one cycle -------------------------------------------------------------------------------

    def _cycle(
        self,
        opener: CycleOpener,
        opened: OpenedCycle,
        invocation: Invocation,
        adoptions: list[Adoption],
        *,
        one_by_one: bool,
    ) -> _RemainingWork:
        """Run one cycle under the lease. Return the work that remains after the cycle.

        :param adoptions: attempts that a comparison has found. The cycle empties this list.
        :param one_by_one: whether to record each transition in its own transaction, so that one failing transition does
            not prevent the others.
        """
        began, lease, first_token = self._clock(), opened.lease, opened.lease.fencing_token
        # 1. Record the attempts that a comparison with SageMaker has found.
        self.reconciler.adopt(lease, adoptions)
        # 2. Read the cluster's state, settle carriers and missed starts, and release or stop dependents.
        cluster = self._read(opener, opened, again=bool(adoptions))
        adoptions.clear()
        cluster, more_ended = self._settle_live_jobs(lease, cluster)
        now = self._clock()
        # 3. Continue earlier decisions: requested stops, and launches that need another call.
        call = new_call(now, invocation.remaining())
        rates = _LaunchRates(lease, self._create_rate, now)
        unrecorded = cluster.unrecorded(now)
        relaunchable = [it for it in relaunch_transitions(cluster, call, now) if it.old.name not in unrecorded]
        claims = claims_of([it.old for it in relaunchable], cluster, now)
        relaunches = [it for it in relaunchable if it.old.name not in claims.in_the_way]
        stops = [it for it in requested_stops(cluster, now) if it.old.name not in unrecorded]
        relaunched = rates.admit(relaunches)
        continued = [*stops, *relaunched]
        cluster = cluster.with_changed(_new_jobs(continued))
        # 4. Make a plan.
        decided = plan(cluster.snapshot(now))
        if decided.evictions and self._checkpoints and (updated := self._checkpoints.look_up(cluster, decided)):
            cluster = updated
            decided = plan(cluster.snapshot(now))
        carrier_changes = self._carriers.carry_out(cluster, decided, call, now)
        placement = place_starts(carrier_changes.cluster, carrier_changes.plan, claims)
        starts, deferred = start_transitions(carrier_changes.cluster, placement.plan, call, now)
        without_deferred = with_deferred(placement.plan, deferred, carrier_changes.cluster)
        starts, decided = with_paced_starts(rates.admit(starts), starts, without_deferred)
        starts, cluster, decided = self._carriers.store(carrier_changes, starts, decided, now)
        changing = [*continued, *eviction_transitions(cluster, decided, now), *carrier_changes.transitions]
        announcements = cut_off_announcements(cluster, {job.name for job in _new_jobs(changing)} | unrecorded, now)
        transitions = [*changing, *with_keep_warm(starts, placement), *announcements]
        # 5. Record every intent before acting on it. The requests of the jobs to launch are read at the same time.
        launching = [job.name for job in _new_jobs(transitions) if job.state is JobState.STARTING]
        recording = partial(self._record, lease, cluster, decided, transitions, now, one_by_one=one_by_one)
        (recorded, must_plan_again), *records = self._parallel(
            [recording, *(partial(self._repository.record, name) for name in launching)]
        )
        # 6. Carry out the recorded intents.
        details = {record.job.name: record.details for record in records if record}
        more = self._warm_pools.release(
            [*claims.to_release, *placement.in_the_way, *in_drained_pools(cluster, placement, now)]
        )
        more = self._stops.request(lease, cluster, _new_jobs(recorded), now) or more
        if more:
            self._raise_generation()
        results = self._launch_all(invocation, cluster.applied.policy, recorded, details)
        self._warm_pools.stop_counting(
            placement, [job for job, (result, _) in results if result is LaunchResult.LAUNCHED]
        )
        more_started, throttled = self._settle_all(lease, results, _state_after(recorded, placement, cluster))
        # 7. Park jobs that cannot start, and forget metadata that is no longer needed.
        window_changed, near_starts = self._parking.park_and_forget(lease, cluster, decided)
        loads = cluster.loads(_new_jobs(recorded))
        lasting = cluster.lasting_refusals(loads, now)
        lease.cycle_ended = now
        self._publication.prepare(first_token, lease, cluster, decided, now)
        self._repository.notify(CycleEnded(decided, loads, self._clock() - began, lasting))
        due = [
            *([rates.next_at] if throttled or rates.are_used_up else []),
            *_quota_lag_ends(cluster, decided, now),
            *next_deadlines(cluster, decided.started, now),
            *near_starts,
        ]
        return _RemainingWork(
            may_do_more=any((more, window_changed, more_started, bool(deferred), more_ended))
            or has_dependents(_new_jobs(recorded), cluster),
            must_plan_again=must_plan_again,
            due=min(due, default=None),
        )

    def _settle_live_jobs(self, lease: Lease, cluster: ClusterState) -> tuple[ClusterState, bool]:
        """Settle carriers, missed starts and dependents. Return the new state, and whether another cycle may find more.

        Dependents come last, so that a job stopped for a missed start also stops its dependents in the same cycle.
        """
        cluster = self._missed_starts.settle(lease, self._carriers.settle(lease, cluster))
        return self._dependencies.settle(lease, cluster)

    def _read(self, opener: CycleOpener, opened: OpenedCycle, *, again: bool) -> ClusterState:
        cluster = opener.read(opened, again=again)
        learned = self._training_plans.describe_new(cluster)
        return replace(cluster, metadata=self._repository.metadata()) if learned else cluster

    def _record(
        self,
        lease: Lease,
        cluster: ClusterState,
        decided: Plan,
        transitions: list[JobTransition],
        now: float,
        *,
        one_by_one: bool,
    ) -> tuple[list[JobTransition], bool]:
        """Record transitions. Return the recorded transitions, and whether to plan again at once for the others.

        With `one_by_one`, changes that cannot be recorded are only logged, unless their rows are not writable.
        """
        unchanged = cluster.metadata.reservations == decided.reservations
        reservations = None if unchanged else decided.reservations
        recorded: list[JobTransition] = []
        unwritable: list[str] = []
        if not transitions and unchanged:
            return recorded, False
        alone = [[transition] for transition in transitions]
        for part in alone if one_by_one and transitions else transactions(transitions):
            try:
                self._repository.commit(
                    lease,
                    part,
                    now,
                    policy_version=cluster.applied.version,
                    drains_version=cluster.metadata.drains.version,
                    reservations=reservations,
                )
            except LeaseLost:
                if not self._repository.still_held(lease):
                    raise
                return recorded, True
            except (Refused, Unavailable) as error:
                if not one_by_one:
                    log.info("not recorded: planning again", why=repr(error))
                    return recorded, True
                log.error("transitions cannot be recorded", jobs=[job.name for job in _new_jobs(part)], exc_info=error)
                if isinstance(error, Unwritable):
                    unwritable += [job.name for job in _new_jobs(part)]
                continue
            recorded += part
            reservations = None
        self._plan_without(cluster, unwritable, now)
        return recorded, bool(unwritable)

    def _plan_without(self, cluster: ClusterState, names: list[str], now: float) -> None:
        """Note jobs whose rows cannot be written. For `UNRECORDED_SECONDS`, plans neither start nor stop these jobs."""
        if not names:
            return
        noted = {name: until for name, until in cluster.metadata.unrecorded.items() if now < until}
        later = dict.fromkeys(names[:MOST_UNRECORDED], int(now) + UNRECORDED_SECONDS)
        self._repository.note_unrecorded(dict([*noted.items(), *later.items()][-MOST_UNRECORDED:]))
        for name in names:
            self._repository.notify(UnrecordedJob(name))

    def _raise_generation(self) -> None:
        """Raise the generation after a write that does not check the lease, so that a later cycle reads the change."""
        try:
            self._repository.raise_generation()
        except Unavailable as error:
            log.warning("generation not raised", why=error.message)

    def _launch_all(
        self, invocation: Invocation, policy: Policy, recorded: list[JobTransition], details: Mapping[str, str]
    ) -> list[tuple[Job, tuple[LaunchResult, str]]]:
        """Send a call for every recorded launch. Return the answers, without launches for which no time was left."""
        launches = [job for job in _new_jobs(recorded) if job.state is JobState.STARTING and job.name in details]
        results = self._parallel(
            [partial(self._launch, invocation, policy, job, details[job.name]) for job in launches]
        )
        return [(job, result) for job, result in zip(launches, results, strict=True) if result is not None]

    def _settle_all(
        self, lease: Lease, results: list[tuple[Job, tuple[LaunchResult, str]]], cluster: ClusterState
    ) -> tuple[bool, bool]:
        """Record the results of launches, one after the other.

        Return whether another plan may do more now, and whether SageMaker throttled a call.
        """
        throttled = {job.site.key if job.site else "" for job, (it, _) in results if it is LaunchResult.THROTTLED}
        if lease.bucket and "" in throttled:
            lease.bucket = lease.bucket.throttled()
        for key in throttled & lease.site_buckets.keys():
            lease.site_buckets[key] = lease.site_buckets[key].throttled()
        # A list, and not a generator, so that each result is recorded.
        more = [self._settle(lease, job, result, cluster) for job, result in results]
        return any(more), bool(throttled)

    def _settle(self, lease: Lease, job: Job, result: tuple[LaunchResult, str], cluster: ClusterState) -> bool:
        try:
            return self._launcher.settle(lease, job, *result, cluster)
        except LeaseLost:
            raise
        except (QueueError, Refused) as error:  # this launch stays unanswered, and the other results are recorded
            log.warning("launch result not recorded", job=job.name, exc_info=error)
            return False

    def _launch(
        self, invocation: Invocation, policy: Policy, job: Job, details: str
    ) -> tuple[LaunchResult, str] | None:
        if invocation.remaining() < LAUNCH_SECONDS:
            return None  # the intent is recorded, and a later cycle sends the call
        try:
            return self._launcher.create(job, details, policy)
        except QueueError as error:  # not raised, because the answers to the other launches would be lost
            log.warning("launch not answered", job=job.name, attempt=job.launched, why=error.message)
            return LaunchResult.UNKNOWN, error.message


class _LaunchRates:
    """The CreateTrainingJob calls that one cycle may send at each site. Unused calls stay in the lease's buckets."""

    def __init__(self, lease: Lease, rate: CreateRate, now: float) -> None:
        self._lease = lease
        self._rate = rate
        self._now = now
        self._waiting: set[str] = set()  # keys of the sites at which launches have to wait
        lease.bucket = (lease.bucket or TokenBucket.full(rate, now)).filled(rate, now)
        lease.site_buckets = {key: bucket.filled(rate, now) for key, bucket in lease.site_buckets.items()}

    def admit(self, launches: Iterable[JobTransition]) -> list[JobTransition]:
        """Return the launches that may be sent now, in order, and count their calls."""
        return [launch for launch in launches if self._count_call(launch.new.site)]

    @property
    def are_used_up(self) -> bool:
        """Whether launches wait for a rate."""
        return bool(self._waiting)

    @property
    def next_at(self) -> float:
        """The earliest time, in epoch seconds, at which a call may be sent at a site where launches wait.

        If no launches wait, the home site counts.
        """
        return min(self._bucket(key).next_at for key in self._waiting or ("",))

    def _count_call(self, site: Site | None) -> bool:
        key = site.key if site else ""
        bucket = self._bucket(key)
        if key in self._waiting or not bucket.calls:
            self._waiting.add(key)
            return False
        if site:
            self._lease.site_buckets[key] = bucket.spent(1)
        else:
            self._lease.bucket = bucket.spent(1)
        return True

    def _bucket(self, key: str) -> TokenBucket:
        if not key:
            return self._lease.bucket or TokenBucket.full(self._rate, self._now)
        return self._lease.site_buckets.get(key) or TokenBucket.full(self._rate, self._now)


def _may_sleep(invocation: Invocation, seconds: float) -> bool:
    """Return whether an invocation may sleep for these seconds, and then still has time for a cycle."""
    return invocation.may_wait and invocation.may_go_on() and invocation.remaining() - seconds > CYCLE_SECONDS


def _state_after(recorded: Iterable[JobTransition], placement: Placement, cluster: ClusterState) -> ClusterState:
    """Return the cluster state with the recorded changes, without the warm pools that starts and relaunches use."""
    external = tuple(pool for pool in cluster.external if pool not in placement.reused.values())
    return replace(cluster.with_changed(_new_jobs(recorded)), external=external)


def _quota_lag_ends(cluster: ClusterState, decided: Plan, now: float) -> list[int]:
    """Return the ends of backoffs for quota lag (epoch seconds); empty if no job backs off."""
    backs_off = any(hold.reason is WaitReason.BACKOFF for hold in decided.holds)
    known = cluster.capacity_backoffs(now).values() if backs_off else ()
    return [it.until for it in known if it.is_lag and it.until > now]


def _new_jobs(transitions: Iterable[JobTransition]) -> list[Job]:
    """Return the new jobs of the transitions."""
    return [transition.new for transition in transitions]
