"""Carriers in simulated time: instances that members share."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import count

from job_queue.scheduler import NOTHING, Carrier, GpuAllocation, JobState, Policy, Slots, WaitingJob


class SimulatedCarriers:
    """The carriers of the fleet, and the number of members of each."""

    def __init__(self, policy: Policy) -> None:
        self._gpus = {pool.name: pool.gpus or 0 for pool in policy.pools}
        self._keep = {pool.name: pool.keep_warm or 0.0 for pool in policy.pools}
        self._by_name: dict[str, Carrier] = {}
        self._members = Counter[str]()
        self._numbers = count(1)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    @property
    def all(self) -> tuple[Carrier, ...]:
        """The carriers, as the planner gets them."""
        return tuple(self._by_name.values())

    def slots_of(self, allocation: GpuAllocation | None) -> Slots:
        """Return the slots of an allocation's carrier; no slots if there is no allocation or the carrier is removed."""
        carrier = self._by_name.get(allocation.carrier) if allocation else None
        return {carrier.pool: 1} if carrier else NOTHING

    def held(self) -> Iterable[Slots]:
        """Yield the slots of each carrier."""
        return ({carrier.pool: 1} for carrier in self._by_name.values())

    def enter(self, carrier: Carrier) -> None:
        """Add a carrier."""
        self._by_name[carrier.name] = carrier

    def launch(self, leader: WaitingJob, slots: Slots, now: float) -> Carrier:
        """Return a new carrier, which is not yet in the fleet: the caller adds it by `enter`.

        :param leader: the first of the members for which the carrier is launched.
        """
        (pool,) = slots
        return Carrier(
            name=f"carrier {next(self._numbers)} for {leader.name}",
            pool=pool,
            project=leader.project,
            kind=leader.kind,
            gpus=self._gpus[pool],
            state=JobState.STARTING,
            started=now,
            preemptible=leader.preemptible,
            owner=leader.owner,
        )

    def mark_running(self, name: str, now: float) -> None:
        """Mark a carrier as running, with an agent that takes members. Stopping and removed carriers do not change."""
        if not self.is_leaving(name):
            self._by_name[name] = replace(self._by_name[name], state=JobState.RUNNING, ready=True, empty_since=now)

    def stop(self, name: str) -> None:
        """Mark a carrier as stopping."""
        self._by_name[name] = replace(self._by_name[name], state=JobState.STOPPING)

    def is_leaving(self, name: str) -> bool:
        """Return whether the carrier is stopping or has ended."""
        return name not in self._by_name or self._by_name[name].state is JobState.STOPPING

    def remove(self, name: str) -> Carrier:
        """Remove and return a carrier whose instance is free."""
        return self._by_name.pop(name)

    def add_member(self, name: str) -> None:
        """Count a member that starts on the carrier."""
        self._members[name] += 1
        if name in self._by_name:
            self._by_name[name] = replace(self._by_name[name], empty_since=None)

    def remove_member(self, name: str, now: float) -> None:
        """Count a member that has left the carrier. If no member remains, the carrier is empty from `now` on."""
        self._members[name] -= 1
        if name in self._by_name and not self._members[name]:
            self._by_name[name] = replace(self._by_name[name], empty_since=now)

    def times_to_close(self) -> list[float]:
        """Return, for each running carrier without members, the time until which its pool keeps it (`keep_warm`)."""
        return [
            (it.started if it.empty_since is None else it.empty_since) + self._keep.get(it.pool, 0)
            for it in self._by_name.values()
            if it.state is JobState.RUNNING and not self._members[it.name]
        ]
