"""Simulate the jobs of a trace under one or several policies, and print the outcomes (`smq simulate`)."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import yaml

from job_queue.scheduler import DEFAULT, UNLIMITED, DocumentError, Order, Policy, Pool, Project, policy_from_document
from job_queue.simulation.fleet.attempts import JobRun
from job_queue.simulation.metrics import finish_time_fairness
from job_queue.simulation.options import SimulationOptions
from job_queue.simulation.report import PolicyOutcome, as_json, html_page, text_page
from job_queue.simulation.simulator import Simulator
from job_queue.simulation.trace import Reading, TraceError, TraceJob, capacity_for, read_trace, shares_of_work
from job_queue.simulation.workload import Overheads, SimulatedJob

DONE, USAGE, INTERRUPTED = 0, 2, 130
PROGRESS_INTERVAL = 0.5  # seconds between two progress lines


class UnusableError(ValueError):
    """An error because an input cannot be simulated. The message says why."""


def simulate(options: SimulationOptions, screen: TextIO | None = None) -> int:
    """Simulate, print the outcome, and return the exit status: 2 if an input is wrong, 130 after Ctrl-C.

    :param screen: the stream for the progress line, which is shown on a terminal only; None: the standard error.
    """
    try:
        outcomes = _Simulations(options, screen or sys.stderr).run()
        if options.html:
            options.html.write_text(html_page(options, outcomes), encoding="utf-8")
    except (TraceError, DocumentError, UnusableError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename}: {error.strerror}")
    except KeyboardInterrupt:
        return _refuse("interrupted; nothing was written", INTERRUPTED)
    try:
        print(
            json.dumps(as_json(options, outcomes), indent=2) if options.json else text_page(options, outcomes),
            flush=True,
        )
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        sys.stdout = None  # otherwise the interpreter would flush it at exit, and fail
    return DONE


def _refuse(message: str, status: int = USAGE) -> int:
    print(f"error: {message}", file=sys.stderr)
    return status


class _Simulations:
    """Simulations of the same jobs, one for each policy."""

    def __init__(self, options: SimulationOptions, screen: TextIO) -> None:
        self._options = options
        self._screen = screen
        self._reading = Reading(options.gpus_per_instance, options.priorities, options.longest, options.seed)
        self._overheads = Overheads(options.provisioning, options.stopping, options.checkpoint_every)

    def run(self) -> list[PolicyOutcome]:
        """Return the outcomes, in the order in which the policies were given."""
        trace = read_trace(self._options.trace)
        policies = [
            (path.name, self._in_order(_policy(path)))
            for path in (self._options.policy, *self._options.compare)
            if path
        ]
        if not self._options.policy:
            policies.insert(0, ("no policy", self._in_order(self._without_policy(trace))))
        policies = [(label, self._with_capacity(policy)) for label, policy in policies]
        if self._options.shared:
            policies = [each for label, policy in policies for each in ((label, policy), self._shared(label, policy))]
        return [self._outcome(label, policy, trace) for label, policy in policies]

    def _outcome(self, label: str, policy: Policy, trace: Sequence[TraceJob]) -> PolicyOutcome:
        jobs = [self._with_known_runtime(job) for job in self._reading.jobs(trace, policy)]
        with _Progress(self._screen, "Simulation", len(jobs)) as progress:
            runs = self._simulator(policy, progress).run(jobs)
        return PolicyOutcome(label, policy, runs, self._fairness(policy, runs), self._gpus(policy))

    def _gpus(self, policy: Policy) -> int | None:
        """Return the number of GPUs of the fleet, or None if the fleet has no limit."""
        pools = [(pool.capacity, pool.gpus or self._options.gpus_per_instance) for pool in policy.pools]
        return None if any(size >= UNLIMITED for size, _ in pools) else sum(size * gpus for size, gpus in pools)

    def _fairness(self, policy: Policy, runs: Sequence[JobRun]) -> dict[str, float]:
        """Return rho (see `metrics`) of each project with a quota. The result is empty if there is only one project."""
        found: dict[str, float] = {}
        for project in policy.projects if len(policy.projects) > 1 else ():
            own = [run for run in runs if run.job.project == project.name]
            if own and any(project.quota.values()):
                with _Progress(self._screen, "One project alone", len(own)) as progress:
                    alone = self._simulator(_alone(policy, project), progress).run([it.job for it in own])
                rho = finish_time_fairness(own, alone)
                if rho is not None:
                    found[project.name] = rho
        return found

    def _simulator(self, policy: Policy, progress: "_Progress") -> Simulator:
        predicted = self._options.runtimes == "predicted"
        return Simulator(policy, self._overheads, progress.show, predicted=predicted)

    def _with_known_runtime(self, job: SimulatedJob) -> SimulatedJob:
        """Return the job with the maximum runtime that the planner gets.

        With the option `runtimes` set to predicted, this is the MaxRuntime of the trace, which also bounds predictions.
        """
        options = self._options
        known = job.max_runtime if options.runtimes == "predicted" else None
        if options.runtimes == "max":
            known = job.max_runtime or options.provisioning + job.work * options.max_factor
        elif options.runtimes == "oracle":
            known = options.provisioning + job.work
        return replace(job, max_runtime=known)

    def _shared(self, label: str, policy: Policy) -> tuple[str, Policy]:
        """Return the label and the policy with shared instances in every pool."""
        gpus = self._options.gpus_per_instance
        pools = (replace(pool, gpus=gpus if pool.gpus is None else pool.gpus) for pool in policy.pools)
        return f"{label}, shared", replace(policy, pools=tuple(pools))

    def _without_policy(self, trace: Sequence[TraceJob]) -> Policy:
        """Return a policy with one pool and one project or, with the option `groups`, a project for each group."""
        anyone = Policy((Pool(DEFAULT),), (Project(DEFAULT),))
        capacity = self._options.capacity or capacity_for(self._reading.jobs(trace, anyone), self._options.load)
        quotas = {DEFAULT: capacity}
        if self._options.groups:
            work = ((row.group or DEFAULT, self._reading.work(row) * self._reading.instances(row)) for row in trace)
            quotas = shares_of_work(work, capacity)
        projects = tuple(Project(name, quota={DEFAULT: quota}) for name, quota in quotas.items())
        return Policy((Pool(DEFAULT, capacity),), projects)

    def _in_order(self, policy: Policy) -> Policy:
        if self._options.order is None:
            return policy
        return replace(policy, settings=replace(policy.settings, order=Order(self._options.order)))

    def _with_capacity(self, policy: Policy) -> Policy:
        if self._options.capacity is None:
            return policy
        first, *others = policy.pools
        return replace(policy, pools=(replace(first, capacity=self._options.capacity), *others))


def _alone(policy: Policy, project: Project) -> Policy:
    """Return a policy with only this project, in pools that are as large as its quota."""
    pools = tuple(replace(pool, capacity=project.quota.get(pool.name, 0)) for pool in policy.pools)
    return Policy(pools, (replace(project, department=None, limit={}),), settings=policy.settings)


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


@dataclass
class _Progress:
    """A line on a terminal that shows the progress of a simulation."""

    screen: TextIO
    what: str
    jobs: int
    _shown: float = 0
    _is_terminal: bool = False

    def __enter__(self) -> "_Progress":
        self._is_terminal, self._shown = self.screen.isatty(), time.monotonic()
        return self

    def show(self, ended: int) -> None:
        """Show the number of finished jobs, at most once per PROGRESS_INTERVAL."""
        if self._is_terminal and time.monotonic() - self._shown > PROGRESS_INTERVAL:
            self._shown = time.monotonic()
            far = f"{self.what}: {ended:,} of {self.jobs:,} jobs have ended"
            print(f"\r{far}", end="\x1b[K", file=self.screen, flush=True)

    def __exit__(self, *error: object) -> None:
        if self._is_terminal:
            print("\r", end="\x1b[K", file=self.screen, flush=True)
