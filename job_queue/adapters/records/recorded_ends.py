"""The ends of jobs that this process has recorded. They save look-ups for the dependents of these jobs."""

from job_queue.domain.job import Job
from job_queue.scheduler import JobState

MOST_REMEMBERED = 5000  # ends; a forgotten end is looked up


class RecordedEnds:
    """The latest ends. An end is final, so none of them ever becomes out of date."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], JobState] = {}

    def note(self, job: Job) -> None:
        """Remember how a job has ended, once the end is stored. Other states are ignored."""
        if not job.state.finished:
            return
        self._states[job.name, job.submission] = job.state
        if len(self._states) > MOST_REMEMBERED:
            self._states.pop(next(iter(self._states)), None)

    def state(self, name: str, submission: str) -> JobState | None:
        """Return the final state of a job; None if this process has not recorded its end."""
        return self._states.get((name, submission))
