"""Runtimes are predicted from those of jobs that have ended: of those most alike, and where these are few, of others.

Jobs are alike in levels, from those of the same project, owner, name, image and size to all there are. The distribution
of a level is what was seen there, mixed with that of the level above as if `PRIOR` jobs of it had been seen here, too:
one job tells little of the next, twenty tell nearly all. Only the latest of a group count, as what people run changes
within days. A job that has run for a while is predicted from those that ran longer than that. MaxRuntimeInSeconds
bounds it all.

Whoever feeds it decides what it knows: a simulation tells of each job that ends, a queue of its records of ended jobs.
"""

import re
from bisect import bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

PRIOR = 3.0  # jobs of the level above that count beside those of a level
REMEMBERED = 20  # runtimes of a group, the latest; more order jobs worse (benchmarks/runtimes.py)
GROUPS = 20_000  # that are remembered; who has not been seen for the longest time is forgotten first
FEWEST = 5  # runtimes below which nothing is said
LOW, HIGH = 0.1, 0.9  # quantiles of the interval

_DIGITS = re.compile(r"[0-9]+")
_BETWEEN = re.compile(r"[^A-Za-z]+")


@dataclass(frozen=True, slots=True)
class JobTraits:
    """What is known of a job at its submission that tells how long it may run. What is not known is empty."""

    project: str = ""
    owner: str = ""
    name: str = ""  # as its user gave it
    image: str = ""
    size: str = ""  # what it asks for, such as "2 ml.p5.48xlarge"

    def groups(self) -> tuple[Hashable, ...]:
        """Those with whom it is alike, the most alike first, all there are last."""
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
    """A name without digits, and so without dates: what the jobs of one script have in common."""
    return _BETWEEN.sub("-", _DIGITS.sub("", name)).strip("-").lower()


@dataclass(frozen=True, slots=True)
class Prediction:
    """How long a job will have run once it ends, in seconds, what it has run already included."""

    expected: float  # the mean
    median: float
    low: float  # 10 of 100 such jobs run less
    high: float  # 10 of 100 such jobs run longer
    alike: int  # runtimes of the group most like it

    def remaining(self, ran: float) -> "Prediction":
        """The same of what is left after it has run for so long."""
        expected, median, low, high = (
            max(0.0, value - ran) for value in (self.expected, self.median, self.low, self.high)
        )
        return Prediction(expected, median, low, high, self.alike)


class _Group:
    """The latest runtimes of a group, also in order."""

    __slots__ = ("latest", "ordered", "seen")

    def __init__(self) -> None:
        self.latest: deque[float] = deque()
        self.ordered: list[float] = []
        self.seen = 0

    def add(self, runtime: float) -> None:
        self.seen += 1
        self.latest.append(runtime)
        insort(self.ordered, runtime)
        if len(self.latest) > REMEMBERED:
            oldest = self.latest.popleft()
            del self.ordered[bisect_right(self.ordered, oldest) - 1]


class RuntimePredictor:
    """Learns runtimes, and predicts others."""

    def __init__(self) -> None:
        self._groups: OrderedDict[Hashable, _Group] = OrderedDict()

    def learn(self, job: JobTraits, runtime: float) -> None:
        """A job has ended, after it ran for so many seconds in all, in one attempt or several.

        What a preemption lost and had to be done again is no part of it. An attempt that was preempted is no runtime.
        """
        for key in job.groups():
            group = self._groups.setdefault(key, _Group())
            self._groups.move_to_end(key)
            group.add(runtime)
        while len(self._groups) > GROUPS:
            self._groups.popitem(last=False)

    def predict(self, job: JobTraits, ran: float = 0, longest: float | None = None) -> Prediction | None:
        """How long a job will have run once it ends; None: too little is known.

        :param ran: seconds that it has run already.
        :param longest: its MaxRuntimeInSeconds.
        """
        levels = list(self._levels(job, ran))
        if max(map(len, levels), default=0) < FEWEST:
            return None
        weighted, mean = _weighted(levels, ran, longest)
        low, median, high = _quantiles(weighted, (LOW, 0.5, HIGH))
        return Prediction(mean, median, low, high, len(levels[0]))

    def likely(
        self, job: JobTraits, count: int, ran: float = 0, longest: float | None = None
    ) -> tuple[float, ...] | None:
        """So many runtimes that are all as likely, the shortest first; None: too little is known.

        A job that has run longer than nearly all others runs for twice as long as it has with a probability of a half,
        and for n times as long with 1/n. That is what has been seen of processes in general (Harchol-Balter and
        Downey, Exploiting process lifetime distributions for dynamic load balancing, ACM TOCS 1997).
        """
        quantiles = tuple((place + 0.5) / count for place in range(count))
        levels = list(self._levels(job, ran))
        if max(map(len, levels), default=0) >= FEWEST:
            return tuple(_quantiles(_weighted(levels, ran, longest)[0], quantiles))
        if ran < 1 or not any(self._levels(job, 0)):
            return None
        bound = inf if longest is None else max(longest, ran)
        return tuple(min(bound, ran / (1 - quantile)) for quantile in quantiles)

    def _levels(self, job: JobTraits, ran: float) -> Iterator[list[float]]:
        """The runtimes of each level that are longer than that, the most alike first.

        A level that has seen no others than the one below it says nothing new.
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
    """The runtimes of all levels in order, each with its weight, and the mean."""
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
    """The values, of weights that sum up to 1, that so large a part does not exceed."""
    places, total = iter(weighted), 0.0
    value = weighted[0][0]
    for quantile in quantiles:
        while total < quantile - 1e-9 and (entry := next(places, None)) is not None:
            value, total = entry[0], total + entry[1]
        yield value
