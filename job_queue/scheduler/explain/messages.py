"""Format parts of the messages about waiting jobs: figures, times, and why jobs keep their slots."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import islice

from job_queue.scheduler.candidates import Candidate, Group
from job_queue.scheduler.documents.policy_schema import Order, Policy
from job_queue.scheduler.fair_share import ShareNode, diverging_nodes
from job_queue.scheduler.model import DEFAULT, UNKNOWN_RUNTIME, ActiveJob, JobState, Slots, Snapshot, WaitingJob
from job_queue.scheduler.ordering import (
    EMPTY_CARRIER_PRIORITY,
    LOWEST_INTERACTIVE,
    WaitingKey,
    expected_runtime,
    rank,
    sort_time,
    waiting_order,
)
from job_queue.scheduler.plan_state import PlanState
from job_queue.scheduler.sharing.spending import Spending, period_end
from job_queue.scheduler.victims import victim_order

Pools = frozenset[str]
MAX_NAMES = 3  # names in a list before the words "and n more"
NOT_ENOUGH = "stopping every job that may be stopped would not free enough"


def of_pool(pool: str) -> str:
    """Format a pool, such as ` of p5`. Return an empty text for the default pool (used only without a policy)."""
    return "" if pool == DEFAULT else f" of {pool}"


def instances(count: int, pool: str) -> str:
    """Format a number of instances, such as `2 instances of p5`."""
    return f"{count} instance{'' if count == 1 else 's'}{of_pool(pool)}"


def demand(alternatives: Sequence[Slots]) -> str:
    """Format alternatives.

    Examples: `1 instance of p5 and 2 instances of c6, or 4 instances of p4`; `8, 4 or 2 instances of p5`.
    """
    sizes: dict[object, list[Slots]] = {}
    for need in alternatives:
        sizes.setdefault(tuple(need) if len(need) == 1 else tuple(need.items()), []).append(need)
    return ", or ".join(map(_in_sizes, sizes.values()))


def _in_sizes(needs: Sequence[Slots]) -> str:
    *larger, last = needs
    words = join([instances(count, pool) for pool, count in last.items()])
    counts = [str(count) for need in larger for count in need.values()]
    return f"{', '.join(counts)} or {words}" if counts else words


def join(words: Sequence[str]) -> str:
    """Format a list, such as `a, b and c`; long lists end in `and 7 more`."""
    if len(words) > MAX_NAMES + 1:
        words = [*words[:MAX_NAMES], f"{len(words) - MAX_NAMES} more"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def with_is(count: int) -> str:
    """Format a number with its verb, such as `1 is` or `2 are`."""
    return f"{count} {'is' if count == 1 else 'are'}"


def time_text(seconds: float) -> str:
    """Format a time, in seconds since the epoch, as `2026-11-20 12:05:00 UTC`."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float) -> str:
    """Format a duration in seconds, such as `40 s`, `12 min` or `3 h 5 min`."""
    minutes = round(seconds / 60)
    if seconds < 120:
        return f"{max(0, round(seconds))} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@dataclass(frozen=True, slots=True)
class _SlotUser:
    """A job that uses slots of a pool: an active job, or a job that the plan starts."""

    key: WaitingKey
    count: int
    leaving: bool

    def __str__(self) -> str:
        priority = -self.key[1]
        kind = "a carrier on which no job stays" if priority == EMPTY_CARRIER_PRIORITY else f"priority {priority}"
        return f"{self.key[-1]} ({kind})"


class MessageParts:
    """Parts of the messages about a finished plan: users of pools, reservations, and jobs that keep their slots.

    Methods return parts of messages or names of jobs. Some results are cached by argument.
    """

    def __init__(self, snapshot: Snapshot, state: PlanState) -> None:
        self._snapshot = snapshot
        self._state = state
        self._capacity = {pool.name: snapshot.capacity(pool) for pool in snapshot.policy.pools}
        self._waiting = {job.name: job for job in snapshot.waiting}
        self._users: dict[str, list[_SlotUser]] = defaultdict(list)
        self._set_aside_for: dict[str, list[str]] = defaultdict(list)  # pool -> jobs
        # project -> jobs that keep their slots, in victim order
        self._staying: dict[str, list[ActiveJob]] = defaultdict(list)
        keys = {job.name: waiting_order(job) for job in snapshot.active}
        keys |= {job.name: waiting_order(job) for job in snapshot.waiting}
        for job in snapshot.active:
            leaving = job.state is JobState.STOPPING or job.name in state.evicted
            self._enter(keys[job.name], job.slots, leaving=leaving)
            if not leaving:
                self._staying[job.project].append(job)
        for name, slots in state.started.items():
            self._enter(keys[name], slots, leaving=False)
        for users in self._users.values():
            users.sort(key=lambda user: user.key)
        for jobs in self._staying.values():
            jobs.sort(key=lambda job: victim_order(job, snapshot.now))
        for name in sorted(state.reservations, key=keys.__getitem__):
            for pool in state.reservations[name]:
                self._set_aside_for[pool].append(name)
        self._in_group: dict[Group, list[str]] = defaultdict(list)
        self._enter_groups(snapshot, state)
        self.blockers = cache(self._blockers)
        self.figures = cache(self._figures)
        self.leaving = cache(self._leaving)
        self._own_keep = cache(self._why_own_keep)
        self._others_keep = cache(self._why_others_keep)
        self._holders = cache(self._holders_of)
        self._on_level = cache(self._others_on_level)

    def _enter(self, key: WaitingKey, slots: Slots, *, leaving: bool) -> None:
        for pool, count in slots.items():
            self._users[pool].append(_SlotUser(key, count, leaving))

    def _enter_groups(self, snapshot: Snapshot, state: PlanState) -> None:
        jobs: Iterable[ActiveJob | WaitingJob] = (*snapshot.active, *(self._waiting[name] for name in state.started))
        for job in jobs:
            if job.group is not None:
                self._in_group[job.project, job.owner, job.group].append(job.name)

    # --- dependencies -----------------------------------------------------------------------------------

    def dependencies(self, job: WaitingJob) -> str:
        """Return a sentence about the jobs that a job depends on, with their states if known."""
        states = {other.name: other.state.value for other in self._snapshot.active}
        words = []
        for name, any_outcome in job.after:
            state = states.get(name, "waiting" if name in self._waiting else "")
            words.append(f"{name}{f' ({state})' if state else ''} to {'end' if any_outcome else 'complete'}")
        return f"Waits for {join(words)}."

    # --- groups -----------------------------------------------------------------------------------------

    def active_in_group(self, candidate: Candidate) -> tuple[str, ...]:
        """Return the names of the jobs of the candidate's group that are active or start."""
        return tuple(sorted(self._in_group[candidate.group])) if candidate.group else ()

    def group(self, candidate: Candidate) -> str:
        """Return sentences about the number of jobs in the candidate's group, and the number that may be active."""
        return group_limit_message(candidate.job, *self._state.groups.count_and_limit(candidate))

    # --- interactive jobs -------------------------------------------------------------------------------

    def interactive_of_owner(self, job: WaitingJob) -> tuple[str, ...]:
        """Return the names of the owner's interactive jobs that are active or start."""
        started = (it for it in self._snapshot.waiting if it.name in self._state.started)
        live: Iterable[ActiveJob | WaitingJob] = (*self._snapshot.active, *started)
        return tuple(sorted(it.name for it in live if it.interactive and it.owner == job.owner))

    def owner_limit(self, job: WaitingJob) -> str:
        """Return sentences about the limit on an owner's interactive jobs, with the names of the present jobs."""
        most, names = self._snapshot.policy.interactive.max_per_owner, self.interactive_of_owner(job)
        jobs = "job" if most == 1 else "jobs"
        may = f"An owner may have {most} interactive {jobs} at a time (interactive.max_per_owner in the policy)"
        if not names:
            return f"{may}, and another job of its owner comes first."
        return f"{may}. It waits until {join(names)} {'ends' if len(names) == 1 else 'have ended'}."

    # --- usage of a pool --------------------------------------------------------------------------------

    def _blockers(self, pools: Pools) -> tuple[str, ...]:
        """Return the jobs that use slots of these pools, highest priority first."""
        return tuple(key[-1] for key in sorted({user.key for pool in pools for user in self._users[pool]}))

    def _figures(self, pool: str) -> str:
        """Return `1 of 4 is free, 2 are used by a (priority 5) and b (priority 3), 1 by jobs outside the queue`."""
        free = max(0, self._state.free[pool])
        parts = [f"{free} of {self._capacity.get(pool, 0)} {'is' if free == 1 else 'are'} free"]
        windows = {name: window.slots[pool] for name, window in self._state.windows.items() if pool in window.slots}
        in_windows = min(free, sum(windows.values()))  # other jobs may have started on some of these slots
        aside = free - in_windows - max(0, min(free - in_windows, self._state.available_soon(pool)))
        marks = [f"{aside} set aside for {join(self._set_aside_for[pool])}"] if aside else []
        if in_windows:
            marks.append(f"{in_windows} kept for {join(list(windows))}")
        if marks:
            parts[0] += f" ({', '.join(marks)})"
        if staying := [user for user in self._users[pool] if not user.leaving]:
            parts.append(f"{_total_with_is(staying)} used by {join(_names_for_join(staying))}")
        if external := self._snapshot.external.get(pool, 0):
            parts.append(f"{external if staying else f'{with_is(external)} used'} by jobs outside the queue")
        if leaving := [user for user in self._users[pool] if user.leaving]:
            parts.append(f"{_total_with_is(leaving)} being freed by {join(_names_for_join(leaving))}")
        return ", ".join(parts)

    def _leaving(self, pools: Pools) -> list[str]:
        """Return the names of the jobs that are freeing slots in these pools.

        Only the first few names are formatted. Each other job is an empty string, which `join` only counts.
        """
        found = {user.key: user for pool in pools for user in self._users[pool] if user.leaving}
        return _names_for_join([user for _, user in sorted(found.items())])

    def windows(self, candidate: Candidate) -> str:
        """Return a sentence about the jobs whose backfill windows contain slots that the candidate could use."""
        names = [name for name, window in self._state.windows.items() if window.slots.keys() & candidate.pools]
        first = self._waiting[names[0]]
        waited = duration(self._snapshot.now - first.entered)
        rest = f" and {len(names) - 1} more" if len(names) > 1 else ""
        kept_for = f"{first.name} (priority {first.priority}), which has waited {waited}{rest}"
        return f"The free instances are kept for {kept_for}."

    def others(self, node: ShareNode, pool: str) -> str:
        """Return `b holds 2 and is entitled to 3`: the other nodes on the same level that hold slots."""
        users = self._on_level(node.parent, pool)
        more = len(users) - (node.projected[pool] > 0) - MAX_NAMES - 1
        first = islice((other for other in users if other is not node), MAX_NAMES + 1)
        words = [
            f"{other.name} holds {other.projected[pool]} and is entitled to {other.entitlement[pool]}"
            for other in first
        ]
        return "; ".join([*words, f"and {more} more"] if more > 0 else words) or "no other holds any"

    def _others_on_level(self, parent: ShareNode | None, pool: str) -> list[ShareNode]:
        return [node for node in (parent.children if parent else self._state.tree.top_nodes) if node.projected[pool]]

    # --- jobs that keep their slots ---------------------------------------------------------------------

    def protected(self, candidate: Candidate) -> str:
        """Return why no job makes room: first for the jobs of the project, then for other projects.

        An example: `No job of its project runs there with a lower priority than 3. Other projects keep their instances:
        nlp holds 2 and is entitled to 2.`
        """
        own = "It was stopped because its GPUs were idle, so it preempts no other job until it has run again."
        if not candidate.job.left_idle:
            own = self._own_keep(candidate.job.project, candidate.rank, candidate.pools)
        return " ".join(filter(None, (own, self._others_keep(candidate.project, candidate.pools))))

    def _why_own_keep(self, project: str, rank: int, pools: Pools) -> str:
        lower = [job for job in self._staying[project] if job.priority < rank and job.slots.keys() & pools]
        if rank >= LOWEST_INTERACTIVE:
            kept = f"Jobs of its project keep their instances: {self._protections(lower)}."
            return kept if lower else "No job of its project runs there."
        if not lower:
            return f"No job of its project runs there with a lower priority than {rank}."
        return f"Jobs of lower priority keep their instances: {self._protections(lower)}."

    def _why_others_keep(self, claimant: ShareNode, pools: Pools) -> str:
        holders = [(project, pool) for project, pool in self._holders(pools) if project is not claimant]
        if not holders:
            return ""
        rights = [self._right(project, pool, claimant) for project, pool in holders[:MAX_NAMES]]
        if (more := len(holders) - len(rights)) > 0:
            rights.append(f"and {more} more")
        return f"Other projects keep their instances: {'; '.join(rights)}."

    def _holders_of(self, pools: Pools) -> list[tuple[ShareNode, str]]:
        """Return the projects that hold slots, each with the pool. The project with most slots comes first."""
        found = [
            (self._state.tree.project(name), pool)
            for name, jobs in self._staying.items()
            for pool in pools
            if any(pool in job.slots for job in jobs)
        ]
        return sorted(found, key=lambda held: (-held[0].projected[held[1]], held[0].policy_index, held[1]))

    def _right(self, project: ShareNode, pool: str, claimant: ShareNode) -> str:
        """Return why a project keeps its slots: a comparison at the nodes where project and claimant compete."""
        side = diverging_nodes(claimant, project)[1]
        holds = f"{side.name} holds {side.projected[pool]}{of_pool(pool)}"
        if side.projected[pool] <= side.entitlement[pool]:
            return f"{holds} and is entitled to {side.entitlement[pool]}"
        if self._state.victims.protect_quota and project.projected[pool] <= project.quota.get(pool, 0):
            return f"{project.name} holds {project.projected[pool]}{of_pool(pool)}, which is its quota"
        jobs = (job for job in self._staying[project.name] if pool in job.slots)
        return f"{holds} and is entitled to {side.entitlement[pool]}, but keeps {self._protections(jobs)}"

    def _protections(self, jobs: Iterable[ActiveJob]) -> str:
        """Return text such as `a and b (may not be stopped); c (still being launched)`."""
        names: dict[str, list[str]] = defaultdict(list)
        for job in jobs:
            names[self._protection(job)].append(job.name)
        return "; ".join(f"{join(protected)} ({right})" for right, protected in names.items())

    def _protection(self, job: ActiveJob) -> str:
        if job.stop_denied:
            return "SageMaker does not let the queue stop it"
        if job.is_kept:
            return "was preempted as often as max_preemptions allows"
        if not job.preemptible:
            return "may not be stopped"
        if job.state is JobState.STARTING:
            return "still being launched"
        until = self._state.guarantees.ends(job, self._snapshot.now)
        return f"guaranteed to run until {time_text(until)}" if until > self._snapshot.now else NOT_ENOUGH


def _names_for_join(users: Sequence[_SlotUser]) -> list[str]:
    return [str(user) if place <= MAX_NAMES else "" for place, user in enumerate(users)]


def _total_with_is(users: Iterable[_SlotUser]) -> str:
    return with_is(sum(user.count for user in users))


def waits_behind_message(job: WaitingJob, first: WaitingJob | None, count: int, snapshot: Snapshot) -> str:
    """Return a sentence about the first job of the project that is ahead and also lacks slots.

    If past use decides, add that the owner of that job has held fewer instances lately. If that job was submitted later
    and is expected to be shorter, add the time after which new jobs can no longer pass.
    """
    name = f"{first.name} ({_precedence(first, job, snapshot)})" if first else "another job"
    more = f" and {count - 1} more job{'s' if count > 2 else ''}" if count > 1 else ""
    message = f"Waits behind {name}{more}, which also {'wait' if more else 'waits'} for instances."
    settings = snapshot.policy.settings
    if settings.usage_half_life is not None and first and first.owner != job.owner and first.priority == job.priority:
        return f"{message} Counting the jobs ahead of each, the owner of {first.name} has used fewer instances lately."
    by_submission = settings.order is Order.SUBMISSION
    if by_submission or first is None or first.priority != job.priority or first.entered <= job.entered or first.warm:
        return message
    until = sort_time(job, settings) - snapshot.now
    passing = f"submitted in {duration(until)} or later" if until > 0 else "submitted from now on"
    return (
        f"{message} {first.name} was submitted later and is expected to run for {_runtime(first)}, this job for "
        f"{_runtime(job)}. Jobs {passing} do not pass it."
    )


def has_higher_rank(first: WaitingJob, job: WaitingJob, policy: Policy) -> bool:
    """Return whether a job precedes another job by its priority, or because it is interactive."""
    return rank(first, policy) > rank(job, policy)


def _precedence(first: WaitingJob, job: WaitingJob, snapshot: Snapshot) -> str:
    """Return why the first job precedes the other one: `priority 5`, or `same priority, submitted earlier`."""
    if has_higher_rank(first, job, snapshot.policy):
        is_interactive = rank(first, snapshot.policy) >= LOWEST_INTERACTIVE
        return "interactive" if is_interactive else f"priority {first.priority}"
    return "same priority, submitted earlier" if first.entered < job.entered else "same priority"


def _runtime(job: WaitingJob) -> str:
    """Format an expected runtime, such as `1 h 0 min` or `24 h 0 min (its runtime is not known)`."""
    unknown = " (its runtime is not known)" if job.expected is None and job.max_runtime is None else ""
    return f"{duration(expected_runtime(job))}{unknown}"


def group_limit_message(job: WaitingJob, used: int, most: int) -> str:
    """Return sentences about the number of jobs in a job's group, and the number that may be active.

    :param used: number of jobs that are counted in the group.
    :param most: number of jobs of the group that may be active at a time.
    """
    jobs = "job is" if used == 1 else "jobs are"
    may = f"at most {most} may be at a time (tag max_parallel)"
    return f"{used} {jobs} active or about to start in its group {job.group}; {may}. It waits until one ends."


def level(node: ShareNode) -> str:
    """Return whether a node is a department or a project, as a word."""
    return "department" if node.is_department else "project"


def recent_use_text(node: ShareNode, pool: str) -> str:
    """Return the recent use of a node, such as `; it used 3.5 on average lately, and its share is 2.0`.

    The text is empty if past use does not count.
    """
    if pool not in node.past:
        return ""
    held, fair = node.past[pool]
    return f"; it used {held:.1f} on average lately, and its share is {fair:.1f}"


def drain_message(job: WaitingJob, snapshot: Snapshot) -> str:
    """Return a sentence for each drain that forbids the job to start: pool, time, admin, reason, and end."""
    now, sentences = snapshot.now, []
    for pool in dict.fromkeys(pool for need in job.demand for pool in need):
        drain = snapshot.drains.get(pool)
        if drain is None or drain.allows_start(now, job.max_runtime):
            continue
        why = f" ({drain.reason})" if drain.reason else ""
        ends = f"until an admin ends the drain (smq undrain {pool})"
        if drain.is_in_force(now):
            since = f"has been drained by {name_of_caller(drain.by)} since {time_text(drain.at)}{why}"
            sentences.append(f"Pool {pool} {since}: no job starts there {ends}.")
            continue
        runs = f"may run for {duration(UNKNOWN_RUNTIME if job.max_runtime is None else job.max_runtime)}"
        at = f"{time_text(drain.at)}, in {duration(drain.at - now)}"
        will = f"will be drained by {name_of_caller(drain.by)} at {at}{why}"
        sentences.append(
            f"Pool {pool} {will}, {ends}. A job starts there only if its MaxRuntimeInSeconds ends before that time, "
            f"and this job {runs}."
        )
    return " ".join(sentences)


def name_of_caller(arn: str) -> str:
    """Return the last part of a caller's ARN: the name of the user or session."""
    return arn.rpartition("/")[2].rpartition(":")[2] or "an admin"


def over_budget_message(job: WaitingJob, spending: Spending, now: float) -> str:
    """Return sentences about a spent hard budget: its project or owner, the use, and the start of the next period."""
    account = spending.forbidding_account(job)
    spent = spending.spent(account) if account else None
    assert account is not None
    assert spent is not None
    budget, ends = spent.budget, period_end(spent.budget, now)
    whose = f"Project {account[0]} has" if account[1] is None else f"Its owner has, in project {account[0]},"
    period = f"these {budget.period_name}" if budget.period_name.endswith("days") else f"this {budget.period_name}"
    return (
        f"{whose} used {spent.hours:,.1f} instance-hours in {period}, and a hard budget of "
        f"{budget.instance_hours:,.1f}. It waits for the next period, which begins at {time_text(ends)}, in "
        f"{duration(ends - now)}."
    )


def sentence(text: str) -> str:
    """Return SageMaker's message, with a full stop unless the message ends in punctuation."""
    return text if text.endswith((".", "!", "?", ")")) else f"{text}."
