"""The simulated world in the ordinary tests: the same few runs every time. `make torture` does the rest."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.torture.commands import hunt, walk_some
from tests.torture.planted import BUGS, planted
from tests.torture.scenarios import SCENARIOS
from tests.torture.search import Budget, Search
from tests.torture.setups import Kind
from tests.torture.walks import walk
from tests.waiting import PATIENCE

pytestmark = pytest.mark.timeout(1800)  # a planted bug may take 2,000 walks

ROOT = Path(__file__).parent.parent.parent


@contextmanager
def command(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command at work; nothing of it is left afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "tests.torture", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"},
        start_new_session=True,
        # A shell has what it runs in the background ignore it, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    with process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("seeds", [range(100), range(100, 200)], ids=str)
def test_walks_violate_nothing(seeds: range) -> None:
    done = walk_some(seeds)
    assert done.violation is None, f"seed {done.seed}: {done.violation}"
    assert done.faults > 700


@pytest.mark.thorough
@pytest.mark.parametrize("kind", list(Kind))
def test_walks_with_throttled_keys_violate_nothing(kind: Kind) -> None:
    done = walk_some(range(20), kind=kind, throttled=True)
    assert done.violation is None, f"seed {done.seed}: {done.violation}"
    assert done.faults > 250


@pytest.mark.thorough
def test_walks_with_interactive_jobs_violate_nothing() -> None:
    """Document 002: within quota they come first, beyond it they wait, and they are never preempted."""
    done = walk_some(range(60), kind=Kind.INTERACTIVE)
    assert done.violation is None, f"seed {done.seed}: {done.violation}"
    assert done.faults > 250


@pytest.mark.thorough
def test_walks_with_carriers_violate_nothing() -> None:
    done = walk_some(range(50), kind=Kind.SHARED)
    assert done.violation is None, f"seed {done.seed}: {done.violation}"
    assert done.faults > 700


@pytest.mark.thorough
def test_walks_with_two_regions_violate_nothing() -> None:
    done = walk_some(range(60), kind=Kind.REGIONS)
    assert done.violation is None, f"seed {done.seed}: {done.violation}"
    assert done.faults > 3000


@pytest.mark.thorough
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_search_violates_nothing(name: str) -> None:
    search = Search(SCENARIOS[name], Budget())
    for found in search.steps():
        if found.runs == 120:
            break
    assert found.violation is None, f"choices {list(found.choices)}: {found.violation}"
    assert found.states > 100


@pytest.mark.thorough
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    # No search ends early on a slow machine: one of them takes a minute or, where the machine is busy, several.
    _, how, violation = hunt(name, runs=2000, seconds=PATIENCE, known_first=True)
    assert how, name
    assert violation


def test_seventy_six_bugs_are_planted() -> None:
    assert len(BUGS) == 76


def test_a_violation_replays_exactly() -> None:
    with planted("slot-freed-at-stop-request"):
        found = walk_some(range(1000), None)
        assert found.seed is not None
        again = walk(found.seed)
    assert (again.violation, again.story) == (found.violation, found.story)
    assert walk(found.seed).violation is None


def test_a_search_replays_exactly() -> None:
    with planted("no-intent"):
        search = Search(SCENARIOS["two-submissions"], Budget())
        found = list(search.steps())[-1]
        assert found.violation
        again = Search(SCENARIOS["two-submissions"], Budget())
        again.run(found.choices)
    assert (again.found.violation, again.found.story) == (found.violation, found.story)


def test_the_command_tells_a_violation_and_how_to_replay_it() -> None:
    with command("walks", "--runs", "200", "--plant", "no-intent") as first:
        told, errors = first.communicate(timeout=PATIENCE)
    assert first.returncode == 1, errors
    (replay,) = [line for line in told.splitlines() if line.startswith("Replay it: ")]
    violation = next(line for line in told.splitlines() if line.startswith("VIOLATION: "))
    with command(*replay.partition("tests.torture ")[2].split()) as second:
        told, errors = second.communicate(timeout=PATIENCE)
    assert second.returncode == 1, errors
    assert violation.removeprefix("VIOLATION: ") in told


def test_a_search_is_interrupted_at_once() -> None:
    with command("search", "--seconds", "500", "--workers", "2") as process:
        told, errors = interrupted(process)
    assert "interrupted" in told
    assert "Traceback" not in errors


def test_an_interrupted_command_says_what_it_did() -> None:
    with command("walks", "--seconds", "600", "--workers", "1") as process:
        told, errors = interrupted(process)
    assert "no violation" in told
    assert "Traceback" not in errors
    assert process.returncode == 0


def interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Ctrl-C once it has said something; gives what else it says."""
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=PATIENCE)
