"""Create and stop carriers of shared instances, assign members, and apply the reports of agents (ADR 0079).

A carrier has at most one attempt. A carrier that could not be launched is given up.
Members follow the protocol of all jobs, but their orders and reports go through mailboxes (ADR 0080, 0082) instead of
SageMaker's API.
"""

import json
import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from job_queue.adapters.carriers import program
from job_queue.adapters.carriers.mailbox import AgentActivity, member_of
from job_queue.adapters.items import stored_request
from job_queue.adapters.job_repository import transactions
from job_queue.adapters.metadata import Lease
from job_queue.adapters.sagemaker import TrainingJob
from job_queue.adapters.telemetry import log
from job_queue.controller.part import Backend, ControllerPart
from job_queue.controller.reconciler import Reconciler
from job_queue.domain.carriers import transitions
from job_queue.domain.carriers.carrier_launch import carrier_name, launch_request, new_carrier_job
from job_queue.domain.carriers.members import owner_of_kind
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.errors import LeaseLost, QueueError, Refused
from job_queue.domain.job import Job, LaunchCall, epoch
from job_queue.domain.policy import DEFAULT_RUNTIME
from job_queue.domain.requests.training_request import TrainingRequest
from job_queue.domain.state_machine import JobTransition
from job_queue.scheduler import JobState, Launch, Plan, Start

SILENT_SECONDS = 5 * 60  # time without an authentic heartbeat after which a carrier is stopped
HEARTBEAT_VALID_SECONDS = 60  # a heartbeat older than this says nothing about members
START_SECONDS = 60 * 60  # longest time from a carrier's launch until its agent publishes its key
ASSIGNMENT_SECONDS = 60  # longest time until an agent sees an assignment
OVERDUE_SECONDS = 6 * 3600  # time beyond MaxRuntimeInSeconds, for downloads and up to four hours of saving
STOPPING_SECONDS = 100 + 3 * 60  # the agent's grace period, and three minutes to save results
TRIES = 5  # tries to change a carrier that other invocations change at the same time
CLOCK_SECONDS = 5  # the largest difference between the clocks of S3 and SageMaker
CARRIER_ENDED = "InternalServerError: its carrier has ended"


@dataclass(frozen=True, slots=True)
class CarrierChanges:
    """The changes that carry out a plan's decisions about carriers and members."""

    cluster: ClusterState  # contains the new carriers as waiting jobs, although they are not stored yet
    plan: Plan  # the plan, with starts of the new carriers
    requests: Mapping[str, str]  # new carrier -> its request, as JSON text
    transitions: list[JobTransition]


class Carriers(ControllerPart):
    """Carriers and their members, for the holder of the lease. `apply_reports` and `check_mailboxes` need no lease."""

    def __init__(self, backend: Backend, reconciler: Reconciler) -> None:
        super().__init__(backend)
        self._reconciler = reconciler

    # --- before the plan ---------------------------------------------------------------------------------

    def settle(self, lease: Lease, cluster: ClusterState) -> ClusterState:
        """Give up carriers that were not launched, and end members whose carriers have ended. Return the new state."""
        cluster = self._give_up(lease, cluster)
        alive = {job.launched for job in cluster.active.values() if job.carries is not None}
        orphaned = [
            job
            for job in cluster.active.values()
            if job.carrier_attempt is not None and job.carrier_attempt not in alive
        ]
        changed = [
            job for job in self._parallel([partial(self._end_orphan, job) for job in orphaned]) if job is not None
        ]
        for job in changed:
            cluster = cluster.with_changed([job])
            if job.state.waits:
                cluster = cluster.with_waiting(job)
        return cluster

    def _give_up(self, lease: Lease, cluster: ClusterState) -> ClusterState:
        now = self._clock()
        for carrier in [job for job in cluster.waiting.values() if job.carries is not None]:
            given_up = [transitions.give_up(carrier, now)]
            # The carrier's own backoff is passed on to its members. A capacity backoff already applies to the members.
            if carrier.backoff_until is not None:
                first_members = (cluster.waiting.get(name) for name in carrier.first_members)
                given_up += [transitions.back_off_with(job, carrier, now) for job in first_members if job is not None]
            for part in transactions(given_up):
                try:
                    self._repository.commit(lease, part, now)
                except LeaseLost:
                    raise
                except (Refused, QueueError) as error:
                    log.info("carrier not given up", job=carrier.name, why=repr(error))
                    continue
                cluster = cluster.with_waiting_changed(it.new for it in part)
        return cluster

    def _end_orphan(self, job: Job) -> Job | None:
        """Record the end of a member whose carrier has ended, from the member's report if the report is valid.

        Return the job after the change, or None if no end was recorded.
        """
        try:
            found = self._training.describe_attempt(job)
            record = self._repository.record(job.name)
            if record is None or record.job.launched != job.launched or not record.job.state.holds_slots:
                return None
            # If this attempt was never assigned, the report may belong to an earlier submission with the same name.
            if found is None or not found.ended or not found.is_current_attempt_of(record.job):
                found = _end_without_report(record.job)
            self._reconciler.end(record, found)
            after = self._repository.record(job.name)
        except QueueError as error:
            log.warning("member not ended", job=job.name, attempt=job.launched, why=error.message)
            return None
        return after.job if after else None

    # --- carrying out a plan -----------------------------------------------------------------------------

    def carry_out(self, cluster: ClusterState, decided: Plan, call: LaunchCall, now: float) -> CarrierChanges:
        """Make new carriers, and the transitions that assign members and that evict or close carriers.

        Nothing is stored here: `store` later stores the new carriers that may be launched.
        """
        changes = list(self._changes(cluster, decided, call, now))
        return CarrierChanges(*self._with_new_carriers(cluster, decided, now), changes)

    def _changes(self, cluster: ClusterState, decided: Plan, call: LaunchCall, now: float) -> Iterator[JobTransition]:
        evictions = {eviction.job: eviction for eviction in decided.evictions}
        assigned = {it.allocation.carrier for it in decided.allocations}
        for it in decided.allocations:
            carrier, member = cluster.active[it.allocation.carrier], cluster.waiting[it.job]
            log.info("assign", job=it.job, carrier=carrier.launched, gpus=list(it.allocation.gpus))
            yield transitions.assign(member, it.allocation, carrier, call, now)
        used = {job.allocation.carrier for job in cluster.active.values() if job.allocation is not None} | assigned
        for carrier in cluster.active.values():
            if carrier.carries is None or carrier.state is not JobState.RUNNING or carrier.cancelled:
                continue
            if (eviction := evictions.get(carrier.name)) is not None:
                yield from transitions.evict_all(cluster.active, carrier, eviction.claimant, eviction.rule, now)
            elif carrier.name in decided.carriers_to_close:
                yield transitions.close(carrier, now)
            elif carrier.name in used and carrier.empty_since is not None:
                yield transitions.occupied(carrier, now)
            elif carrier.agent_key is not None and carrier.name not in used and carrier.empty_since is None:
                yield transitions.emptied(carrier, now)

    def store(
        self, changes: CarrierChanges, permitted: list[JobTransition], decided: Plan, now: float
    ) -> tuple[list[JobTransition], ClusterState, Plan]:
        """Store the new carriers among the permitted starts. Drop the other new carriers.

        The slots of a new carrier that has to wait are reserved for its first member.

        :param decided: the plan, in which starts that have to wait are reservations.
        :return: the permitted starts, the state and the plan, all without the carriers that are not stored.
        """
        waiting, starting = changes.cluster.waiting, {it.old.name for it in permitted}
        leaders = {name: waiting[name].first_members[0] for name in changes.requests}
        dropped = {
            name
            for name, request in changes.requests.items()
            if name not in starting or not self._store(waiting[name], request, now)
        }
        plan = replace(
            decided,
            starts=tuple(it for it in decided.starts if it.job not in dropped),
            reservations={leaders.get(job, job): slots for job, slots in decided.reservations.items()},
        )
        left = {name: job for name, job in waiting.items() if name not in dropped}
        return [it for it in permitted if it.old.name not in dropped], replace(changes.cluster, waiting=left), plan

    def _store(self, carrier: Job, request: str, now: float) -> bool:
        try:
            return self._repository.add(carrier, request, now, plain=True) is None
        except QueueError as error:
            log.warning("no carrier launched", members=list(carrier.first_members), why=error.message)
            return False

    def _with_new_carriers(
        self, cluster: ClusterState, decided: Plan, now: float
    ) -> tuple[ClusterState, Plan, dict[str, str]]:
        """Return the state and the plan with the new carriers, in the plan's order, and the carriers' requests."""
        made = self._parallel([partial(self._try_to_make_carrier, cluster, launch, now) for launch in decided.launches])
        starts, requests = list(decided.starts), dict[str, str]()
        for launch, new in reversed(list(zip(decided.launches, made, strict=True))):
            if new is not None:
                carrier, requests[carrier.name] = new
                cluster = cluster.with_waiting(carrier)
                starts.insert(launch.starts_before, Start(carrier.name, launch.slots))
        return cluster, replace(decided, starts=tuple(starts)), requests

    def _try_to_make_carrier(self, cluster: ClusterState, launch: Launch, now: float) -> tuple[Job, str] | None:
        """Return the job of a new carrier and its request, or None if they cannot be made now."""
        try:
            return self._make_carrier(cluster, launch, now)
        except QueueError as error:
            log.warning("no carrier launched", members=list(launch.members), why=error.message)
            return None

    def _make_carrier(self, cluster: ClusterState, launch: Launch, now: float) -> tuple[Job, str] | None:
        leader = cluster.waiting[launch.members[0]]
        record, mailboxes = self._repository.record(leader.name), self._training.mailboxes
        pool = next(pool for pool in cluster.applied.policy.pools if pool.name in launch.slots)
        if record is None or mailboxes is None:
            return None
        mailboxes.upload_agent()
        wanted, secret = stored_request(record.details), secrets.token_hex(16)
        owner = owner_of_kind(wanted, leader.owner, leader.kind, preemptible=leader.preemptible)
        name = carrier_name(leader.project, owner, secrets.token_hex(4))
        request = launch_request(
            name,
            wanted,
            mailboxes.agent,
            program.entry_point(),
            mailboxes.settings(name, secret),
            mailboxes.bucket,
            pool,
            leader.project,
        )
        job = replace(
            new_carrier_job(name, leader, launch.members, pool, TrainingRequest.read(request).footprint, now),
            submission=uuid.uuid4().hex,
            secret=secret,
        )
        return job, json.dumps(request, separators=(",", ":"))

    # --- what agents report ------------------------------------------------------------------------------

    def apply_reports(self, reported: Iterable[tuple[str, str | None]]) -> bool:
        """Apply reports of agents. Return whether a cycle may do more now.

        The pairs are not trusted: each pair only names a carrier or a member to check. A pair without a member is used
        if the carrier is active. A pair with a member is used if the member is active and recorded on this carrier.

        :param reported: pairs of a carrier's attempt and the attempt of a member that has ended. None in place of the
            member stands for the agent's first report, which contains the agent's key.
        """
        active = self._repository.active()
        carriers = {job.launched: job for job in active if job.carries is not None}
        members = {(job.carrier_attempt, job.launched): job for job in active if job.carrier_attempt is not None}
        changed = False
        for carrier, attempt in dict.fromkeys(reported):
            try:
                if attempt is None and carrier in carriers:
                    changed = self._record_agent_key(carriers[carrier]) or changed
                elif member := members.get((carrier, attempt)):
                    changed = self._reconciler.examine_attempt(member) or changed
            except QueueError as error:  # the next tick checks this mailbox again
                log.warning("report not applied", attempt=attempt or carrier, why=error.message)
        return changed

    def _record_agent_key(self, carrier: Job) -> bool:
        """Record the key that a carrier's agent has published, unless it was published before the container started."""
        if carrier.agent_key is not None or carrier.state is not JobState.RUNNING or carrier.cancelled:
            return False
        found = self._training.introduction(carrier.launched or "")
        if found is None:
            return False
        running = self._training.describe_attempt(carrier)
        if running is None or running.ended or not running.is_current_attempt_of(carrier) or running.began is None:
            return False
        if found.written + CLOCK_SECONDS < running.began:
            log.warning("a key was published before the agent started", job=carrier.name, attempt=carrier.launched)
            return False
        return self._store_agent_key(carrier, found.number)

    def _store_agent_key(self, carrier: Job, number: str) -> bool:
        for _ in range(TRIES):
            record = self._repository.record(carrier.name)
            if record is None or record.job.launched != carrier.launched or record.job.agent_key is not None:
                return False
            if record.job.state is not JobState.RUNNING:
                return False
            try:
                self._repository.apply(transitions.agent_started(record.job, number, self._clock()), self._clock())
            except Refused:
                continue
            return True
        return False  # the next tick tries again

    def check_mailboxes(self, enough_time: Callable[[], bool]) -> bool:
        """Check mailboxes: apply reports whose events were lost, and stop carriers with silent agents or stuck members.

        Return whether a cycle may do more now. Each carrier needs one call, and one more for each missing report.

        :param enough_time: called before each carrier. After False, no further mailbox is checked.
        """
        active = self._repository.active()
        more = False
        for carrier in [job for job in active if job.carries is not None]:
            if not enough_time():
                break
            members = [job for job in active if job.carrier_attempt == carrier.launched]
            try:
                more = self._check_mailbox(carrier, members) or more
            except QueueError as error:
                log.warning("mailbox not read", job=carrier.name, why=error.message)
                more = self._stop_if_unreadable(carrier, members) or more
            except Refused:
                log.info("job changed meanwhile", job=carrier.name)
        return more

    def _check_mailbox(self, carrier: Job, members: Sequence[Job]) -> bool:
        now = self._clock()
        if carrier.state is not JobState.RUNNING or carrier.cancelled:
            return sum(self._examine(job) for job in members) > 0  # not `any`: each member is examined
        if carrier.agent_key is None:
            if self._record_agent_key(carrier):
                return True
            since, limit = epoch(carrier.started or carrier.since), START_SECONDS
        else:
            agent_state = self._training.agent_activity(carrier)
            more = (
                sum(self._check_for_end(job, agent_state) for job in members) > 0
            )  # not `any`: each member is checked
            # The first heartbeat follows some seconds after the agent's key. Until then, count from the start.
            since, limit = agent_state.alive_at or epoch(carrier.started or carrier.since), SILENT_SECONDS
            if more or (since + limit >= now and not any(_is_overdue(job, now) for job in members)):
                return more
            if self._stop_for_overdue_member(carrier, members, now):
                return True
        if since + limit < now:
            log.warning("carrier is silent", job=carrier.name, attempt=carrier.launched)
            self._repository.apply(transitions.stop_as_silent(carrier, since, now), now)
            return True
        return False

    def _stop_if_unreadable(self, carrier: Job, members: Sequence[Job]) -> bool:
        """Stop a carrier with an unreadable mailbox if one of its members should have ended long ago.

        Otherwise a program could make the mailbox unreadable, so that its member is never stopped.
        """
        if carrier.state is not JobState.RUNNING or carrier.cancelled:
            return False
        try:
            return self._stop_for_overdue_member(carrier, members, self._clock())
        except (QueueError, Refused) as error:
            log.warning("carrier not stopped", job=carrier.name, why=repr(error))
            return False

    def _stop_for_overdue_member(self, carrier: Job, members: Sequence[Job], now: float) -> bool:
        """Stop a carrier if one of its members should have ended long ago. Return whether the carrier was stopped."""
        for job in members:
            if _is_overdue(job, now):
                log.warning("member does not end", job=job.name, attempt=job.launched, state=job.state)
                make_transition = (
                    transitions.stop_as_stuck if job.state is JobState.STOPPING else transitions.stop_as_overdue
                )
                self._repository.apply(make_transition(carrier, job, now), now)
                return True
        return False

    def _check_for_end(self, job: Job, agent_state: AgentActivity) -> bool:
        """Look for the end of a member that the agent no longer runs. Return whether an end was recorded."""
        member = member_of(job)
        if agent_state.alive_at is None or agent_state.alive_at + HEARTBEAT_VALID_SECONDS < self._clock():
            return self._examine(job)  # the agent may have reported the end before it stopped working
        if job.state is JobState.STARTING or member in agent_state.running:
            return False
        if (
            member not in agent_state.ended
            and epoch(job.started or job.since) + ASSIGNMENT_SECONDS > agent_state.alive_at
        ):
            return False  # the agent may not have seen the assignment yet
        if self._examine(job):
            return True
        return member in agent_state.ended and self._end_unreported(job)

    def _examine(self, job: Job) -> bool:
        return job.state is not JobState.STARTING and self._reconciler.examine_attempt(job)

    def _end_unreported(self, job: Job) -> bool:
        """End a member that has ended according to its agent, but whose report was removed or changed."""
        record = self._repository.record(job.name)
        if record is None or record.job.launched != job.launched or not record.job.state.holds_slots:
            return False
        log.warning("the report of a member was changed", job=job.name, attempt=job.launched)
        return self._reconciler.end(record, _end_without_report(record.job))


def _is_overdue(job: Job, now: float) -> bool:
    """Return whether a member should have ended: long after its stop request, or after its MaxRuntimeInSeconds."""
    if job.state is JobState.STOPPING:
        return epoch(job.since) + STOPPING_SECONDS < now
    if job.state is not JobState.RUNNING or job.started is None:
        return False
    return epoch(job.started) + (job.attempt_limit or DEFAULT_RUNTIME) + OVERDUE_SECONDS < now


def _end_without_report(job: Job) -> TrainingJob:
    """Return the end of a member that has no valid report: Stopped if the queue was stopping it, else Failed."""
    status = "Stopped" if job.is_interrupted else "Failed"
    return TrainingJob(
        job.launched or "",
        "",
        status,
        "",
        CARRIER_ENDED if status == "Failed" else None,
        {},
        {},
        carrier=job.carrier_attempt,
    )
