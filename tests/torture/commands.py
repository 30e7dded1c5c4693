"""The work behind the command line: shares it out over the cores, and says how far it is."""

import gc
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing import active_children
from typing import Any, TypeVar

from tests.torture.planted import BUGS, planted
from tests.torture.scenarios import SCENARIOS
from tests.torture.search import Budget, Found, Search
from tests.torture.setups import Kind
from tests.torture.walks import walk
from tests.torture.world import SURPRISE

T = TypeVar("T")
CHUNK = 20  # walks that a worker does at a time
PROGRESS_SECONDS = 10


@dataclass(slots=True)
class Walks:
    """What a number of walks came to."""

    runs: int = 0
    faults: int = 0
    seed: int | None = None  # of the first violation
    violation: str | None = None
    story: tuple[str, ...] = ()


def walk_some(
    seeds: Iterable[int], plant: str | None = None, *, kind: Kind = Kind.PLAIN, throttled: bool = False
) -> Walks:
    """Walks one after the other, up to a violation."""
    done = Walks()
    with planted(plant), few_collections():
        for seed in seeds:
            outcome = walk(seed, kind=kind, throttled=throttled)
            done.runs += 1
            done.faults += outcome.faults
            if outcome.violation:
                done.seed, done.violation, done.story = seed, outcome.violation, outcome.story
                break
    return done


def walks(
    first: int,
    runs: int | None,
    seconds: float | None,
    workers: int,
    plant: str | None,
    *,
    kind: Kind = Kind.PLAIN,
    throttled: bool = False,
) -> Walks:
    """Walks from a seed on, so many or for so long; stops at a violation, or when interrupted."""
    began, told = time.monotonic(), float("-inf")  # the first chunk is told of at once
    total = Walks()
    last = first + runs if runs is not None else None
    chunks = (range(at, min(at + CHUNK, last or at + CHUNK)) for at in count(first, CHUNK))

    def wanted() -> Iterator[Callable[[], Walks]]:
        for chunk in chunks:
            if not chunk or (seconds is not None and time.monotonic() - began > seconds):
                return
            yield partial(walk_some, chunk, plant, kind=kind, throttled=throttled)

    with suppress(KeyboardInterrupt):
        for done in shared_out(wanted(), workers):
            total.runs += done.runs
            total.faults += done.faults
            if done.violation:
                total.seed, total.violation, total.story = done.seed, done.violation, done.story
                break
            if time.monotonic() - told > PROGRESS_SECONDS:
                told = time.monotonic()
                print(f"  {told - began:,.0f} s: {total.runs:,} runs, {total.faults:,} faults", flush=True)
    return total


def search_some(name: str, budget: Budget, seconds: float, plant: str | None = None) -> tuple[str, Found, int]:
    """A search of one scenario; gives also how many of its runs were not made for lack of time."""
    search, began = Search(SCENARIOS[name], budget), time.monotonic()
    with planted(plant), few_collections():
        for _ in search.steps():
            if time.monotonic() - began > seconds:
                break
    return name, search.found, search.left


def searches(budget: Budget, seconds: float, workers: int, plant: str | None) -> Iterator[tuple[str, Found, int]]:
    """All scenarios, each for so long at most."""
    return shared_out((partial(search_some, name, budget, seconds, plant) for name in SCENARIOS), workers)


def hunt(plant: str, runs: int, seconds: float, *, known_first: bool = False) -> tuple[str, str | None, str]:
    """Look for a planted bug: how it was found, and the invariant that it broke.

    :param known_first: look first where it was found before.
    """
    bug = BUGS[plant]
    scenarios = SCENARIOS if bug.kind is Kind.PLAIN else ()
    known = _hunt(plant, bug.seeds, bug.scenarios, seconds, kind=bug.kind) if known_first else None
    how, violation = known or _hunt(plant, range(runs), scenarios, seconds, kind=bug.kind) or (None, "")
    if SURPRISE in violation:
        raise RuntimeError(f"{plant} is no bug that could be found, it breaks the product at once: {violation}")
    return plant, how, violation


def _hunt(
    plant: str, seeds: Iterable[int], scenarios: Iterable[str], seconds: float, *, kind: Kind
) -> tuple[str, str] | None:
    done = walk_some(seeds, plant, kind=kind)
    if done.violation:
        return f"walk {done.seed}{'' if kind is Kind.PLAIN else f' ({kind})'}", done.violation
    for name in scenarios:
        _, found, _ = search_some(name, Budget(deviations=1), seconds, plant)  # what is shallow, everywhere
        if found.violation:
            return f"search {name}, run {found.runs}", found.violation
    return None


def shared_out(work: Iterator[Callable[[], T]], workers: int) -> Iterator[T]:
    """Do work in so many processes, as it comes, and give what is done. Not heard to the end, it ends at once."""
    with ProcessPoolExecutor(workers, initializer=_stand_back) as pool:
        under_way: set[Future[Any]] = set()
        try:
            for task in work:
                with _undisturbed():  # the first ones start the processes; left halfway, the pool would never end
                    under_way.add(pool.submit(task))
                if len(under_way) >= 2 * workers:
                    done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            while under_way:
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        except BaseException:
            for child in active_children():
                child.terminate()
            raise


@contextmanager
def few_collections() -> Iterator[None]:
    """Python looks for garbage less often: what is there lives long, and a walk leaves little."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Whoever interrupts waits a moment."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cores() -> int:
    """How many processes work at a time, unless told otherwise."""
    return os.cpu_count() or 1


def _stand_back() -> None:
    """An interrupt is the parent's to handle, and whoever works at this machine goes first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(10)
