"""Carriers in simulated time: instances that members share."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import count

from job_queue.scheduler import Carrier, JobState, Policy, Slots, WaitingJob


class Carriers:
    """Those that there are, whose they are, and for how long nobody has been on board."""

    def __init__(self, policy: Policy) -> None:
        self._gpus = {pool.name: pool.gpus or 0 for pool in policy.pools}
        self._keep = {pool.name: pool.keep_warm or 0.0 for pool in policy.pools}
        self._there: dict[str, Carrier] = {}
        self._owners: dict[str, str] = {}
        self._aboard = Counter[str]()
        self._numbers = count(1)

    def __contains__(self, name: str) -> bool:
        return name in self._there

    @property
    def all(self) -> tuple[Carrier, ...]:
        """Each as the planner sees it."""
        return tuple(self._there.values())

    def held(self) -> Iterable[Slots]:
        """The slots of each."""
        return ({carrier.pool: 1} for carrier in self._there.values())

    def enter(self, carrier: Carrier) -> None:
        """There is this one."""
        self._there[carrier.name] = carrier

    def launch(self, leader: WaitingJob, slots: Slots, now: float) -> Carrier:
        """One that is launched for members, the first of whom leads; it is there once it has entered."""
        (pool,) = slots
        carrier = Carrier(
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
        self._owners[carrier.name] = leader.owner
        return carrier

    def is_up(self, name: str, now: float) -> None:
        """Its instance has come, unless it leaves already: members may sit down."""
        carrier = self._there.get(name)
        if carrier is not None and carrier.state is JobState.STARTING:
            self._there[name] = replace(carrier, state=JobState.RUNNING, empty_since=now)

    def stop(self, name: str) -> None:
        """It is to leave its instance."""
        self._there[name] = replace(self._there[name], state=JobState.STOPPING)

    def leaves(self, name: str) -> bool:
        """Whether it is leaving its instance, or has left it."""
        return name not in self._there or self._there[name].state is JobState.STOPPING

    def remove(self, name: str) -> tuple[Carrier, str]:
        """Its instance is free. Gives what it was, and whose."""
        return self._there.pop(name), self._owners.pop(name, "")

    def sit_down(self, name: str) -> None:
        """A member comes on board."""
        self._aboard[name] += 1
        if name in self._there:
            self._there[name] = replace(self._there[name], empty_since=None)

    def get_up(self, name: str, now: float) -> None:
        """A member has left."""
        self._aboard[name] -= 1
        if name in self._there and not self._aboard[name]:
            self._there[name] = replace(self._there[name], empty_since=now)

    def empty_until(self) -> list[float]:
        """When each of those that run and are empty has been kept for long enough."""
        return [
            (it.started if it.empty_since is None else it.empty_since) + self._keep[it.pool]
            for it in self._there.values()
            if it.state is JobState.RUNNING and not self._aboard[it.name]
        ]
