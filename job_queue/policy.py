"""The policy: how the fleet is shared, and what a request's instance types mean under it."""

from job_queue.records import Demand
from job_queue.scheduler.model import DEFAULT, Policy, Pool, Project, Slots


def default_policy(max_capacity: int) -> Policy:
    """Without a policy: one pool of any instance type and one project that owns all of it."""
    return Policy(
        pools=(Pool(DEFAULT, max_capacity),),
        projects=(Project(DEFAULT, quota={DEFAULT: max_capacity}),),
    )


def alternatives(demand: Demand, policy: Policy) -> tuple[Slots, ...]:
    """What a demand in instance types asks for in pools, best first.

    An instance type that no pool offers stands under its own name: no pool has that, and the planner says so.
    """
    found: list[Slots] = []
    for alternative in demand:
        slots: dict[str, int] = {}
        for instance_type, count in alternative.items():
            pool = _pool_for(instance_type, policy)
            slots[pool] = slots.get(pool, 0) + count
        if slots not in found:
            found.append(slots)
    return tuple(found)


def _pool_for(instance_type: str, policy: Policy) -> str:
    for pool in policy.pools:
        if pool.instance_type in (None, instance_type):
            return pool.name
    return instance_type
