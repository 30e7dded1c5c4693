"""A systematic search: two jobs, one slot, two invocations, and everything that may happen to their calls.

At every call the search may let the other invocation go first, or fail the call in any way that its kind can fail;
a late call may take effect at any later point. Each run follows one list of choices; where the list ends, nothing
unusual happens, and what could have been chosen instead makes further lists. A state that was seen before, with
no less left to spend, is not gone on from.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from tests.torture.actors import Actors
from tests.torture.ending import Ending
from tests.torture.faults import Fault, LateCall
from tests.torture.invariants import ViolationError
from tests.torture.process import Process
from tests.torture.scenarios import Scenario
from tests.torture.world import World, determined

_READ = (Fault.UNSENT, Fault.KILLED_BEFORE)
_WRITE = (Fault.LATE, Fault.KILLED_LATE)
SEARCHED: dict[str, tuple[Fault, ...]] = {
    "get": _READ,
    "query": _READ,
    "describe": _READ,
    "list": _READ,
    "log": _READ,
    "transact": _WRITE,
    "update": (*_WRITE, Fault.TWICE),
    "stop": (*_WRITE, Fault.TWICE),
    "release": (*_WRITE, Fault.TWICE),
    "create": (*_WRITE, Fault.THROTTLED, Fault.CAPACITY),
}
"""The faults of each kind of call that differ: a late call may land at once, or never, so it covers one that is lost
and one whose answer is; and being throttled differs from no answer where SageMaker launches only."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may spend. Runs without a fault may switch as often as they like: all interleavings are searched."""

    deviations: int = 3  # of a run with faults: these, and the times that an invocation is left for the other

    def allows(self, faults: int, switches: int) -> bool:
        """Whether there may be a run with so many."""
        return not faults or faults + switches <= self.deviations

    def spent(self, faults: int, switches: int) -> tuple[bool, int]:
        """What a run has used of it; one that has used no more of either may do all that the other may."""
        return faults > 0, min(faults + switches, self.deviations)


@dataclass(frozen=True, slots=True)
class Choice:
    """Something that may be done now."""

    words: str
    act: Callable[[], None]
    faults: int = 0
    switches: int = 0


@dataclass(slots=True)
class Found:
    """What a search has come to so far."""

    runs: int = 0
    faults: int = 0
    states: int = 0
    deviations: int = 0  # every run with fewer of them has been made
    violation: str | None = None
    choices: bytes = b""  # that lead to the violation
    story: list[str] = field(default_factory=list)  # of the latest run


class Search:
    """All runs of a scenario within a budget."""

    def __init__(self, scenario: Scenario, budget: Budget) -> None:
        self.found = Found()
        self._scenario = scenario
        self._budget = budget
        self._seen: dict[int, list[tuple[bool, int]]] = {}
        self._ahead: list[tuple[int, bytes]] = [(0, b"")]  # fewest deviations first

    def steps(self) -> Iterator[Found]:
        """Run after run, until all are done or an invariant is violated."""
        while self._ahead and self.found.violation is None:
            self.found.deviations, choices = heappop(self._ahead)
            self.run(choices)
            yield self.found

    @property
    def left(self) -> int:
        """Runs that are known and not made."""
        return len(self._ahead)

    def run(self, choices: bytes) -> None:
        """The run that makes these choices first."""
        with determined(0):
            run = Run(self._scenario)
            try:
                self._follow(run, choices)
            except ViolationError as error:
                self.found.violation, self.found.choices = str(error), run.made
            self.found.story = run.world.story
            self.found.runs += 1
            self.found.faults += sum(run.world.faults.values())
            self.found.states = len(self._seen)

    def _follow(self, run: "Run", choices: bytes) -> None:
        while options := run.options():
            number = 0
            if len(run.made) < len(choices):
                number = choices[len(run.made)]
            else:
                if self._is_known(run):
                    return
                self._look_ahead(run, options)
            run.take(number, options)
        if len(run.made) < len(choices) or not self._is_known(run):
            run.end()

    def _is_known(self, run: "Run") -> bool:
        """Whether a run has been here with as much left to spend."""
        spent = self._budget.spent(run.faults, run.switches)
        before = self._seen.setdefault(run.state(), [])
        if any(faulty <= spent[0] and deviations <= spent[1] for faulty, deviations in before):
            return True
        before.append(spent)
        return False

    def _look_ahead(self, run: "Run", options: list[Choice]) -> None:
        for number, option in enumerate(options):
            if number and self._budget.allows(run.faults + option.faults, run.switches + option.switches):
                deviations = run.faults + run.switches + option.faults + option.switches
                heappush(self._ahead, (deviations, run.made + bytes([number])))


class Run:
    """One run of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.world = World(scenario.setup, call_seconds=0, digests=True)
        self.made = b""  # the number of each choice so far
        self.faults = 0
        self.switches = 0
        self._actors = Actors(self.world, random.Random(0))
        scenario.prepare(self.world, self._actors)
        self.world.story.clear()
        self.world.faults.clear()
        self._processes = scenario.begin(self._actors)
        self._current = self._processes[0]
        self._last = ""

    def options(self) -> list[Choice]:
        """What may happen next; the first is the ordinary course."""
        world, current = self.world, self._current
        if not world.processes:
            return [Choice("no more", world.late.clear), *self._landings(world.late)] if world.late else []
        if current.ended:
            current = self._current = world.processes[0]
        assert current.call
        # A late call that takes effect before a call with which it has nothing in common may do so after it as well.
        late = self._landings([it for it in world.late if it.call.meets(current.call)])
        kind = current.call.kind
        fail = [
            Choice(fault, lambda fault=fault: world.resume(current, fault), faults=1)  # type: ignore[misc]
            for fault in SEARCHED[kind]
            if not (fault is Fault.KILLED_BEFORE and self._last == "read")  # it could have been killed before that
        ]
        others = [it for it in world.processes if it is not current and self._last != "switch"]
        switch = [Choice("switch", lambda it=it: self._go_to(it), switches=1) for it in others]  # type: ignore[misc]
        go_on = Choice("read" if SEARCHED[kind] is _READ else "write", lambda: world.resume(current, Fault.NONE))
        return [go_on, *fail, *switch, *late]

    def _landings(self, late: list[LateCall]) -> list[Choice]:
        return [Choice("late", lambda it=it: self.world.land(it)) for it in late]  # type: ignore[misc]

    def take(self, number: int, options: list[Choice]) -> None:
        """Do what was chosen."""
        self.made += bytes([number])
        self.faults += options[number].faults
        self.switches += options[number].switches
        self._last = options[number].words
        options[number].act()

    def end(self) -> None:
        """Both invocations have ended."""
        ending = Ending(self.world, self._actors, random.Random(0))
        if self.world.sound:
            ending.check_nothing_to_do()
        ending.run()

    def state(self) -> int:
        """A digest of everything that the future depends on."""
        world = self.world
        return hash(
            (
                world.now,
                world.sound,
                self._processes.index(self._current),
                tuple(None if process.ended else process.knowledge for process in self._processes),
                tuple(sorted((late.call.kind, late.call.words, late.expires_at) for late in world.late)),
                world.tables.digest(),
                repr((world.sagemaker.jobs, world.sagemaker.warm_pools)),
            )
        )

    def _go_to(self, process: Process) -> None:
        self._current = process
