"""What a simulated queue knows of how long jobs run, from those that have ended before."""

from collections.abc import Iterable

from job_queue.prediction.runtimes import RuntimePredictor
from job_queue.simulation.fleet.attempts import JobRun
from job_queue.simulation.workload import Overheads, SimulatedJob


class Knowledge:
    """It grows with each job that ends.

    :param predicted: whether anything is learned at all.
    """

    def __init__(self, overheads: Overheads, *, predicted: bool) -> None:
        self._overheads = overheads
        self._predictor = RuntimePredictor() if predicted else None

    def learn(self, job: SimulatedJob) -> None:
        """A job has ended."""
        if self._predictor:
            self._predictor.learn(job.traits, job.work)

    def expected(self, run: JobRun, worked: float = 0, known: float | None = None) -> float | None:
        """Seconds that an attempt is expected to take, from its launch on.

        :param worked: for so long it has worked already in the attempt.
        :param known: what was expected of it before. Where nothing is learned that is what it is, if it is anything.
        """
        starting = self._overheads.starting(run.job)
        if not self._predictor:
            return None if known is None else starting + run.job.work - run.done
        found = self._predictor.predict(run.job.traits, run.done + worked, run.job.max_runtime)
        return None if found is None else starting + found.median - run.done

    def likely(self, runs: Iterable[tuple[JobRun, float]], count: int) -> dict[str, tuple[float, ...]]:
        """Of jobs of which anything can be predicted: equally likely runtimes from the next start, the shortest first.

        :param runs: with the seconds that each has worked in the attempt that runs.
        """
        found: dict[str, tuple[float, ...]] = {}
        for run, worked in runs if self._predictor else ():
            assert self._predictor is not None
            likely = self._predictor.likely(run.job.traits, count, run.done + worked, run.job.max_runtime)
            if likely:
                starting = self._overheads.starting(run.job)
                found[run.job.name] = tuple(starting + it - run.done for it in likely)
        return found
