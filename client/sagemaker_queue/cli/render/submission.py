"""What became of submitted jobs, in one line, with what to type next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from sagemaker_queue.formatting import amount, clean, cut, ordinal, place, predicate
from sagemaker_queue.models import ACTIVE, FINISHED, Submission

_LEAST_REASON = 20  # letters; less says nothing


def submission_line(job: Submission, width: int | None = None, *, following: str | None = None) -> str:
    """Return what became of a job, its place and why it waits, cut to a width, and the next command whole.

    That is ``following`` while it lives. Beside two long names the place has no room, and stays where ``smq why`` has
    it; names that leave none at all are not cut, as they are copied.
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
    """Return how the jobs of a sweep are, all in one."""
    new = sum(not job.known for job in submitted)
    states = ", ".join(f"{count} {state}" for state, count in Counter(job.state for job in submitted).most_common())
    before = f", {len(submitted) - new} there already" if new < len(submitted) else ""
    return f"{amount(new, 'job')} submitted{before}{': ' if states else ''}{states} (smq ls --group {group})"
