"""Explain why each job waits: a reason, a message with figures, the jobs ahead of it, and the jobs that block it."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from heapq import merge
from itertools import islice
from math import isinf
from operator import itemgetter

from job_queue.scheduler.candidates import Candidate, PoolBackoff, is_in_time
from job_queue.scheduler.documents.policy_schema import UNLIMITED
from job_queue.scheduler.explain.messages import (
    MessageParts,
    Pools,
    demand,
    drain_message,
    duration,
    has_higher_rank,
    instances,
    join,
    level,
    of_pool,
    over_budget_message,
    recent_use_text,
    sentence,
    time_text,
    waits_behind_message,
    with_is,
)
from job_queue.scheduler.fair_share import ServingOrder, ShareNode
from job_queue.scheduler.model import Calendar, Hold, Slots, Snapshot, WaitingJob, WaitReason, covers
from job_queue.scheduler.ordering import WaitingOrder
from job_queue.scheduler.plan_state import PlanState
from job_queue.scheduler.sharing.spending import Spending
from job_queue.scheduler.victims import has_reached_own_limit

MAX_AHEAD = 20  # maximum number of jobs ahead in a hold

Demand = tuple[tuple[tuple[str, int], ...], ...]
"""Alternatives in a hashable form."""


def explain(
    snapshot: Snapshot,
    candidates: Sequence[Candidate],
    refused: Mapping[str, WaitReason],
    state: PlanState,
    order: WaitingOrder,
    spending: Spending,
) -> tuple[Hold, ...]:
    """Return a hold for each waiting job that does not start, in serving order.

    The plan state is not changed.

    :param candidates: the jobs that start as soon as there is room.
    :param refused: the jobs that cannot start however many slots are free, with their reasons.
    :param state: the finished plan.
    :param order: the order of the jobs of a project.
    :param spending: the spent parts of budgets.
    """
    limited = {it.name: it for it in candidates if it.group and _is_beyond_its_group(it, state)}
    known = {candidate.name: candidate for candidate in candidates if candidate.name not in limited}
    waiting = [job for job in snapshot.waiting if job.name not in state.started]
    if not waiting:
        return ()
    keys = {candidate.name: candidate.key for candidate in candidates}
    waiting.sort(key=lambda job: keys.get(job.name) or order(job))
    parts = MessageParts(snapshot, state)
    reasons = _Reasons(snapshot, known, limited, refused, state, parts, spending)
    why = {job.name: _with_unusable_pools(job, *reasons.of(job)) for job in waiting}
    everyone = _JobsLackingSlots()
    holds: list[Hold] = []
    for job in _in_serving_order(waiting, known, state):
        if job.name in known:
            pools = known[job.name].pools
            holds.append(Hold(job.name, *why[job.name], everyone.names(pools), parts.blockers(pools)))
            everyone.add(job, pools)
        elif job.name in limited:
            holds.append(Hold(job.name, *why[job.name], blockers=parts.active_in_group(limited[job.name])))
        elif refused.get(job.name) is WaitReason.OWNER_LIMIT:
            holds.append(Hold(job.name, *why[job.name], blockers=parts.interactive_of_owner(job)))
        else:
            holds.append(Hold(job.name, *why[job.name]))
    return tuple(holds)


def _with_unusable_pools(job: WaitingJob, reason: WaitReason, message: str) -> tuple[WaitReason, str]:
    return reason, f"{message} {job.unusable}" if job.unusable else message


def _is_beyond_its_group(candidate: Candidate, state: PlanState) -> bool:
    return candidate.name not in state.reservations and not state.within_group(candidate)


class _JobsLackingSlots:
    """Jobs that lack slots, grouped by the pools that the jobs need. Jobs are added one by one."""

    def __init__(self) -> None:
        self._jobs: dict[Pools, list[tuple[int, WaitingJob]]] = defaultdict(list)
        self._seen = 0
        self._names: dict[Pools, tuple[str, ...]] = {}

    def add(self, job: WaitingJob, pools: Pools) -> None:
        """Add a job. Jobs are added in the order in which they would be served."""
        self._jobs[pools].append((self._seen, job))
        self._seen += 1

    def first(self, pools: Pools) -> WaitingJob | None:
        """Return the first job that was added and needs one of these pools; None if there is none."""
        firsts = [jobs[0] for wanted, jobs in self._jobs.items() if wanted & pools]
        return min(firsts, key=itemgetter(0))[1] if firsts else None

    def names(self, pools: Pools) -> tuple[str, ...]:
        """Return the names of the first jobs that need one of these pools, at most MAX_AHEAD."""
        if pools in self._names:
            return self._names[pools]
        found = merge(*(jobs for wanted, jobs in self._jobs.items() if wanted & pools), key=itemgetter(0))
        names = tuple(job.name for _, job in islice(found, MAX_AHEAD))
        if len(names) == MAX_AHEAD:  # a full list does not change any more
            self._names[pools] = names
        return names

    def count(self, pools: Pools) -> int:
        """Return how many of the added jobs need one of these pools."""
        return sum(len(jobs) for wanted, jobs in self._jobs.items() if wanted & pools)


class _Reasons:
    """The reasons and messages of waiting jobs (docs/reference/reasons.md).

    `of` must be called for the jobs in waiting order, because each call counts the job for the jobs behind it.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        known: Mapping[str, Candidate],
        limited: Mapping[str, Candidate],
        refused: Mapping[str, WaitReason],
        state: PlanState,
        parts: MessageParts,
        spending: Spending,
    ) -> None:
        self._known = known
        self._limited = limited
        self._refused = refused
        self._state = state
        self._parts = parts
        self._spending = spending
        self._backoff = PoolBackoff(snapshot)
        self._snapshot = snapshot
        self._now = snapshot.now
        self._ahead: dict[str, _JobsLackingSlots] = defaultdict(_JobsLackingSlots)  # by project
        self._projected: Counter[str] = Counter()  # slots by pool, over all projects
        for node in state.tree.top_nodes:
            self._projected.update(node.projected)
        self._needs = cache(self._needs_of)
        self._set_aside_text = cache(self._make_set_aside_text)

    def of(self, job: WaitingJob) -> tuple[WaitReason, str]:
        """Return the reason and the message for this job."""
        if job.name in self._refused:
            reason = self._refused[job.name]
            project = self._state.tree.project(job.project)
            if reason is WaitReason.OWNER_LIMIT and all(_over_quota(project, need) for need in job.demand):
                # The job would wait for quota even after another job of its owner has ended.
                reason = WaitReason.OVER_QUOTA_NON_PREEMPTIBLE
                return reason, self._over_non_preemptible_quota(job, project, job.demand)
            return reason, self._refusal(job, reason)
        if job.name in self._limited:
            return WaitReason.GROUP_LIMIT, self._parts.group(self._limited[job.name])
        candidate = self._known[job.name]
        ahead = self._ahead[job.project]
        first = ahead.first(candidate.pools)
        reason = self._reason(candidate, first)
        message = self._message(candidate, reason, first, ahead.count(candidate.pools))
        if job.on_free_slots_only and job.refusal:
            message += f" SageMaker refused its last launches, so no job is stopped for it. {sentence(job.refusal)}"
        if reason not in (WaitReason.OVER_LIMIT, WaitReason.OVER_QUOTA_NON_PREEMPTIBLE):
            ahead.add(job, candidate.pools)
        return reason, message

    def _reason(self, candidate: Candidate, first: WaitingJob | None) -> WaitReason:
        """Return the first reason that applies to a job.

        :param first: the first job of the same project that precedes this job, needs one of the same pools and also
            lacks slots.
        """
        state = self._state
        if candidate.name in state.reservations:
            return WaitReason.WAITING_FOR_STOPPING
        needs = [need for need in candidate.alternatives if state.within_limits(candidate, need)]
        if not needs:
            return WaitReason.OVER_LIMIT
        needs = [need for need in needs if state.within_quota(candidate, need)]
        if not needs:
            return WaitReason.OVER_QUOTA_NON_PREEMPTIBLE
        if state.windows:
            lacking = [need for need in needs if not state.is_free(candidate, need)]
            if any(state.is_free(candidate, need, include_windows=True) for need in lacking):
                return WaitReason.KEPT_FOR_PATIENT_JOB
        if all(self._where_at_share(candidate.project, need) for need in needs):
            return WaitReason.BEHIND_FAIR_SHARE
        return self._reason_in_project(candidate.job, first)

    def _reason_in_project(self, job: WaitingJob, first: WaitingJob | None) -> WaitReason:
        """Return the reason of a job that lacks slots: it waits behind another job of its project, or for capacity."""
        if first is None:
            return WaitReason.WAITING_FOR_CAPACITY
        is_higher = has_higher_rank(first, job, self._snapshot.policy)
        return WaitReason.BEHIND_HIGHER_PRIORITY if is_higher else WaitReason.BEHIND_OTHERS

    def _where_at_share(self, project: ShareNode, need: Slots) -> tuple[ShareNode, str] | None:
        """Return a node and a pool where the job would exceed the entitlement and other nodes hold slots, or None."""
        for node, pool, count in _needed_on_path(project, need):
            held = node.projected[pool]
            if held + count > node.entitlement[pool] and self._projected[pool] > held:
                return node, pool
        return None

    # --- messages ---------------------------------------------------------------------------------------

    def _message(self, candidate: Candidate, reason: WaitReason, first: WaitingJob | None, count: int) -> str:
        if reason is WaitReason.OVER_LIMIT:
            return self._over_limit(candidate)
        if reason is WaitReason.OVER_QUOTA_NON_PREEMPTIBLE:
            return self._over_non_preemptible_quota(candidate.job, candidate.project, candidate.alternatives)
        needs = self._needs(tuple(tuple(need.items()) for need in candidate.alternatives))
        if reason is WaitReason.KEPT_FOR_PATIENT_JOB:
            return f"It needs {needs}. {self._parts.windows(candidate)}"
        if reason is WaitReason.WAITING_FOR_CAPACITY:
            return f"It needs {needs}. {self._parts.protected(candidate)}"
        if reason is WaitReason.WAITING_FOR_STOPPING:
            why = self._set_aside(candidate)
        elif reason is WaitReason.BEHIND_FAIR_SHARE:
            why = self._behind_fair_share(candidate)
        else:
            why = waits_behind_message(candidate.job, first, count, self._snapshot)
        return f"{why} It needs {needs}."

    def _needs_of(self, alternatives: Demand) -> str:
        """Return text such as `2 instances of p5; 1 of 4 is free, ...`."""
        needs = [dict(need) for need in alternatives]
        pools = _pools_in_order(needs)
        figures = [(f"{pool}: " if len(pools) > 1 else "") + self._parts.figures(pool) for pool in pools]
        return f"{demand(needs)}; {'; '.join(figures)}"

    def _refusal(self, job: WaitingJob, reason: WaitReason) -> str:
        pools = self._state.tree.project(job.project).pools_of(job)
        if reason is WaitReason.HELD_BY_USER:
            return "It is on hold: it keeps its place in the queue and starts only after it is released."
        messages_by_reason: Mapping[WaitReason, Callable[[WaitingJob], str]] = {
            WaitReason.NOT_BEFORE: self._not_before_message,
            WaitReason.DEPENDENCY: self._parts.dependencies,
            WaitReason.BACKOFF: self._backoff_message,
            WaitReason.REGION_UNREACHABLE: self._backoff_message,
            WaitReason.OUTSIDE_TRAINING_PLAN: self._outside_training_plan,
            WaitReason.DRAINED: partial(drain_message, snapshot=self._snapshot),
            WaitReason.OWNER_LIMIT: self._parts.owner_limit,
            WaitReason.OVER_BUDGET: partial(over_budget_message, spending=self._spending, now=self._now),
        }
        if reason in messages_by_reason:
            return messages_by_reason[reason](job)
        if reason is WaitReason.NO_SUCH_POOL:
            unknown = sorted({pool for need in job.demand for pool in need} - pools.keys())
            allowed = f"its project may use the pools {join(sorted(pools)) or '(none)'}."
            asked = f"It requests {join(unknown)}, but" if unknown else "No pool that it accepts can run it;"
            return f"{asked} {allowed}"
        sizes = join(
            [
                f"{self._snapshot.size(pools[pool])}{of_pool(pool)}"
                for pool in _pools_in_order(job.demand)
                if pool in pools
            ]
        )
        never = f"It needs {demand(job.demand)}, but there are only {sizes} in total, so it can never start."
        return " ".join([never, *self._plans_for_others(job)])

    def _plans_for_others(self, job: WaitingJob) -> Iterator[str]:
        """Yield a sentence for each training plan of the job's pools that no training job can use."""
        plans = {pool.name: pool.plan_name for pool in self._snapshot.policy.pools}
        for pool in _pools_in_order(job.demand):
            plan, calendar = plans.get(pool), self._snapshot.calendars.get(pool)
            if plan and calendar and calendar.for_others:
                yield (
                    f"The training plan {plan} of pool {pool} is not for training jobs, but for "
                    f"{join(calendar.for_others)}. Name another pool, or ask an admin to put another plan into the "
                    "policy."
                )

    def _outside_training_plan(self, job: WaitingJob) -> str:
        """Return a sentence for each training plan of the job's pools that is not open, or would end before the job."""
        plans = {pool.name: pool.plan_name for pool in self._snapshot.policy.pools}
        messages = []
        for pool in _pools_in_order(job.demand):
            plan, calendar = plans.get(pool), self._snapshot.calendars.get(pool)
            if calendar and not is_in_time(job, pool, self._snapshot):
                name = f" {plan}" if plan else ""
                messages.append(self._why_not_in_time(job, f"training plan{name}{of_pool(pool)}", calendar))
        return " ".join(messages)

    def _why_not_in_time(self, job: WaitingJob, plan: str, calendar: Calendar) -> str:
        if isinf(calendar.opens):
            return f"It waits for the {plan}. SageMaker has not reported yet when the plan starts."
        if calendar.opens > self._now:
            return f"It waits for the {plan}, which starts at {self._when(calendar.opens)}."
        if calendar.closes <= self._now:
            return f"The {plan} is over: SageMaker took its instances back at {time_text(calendar.closes)}."
        runs = "has no MaxRuntimeInSeconds" if job.max_runtime is None else f"may run for {duration(job.max_runtime)}"
        return (
            f"The end of the {plan} would cut it off: it {runs} and may not be stopped, and SageMaker takes the plan's "
            f"instances back at {self._when(calendar.closes)}."
        )

    def _not_before_message(self, job: WaitingJob) -> str:
        """Return a sentence about the earliest start that the job's tag `not_before` allows."""
        assert job.not_before is not None
        return f"It may not start before {self._when(job.not_before)} (tag not_before)."

    def _pools_to_check(self, job: WaitingJob, refusal: str) -> str:
        """Return a sentence about the pools whose fields SageMaker refused with this message; empty without any."""
        known = {it.pool: it.paused.at_fault for need in job.demand for it in self._backoff.refusals(need, job)}
        pools = [pool for pool, at_fault in known.items() if at_fault and refusal.startswith(at_fault)]
        return f" If the job is right, ask an admin to check pool {join(pools)} in the policy." if pools else ""

    def _backoff_message(self, job: WaitingJob) -> str:
        """Return sentences about the next try of a job that backs off, or whose pools back off."""
        if job.backoff_until is not None and job.backoff_until > self._now:
            if job.refusal:
                again = self._when(job.backoff_until)
                check = self._pools_to_check(job, job.refusal)
                return f"SageMaker refused its launch. {sentence(job.refusal)}{check} The next try is at {again}."
            return f"It could not be launched. The next try is at {self._when(job.backoff_until)}."
        closed = {
            refusal.key: refusal
            for need in reversed(job.demand)
            for refusal in self._backoff.blocking_refusals(need, job)
        }
        messages = []
        for key, refusal in reversed(closed.items()):
            pool, paused = refusal.pool, refusal.paused
            if paused.at_fault:
                messages.append(
                    f"SageMaker refuses the fields that pool {pool} adds to requests. Ask an admin to check this pool "
                    f"in the policy. {sentence(paused.at_fault)} The next try, with the first job of the queue, is at "
                    f"{self._when(paused.until)}."
                )
                continue
            if paused.unreachable:
                again = self._when(max(paused.until, self._now))
                messages.append(f"The region of pool {pool} does not respond. The next try is at {again}.")
                continue
            if paused.lag and paused.until > self._now:
                messages.append(
                    f"{sentence(paused.lag)} This usually lasts a few minutes after jobs have ended. The next try, "
                    f"with the first job of the queue, is at {self._when(paused.until)}."
                )
                continue
            instance_type = of_pool(pool) if key == pool else f" of {key.removeprefix(pool)[1:]}"
            fewest = f"fewer than {paused.instances}" if paused.instances > 1 else "no"
            lacking = f"{fewest} instances{instance_type}"
            if paused.until > self._now:
                until = self._when(paused.until)
                messages.append(
                    f"SageMaker has {lacking} at present. The next try, with the first job of the queue, is at {until}."
                )
            else:
                messages.append(
                    f"SageMaker had {lacking} at the last try, so no job is stopped for it. The next try is made when "
                    f"{with_is(refusal.count)} free; now {with_is(max(0, self._backoff.free[pool]))}."
                )
        return " ".join(messages)

    def _when(self, until: float) -> str:
        return f"{time_text(until)}, in {duration(until - self._now)}"

    def _set_aside(self, candidate: Candidate) -> str:
        """Return sentences about the slots reserved for a job, and about the jobs that must stop before it starts."""
        slots = self._state.reservations[candidate.name]
        aside = self._set_aside_text(tuple(slots.items()))
        if not any(covers(slots, need) for need in candidate.alternatives):
            return f"{aside}. The other instances are held by jobs that cannot be stopped yet."
        leaving = self._parts.leaving(frozenset(slots))
        have = "has" if len(leaving) == 1 else "have"
        return f"{aside}. It starts when {join(leaving) or 'they'} {have} stopped."

    def _make_set_aside_text(self, slots: tuple[tuple[str, int], ...]) -> str:
        one = sum(count for _, count in slots) == 1
        return f"{demand([dict(slots)]).capitalize()} {'is' if one else 'are'} set aside for it"

    def _over_limit(self, candidate: Candidate) -> str:
        node, pool, held = next(
            (node, pool, held)
            for node, pool, count in _needed_on_path(candidate.project, candidate.alternatives[0])
            if (held := max(node.current[pool], node.projected[pool])) + count > node.limit.get(pool, UNLIMITED)
        )
        return (
            f"It needs {demand(candidate.alternatives)}. The {level(node)} {node.name} holds "
            f"{instances(held, pool)}, and its limit is {node.limit[pool]}."
        )

    def _over_non_preemptible_quota(self, job: WaitingJob, project: ShareNode, alternatives: Sequence[Slots]) -> str:
        node, pool = next(place for need in alternatives for place in _over_quota(project, need))
        why = (
            "was preempted as often as its max_preemptions allows"
            if has_reached_own_limit(job)
            else "is not preemptible"
        )
        return (
            f"It needs {demand(alternatives)} and {why}, so it may use only quota. "
            f"The {level(node)} {node.name} has a quota of {instances(node.quota.get(pool, 0), pool)}, "
            f"and jobs that are not preemptible hold {node.non_preemptible[pool]} of it."
        )

    def _behind_fair_share(self, candidate: Candidate) -> str:
        found = (self._where_at_share(candidate.project, need) for need in candidate.alternatives)
        node, pool = next(filter(None, found))
        quota, recent = node.quota.get(pool, 0), recent_use_text(node, pool)
        return (
            f"The {level(node)} {node.name} holds {instances(node.projected[pool], pool)} and is entitled to "
            f"{node.entitlement[pool]} (quota {quota}{recent}), so no other {level(node)} has to give way: "
            f"{self._parts.others(node, pool)}."
        )


def _needed_on_path(project: ShareNode, need: Slots) -> Iterator[tuple[ShareNode, str, int]]:
    """Yield the node, the pool and the slots that an alternative needs, for each node on the project's path."""
    return ((node, pool, count) for node in project.path for pool, count in need.items())


def _over_quota(project: ShareNode, need: Slots) -> list[tuple[ShareNode, str]]:
    """Return each node and pool where non-preemptible jobs would exceed the quota with this alternative."""
    return [
        (node, pool)
        for node, pool, count in _needed_on_path(project, need)
        if node.non_preemptible[pool] + count > node.quota.get(pool, 0)
    ]


def _pools_in_order(alternatives: Sequence[Slots]) -> list[str]:
    """Return each pool that the alternatives name, once, in order."""
    return list(dict.fromkeys(pool for need in alternatives for pool in need))


def _in_serving_order(
    waiting: Iterable[WaitingJob], known: Mapping[str, Candidate], state: PlanState
) -> Iterator[WaitingJob]:
    """Yield the jobs in the order in which they would be served if slots came free one after the other.

    Jobs that are not candidates keep their position among the jobs of their project.

    :param waiting: the jobs in waiting order.
    """
    usage: dict[ShareNode, Counter[str]] = {}  # projected usage, including the jobs yielded so far
    queued: dict[ShareNode, deque[WaitingJob]] = {}
    for job in waiting:
        queued.setdefault(state.tree.project(job.project), deque()).append(job)
    for project in queued:
        usage |= {node: Counter(node.projected) for node in project.path}

    def next_need(project: ShareNode) -> Slots | None:
        first = next((job for job in queued.get(project, ()) if job.name in known), None)
        return None if first is None else known[first.name].alternatives[0]

    turns = ServingOrder(next_need, usage.__getitem__)
    turns.refresh(queued)
    while (served := turns.next()) is not None:
        jobs = queued[served]
        while jobs[0].name not in known:
            yield jobs.popleft()
        job = jobs.popleft()
        yield job
        candidate = known[job.name]
        own = state.reserved_for(candidate)
        for node, pool, count in _needed_on_path(served, candidate.alternatives[0]):
            usage[node][pool] += max(0, count - own.get(pool, 0))
        turns.refresh([served])
    for jobs in queued.values():
        yield from jobs
