"""Expected runtimes in a simulation, learned from the jobs that have finished in this simulation."""

from collections.abc import Iterable

from job_queue.prediction.runtimes import RuntimePredictor
from job_queue.simulation.fleet.attempts import JobRun
from job_queue.simulation.workload import Overheads, SimulatedJob


class RuntimeKnowledge:
    """The runtime predictor of a simulation, which learns from each finished job.

    :param predicted: whether the queue predicts runtimes. If not, nothing is learned.
    """

    def __init__(self, overheads: Overheads, *, predicted: bool) -> None:
        self._overheads = overheads
        self._predictor = RuntimePredictor() if predicted else None

    def learn(self, job: SimulatedJob) -> None:
        """Learn from a job that has finished."""
        if self._predictor:
            self._predictor.learn(job.traits, job.work)

    def expected(self, run: JobRun, worked: float = 0, known: float | None = None) -> float | None:
        """Return the expected seconds of an attempt, from its launch to its end.

        :param worked: seconds of work that this attempt has already done.
        :param known: the previous expectation, used only without a predictor. If it is None, the result is None;
            otherwise the result is the real runtime.
        """
        starting = self._overheads.starting(run.job)
        if not self._predictor:
            return None if known is None else starting + run.job.work - run.done
        found = self._predictor.predict(run.job.traits, run.done + worked, run.job.max_runtime)
        return None if found is None else starting + found.median - run.done

    def likely(self, runs: Iterable[tuple[JobRun, float]], count: int) -> dict[str, tuple[float, ...]]:
        """Return equally likely runtimes, in ascending order, for each job that has a prediction.

        The runtimes are seconds from the next start to the end.

        :param runs: each job's history, and the seconds of work in its present attempt.
        """
        found: dict[str, tuple[float, ...]] = {}
        for run, worked in runs if self._predictor else ():
            assert self._predictor is not None
            likely = self._predictor.likely(run.job.traits, count, run.done + worked, run.job.max_runtime)
            if likely:
                starting = self._overheads.starting(run.job)
                found[run.job.name] = tuple(starting + it - run.done for it in likely)
        return found
