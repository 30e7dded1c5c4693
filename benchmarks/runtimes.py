"""How well runtimes are predicted: `python benchmarks/runtimes.py TRACE.csv ...`.

Each job of a trace is predicted when it is submitted, and again once it has run for an hour, from the jobs that have
ended by then; each is taken to run as soon as it is submitted. Printed are, over the jobs of which anything is said:

- known: the part of the jobs of which anything is said
- within: the part of runtimes in the interval, which means to hold 80 %; below and above it
- factor: by how much the median misses the runtime, up or down, for half of the jobs
- order: the part of the pairs of jobs, drawn with a fixed seed, of which the shorter one has the smaller median

"none alike" predicts each job from all others, whatever they have in common with it.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from job_queue.prediction.runtimes import JobTraits, Prediction, RuntimePredictor  # noqa: E402
from job_queue.simulation.trace import TraceJob, read_trace, traits_of  # noqa: E402

HOUR = 3600.0
LONGEST = 48 * HOUR  # at which durations are cut, as simulations do
PAIRS = 100_000

Predicted = list[tuple[float, Prediction | None]]
"""Runtimes, and what was said of them."""


def replayed(trace: Sequence[TraceJob], traits: Callable[[TraceJob], JobTraits]) -> tuple[Predicted, Predicted]:
    """What is said of each job at its submission, and once it has run for an hour."""
    predictor = RuntimePredictor()
    at_submission, after_an_hour = Predicted(), Predicted()
    events: list[tuple[float, int, int]] = []  # time, what happens, which job
    for number, job in enumerate(trace):
        heappush(events, (job.submitted + min(job.duration, LONGEST), 0, number))
        heappush(events, (job.submitted, 1, number))
        if job.duration > HOUR:
            heappush(events, (job.submitted + HOUR, 2, number))
    while events:
        _, what, number = heappop(events)
        job, runtime = trace[number], min(trace[number].duration, LONGEST)
        if what == 0:
            predictor.learn(traits(job), runtime)
        elif what == 1:
            at_submission.append((runtime, predictor.predict(traits(job))))
        else:
            after_an_hour.append((runtime, predictor.predict(traits(job), ran=HOUR)))
    return at_submission, after_an_hour


def row(what: str, predicted: Predicted) -> str:
    """A row of the table."""
    known = [(runtime, said) for runtime, said in predicted if said is not None]
    below = sum(runtime < said.low for runtime, said in known) / len(known)
    above = sum(runtime > said.high for runtime, said in known) / len(known)
    factor = median(max(a, b) / max(1.0, min(a, b)) for a, b in ((runtime, said.median) for runtime, said in known))
    ordered = list(_ordered(known))
    return (
        f"| {what} | {len(known) / len(predicted):.0%} | {1 - below - above:.0%} | {below:.0%} | {above:.0%} "
        f"| {factor:.1f} | {sum(ordered) / len(ordered):.0%} |"
    )


def _ordered(known: Sequence[tuple[float, Prediction]]) -> Iterator[float]:
    """Of each pair whether its order was said, 1, or the contrary, 0; nothing was said: half."""
    random = Random(0)
    for _ in range(PAIRS):
        (one, of_one), (other, of_other) = random.choice(known), random.choice(known)
        if one != other:
            said = of_one.median - of_other.median
            yield 0.5 if not said else float((said < 0) == (one < other))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    print("| trace | known | within | below | above | factor | order |")
    print("|---|---|---|---|---|---|---|")
    for path in parser.parse_args().traces:
        trace = read_trace(path)
        name = path.name.partition(".")[0]
        at_submission, after_an_hour = replayed(trace, lambda job: traits_of(job, job.group))
        alone, _ = replayed(trace, lambda job: JobTraits())
        print(row(f"{name}, at submission", at_submission))
        print(row(f"{name}, after an hour", after_an_hour))
        print(row(f"{name}, at submission, none alike", alone), flush=True)


if __name__ == "__main__":
    main()
