"""What a cycle would do now, and why: looked at, and nothing done."""

from collections.abc import Callable

from job_queue.advice import PROJECT_GONE, advise
from job_queue.policy import Policies, project_of
from job_queue.records import Job
from job_queue.scheduler import Plan, plan
from job_queue.store import Store
from job_queue.world import Parallel, World, look_at_world

ADVICE_SECONDS = 5  # after which nothing more is tried out: somebody waits for the answer


class Outlook:
    """Looks at the queue as the next cycle will see it.

    :param clock: seconds since the epoch.
    :param parallel: runs independent AWS calls.
    """

    def __init__(self, store: Store, policies: Policies, clock: Callable[[], float], parallel: Parallel) -> None:
        self._store = store
        self._policies = policies
        self._clock = clock
        self._parallel = parallel

    def look(self) -> tuple[World, Plan]:
        """The world, and what a cycle would do."""
        world = self.world()
        return world, plan(world.snapshot(self._clock()))

    def world(self) -> World:
        """The live jobs and what else uses capacity."""
        return look_at_world(self._store, self._policies, self._parallel)

    def advice(self, name: str) -> tuple[World, Plan, list[str]]:
        """The world, what a cycle would do, and what would let this job start if it waits."""
        world = self.world()
        return world, *_advised(world, name, self._clock)

    def trial(self, job: Job) -> tuple[Plan, list[str]]:
        """The same if this job waited, too; nothing is stored."""
        return _advised(self.world().with_waiting(job), job.name, self._clock, submitted=False)


def _advised(world: World, name: str, clock: Callable[[], float], *, submitted: bool = True) -> tuple[Plan, list[str]]:
    now = clock()
    snapshot = world.snapshot(now)
    decided = plan(snapshot)
    hold = next((hold for hold in decided.holds if hold.job == name), None)
    if hold is None:
        return decided, []
    if project_of(world.applied.policy, world.waiting[name].project) is None:
        return decided, [PROJECT_GONE]
    return decided, advise(snapshot, hold, submitted=submitted, may_go_on=lambda: clock() < now + ADVICE_SECONDS)
