"""Advice on a policy's settings: simulate a history under changed settings, and choose those that reduce the wait.

This is a beam search. First, each change is tried by itself. Then each round adds one more change to the best
combinations, as long as the mean wait falls and there is no objection. Advice has at most `MOST_LINES` changes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean

from job_queue.scheduler import OutOfTimeError, Policy
from job_queue.simulation.experiments.candidates import SettingChange, changes_of, with_changes
from job_queue.simulation.experiments.experiment import OnMoment
from job_queue.simulation.metrics import Metrics, wait
from job_queue.simulation.report import PolicyOutcome
from job_queue.simulation.trace import TraceJob

DAY = 24 * 3600.0
FEWEST_JOBS, FEWEST_DAYS = 100, 3.0  # minimum size of a history for advice
LONG_WAIT, FEWEST_WAITS = 300.0, 20  # advice needs FEWEST_WAITS jobs that wait for longer than LONG_WAIT seconds
MOST_LINES = 3
BEAM = 2  # number of the best trials of a round that the next round extends by one change
GAIN = 0.05  # minimum part by which the mean wait must fall
MORE_GAIN = 0.01  # each further change must shorten the mean wait by this part of the wait under the policy in force
HARM_PART, HARM_SECONDS = 0.1, 60.0  # the mean wait of the highest priority may grow by the larger of these
FEWEST_OF_CLASS = 10  # a priority with fewer jobs does not count as the highest priority
HALF_PART, HALF_SECONDS = 0.02, 30.0  # the mean wait in each half of the history may grow by the sum of these
RHO, MORE_RHO = 1.05, 0.05  # the worst rho may be at most RHO, or MORE_RHO above the worst rho of the policy in force
PART_OF_FIRST = 0.06  # part of the remaining time that the first simulation, of the policy in force, may take


class Insufficient(StrEnum):
    """The reason why a history is not enough for advice on settings."""

    JOBS = "JOBS"  # too few jobs
    DAYS = "DAYS"  # too short
    WAITING = "WAITING"  # hardly any job waits
    TIME = "TIME"  # too little time to simulate even a part of the history


class Objection(StrEnum):
    """The reason why changed settings are not advised."""

    UNFINISHED = "some jobs never start"
    NO_GAIN = "not 5 % better"
    ONE_HALF = "better in one half of the time only"
    HIGHEST = "highest priority waits longer"
    UNFAIR = "a project is worse off than alone"


@dataclass(frozen=True, slots=True)
class SettingsTrial:
    """The figures of one simulation."""

    changes: tuple[SettingChange, ...]  # empty: the policy in force
    overall: Metrics
    classes: Mapping[str, Mapping[str, Metrics]]  # the result of PolicyOutcome.classes
    rho: Mapping[str, float]
    halves: tuple[float, float]  # mean wait of the first half of the jobs, by submission, and of the second half
    long_waits: int  # jobs that waited longer than LONG_WAIT
    objection: Objection | None = None

    @property
    def highest(self) -> Metrics:
        """The figures of the highest priority that at least FEWEST_OF_CLASS jobs have, or else of all jobs."""
        return next((it for it in self.classes["priority"].values() if it.jobs >= FEWEST_OF_CLASS), self.overall)

    @property
    def worst_rho(self) -> float | None:
        """The largest rho of a project; None: rho is not known for any project."""
        return max(self.rho.values(), default=None)


@dataclass(frozen=True, slots=True)
class SettingsAdvice:
    """The result of a search for better settings."""

    jobs: int  # number of simulated jobs
    days: float  # days between the first and the last submission of the simulated jobs
    of_jobs: int  # number of jobs in the whole history, of which `jobs` were simulated in the time
    in_force: SettingsTrial | None = None
    trials: tuple[SettingsTrial, ...] = ()
    chosen: SettingsTrial | None = None  # None: no change is advised
    insufficient: Insufficient | None = None  # the reason why nothing can be advised
    untried: tuple[SettingChange, ...] = ()  # changes for which there was no time

    @property
    def gain(self) -> float:
        """The part by which the mean wait falls; 0 if no change is advised."""
        if not (self.chosen and self.in_force and self.in_force.overall.wait):
            return 0.0
        return 1 - self.chosen.overall.wait / self.in_force.overall.wait


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """The time for all simulations, by a clock in seconds."""

    clock: Callable[[], float]
    seconds: float
    begun: float = field(init=False)

    def __post_init__(self) -> None:
        """Record the beginning."""
        object.__setattr__(self, "begun", self.clock())

    @property
    def elapsed(self) -> float:
        """The seconds since the beginning."""
        return self.clock() - self.begun


Simulate = Callable[[str, Policy, Sequence[TraceJob], OnMoment], PolicyOutcome]
"""Function with the arguments and the result of `Experiment.outcome`."""

ShowProgress = Callable[[str, int, int, float], object]
"""Function that shows the progress. Arguments: a title, the numbers of finished and of expected simulations, and the
elapsed seconds."""


class Advisor:
    """A search for better settings, within a time limit.

    :param simulate: function that simulates a trace under a policy.
    :param show: called at each moment of each simulation.
    """

    def __init__(
        self,
        policy: Policy,
        simulate: Simulate,
        limit: TimeLimit,
        show: ShowProgress = lambda title, done, expected, elapsed: None,
    ) -> None:
        self._policy = policy
        self._outcome = simulate
        self._limit = limit
        self._show = show
        self._changes = list(changes_of(policy.settings))
        self._tried: dict[frozenset[SettingChange], SettingsTrial] = {}
        self._in_force: SettingsTrial | None = None
        self._untried: list[SettingChange] = []

    def advise(self, trace: Sequence[TraceJob]) -> SettingsAdvice:
        """Return advice from the jobs of a trace.

        :param trace: the jobs in the order of their submissions.
        :raises TraceError: the policy lacks a project of the trace.
        """
        too_little = shortage(trace)
        if too_little:
            return self._advice(trace, trace, too_little)
        simulated = self._simulate_in_force(trace)
        if self._in_force is None:
            return self._advice(trace, simulated, Insufficient.TIME)
        if self._in_force.long_waits < FEWEST_WAITS:
            return self._advice(trace, simulated, Insufficient.WAITING)
        chosen = self._search(simulated)
        return self._advice(trace, simulated, None, chosen)

    def _advice(
        self,
        trace: Sequence[TraceJob],
        simulated: Sequence[TraceJob],
        insufficient: Insufficient | None,
        chosen: SettingsTrial | None = None,
    ) -> SettingsAdvice:
        trials, untried = tuple(self._tried.values()), tuple(self._untried)
        found = (self._in_force, trials, chosen, insufficient, untried)
        return SettingsAdvice(len(simulated), days_of(simulated), len(trace), *found)

    def _simulate_in_force(self, trace: Sequence[TraceJob]) -> Sequence[TraceJob]:
        """Simulate the policy in force, and return the simulated jobs: only the latest if all jobs take too long."""
        while shortage(trace) is None:
            until = self._limit.elapsed + PART_OF_FIRST * (self._limit.seconds - self._limit.elapsed)
            try:
                self._in_force = self._simulate((), trace, until)
                break
            except OutOfTimeError:
                trace = trace[len(trace) // 2 :]
        return trace

    def _search(self, trace: Sequence[TraceJob]) -> SettingsTrial | None:
        """Return the best trial of a single change or a combination; None: every trial has an objection."""
        singles = list(self._tries([(change,) for change in self._changes], trace))
        # A change is not combined with others if the change by itself lengthens the mean wait by more than HALF_PART.
        useful = [it for it in singles if it.overall.wait <= self._base.overall.wait * (1 + HALF_PART)]
        useful.sort(key=lambda it: it.overall.wait)
        beam = _best(singles)
        best = beam[0] if beam else None
        while best and len(beam[0].changes) < MOST_LINES:
            more = [
                (*start.changes, *it.changes)
                for start in beam
                for it in useful
                if it.changes[0].setting not in {change.setting for change in start.changes}
            ]
            beam = _best(self._tries(more, trace))
            if not beam or best.overall.wait - beam[0].overall.wait < MORE_GAIN * self._base.overall.wait:
                break
            best = beam[0]
        return self._without_idle_lines(best, trace) if best else None

    def _without_idle_lines(self, best: SettingsTrial, trace: Sequence[TraceJob]) -> SettingsTrial:
        """Return the best trial after leaving out each change whose removal hardly lengthens the mean wait."""
        for change in best.changes:
            fewer = tuple(it for it in best.changes if it != change)
            if not fewer:
                break
            for found in _best(self._tries([fewer], trace)):
                if found.overall.wait - best.overall.wait < MORE_GAIN * self._base.overall.wait:
                    best = found
        return best

    @property
    def _base(self) -> SettingsTrial:
        assert self._in_force is not None
        return self._in_force

    def _tries(self, wanted: Sequence[tuple[SettingChange, ...]], trace: Sequence[TraceJob]) -> Iterator[SettingsTrial]:
        """Yield the trial of each tuple of changes. Tuples for which there is no time left are skipped."""
        for changes in wanted:
            key = frozenset(changes)
            if key not in self._tried:
                try:
                    self._tried[key] = self._simulate(changes, trace, self._limit.seconds)
                except OutOfTimeError:
                    if len(changes) == 1:
                        self._untried.append(changes[0])
                    continue
            yield self._tried[key]

    def _simulate(self, changes: tuple[SettingChange, ...], trace: Sequence[TraceJob], until: float) -> SettingsTrial:
        done = len(self._tried) + (self._in_force is not None)
        expected = max(done + 1, 1 + len(self._changes) + BEAM * (MOST_LINES - 1) * MOST_LINES)
        title = " + ".join(change.line for change in changes) or "the policy in force"

        def watch(_: str, ended: int, jobs: int) -> None:
            elapsed = self._limit.elapsed
            if elapsed > until:
                raise OutOfTimeError
            self._show(title, done, expected, elapsed)

        outcome = self._outcome(title, with_changes(self._policy, changes), trace, watch)
        return trial_of(changes, outcome, self._in_force)


def shortage(trace: Sequence[TraceJob]) -> Insufficient | None:
    """Return why a history is too small for advice; None: it is large enough."""
    if len(trace) < FEWEST_JOBS:
        return Insufficient.JOBS
    return Insufficient.DAYS if days_of(trace) < FEWEST_DAYS else None


def days_of(trace: Sequence[TraceJob]) -> float:
    """Return the days between the first and the last submission."""
    return (trace[-1].submitted - trace[0].submitted) / DAY if trace else 0.0


def trial_of(
    changes: tuple[SettingChange, ...], outcome: PolicyOutcome, in_force: SettingsTrial | None = None
) -> SettingsTrial:
    """Return the figures of a simulation, and the objection to its settings compared with those in force."""
    waits = [wait(run) for run in outcome.runs if run.ended is not None]
    middle = len(waits) // 2  # the runs are in the order of submission
    halves = fmean(waits[:middle] or [0.0]), fmean(waits[middle:] or [0.0])
    long_waits = sum(each > LONG_WAIT for each in waits)
    figures = (outcome.overall(), outcome.classes(), dict(outcome.fairness), halves, long_waits)
    trial = SettingsTrial(changes, *figures)
    if in_force is None:
        return trial
    return SettingsTrial(changes, *figures, objection=objection_to(trial, in_force))


def objection_to(trial: SettingsTrial, in_force: SettingsTrial) -> Objection | None:
    """Return why changed settings are not better than those in force; None: they are better."""
    before, after = in_force.overall, trial.overall
    if after.unfinished > before.unfinished:
        return Objection.UNFINISHED
    if after.wait > before.wait * (1 - GAIN):
        return Objection.NO_GAIN
    if any(
        then > now * (1 + HALF_PART) + HALF_SECONDS for now, then in zip(in_force.halves, trial.halves, strict=True)
    ):
        return Objection.ONE_HALF
    highest = in_force.highest.wait
    if trial.highest.wait > highest + max(HARM_SECONDS, HARM_PART * highest):
        return Objection.HIGHEST
    if trial.worst_rho is not None and trial.worst_rho > max(RHO, (in_force.worst_rho or 0) + MORE_RHO):
        return Objection.UNFAIR
    return None


def _best(trials: Iterable[SettingsTrial]) -> list[SettingsTrial]:
    """Return the BEAM trials with the shortest mean waits and different settings, among those without an objection.

    Two values of one setting often have the same effect, so only the better one is returned.
    """
    found: dict[frozenset[str], SettingsTrial] = {}
    for trial in sorted(trials, key=lambda it: it.overall.wait):
        if trial.objection is None:
            found.setdefault(frozenset(change.setting for change in trial.changes), trial)
    return list(found.values())[:BEAM]
