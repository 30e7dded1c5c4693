"""Explain why members (jobs with the tag `gpus`) wait: reasons and messages."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from job_queue.scheduler.carriers.allocations import WHOLE
from job_queue.scheduler.carriers.packing import Packing
from job_queue.scheduler.explain.messages import group_limit_message, join
from job_queue.scheduler.model import Hold, JobState, Plan, Rule, Snapshot, WaitingJob, WaitReason


class MemberHolds:
    """Holds of members, in addition to the holds from the planner of instances.

    :param packing: the allocations, which must be final when `of` is called.
    """

    def __init__(self, snapshot: Snapshot, packing: Packing) -> None:
        self._snapshot, self._packing = snapshot, packing
        self._plan_independent: list[Hold] = []  # holds that do not depend on the plan

    def never_fits(self, member: WaitingJob) -> None:
        """Add a hold for a member that fits on no instance of its pools, or whose pools are not in the policy."""
        pools = {pool.name: pool for pool in self._snapshot.policy.pools}
        named = [pools[pool] for need in member.demand for pool in need if pool in pools]
        if not named:
            message = "The policy has none of the pools that it requests."
            self._plan_independent.append(Hold(member.name, WaitReason.NO_SUCH_POOL, message))
            return
        have = [
            f"an instance of {pool.name} has {pool.gpus}" if pool.gpus else f"instances of {pool.name} are not shared"
            for pool in named
        ]
        message = f"It requests {gpus(member.gpus)} of one instance; {join(have)}."
        self._plan_independent.append(Hold(member.name, WaitReason.NEVER_FITS, message))

    def beyond_group(self, member: WaitingJob, used: int, most: int) -> None:
        """Add a hold for a member whose group has no place left.

        :param used: number of jobs of the group that are active or come before this member.
        :param most: number of jobs of the group that may be active at a time.
        """
        message = group_limit_message(member, used, most)
        self._plan_independent.append(Hold(member.name, WaitReason.GROUP_LIMIT, message))

    def of(self, decided: Plan) -> tuple[Hold, ...]:
        """Return all holds of a plan, including those from the planner of instances."""
        found = (*self._of_allocations(decided), *self._of_bins(decided), *self._plan_independent)
        # cache: most holds share the same tuple of blockers, which may be long
        longer: dict[int, tuple[str, ...]] = {}
        for hold in found:
            if id(hold.blockers) not in longer:
                longer[id(hold.blockers)] = tuple(self._with_members(hold.blockers))
        return tuple(replace(hold, blockers=longer[id(hold.blockers)]) for hold in found)

    def _with_members(self, names: Iterable[str]) -> Iterator[str]:
        """Yield blocking jobs, and after each carrier its members."""
        for name in names:
            yield name
            yield from (job.name for job in self._packing.members.get(name, ()))

    def _of_allocations(self, decided: Plan) -> Iterator[Hold]:
        packing = self._packing
        gone = {eviction.job: eviction.claimant for eviction in decided.evictions}
        leaving: dict[str, list[str]] = defaultdict(list)
        for it in packing.evictions.values():
            if it.rule is Rule.PREEMPT:
                leaving[it.claimant].append(it.job)
        for name, carrier in packing.promised.items():
            by = tuple(leaving[name])
            yield Hold(name, WaitReason.WAITING_FOR_STOPPING, self._promise_message(carrier, by), blockers=by)
        for name, assigned in packing.allocations.items():
            if (carrier := assigned.allocation.carrier) in gone:
                message = f"Its carrier {carrier} makes room for {gone[carrier]}."
                yield Hold(name, WaitReason.WAITING_FOR_CAPACITY, message)

    def _promise_message(self, carrier: str, by: tuple[str, ...]) -> str:
        if by:
            verb = "has" if len(by) == 1 else "have"
            return f"GPUs of {carrier} are set aside for it. It starts when {join(by)} {verb} stopped."
        found = self._packing.carriers[carrier]
        if found.state is JobState.STARTING:
            return f"Its carrier {carrier} is being launched."
        if not found.ready:
            return f"Its carrier {carrier} was launched, but its agent has not started yet."
        return f"GPUs of {carrier}, which other jobs are freeing, are set aside for it."

    def _of_bins(self, decided: Plan) -> Iterator[Hold]:
        """Yield the holds from the planner of instances. All members of a bin get the hold of their leader."""
        bins = {it.leader.name: it for it in self._packing.bins}
        for start in decided.starts:
            if start.job in bins:
                for member in bins[start.job].members:
                    yield Hold(member.name, WaitReason.WAITING_FOR_STOPPING, "Its carrier is being launched.")
        for hold in decided.holds:
            if hold.job not in bins:
                yield hold
                continue
            leader, *others = bins[hold.job].members
            none = f"No carrier that accepts it has {gpus(leader.gpus)} free, and no other carrier can start."
            message = f"{none} {hold.message}"
            yield replace(hold, message=message)
            for member in others:
                message = f"It is to share an instance with {hold.job}. {hold.message}"
                yield Hold(member.name, hold.reason, message, hold.ahead, hold.blockers)


def gpus(tenths: int | None) -> str:
    """Format tenths of GPUs, such as `1 GPU`, `4 GPUs` or `0.5 of a GPU`; None counts as 1 GPU."""
    if tenths is None or tenths == WHOLE:
        return "1 GPU"
    return f"{tenths // WHOLE} GPUs" if tenths > WHOLE else f"{tenths / WHOLE:g} of a GPU"
