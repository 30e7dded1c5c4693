"""One-line results of submissions, with the next command to type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from api_contract.models import ACTIVE, FINISHED, Submission
from sagemaker_queue.jobs.formatting import amount, clean, cut, ordinal, place, predicate

_LEAST_REASON = 20  # characters; a reason that would be cut to fewer characters is not shown


def submission_line(job: Submission, width: int | None = None, *, following: str | None = None) -> str:
    """Return a line with the state, position and reason of a submitted job, cut to a width, and the next command.

    ``following`` replaces the usual next command of a live job. Names and the next command are never cut, because users
    copy them. The position is shortened or omitted if the line then fits.
    """
    what = f"was submitted before: it {predicate(job.state)}" if job.known else f"is {job.state}"
    usual = "logs -f" if job.state in ACTIVE else "why"
    following = "show" if job.state in FINISHED else following or usual
    end = f" (smq {following} {job.job})"
    places = [f", {place(job.position)}", f", {ordinal(job.position)}", ""] if job.position else [""]
    starts = [f"{job.job} {what}{at}" for at in places]
    start = next((one for one in starts if width is None or len(one) + len(end) <= width), starts[0])
    reason = str(clean(job.reason.message)) if job.reason and job.reason.message else ""
    if width is not None:
        room = width - len(start) - len(end) - len(": ")
        reason = str(cut(reason, room)) if room >= _LEAST_REASON else ""
    return f"{start}{': ' if reason else ''}{reason}{end}"


def sweep_line(group: str, submitted: Collection[Submission]) -> str:
    """Return a summary of a sweep's submission: the number of new jobs, and of jobs in each state."""
    new = sum(not job.known for job in submitted)
    states = ", ".join(f"{count} {state}" for state, count in Counter(job.state for job in submitted).most_common())
    before = f", {len(submitted) - new} there already" if new < len(submitted) else ""
    return f"{amount(new, 'job')} submitted{before}{': ' if states else ''}{states} (smq ls --group {group})"
