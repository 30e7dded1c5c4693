"""Simulate the jobs of a trace under one or several policies, and print the outcomes (`smq simulate`)."""

import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import yaml

from job_queue.scheduler import DEFAULT, UNLIMITED, DocumentError, Order, Policy, Pool, Project, policy_from_document
from job_queue.simulation.experiments.advice import Advisor, SettingsAdvice, ShowProgress, TimeLimit
from job_queue.simulation.experiments.advice_report import advice_as_json, advice_page
from job_queue.simulation.experiments.experiment import Experiment
from job_queue.simulation.options import SimulationOptions
from job_queue.simulation.report import PolicyOutcome, as_json, html_page, readable, text_page
from job_queue.simulation.trace import (
    DRAWN_PRIORITIES,
    Regrouping,
    TraceConversion,
    TraceError,
    TraceJob,
    capacity_for,
    read_trace,
    shares_of_work,
)
from job_queue.simulation.workload import Overheads

DONE, NO_ADVICE, USAGE, INTERRUPTED = 0, 1, 2, 130
PROGRESS_INTERVAL = 0.5  # seconds between two progress lines
BAR_CHARACTERS = 20  # characters of the progress bar


class UnusableError(ValueError):
    """An error because an input cannot be simulated. The message says why."""


def simulate(options: SimulationOptions, screen: TextIO | None = None, width: int | None = None) -> int:
    """Simulate, print the outcome, and return the exit status.

    The status is 0 after success, 2 if an input is wrong, and 130 after Ctrl-C. If advice was requested, the status is
    1 if the trace or the time does not suffice for advice.

    :param screen: the stream for the progress line, which is shown on a terminal only; None: the standard error.
    :param width: columns of the terminal; None: the output is not a terminal.
    """
    try:
        found, status = _answer(options, screen or sys.stderr, width)
    except (TraceError, DocumentError, UnusableError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename}: {error.strerror}")
    except KeyboardInterrupt:
        return _refuse("interrupted; nothing was written", INTERRUPTED)
    try:
        print(found, flush=True)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        sys.stdout = None  # otherwise the interpreter would flush the stream at exit, and fail
    return status


def _refuse(message: str, status: int = USAGE) -> int:
    print(f"smq: {message}", file=sys.stderr)
    return status


def _answer(options: SimulationOptions, screen: TextIO, width: int | None) -> tuple[str, int]:
    """Return the text to print, and the exit status."""
    if options.advise and (options.compare or options.shared or options.html):
        raise UnusableError("--advise compares settings of one policy: leave out --compare, --shared and --html")
    with ProgressLine(screen) as progress:
        progress.show(f"Reading {options.trace.name}")
        simulations = _Simulations(options, progress)
        if options.advise:
            advice = simulations.advice()
            found = advice_as_json(advice) if options.json else advice_page(advice, width)
            return _json_or_text(found), DONE if advice.insufficient is None else NO_ADVICE
        outcomes = simulations.run()
    if options.html:
        options.html.write_text(html_page(simulations.options, outcomes), encoding="utf-8")
        print(f"{options.html} is written.", file=sys.stderr)
    by_program = options.json
    return _json_or_text(
        as_json(simulations.options, outcomes) if by_program else text_page(simulations.options, outcomes, width)
    ), DONE


def _json_or_text(found: object) -> str:
    return found if isinstance(found, str) else json.dumps(found, indent=2)


class _Simulations:
    """A simulation of the same jobs for each policy.

    Without the option `priorities`, jobs keep the priorities of the trace. If the trace has no priorities, they are
    drawn by DRAWN_PRIORITIES, which the attribute `options` then contains.
    """

    def __init__(self, options: SimulationOptions, progress: "ProgressLine") -> None:
        self._progress = progress
        self._trace = Regrouping(options.map_project, options.exclude_project).apply(read_trace(options.trace))
        priorities = options.priorities
        if priorities is None:
            priorities = () if any(job.priority is not None for job in self._trace) else DRAWN_PRIORITIES
        self.options = replace(options, priorities=priorities)
        self._reading = TraceConversion(options.gpus_per_instance, priorities, options.longest, options.seed)
        overheads = Overheads(options.provisioning, options.stopping, options.checkpoint_every)
        self._experiment = Experiment(self._reading, overheads, options.runtimes, options.max_factor)

    def run(self) -> list[PolicyOutcome]:
        """Return the outcomes, in the order in which the policies were given."""
        policies = self._policies()
        if self.options.shared:
            policies = [each for label, policy in policies for each in ((label, policy), self._shared(label, policy))]
        return [self._outcome(label, policy) for label, policy in policies]

    def advice(self) -> SettingsAdvice:
        """Return advice on the settings of the policy."""
        ((_, policy),) = self._policies()
        limit = TimeLimit(time.monotonic, self.options.minutes * 60)
        return Advisor(policy, self._experiment.outcome, limit, self._progress.show_advice(limit.seconds)).advise(
            self._trace
        )

    def _policies(self) -> list[tuple[str, Policy]]:
        paths = (self.options.policy, *self.options.compare)
        policies = [(path.name, self._in_order(_policy(path))) for path in paths if path]
        if not self.options.policy:
            policies.insert(0, ("no policy", self._in_order(self._without_policy())))
        return [(label, _checked_for_limits(label, self._with_capacity(policy))) for label, policy in policies]

    def _outcome(self, label: str, policy: Policy) -> PolicyOutcome:
        def watch(title: str, ended: int, jobs: int) -> None:
            self._progress.show(f"{label}: {title}: {ended:,} of {jobs:,} jobs have ended")

        return self._experiment.outcome(label, policy, self._trace, watch)

    def _shared(self, label: str, policy: Policy) -> tuple[str, Policy]:
        """Return the label and the policy with shared instances in every pool."""
        gpus = self.options.gpus_per_instance
        pools = (replace(pool, gpus=gpus if pool.gpus is None else pool.gpus) for pool in policy.pools)
        return f"{label}, shared", replace(policy, pools=tuple(pools))

    def _without_policy(self) -> Policy:
        """Return a policy with one pool and one project or, with the option `groups`, a project for each group."""
        anyone = Policy((Pool(DEFAULT),), (Project(DEFAULT),))
        capacity = self.options.capacity or capacity_for(self._reading.jobs(self._trace, anyone), self.options.load)
        quotas = {DEFAULT: capacity}
        if self.options.groups:
            rows = ((row, self._reading.work(row) * self._reading.instances(row)) for row in self._trace)
            quotas = shares_of_work(((row.group or DEFAULT, work) for row, work in rows), capacity)
        projects = tuple(Project(name, quota={DEFAULT: quota}) for name, quota in quotas.items())
        return Policy((Pool(DEFAULT, capacity),), projects)

    def _in_order(self, policy: Policy) -> Policy:
        if self.options.order is None:
            return policy
        return replace(policy, settings=replace(policy.settings, order=Order(self.options.order)))

    def _with_capacity(self, policy: Policy) -> Policy:
        if self.options.capacity is None:
            return policy
        first, *others = policy.pools
        return replace(policy, pools=(replace(first, capacity=self.options.capacity), *others))


def _policy(path: Path) -> Policy:
    """Read a policy document in YAML or JSON.

    :raises UnusableError: the file is neither YAML nor JSON, or the policy has no project or no pool.
    :raises DocumentError: the document is not a policy.
    :raises OSError: the file cannot be read.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise UnusableError(f"{path} is neither YAML nor JSON: {' '.join(str(error).split())}") from None
    policy = policy_from_document(document, str(path))
    if not policy.projects or not policy.pools:
        raise UnusableError(f"{path} has no project or no pool")
    return policy


def _checked_for_limits(label: str, policy: Policy) -> Policy:
    """Return the policy unchanged, after a check that each pool has a capacity.

    :raises UnusableError: a pool has no capacity, because its training plan would limit it.
    """
    for pool in policy.pools:
        if pool.capacity >= UNLIMITED:
            raise UnusableError(
                f"{label}: pool {pool.name} has no capacity, and a simulation does not read its training plan: "
                "add the plan's number of instances as the capacity of the pool"
            )
    return policy


@dataclass
class ProgressLine:
    """A line on a terminal that shows the progress of a simulation."""

    screen: TextIO
    _shown: float | None = None  # time of the last line
    _is_terminal: bool = False

    def __enter__(self) -> "ProgressLine":
        self._is_terminal = self.screen.isatty()
        return self

    def show(self, text: str) -> None:
        """Show a line on a terminal, at most once per PROGRESS_INTERVAL."""
        now = time.monotonic()
        if self._is_terminal and (self._shown is None or now - self._shown > PROGRESS_INTERVAL):
            self._shown = now
            # Names in a trace are user input: a terminal must not interpret their control characters.
            line = "".join(letter if letter.isprintable() else "?" for letter in text)
            line = line[: shutil.get_terminal_size().columns - 1]
            print(f"\r{line}", end="\x1b[K", file=self.screen, flush=True)

    def show_advice(self, seconds: float) -> ShowProgress:
        """Return a function that shows the progress of the search for settings.

        :param seconds: the time limit of the search.
        """

        def show(title: str, done: int, expected: int, elapsed: float) -> None:
            full = round(BAR_CHARACTERS * min(1.0, max(done / expected, elapsed / seconds)))
            bar = "#" * full + "." * (BAR_CHARACTERS - full)
            self.show(f"[{bar}] {done} simulations, {readable(elapsed)} of at most {readable(seconds)}: {title}")

        return show

    def __exit__(self, *error: object) -> None:
        if self._is_terminal:
            print("\r", end="\x1b[K", file=self.screen, flush=True)


def advise_on_history(
    document: object, trace: Sequence[TraceJob], regrouping: Regrouping, minutes: float, show: ShowProgress
) -> SettingsAdvice:
    """Return advice on the settings of the policy in force, from the queue's own history.

    :param document: the policy in force.
    :param trace: the history as a trace, in the order of submissions.
    :param minutes: the time limit of all simulations together.
    :param show: function that shows the progress.
    :raises DocumentError: the document is not a policy.
    :raises TraceError: the policy lacks a project of the history, or the regrouping does not fit the history.
    """
    policy, jobs = policy_from_document(document), regrouping.apply(trace) if trace else []
    limit = TimeLimit(time.monotonic, minutes * 60)
    return Advisor(policy, Experiment(TraceConversion()).outcome, limit, show).advise(jobs)
