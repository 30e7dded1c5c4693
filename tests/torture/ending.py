"""The end of every run: faults stop, and within a bounded number of ticks every job is finished exactly once."""

import json
import random
from typing import Any

from job_queue.adapters.items import ACTIVE, CONTROL, EXTERNAL, OWNERS, job_from
from job_queue.adapters.records.claimed_places import LOCKS
from job_queue.adapters.records.failed_gpu_records import FAILED_GPUS
from job_queue.adapters.records.failure_notices import NOTICES
from job_queue.adapters.records.policy_history import DOCUMENTS, HISTORY
from job_queue.adapters.records.published_plan import PUBLISHED
from job_queue.domain.fleet.sites import name_in
from job_queue.domain.job import Job
from job_queue.domain.names import QUEUE_NAME, QUEUE_TAG
from job_queue.domain.requests.training_request import TrainingRequest
from job_queue.scheduler import Drains, DrainStops, JobState
from tests.memory_tables import MemoryTables
from tests.torture.actors import Actors
from tests.torture.aws import LINES, site_in
from tests.torture.failure_samples import may_fail
from tests.torture.invariants import POLICY as POLICY_ROW
from tests.torture.invariants import require, tags_of
from tests.torture.process import Process
from tests.torture.setups import with_quota_for_everybody
from tests.torture.world import World

TICK_SECONDS = 60.0
MOST_TICKS = 300
MOST_WAKES = 100  # after a tick, each of up to MOST_CYCLES cycles
BROKEN_TICKS = 30
MOST_BROKEN_TICKS = 60  # a warm pool whose release is denied keeps its slots for thirty of them
FAILING_ROUNDS = (2, 8, 16)
FAILING_SECONDS = ((TICK_SECONDS,), (310.0,), (TICK_SECONDS, 310.0, 3700.0))  # that attempts run before they fail
WAITS_FOR_NOTHING = "nobody waits for a job that has ended"


class Ending:
    """Brings a world to its end.

    :param rng: decides when late calls take effect and training jobs end.
    """

    def __init__(self, world: World, actors: Actors, rng: random.Random) -> None:
        self._world = world
        self._actors = actors
        self._rng = rng

    def run(self) -> None:
        """Faults stop."""
        world = self._world
        world.say("--- faults stop")
        world.tables.throttle = None
        world.broken.clear()
        self._actors.repair()
        while world.processes:
            world.resume(world.processes[0])
        self._let_late_calls_end()
        if world.setup.policy is not None and POLICY_ROW not in world.tables.rows:
            self._run(self._actors.apply(world.setup.policy))  # its first application was throttled to the end
        if world.setup.partitions and self._rng.random() < 0.5:
            self._endure_a_broken_region()
        self._tick()
        could_start, overdue = self._due(), self._overdue()
        self._tick()
        if world.sagemaker.was_slow:
            self._tick()  # the second tick may have released a warm pool for a job that the first brought into view
        self.check_progress(could_start, overdue)
        if world.setup.drains:
            self._let_drains_end()
        if world.setup.policy is not None:
            self._run(self._actors.apply(with_quota_for_everybody(world.setup.policy)))
        for name in self._actors.unfinished(held=True):
            self._run(self._actors.change_job(name, {"held": False}))
        if world.setup.failures:
            self._let_failures_repeat()
        for _ in range(MOST_TICKS):
            if not self._actors.unfinished() and not world.sagemaker.alive_names() and not world.sagemaker.warm_names():
                break
            self._go_on()
        left = self._actors.unfinished()
        require(not left, "every job is finished within a bounded number of ticks", f"{left} are not")
        self._tick()
        self._tick()
        self._check_nothing_is_left()

    def _endure_a_broken_region(self) -> None:
        """One region is broken and nothing else: each job that can run at home runs there and ends."""
        world = self._world
        mode = self._rng.choice(("refuses", "swallows"))  # one that throttles is asked again and again
        world.say(f"--- the other region stays broken: {mode}")
        world.broken = {site.key: mode for site in world.setup.other_sites}
        left: list[str] = []
        for number in range(MOST_BROKEN_TICKS):
            for name in world.sagemaker.alive_names():
                if not site_in(name):
                    self._actors.end(name, tell=self._rng.random() < 0.5)
            while world.events:
                self._run(self._actors.deliver(world.events.pop()))
            self._tick()
            if number + 1 < BROKEN_TICKS:
                continue
            left = [] if self._drains() else list(filter(self._can_run_at_home, self._actors.unfinished()))
            if not left:
                break
        world.broken.clear()
        require(not left, "no job waits for a broken region if it can run in the other one", f"{left}")
        self._let_late_calls_end()

    def _can_run_at_home(self, name: str) -> bool:
        """Return whether a job waits for nothing but a slot, and could have one at home.

        A job that has run in the other region may have its checkpoints there. A dependent, or a job of a group, may
        wait for a job that is in the other region. A start may wait while a warm pool of a broken region is released.
        """
        world = self._world
        row = world.invariants.row(name) or {}
        job = job_from(row)
        tags = tags_of(row)
        elsewhere = any(site_in(key) for key, launch in world.sagemaker.launches.items() if launch.job == name)
        others = tags.get("pools") == "ohio" or tags.keys() & {"after", "group"} or job.held
        external = MemoryTables.query(world.tables, LINES, EXTERNAL)
        warm = any(it.get("warm") and "site" in it for it in external)
        return job.state.waits and not (others or elsewhere or warm)

    def _let_failures_repeat(self) -> None:
        """Most attempts fail, again and again, some soon after their start and some an hour later."""
        world, rng = self._world, self._actors.failures.rng
        rounds, seconds = rng.choice(FAILING_ROUNDS), rng.choice(FAILING_SECONDS)
        for _ in range(rounds):
            for name in filter(may_fail, world.sagemaker.alive_launches()):
                if rng.random() < 0.8:
                    self._actors.fail(name, tell=rng.random() < 0.7)
            while world.events:
                self._run(self._actors.deliver(world.events.pop()))
            self._tick(rng.choice(seconds))

    def _let_drains_end(self) -> None:
        """Wait for the times of all drains and the ends of all jobs in their pools, and end the drains.

        Then jobs start again, all pools are drained once more, and each running job has to stop.
        """
        self._empty_pools()
        self._tick()
        for pool in self._world.setup.pools:
            self._run(self._actors.drain_pool(pool, TICK_SECONDS / 2, DrainStops.ALL))
        self._empty_pools()

    def _empty_pools(self) -> None:
        drains, rows = self._drains(), self._world.tables.rows
        if drains:
            last = max(drain.at for drain in drains.values())
            self._tick(max(TICK_SECONDS, last + 1 - self._world.now))
            for _ in range(3):
                self._tick()
            self.check_progress(set(), set())
        for _ in range(MOST_TICKS if drains else 0):
            active = (row for where, row in rows.items() if where[:2] == (LINES, ACTIVE))
            left = [row["jobName"] for row in active if drains.keys() & set(self._world.invariants.pools_of(row))]
            if not left:
                break
            self._go_on()
        else:
            require(not drains, "a drained pool is empty within a bounded number of ticks", f"{drains}")
        for pool in drains:
            self._run(self._actors.undrain(pool))

    def _drains(self) -> Drains:
        """Return all drains, also those of pools that the policy no longer has."""
        return self._world.sandboxes[0].repository.drains().by_pool

    def _is_drained(self, job: Job, drains: Drains) -> bool:
        """Return whether a drain that has been in force for two ticks stops a running job."""
        row = self._world.tables.rows[LINES, ACTIVE, job.name]
        known = {pool["name"] for pool in self._policy()["pools"]} if self._world.setup.policy else {"default"}
        if job.carries is not None:
            return False
        pools = known & set(self._world.invariants.pools_of(row))
        before = self._world.now - 2 * TICK_SECONDS - 1
        stops = (DrainStops.ALL, DrainStops.PREEMPTIBLE) if job.preemptible else (DrainStops.ALL,)
        return any(drains[pool].at < before and drains[pool].stops in stops for pool in pools & drains.keys())

    def _policy(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._world.tables.rows[POLICY_ROW]["document"])
        return document

    def _go_on(self) -> None:
        world, rng = self._world, self._rng
        for name in world.sagemaker.alive_names():
            if rng.random() < 0.7 and not world.sagemaker.jobs[name].ended:  # with its carrier
                stopping = world.sagemaker.jobs[name].status == "Stopping"
                launch = world.sagemaker.launches.get(name)
                untouched = launch is not None and world.sagemaker.jobs[name].tags == launch.tags
                if not stopping and untouched and name.startswith("carrier--"):
                    continue  # an agent ends only if it is stopped, or at last by MaxRuntimeInSeconds
                self._actors.end(name, "Stopped" if stopping else "Completed", tell=rng.random() < 0.5)
        while world.events:
            self._run(self._actors.deliver(world.events.pop(rng.randrange(len(world.events)))))
        self._tick(TICK_SECONDS if world.sagemaker.alive_names() else 5 * TICK_SECONDS)

    def _let_late_calls_end(self) -> None:
        """They take effect while the queue goes on, or their time is over."""
        world = self._world
        while world.late:
            self._tick(4 * TICK_SECONDS)
            for late in list(world.late):
                if self._rng.random() < 0.4 or late.expires_at <= world.now:
                    world.land(late)

    def _tick(self, seconds: float = TICK_SECONDS) -> None:
        self._world.now += seconds
        self._run(self._actors.tick())
        wakes = 0
        while self._world.woken:
            wakes += 1
            require(wakes <= MOST_WAKES, "invocations wake no other ones when nothing is left to do", f"{wakes}")
            self._run(self._actors.wake_up())

    def _run(self, process: Process) -> None:
        while not process.ended:
            self._world.resume(process, self._world.fate_of_broken(process.call, self._rng))

    # --- what must be true then ------------------------------------------------------------------

    def check_progress(self, could_start: set[str], overdue: set[tuple[str, str]]) -> None:
        """Two ticks without a fault, and everything that is known has been acted on.

        :param could_start: who was due after the first of them.
        :param overdue: who waited then, in view, for a job that had ended.
        """
        world = self._world
        rows = [job_from(row) for row in MemoryTables.query(world.tables, LINES, "active")]
        alive = set(world.sagemaker.alive_names())
        drains = self._drains()
        for job in rows:
            if job.state is JobState.STARTING or job.training_job in world.sagemaker.untold:
                continue  # in doubt as long as a call for it may land
            name = job.training_job or ""
            launch = world.sagemaker.launches.get(name)
            found = f"{job.name} is still {job.state}, SageMaker's {name} has ended"
            deleted = name in world.sagemaker.deletions or name in world.sagemaker.again
            if deleted or launch is None or launch.submission != job.submission:
                # The attempt was deleted, and a late call may have launched it again, which the queue does not count as
                # the attempt. For a quarter of an hour an event may tell how the attempt has ended.
                waits = job.missing_since is not None or name in world.invariants.confused
                require(waits, "no end is missed for more than two ticks", found)
                continue
            require(name in alive, "no end is missed for more than two ticks", found)
            attempt = world.sagemaker.jobs[name]
            # Who takes the queue's tag away denies the stop; where it is back, the queue asks again some time later.
            denied = attempt.tags.get(QUEUE_TAG) != QUEUE_NAME or job.is_stop_denied(world.now)
            stops = attempt.status == "Stopping" or denied
            require(not job.cancelled or stops, "a cancelled job is stopped within two ticks", job.name)
            require(job.requeued_by is None or stops, "a requeued job is stopped within two ticks", job.name)
            drained = self._is_drained(job, drains)
            require(not drained or stops, "a job in a drained pool is stopped within two ticks", f"{job.name} {drains}")
            require(not job.requeue_hung or stops, "an attempt that hangs is stopped within two ticks", job.name)
        counted = {row["position"] for row in MemoryTables.query(world.tables, LINES, "external")}
        strangers = self._strangers()
        own = (job for job in rows if job.state is JobState.STARTING or job.training_job not in strangers)
        counted |= {job.training_job or "" for job in own}
        uses = alive | set(world.sagemaker.warm_names())
        unseen = (uses - counted) - self._taken_for_others(uses, counted)
        require(not unseen, "what uses capacity is counted within two ticks", f"{sorted(unseen)} is not")
        for_nothing = overdue & self._overdue()
        require(not for_nothing, WAITS_FOR_NOTHING, f"{sorted(for_nothing)}")
        left = (could_start & self._due()) - self._tried_lately()
        require(
            not left, "a waiting job that can start is not left for more than two ticks", f"{sorted(left)} can start"
        )

    def _strangers(self) -> set[str]:
        """Training jobs of others that have the names of attempts, and that the queue can tell from them."""
        return {name for name in self._world.sagemaker.theirs if name not in self._world.invariants.confused}

    def _taken_for_others(self, uses: set[str], counted: set[str]) -> set[str]:
        """Warm pools in whose place another one is counted that was just like it, and that SageMaker has used instead.

        Which of two that match a launch takes is not known before; for whoever plans they are the same.
        """
        sagemaker = self._world.sagemaker

        def kind(name: str) -> tuple[str, str | None, dict[str, int]]:
            footprint = TrainingRequest.read(sagemaker.requests[name]).footprint
            return site_in(name), footprint, dict(sagemaker.jobs[name].instance_counts)

        gone = [kind(name) for name in sorted(counted - uses) if name in sagemaker.jobs]
        taken = set()
        for name in sorted((uses - counted) & set(sagemaker.warm_names())):
            if kind(name) in gone:
                gone.remove(kind(name))
                taken.add(name)
        return taken

    def check_nothing_to_do(self) -> None:
        """The planner would start nobody, and make room for nobody; only a tick sees that a warm pool has ended."""
        if self._world.sagemaker.was_slow:
            return
        due = self._due()
        if self._world.setup.deadlines:  # a time has passed, and the tick after that has not come yet
            waiting = self._world.sandboxes[0].dry_run.cluster().waiting
            due = {name for name in due if waiting[name].not_before is None and waiting[name].start_by is None}
        require(not due, "no wake-up is lost", f"{sorted(due)} can start")
        for_nothing = self._overdue()
        require(not for_nothing, WAITS_FOR_NOTHING, f"{sorted(for_nothing)}")

    def _overdue(self) -> set[tuple[str, str]]:
        """Jobs in view of a cycle that wait for a job that has ended, and that job."""
        found = set()
        cluster = self._world.sandboxes[0].dry_run.cluster()
        for job in cluster.waiting.values():
            for it in job.after:
                row = self._world.invariants.row(it.job)
                ended = row is None or row["submission"] != it.submission or "finished" in row
                if ended:
                    found.add((job.name, it.job))
        return found

    def _due(self) -> set[str]:
        """Jobs that the planner would start or make room for; not those that back off and may come due any time."""
        queue, plan = self._world.sandboxes[0].forecast()
        due = {start.job for start in plan.starts} | {it.job for it in plan.allocations}
        due |= {it.members[0] for it in plan.launches} | {eviction.claimant for eviction in plan.evictions}
        return {name for name in due if name in queue.waiting and not queue.waiting[name].tries}

    def _tried_lately(self) -> set[str]:
        """Jobs that SageMaker has refused in the last two ticks, as it does during quota lag: nobody has left them."""
        since, refusals = self._world.now - 2 * TICK_SECONDS, self._world.sagemaker.refusals
        return {name_in(name).rpartition("-qstamp-")[0] for name, times in refusals.items() if times[-1] > since}

    def _check_nothing_is_left(self) -> None:
        kept = (CONTROL, OWNERS, LOCKS, HISTORY, DOCUMENTS, PUBLISHED, NOTICES, FAILED_GPUS)  # bounded by themselves
        rows = [where for where in self._world.tables.rows if where[0] == LINES and where[1] not in kept]
        require(not rows, "nothing is left behind", str(rows))
        told = self._world.sandboxes[0].repository.published.latest()
        waits = [hold.job for hold in told.holds]
        require(not waits, "readers are told what the last cycle has decided", f"{waits} are told to wait")
