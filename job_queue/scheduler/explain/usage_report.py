"""How a plan leaves the pools: who uses what, who is leaving, what is set aside; and the parts of messages about it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from job_queue.scheduler.candidates import Candidate
from job_queue.scheduler.explain.messages import NAMED, duration, join, with_verb
from job_queue.scheduler.fair_share import Queue
from job_queue.scheduler.model import JobState, Slots, Snapshot
from job_queue.scheduler.ordering import waiting_order
from job_queue.scheduler.plan_state import PlanState

Pools = frozenset[str]


@dataclass(frozen=True, slots=True)
class _User:
    """A job that holds slots of a pool once the plan is carried out."""

    place: tuple[int, float, str]  # priority first, then entry, then name
    count: int
    leaving: bool

    @property
    def name(self) -> str:
        return self.place[-1]

    def __str__(self) -> str:
        return f"{self.name} (priority {-self.place[0]})"


class UsageReport:
    """Reads a finished plan state; each part is computed once."""

    def __init__(self, snapshot: Snapshot, state: PlanState) -> None:
        self._snapshot = snapshot
        self._state = state
        self._capacity = {pool.name: pool.capacity for pool in snapshot.policy.pools}
        self._users: dict[str, list[_User]] = defaultdict(list)
        self._holders: dict[str, list[str]] = defaultdict(list)  # pool -> who has slots set aside there
        self._blockers: dict[Pools, tuple[str, ...]] = {}
        self._leaving: dict[Pools, list[str]] = {}
        self._figures: dict[str, str] = {}
        self._others: dict[tuple[Queue | None, str], list[Queue]] = {}
        waiting = {job.name: job for job in snapshot.waiting}
        for job in snapshot.active:
            leaving = job.state is JobState.STOPPING or job.name in state.evicted
            self._enter((-job.priority, job.entered, job.name), job.slots, leaving=leaving)
        for name, slots in state.started.items():
            self._enter(waiting_order(waiting[name]), slots, leaving=False)
        for users in self._users.values():
            users.sort(key=lambda user: user.place)
        places = {job.name: (-job.priority, job.entered, job.name) for job in snapshot.active}
        places |= {name: waiting_order(job) for name, job in waiting.items()}
        for name in sorted(state.reservations, key=lambda name: places[name]):
            for pool in state.reservations[name]:
                self._holders[pool].append(name)

    def blockers(self, pools: Pools) -> tuple[str, ...]:
        """Who holds slots of these pools, highest priority first."""
        if pools not in self._blockers:
            places = {user.place for pool in pools for user in self._users[pool]}
            self._blockers[pools] = tuple(place[-1] for place in sorted(places))
        return self._blockers[pools]

    def figures(self, pool: str) -> str:
        """`1 of 4 is free, 2 are used by a (priority 5) and b (priority 3), 1 by jobs outside the queue`."""
        if pool not in self._figures:
            free = max(0, self._state.free[pool])
            parts = [f"{free} of {self._capacity.get(pool, 0)} {'is' if free == 1 else 'are'} free"]
            in_windows = sum(window.slots.get(pool, 0) for window in self._state.windows.values())
            aside = free - in_windows - max(0, min(free - in_windows, self._state.soon(pool)))
            marks = [f"{aside} set aside for {join(self._holders[pool])}"] if aside else []
            if in_windows:
                marks.append(
                    f"{in_windows} kept for {join([name for name, it in self._state.windows.items() if pool in it.slots])}"
                )
            if marks:
                parts[0] += f" ({', '.join(marks)})"
            if staying := [user for user in self._users[pool] if not user.leaving]:
                parts.append(f"{_count(staying)} used by {join(_named(staying))}")
            if external := self._snapshot.external.get(pool, 0):
                parts.append(f"{external if staying else f'{with_verb(external)} used'} by jobs outside the queue")
            if leaving := [user for user in self._users[pool] if user.leaving]:
                parts.append(f"{_count(leaving)} being freed by {join(_named(leaving))}")
            self._figures[pool] = ", ".join(parts)
        return self._figures[pool]

    def leaving(self, pools: Pools) -> list[str]:
        """The jobs whose slots are being freed in these pools; the first few by name."""
        if pools not in self._leaving:
            found = {user.place: user for pool in pools for user in self._users[pool] if user.leaving}
            self._leaving[pools] = _named([user for _, user in sorted(found.items())])
        return self._leaving[pools]

    def windows(self, candidate: Candidate) -> str:
        """For whom slots are reserved in backfill windows that it could use."""
        waiting = {job.name: job for job in self._snapshot.waiting}
        names = [name for name, window in self._state.windows.items() if window.slots.keys() & candidate.pools]
        first = waiting[names[0]]
        waited = duration(self._snapshot.now - first.entered)
        rest = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return f"What is free is kept for {first.name} (priority {first.priority}), which has waited {waited}{rest}."

    def others(self, queue: Queue, pool: str) -> str:
        """`b holds 2 and is due 3`: the others on the same level that hold slots."""
        place = (queue.parent, pool)
        if place not in self._others:
            level = queue.parent.children if queue.parent else self._state.queues.tops
            self._others[place] = [it for it in level if it.projected[pool]]
        told = islice((it for it in self._others[place] if it is not queue), NAMED + 1)
        more = len(self._others[place]) - (queue.projected[pool] > 0) - NAMED - 1
        words = [f"{it.name} holds {it.projected[pool]} and is due {it.entitlement[pool]}" for it in told]
        return "; ".join([*words, f"and {more} more"] if more > 0 else words) or "others hold none"

    def _enter(self, place: tuple[int, float, str], slots: Slots, *, leaving: bool) -> None:
        for pool, count in slots.items():
            self._users[pool].append(_User(place, count, leaving))


def _named(users: list[_User]) -> list[str]:
    return [str(user) if place <= NAMED else "" for place, user in enumerate(users)]


def _count(users: list[_User]) -> str:
    return with_verb(sum(user.count for user in users))


def pools_in_order(alternatives: Sequence[Slots]) -> list[str]:
    """Every pool that is named, once."""
    return list(dict.fromkeys(pool for need in alternatives for pool in need))
