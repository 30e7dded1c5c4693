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
from tests.torture.faults import FAULTS, Fault
from tests.torture.invariants import ViolationError
from tests.torture.process import Process
from tests.torture.scenarios import Scenario
from tests.torture.world import World, determined


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may spend. Runs without a fault may switch as often as they like: all interleavings are searched."""

    faults: int = 3
    deviations: int = 3  # of a run with faults: these, and the times that an invocation is left for the other

    def allows(self, faults: int, switches: int) -> bool:
        """Whether there may be a run with so many."""
        return not faults or (faults <= self.faults and faults + switches <= self.deviations)


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
    choices: tuple[int, ...] = ()  # that lead to the violation
    story: list[str] = field(default_factory=list)  # of the latest run


class Search:
    """All runs of a scenario within a budget."""

    def __init__(self, scenario: Scenario, budget: Budget) -> None:
        self.found = Found()
        self._scenario = scenario
        self._budget = budget
        self._seen: dict[int, list[tuple[int, int]]] = {}
        self._ahead: list[tuple[int, tuple[int, ...]]] = [(0, ())]  # fewest deviations first

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

    def run(self, choices: tuple[int, ...]) -> None:
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

    def _follow(self, run: "Run", choices: tuple[int, ...]) -> None:
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
        spent = (run.faults, run.switches)
        before = self._seen.setdefault(run.state(), [])
        if any(faults <= spent[0] and switches <= spent[1] for faults, switches in before):
            return True
        before.append(spent)
        return False

    def _look_ahead(self, run: "Run", options: list[Choice]) -> None:
        for number, option in enumerate(options):
            if number and self._budget.allows(run.faults + option.faults, run.switches + option.switches):
                deviations = run.faults + run.switches + option.faults + option.switches
                heappush(self._ahead, (deviations, (*run.made, number)))


class Run:
    """One run of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.world = World(scenario.setup, call_seconds=0, digests=True)
        self.made: tuple[int, ...] = ()
        self.faults = 0
        self.switches = 0
        self._actors = Actors(self.world, random.Random(0))
        scenario.prepare(self.world, self._actors)
        self.world.story.clear()
        self.world.faults.clear()
        self._processes = scenario.begin(self._actors)
        self._current = self._processes[0]

    def options(self) -> list[Choice]:
        """What may happen next; the first is the ordinary course."""
        world, current = self.world, self._current
        late = [Choice("late", lambda it=it: world.land(it)) for it in world.late]  # type: ignore[misc]
        if not world.processes:
            return [Choice("no more", world.late.clear), *late] if late else []
        if current.ended:
            current = self._current = world.processes[0]
        kind = current.call.kind if current.call else "get"
        fail = [
            Choice(fault, lambda fault=fault: world.resume(current, fault), faults=1)  # type: ignore[misc]
            for fault in FAULTS[kind]
        ]
        others = [it for it in world.processes if it is not current]
        switch = [Choice("switch", lambda it=it: self._go_to(it), switches=1) for it in others]  # type: ignore[misc]
        return [Choice("go on", lambda: world.resume(current, Fault.NONE)), *fail, *switch, *late]

    def take(self, number: int, options: list[Choice]) -> None:
        """Do what was chosen."""
        self.made = (*self.made, number)
        self.faults += options[number].faults
        self.switches += options[number].switches
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
                tuple((process.ended, process.killed, process.knowledge) for process in self._processes),
                tuple(sorted((late.call.kind, late.call.words, late.dead) for late in world.late)),
                world.tables.digest(),
                repr(world.sagemaker.jobs),
            )
        )

    def _go_to(self, process: Process) -> None:
        self._current = process
