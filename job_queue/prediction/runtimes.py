"""Predict a job's runtime from finished jobs: the most similar jobs and, if these are few, less similar ones.

Levels of similarity range from jobs of the same project, owner, name, image and size to all jobs. The distribution of a
level mixes the runtimes of the level with the distribution of the next level. The next level weighs as much as `PRIOR`
jobs. So a level with one job has a quarter of the weight, and a level with twenty jobs has 87 %. Only the latest jobs
of a level count, because the workload changes within days. If a job has already run for some time, only jobs that ran
longer count. MaxRuntimeInSeconds is an upper bound.

The caller decides which jobs are learned. A simulation adds each finished job, and the queue adds its attempt records.
"""

import re
from bisect import bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

PRIOR = 3.0  # weight of all jobs of the next level together, as a number of jobs
RUNTIMES_PER_GROUP = 20  # latest runtimes kept in a group; more make predictions worse (benchmarks/runtimes.py)
MAX_GROUPS = 20_000  # groups that are kept; the group without a new job for the longest time is dropped first
MIN_RUNTIMES = 5  # a prediction needs at least one level with so many runtimes
LOW, HIGH = 0.1, 0.9  # quantiles of the predicted interval

_DIGITS = re.compile(r"[0-9]+")
_NON_LETTERS = re.compile(r"[^A-Za-z]+")


@dataclass(frozen=True, slots=True)
class JobTraits:
    """Properties of a job at its submission from which its runtime is predicted. Unknown properties are empty."""

    project: str = ""
    owner: str = ""
    name: str = ""  # name that the user gave
    image: str = ""
    size: str = ""  # demand, such as "2 ml.p5.48xlarge"

    def groups(self) -> tuple[Hashable, ...]:
        """Return the keys of the job's groups, from the most similar jobs to all jobs."""
        named = (self.project, self.owner, stem(self.name))
        return (
            ("image", *named, self.image, self.size),
            ("name", *named, self.size),
            ("owner and size", self.project, self.owner, self.size),
            ("owner", self.project, self.owner),
            ("project and size", self.project, self.size),
            ("size", self.size),
            (),
        )


def stem(name: str) -> str:
    """Return a name without digits, and so without dates: the common part of the names of a script's jobs."""
    return _NON_LETTERS.sub("-", _DIGITS.sub("", name)).strip("-").lower()


@dataclass(frozen=True, slots=True)
class Prediction:
    """Total runtime of a job at its end, in seconds, including the time that it has run already."""

    expected: float  # mean
    median: float
    low: float  # 10 of 100 such jobs run shorter
    high: float  # 10 of 100 such jobs run longer
    alike: int  # number of runtimes in the most similar group

    def remaining(self, ran: float) -> "Prediction":
        """Return the prediction of the remaining runtime after `ran` seconds."""
        expected, median, low, high = (
            max(0.0, value - ran) for value in (self.expected, self.median, self.low, self.high)
        )
        return Prediction(expected, median, low, high, self.alike)


class _Group:
    """The latest runtimes of a group, both in order of time and in order of size."""

    __slots__ = ("latest", "ordered", "seen")

    def __init__(self) -> None:
        self.latest: deque[float] = deque()
        self.ordered: list[float] = []
        self.seen = 0

    def add(self, runtime: float) -> None:
        self.seen += 1
        self.latest.append(runtime)
        insort(self.ordered, runtime)
        if len(self.latest) > RUNTIMES_PER_GROUP:
            oldest = self.latest.popleft()
            del self.ordered[bisect_right(self.ordered, oldest) - 1]


class RuntimePredictor:
    """Predictor of runtimes that learns from finished jobs."""

    def __init__(self) -> None:
        self._groups: OrderedDict[Hashable, _Group] = OrderedDict()

    def learn(self, job: JobTraits, runtime: float) -> None:
        """Add the runtime of a finished job, in seconds over all its attempts.

        A preempted job is added when it has finished. Its runtime is the sum over its attempts, without the work that
        was lost and repeated.
        """
        for key in job.groups():
            group = self._groups.setdefault(key, _Group())
            self._groups.move_to_end(key)
            group.add(runtime)
        while len(self._groups) > MAX_GROUPS:
            self._groups.popitem(last=False)

    def predict(self, job: JobTraits, ran: float = 0, longest: float | None = None) -> Prediction | None:
        """Return the total runtime of a job, or None if too little is known.

        :param ran: seconds that the job has already run.
        :param longest: the job's MaxRuntimeInSeconds.
        """
        levels = list(self._levels(job, ran))
        if max(map(len, levels), default=0) < MIN_RUNTIMES:
            return None
        weighted, mean = _weighted(levels, ran, longest)
        low, median, high = _quantiles(weighted, (LOW, 0.5, HIGH))
        return Prediction(mean, median, low, high, len(levels[0]))

    def likely(
        self, job: JobTraits, count: int, ran: float = 0, longest: float | None = None
    ) -> tuple[float, ...] | None:
        """Return `count` equally likely runtimes, the shortest first, or None if too little is known.

        A job that has run longer than nearly all others is assumed to reach n times its present runtime with the
        probability 1/n. Processes in general behave like this (Harchol-Balter and Downey, Exploiting process lifetime
        distributions for dynamic load balancing, ACM TOCS 1997).

        :param ran: seconds that the job has already run.
        :param longest: the job's MaxRuntimeInSeconds.
        """
        quantiles = tuple((place + 0.5) / count for place in range(count))
        levels = list(self._levels(job, ran))
        if max(map(len, levels), default=0) >= MIN_RUNTIMES:
            return tuple(_quantiles(_weighted(levels, ran, longest)[0], quantiles))
        if ran < 1 or not any(self._levels(job, 0)):
            return None
        bound = inf if longest is None else max(longest, ran)
        return tuple(min(bound, ran / (1 - quantile)) for quantile in quantiles)

    def _levels(self, job: JobTraits, ran: float) -> Iterator[list[float]]:
        """Yield the runtimes of each level that are longer than `ran`, beginning with the most similar jobs.

        A level without more jobs than the level before has the same jobs, and is left out.
        """
        seen = 0
        for key in job.groups():
            group = self._groups.get(key)
            if group is not None and group.seen > seen:
                seen = group.seen
                runtimes = group.ordered[bisect_right(group.ordered, ran) :] if ran else group.ordered
                if runtimes:
                    yield runtimes


def _weighted(
    levels: Sequence[list[float]], ran: float, longest: float | None
) -> tuple[list[tuple[float, float]], float]:
    """Return the runtimes of all levels in ascending order, each with its weight, and the mean."""
    weighted, left, mean = list[tuple[float, float]](), 1.0, 0.0
    for place, runtimes in enumerate(levels):
        count = len(runtimes)
        part = left if place == len(levels) - 1 else left * count / (count + PRIOR)
        left -= part
        for runtime in runtimes:
            bounded = runtime if longest is None else min(runtime, max(longest, ran))
            weighted.append((bounded, part / count))
            mean += bounded * part / count
    weighted.sort()
    return weighted, mean


def _quantiles(weighted: list[tuple[float, float]], quantiles: tuple[float, ...]) -> Iterator[float]:
    """Yield the quantiles of values whose weights sum to 1."""
    places, total = iter(weighted), 0.0
    value = weighted[0][0]
    for quantile in quantiles:
        while total < quantile - 1e-9 and (entry := next(places, None)) is not None:
            value, total = entry[0], total + entry[1]
        yield value
