"""Quality of predicted runtimes: `python benchmarks/runtimes.py TRACE.csv ...`.

The runtime of each job of a trace is predicted when the job is submitted, and again when it has run for an hour. The
predictions use the jobs that have ended by then. Jobs are assumed to start when they are submitted. The columns are:

- known: part of the jobs with a prediction; the other columns are about these jobs
- within, below, above: part of the runtimes in, below and above the predicted interval, which should contain 80 %
- factor: median of the ratio of the predicted median to the runtime, or of its inverse if that is larger
- order: part of the pairs of jobs, drawn with a fixed seed, in which the shorter job has the smaller predicted median

"none alike" predicts each job from all other jobs, without regard to similarity.
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
LONGEST = 48 * HOUR  # longer durations are cut, as in simulations
PAIRS = 100_000

Predicted = list[tuple[float, Prediction | None]]
"""Runtimes in seconds, and their predictions; None: no prediction was possible."""


def replayed(trace: Sequence[TraceJob], traits: Callable[[TraceJob], JobTraits]) -> tuple[Predicted, Predicted]:
    """Return the predictions for all jobs at submission, and for the longer jobs also after an hour of runtime."""
    predictor = RuntimePredictor()
    at_submission, after_an_hour = Predicted(), Predicted()
    events: list[
        tuple[float, int, int]
    ] = []  # time, event (0: end, 1: submission, 2: ran for an hour), index of the job
    for number, job in enumerate(trace):
        heappush(events, (job.submitted + min(job.duration, LONGEST), 0, number))
        heappush(events, (job.submitted, 1, number))
        if job.duration > HOUR:
            heappush(events, (job.submitted + HOUR, 2, number))
    while events:
        _, event, number = heappop(events)
        job, runtime = trace[number], min(trace[number].duration, LONGEST)
        if event == 0:
            predictor.learn(traits(job), runtime)
        elif event == 1:
            at_submission.append((runtime, predictor.predict(traits(job))))
        else:
            after_an_hour.append((runtime, predictor.predict(traits(job), ran=HOUR)))
    return at_submission, after_an_hour


def row(what: str, predicted: Predicted) -> str:
    """Return a row of the table."""
    known = [(runtime, prediction) for runtime, prediction in predicted if prediction is not None]
    below = sum(runtime < prediction.low for runtime, prediction in known) / len(known)
    above = sum(runtime > prediction.high for runtime, prediction in known) / len(known)
    pairs = [(runtime, prediction.median) for runtime, prediction in known]
    factor = median(max(pair) / max(1.0, min(pair)) for pair in pairs)
    ordered = list(_ordered(known))
    return (
        f"| {what} | {len(known) / len(predicted):.0%} | {1 - below - above:.0%} | {below:.0%} | {above:.0%} "
        f"| {factor:.1f} | {sum(ordered) / len(ordered):.0%} |"
    )


def _ordered(known: Sequence[tuple[float, Prediction]]) -> Iterator[float]:
    """Yield, for each pair with different runtimes, 1 if the predicted order is right, 0.5 if there is none, else 0."""
    random = Random(0)
    for _ in range(PAIRS):
        (one, of_one), (other, of_other) = random.choice(known), random.choice(known)
        if one != other:
            difference = of_one.median - of_other.median
            yield 0.5 if not difference else float((difference < 0) == (one < other))


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
        without_traits, _ = replayed(trace, lambda job: JobTraits())
        print(row(f"{name}, at submission", at_submission))
        print(row(f"{name}, after an hour", after_an_hour))
        print(row(f"{name}, at submission, none alike", without_traits), flush=True)


if __name__ == "__main__":
    main()
