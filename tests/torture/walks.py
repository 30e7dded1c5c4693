"""Seeded random walks: at every step the generator says who acts, and what becomes of each call."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from job_queue.domain.fleet.sites import name_in
from tests.torture.actors import Actors
from tests.torture.adversary import Adversary
from tests.torture.aws import PLACE
from tests.torture.ending import Ending
from tests.torture.failure_samples import FailureCourse
from tests.torture.faults import PARTITIONS, Call, Fault
from tests.torture.invariants import ViolationError
from tests.torture.setups import (
    Kind,
    a_regions_setup,
    a_setup,
    a_shared_setup,
    some_key_limits,
    with_clock_difference,
    with_deadlines,
    with_deletions,
    with_drains,
    with_failures,
    with_hangs,
    with_quota_lag,
    with_requeues,
    with_stages,
)
from tests.torture.world import World, determined

BROKEN_SHARE = 0.95  # of the calls to a broken region fail
MISPLACED_SHARE = 0.1  # of the events claim another place
LATE_SHARE = 0.2  # of the faults that writes meet, besides those that chance makes late


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    faults: int
    violation: str | None
    story: tuple[str, ...]


class Walk:
    """One run, decided by its generator."""

    def __init__(
        self, rng: random.Random, *, trace: bool = False, kind: Kind = Kind.PLAIN, throttled: bool = False
    ) -> None:
        self._rng = rng
        # Of their own, so that all else is the same where they do nothing.
        harm = random.Random(str(rng.getstate()[1][:4]))
        keys = random.Random(f"keys {rng.getstate()[1][:4]}")
        limits = some_key_limits(keys, 1) if throttled else some_key_limits(keys)
        if kind is Kind.REGIONS:
            setup = a_regions_setup(rng, harm)
        else:
            setup = a_shared_setup(rng, harm) if kind is Kind.SHARED else a_setup(rng, harm, kind)
        self._regions = random.Random(f"regions {rng.getstate()[1][:4]}")
        setup = with_quota_lag(setup, random.Random(f"quota lag {rng.getstate()[1][:4]}"))
        setup = with_clock_difference(setup, random.Random(f"clocks {rng.getstate()[1][:4]}"))
        self._deletions = random.Random(f"deletions {rng.getstate()[1][:4]}")
        # The number is chosen so that no known seed of a planted bug is a walk with requeues.
        self._requeues = random.Random(f"requeues 297 {rng.getstate()[1][:4]}")
        setup = with_requeues(with_deletions(setup, self._deletions), self._requeues)
        # As for requeues: no known seed of a planted bug is a walk with deadlines, unless the bug is one of deadlines.
        self._deadlines = random.Random(f"deadlines 191 {rng.getstate()[1][:4]}")
        setup = with_deadlines(setup, self._deadlines)
        # The number is chosen so that no known seed of another planted bug is a walk with drains.
        self._drains = random.Random(f"drains 310 {rng.getstate()[1][:4]}")
        setup = with_drains(setup, self._drains)
        # The number is chosen so that no known seed of another planted bug is a walk with hangs.
        self._hangs = random.Random(f"hangs 45 {rng.getstate()[1][:4]}")
        setup = with_hangs(setup, self._hangs)
        # The number is chosen so that no known seed of another planted bug is a walk with failures.
        self._failures = random.Random(f"failures 234 {rng.getstate()[1][:4]}")
        # The number is chosen so that no known seed of another planted bug is a walk with stages.
        self._stages = random.Random(f"stages 5605 {rng.getstate()[1][:4]}")
        setup = with_stages(setup, self._stages)
        self._setup = replace(with_failures(setup, self._failures), key_limits=limits)
        self.world = World(self._setup, lambda count: rng.sample(range(count), count), trace=trace)
        self._actors = Actors(self.world, rng, self._deadlines, FailureCourse(self._failures))
        self._adversary = Adversary(self.world, self._actors, harm)
        self._ending = Ending(self.world, self._actors, rng)

    def run(self) -> None:
        """From the first submission to the end."""
        world, rng = self.world, self._rng
        world.say(str(self._setup))
        if self._setup.policy is not None:
            process = self._actors.apply(self._setup.policy)
            while not process.ended:
                world.resume(process)
        actions: list[tuple[Callable[[], None], float]] = [
            (self._submit, 6),
            (self._tick, 4),
            (self._deliver, 6),
            (self._end, 5),
            (self._pass_time, 3),
            (self._pass_much_time, 1),
            (self._land, 5),
            (self._actors.cancel, 1.2),
            (self._actors.change, 2),
            (self._actors.apply_policy, 0.5),
            (self._actors.tell_again, 1),
            (self._wake_up, 4),
            (self._spoil, 0.3),
        ]
        if self._setup.adversary:
            actions.append((self._adversary.act, self._setup.adversary))
        if self._setup.shared and self._setup.faults:
            actions.append((self._actors.fall_silent, 0.4))
        if self._setup.external:
            actions.append((self._actors.start_external, 1))
        for _ in range(self._setup.steps):
            rng.choices([act for act, _ in actions], [weight for _, weight in actions])[0]()
            self._delete()
            self._requeue()
            self._drain()
            self._hang()
            self._fail()
            self._progress()
            self._break_region()
            self._run_processes()
            self._actors.tell_of_agents()
        self._ending.run()

    # --- who goes on -----------------------------------------------------------------------------

    def _run_processes(self) -> None:
        """The invocations go on until somebody else gets a turn, or all have ended."""
        world, rng = self.world, self._rng
        current = world.processes[-1] if world.processes else None
        while current is not None:
            if rng.random() < self._setup.others:
                if len(world.processes) < 4 and rng.random() < 0.3:
                    return  # something happens in between
                current = rng.choice(world.processes)
                self._land()
            world.resume(current, self._fate(current.call))
            if current.ended:
                current = world.processes[-1] if world.processes else None
        if world.sound and self._setup.policy is None and not world.woken:
            self._ending.check_nothing_to_do()

    def _fate(self, call: Call | None) -> Fault:
        kind = call.kind if call else "get"
        launches_there = call is not None and call.kind == "create" and call.site
        if launches_there and self._setup.partitions and not self.world.broken and self._regions.random() < 0.3:
            self._break("swallows")
        broken = self.world.fate_of_broken(call, self._regions)
        if broken is not Fault.NONE and self._regions.random() < BROKEN_SHARE:
            return broken
        if kind == "create" and self._rng.random() < self._setup.scarce:
            return Fault.CAPACITY
        if self._rng.random() >= self._setup.faults:
            return Fault.NONE
        possible = self._setup.troubles[kind]
        if not possible:
            return Fault.NONE
        # The most treacherous: others act in between.
        return Fault.LATE if Fault.LATE in possible and self._rng.random() < LATE_SHARE else self._rng.choice(possible)

    # --- what happens ----------------------------------------------------------------------------

    def _submit(self) -> None:
        if self._actors.wants_more:
            for _ in range(self._rng.choice((1, 1, 1, 2, 3))):  # one by one, or many at once
                self._actors.submit()
        elif self._rng.random() < 0.1:
            self._actors.submit_again()

    def _tick(self) -> None:
        self._actors.tick()

    def _wake_up(self) -> None:
        """The invocation that another one has asked for begins; sometimes its event is lost."""
        if self.world.woken and self._setup.faults and self._rng.random() < 0.1:
            self.world.faults["wake-up lost"] += 1
            self.world.sound = False
            self.world.say(f"the wake-up by {self.world.woken.pop(0)} is lost")
        elif self.world.woken:
            self._actors.wake_up()

    def _spoil(self) -> None:
        if self._setup.faults:
            self.world.sound = False
            self._actors.spoil()

    def _deliver(self) -> None:
        """An event arrives, in any order, and perhaps not for the last time."""
        events, rng = self.world.events, self._rng
        if events:
            event = rng.choice(events)
            if rng.random() < 0.8:
                events.remove(event)
            else:
                self.world.faults["event doubled"] += 1
            self._actors.deliver(self._perhaps_misplaced(event))

    def _perhaps_misplaced(self, event: dict[str, Any]) -> dict[str, Any]:
        """Have an event claim another account or region, in some walks with two regions."""
        setup, rng = self._setup, self._regions
        if not setup.regions or not setup.faults or rng.random() >= MISPLACED_SHARE:
            return event
        if any(event["TrainingJobName"] == name_in(key).split()[0] for key in self.world.sagemaker.theirs):
            return event  # the event of a copy that claims the region of the attempt would be the attempt's
        self.world.faults["event misplaced"] += 1
        self.world.sound = False
        (site,) = setup.other_sites
        true = event.get(PLACE, (None, None))
        places = [(None, None), (site.account, site.region), ("333333333333", site.region), (None, "eu-west-1")]
        return {**event, PLACE: rng.choice([place for place in places if place != true])}

    def _break_region(self) -> None:
        """The other region breaks, works again, or is broken in another way."""
        world, rng = self.world, self._regions
        if not self._setup.partitions or rng.random() >= self._setup.partitions:
            return
        if world.broken and rng.random() < 0.5:
            world.say("the other region works again")
            world.broken.clear()
        else:
            swallowed = "swallows" in world.broken.values()  # calls may be under way that the next one does not see
            self._break("refuses" if swallowed else rng.choice(list(PARTITIONS)))

    def _break(self, mode: str) -> None:
        self.world.broken = {site.key: mode for site in self._setup.other_sites}
        self.world.faults["region broken"] += 1
        self.world.say(f"the other region is broken: {mode}")

    def _end(self) -> None:
        self._actors.end_some(tell=not self._setup.faults or self._rng.random() < 0.7)

    def _delete(self) -> None:
        if self._setup.deletions and self._deletions.random() < self._setup.deletions:
            self._actors.delete_some(self._deletions)

    def _requeue(self) -> None:
        if self._setup.requeues and self._requeues.random() < self._setup.requeues:
            self._actors.requeue(self._requeues)

    def _drain(self) -> None:
        if self._setup.drains and self._drains.random() < self._setup.drains:
            self._actors.drain(self._drains)

    def _hang(self) -> None:
        if self._setup.hangs and self._hangs.random() < self._setup.hangs:
            self._actors.notice_a_hang(self._hangs)

    def _fail(self) -> None:
        """An attempt fails in one of many ways, some time after its start, and its event may arrive at once."""
        rng = self._failures
        if self._setup.failures and rng.random() < self._setup.failures:
            if not self.world.processes:
                self.world.now += rng.choice((0, 0, 0, 310, 3700))
            told = not self._setup.faults or rng.random() < 0.7
            if self._actors.fail_some(tell=told) and told and rng.random() < 0.5:
                self._actors.deliver(self.world.events.pop())

    def _progress(self) -> None:
        if self._setup.stages and self._stages.random() < self._setup.stages:
            self._actors.progress_some(self._stages, loses=self._setup.faults > 0)

    def _pass_time(self) -> None:
        self.world.now += self._rng.choice((1, 5, 11, 30, 60)) if not self.world.processes else self._rng.random()

    def _pass_much_time(self) -> None:
        if self._setup.faults and (not self.world.processes or self._rng.random() < 0.3):
            self.world.now += self._rng.choice((60, 300, 1000, 4000))

    def _land(self) -> None:
        late = self.world.late
        if late and self._setup.deletions:  # an attempt may be deleted meanwhile, and so be launched again
            sagemaker = self.world.sagemaker
            free = {it for it in sagemaker.former if it not in sagemaker.jobs}
            late = [
                it for it in late if it.call.kind != "create" or it.call.words in free or self._deletions.random() < 0.2
            ]
        if late:
            self.world.land(self._rng.choice(late))


def walk(seed: int, *, trace: bool = False, kind: Kind = Kind.PLAIN, throttled: bool = False) -> Outcome:
    """One run, the same for the same seed.

    :param kind: what most jobs are.
    :param throttled: whether keys are throttled in any case, and not in a share of the walks only.
    """
    with determined(seed) as rng:
        it = Walk(rng, trace=trace, kind=kind, throttled=throttled)
        violation = None
        try:
            it.run()
        except ViolationError as error:
            violation = str(error)
        return Outcome(sum(it.world.faults.values()), violation, tuple(it.world.story))
