"""A run of simulations in the background: its result, its errors, and its end with whatever has started it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from sagemaker_queue.errors import InvalidOption, TooMany
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.workflows import settings_advice
from sagemaker_queue.workflows.advice_run import AdviceProgress, AdviceRun
from sagemaker_queue.workflows.settings_advice import REQUIRED_PYTHON
from tests.client.cli.commands.test_policy_advise import APPLIED, DAY, HOUR, answer, four_weeks, week
from tests.programs import command_of, started
from tests.waiting import PATIENCE, has_ended, until

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.skipif(sys.version_info < REQUIRED_PYTHON, reason="the simulator needs a newer Python")
# A program as `smq ui`: it starts a run, prints the process of the simulations, and waits.
PROGRAM = """
import json, signal, sys, time
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.workflows.advice_run import AdviceProgress, AdviceRun

run = AdviceRun(QueueClient(url=sys.argv[1]), 4, 1000.0)
while not isinstance(run.progress, AdviceProgress):
    assert run.is_running, run.outcome
    time.sleep(0.05)
print(json.dumps(run._process.pid), flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def runs() -> Iterator[list[AdviceRun]]:
    """The runs that a test starts, which end with it."""
    started: list[AdviceRun] = []
    yield started
    for run in started:
        run.cancel()
        ended(run)


def ended(run: AdviceRun) -> AdviceRun:
    until(lambda: not run.is_running)
    return run


def simulations() -> list[psutil.Process]:
    """The processes that this process has started for simulations."""
    return [child for child in psutil.Process().children() if any("spawn_main" in word for word in command_of(child))]


def a_long_history() -> list[dict[str, Any]]:
    """Return a history whose simulations take many minutes."""
    return [attempt for number in range(60) for attempt in week(number * 7 * DAY / 60 + 9 * HOUR)]


@pytest.mark.thorough
def test_the_result_of_the_simulations(server: ScriptedServer, queue: QueueClient, runs: list[AdviceRun]) -> None:
    mondays = [attempt for number in range(5) for attempt in islice(week(number * DAY), 20)]
    small = {"pools": [{"name": "p5", "capacity": 2}], "projects": [{"name": "vision", "quota": {"p5": 2}}]}
    answer(server, mondays, {**APPLIED, "policy": small})
    runs.append(run := AdviceRun(queue, 4, 1000.0))
    ended(run)
    assert isinstance(run.progress, AdviceProgress)
    assert run.progress.expected > run.progress.done > 1
    assert not isinstance(run.outcome, str), run.outcome
    assert run.outcome.basis == "Simulated: 100 jobs in 4.0 days."
    assert run.outcome.settings["order"] == "shortest"
    assert run.outcome.lines[0] == "settings:"
    assert "  order: shortest" in run.outcome.lines
    assert run.outcome.classes[0][:2] == ("all", "100")
    assert (run.policy and run.policy.version, simulations()) == (APPLIED["version"], [])


def test_too_little_history(server: ScriptedServer, queue: QueueClient, runs: list[AdviceRun]) -> None:
    answer(server, four_weeks()[:50])
    runs.append(run := AdviceRun(queue, 4, 5.0))
    ended(run)
    assert not isinstance(run.outcome, str), run.outcome
    assert "100 finished jobs over 3 days at least are needed" in run.outcome.conclusion
    assert (run.outcome.rows, run.outcome.lines, run.progress) == ((), (), 50)


def test_errors_are_messages(server: ScriptedServer, queue: QueueClient, runs: list[AdviceRun]) -> None:
    old = [{**each, "project": "old"} for each in four_weeks()]
    two = {**APPLIED["policy"], "projects": [{"name": "vision"}, {"name": "nlp"}]}
    answer(server, old, {**APPLIED, "policy": two})
    runs.append(run := AdviceRun(queue, 4, 5.0))
    ended(run)
    assert isinstance(run.outcome, str)
    assert "The history cannot be simulated: the policy has no project old (168 jobs)" in run.outcome

    answer(server, four_weeks(), {**APPLIED, "policy": {"newer": 1}})
    runs.append(run := AdviceRun(queue, 4, 5.0))
    ended(run)
    assert isinstance(run.outcome, str)
    assert "The policy in force cannot be read by this version of smq" in run.outcome

    server.answers(403, {"message": "no"})
    runs.append(run := AdviceRun(queue, 4, 5.0))
    ended(run)
    assert isinstance(run.outcome, str)


def test_an_older_python_is_refused(queue: QueueClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_advice, "REQUIRED_PYTHON", (99, 0))
    with pytest.raises(InvalidOption, match="Advice on settings needs Python 99.0 or newer"):
        AdviceRun(queue, 4, 5.0)


def test_one_run_at_a_time_and_its_cancellation(
    server: ScriptedServer, queue: QueueClient, runs: list[AdviceRun]
) -> None:
    answer(server, a_long_history())
    runs.append(run := AdviceRun(queue, 4, 1000.0))
    with pytest.raises(TooMany, match="one simulation runs at a time"):
        AdviceRun(queue, 4, 5.0)
    until(lambda: isinstance(run.progress, AdviceProgress))
    assert len(simulations()) == 1
    run.cancel()
    ended(run)
    assert (run.outcome, simulations()) == ("Cancelled.", [])
    run.cancel()

    answer(server, four_weeks()[:10])
    runs.append(AdviceRun(queue, 4, 5.0))


def test_a_cancellation_while_the_history_is_read(
    server: ScriptedServer, queue: QueueClient, runs: list[AdviceRun]
) -> None:
    server.answers(200, APPLIED)
    server.always_answers(200, {"attempts": four_weeks()[:10], "next": "more"})  # without end
    runs.append(run := AdviceRun(queue, 4, 5.0))
    until(lambda: run.progress != 0)
    run.cancel()
    ended(run)
    assert run.outcome == "Cancelled."


def test_a_process_that_is_killed_is_no_result(
    server: ScriptedServer, queue: QueueClient, runs: list[AdviceRun]
) -> None:
    answer(server, a_long_history())
    runs.append(run := AdviceRun(queue, 4, 1000.0))
    until(lambda: isinstance(run.progress, AdviceProgress))
    (process,) = simulations()
    process.kill()
    ended(run)
    assert run.outcome == "The simulation ended without a result."


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_simulations_end_with_their_program(end: signal.Signals, server: ScriptedServer) -> None:
    answer(server, a_long_history())
    command = [sys.executable, "-c", PROGRAM, server.url]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout
        pid = json.loads(program.stdout.readline())
        if end == signal.SIGINT:
            os.killpg(program.pid, end)  # as Ctrl-C in a terminal
        else:
            program.send_signal(end)
        _, errors = program.communicate(timeout=PATIENCE)  # the simulations have the same standard error
    until(lambda: has_ended(pid))
    assert errors.count("Traceback") == (end == signal.SIGINT), "of the program alone"
