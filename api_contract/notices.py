"""The sentences of notices, which tell people about changes of jobs: in the queue's events, and from `smq notify`."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST_NOTICE = 500  # characters of a notice in an event
LONGEST_REASON = 250  # characters of a failure's reason if a remedy follows the reason
_CHAT_MARKUP = str.maketrans("<>", "‹›")  # chats treat <!channel> and similar texts as commands


def started(waited: str, *, again: bool = False) -> str:
    """Return the news of a start. ``waited`` is a duration, and ``again`` says whether the job has run before."""
    return f"{'has started again' if again else 'has started'}, after {waited} in the queue"


def preempted(claimant: str | None = None, cause: str = "") -> str:
    """Return the news of a preemption.

    ``claimant`` is the job for which this job was preempted; None if unknown. ``cause`` is the cause in the history, or
    empty.
    """
    makes_room = f" for {claimant}" if claimant else ""
    return f"was preempted{makes_room}, and continues from its checkpoint when it starts again" + _because(cause)


def requeued(by: str, *, held: bool = False) -> str:
    """Return the news that a user has stopped a job's attempt.

    ``by`` is the user's ARN, and ``held`` says whether the user has also put the job on hold.
    """
    when = "after it is released" if held else "when it starts again"
    return f"was {'put on hold' if held else 'requeued'} by {_person(by)}, and continues from its checkpoint {when}"


def drained(by: str) -> str:
    """Return the news that a job's attempt was stopped because its pool is drained. ``by`` is the admin's ARN."""
    return f"was stopped because {_person(by)} drains its pool, and continues from its checkpoint when it starts again"


def unsaved(ran: str, *, has_folder: bool) -> str:
    """Return the news that a preemptible job saves nothing.

    ``ran`` is the duration since the launch of the attempt, and ``has_folder`` says whether the job has a checkpoint
    folder.
    """
    how = (
        "its script must write to the checkpoint folder ($SM_CHECKPOINT_DIR)"
        if has_folder
        else "it needs a checkpoint folder (smq submit --checkpoint, or checkpoint_s3_uri)"
    )
    return f"has run for {ran} without a checkpoint, and a preemption would lose this work; {how}"


def late(start_by: str, pools: Sequence[str] = (), *, no_further: bool = False) -> str:
    """Return the news that a job has not started in time.

    ``pools`` are the further pools that the job may use from now on; empty if nothing changes. ``no_further`` says that
    the job requested further pools, and that its project has none.
    """
    news = f"has not started by {start_by}"
    if no_further:
        return f"{news}, and its project has no further pools in which it could run"
    return f"{news}, and may now run in the pools {', '.join(pools)}" if pools else news


def gpu_returned(remedy: str) -> str:
    """Return the news of another hardware failure of the same GPU. ``remedy`` names the GPU."""
    return f"had a hardware failure, and is tried again. {remedy}"


def hangs(silent: str, *, requeued: bool = False) -> str:
    """Return the news of a hang. ``silent`` is a duration, ``requeued`` says whether the queue stops the attempt."""
    action = "; the queue stops it, and it continues from its checkpoint" if requeued else "; look at it, or requeue it"
    return f"seems to hang: no log line, no checkpoint and idle GPUs for {silent}{action}"


def hung() -> str:
    """Return the news that the queue has stopped an attempt because it hung."""
    return "was stopped because it hung, and continues from its checkpoint when it starts again"


def finished(
    state: str, took: str, job: str, reason: str | None, failure_class: str | None = None, remedy: str = ""
) -> str:
    """Return the news of an end.

    ``state`` is completed, failed or stopped, and ``took`` is the duration since the submission. ``reason`` is empty if
    unknown, and None if the reason is the program's output, which not all readers may see. ``failure_class`` and
    ``remedy`` describe the failure of a failed job; ``failure_class`` is None if the failure has no class.
    """
    if state == "completed":
        return f"is completed, {took} after it was submitted"
    if state == "failed" and failure_class:
        # A long reason is cut, so that the remedy is part of the notice.
        cause = f". smq logs {job} shows its log." if reason is None else _because(_sentence(reason[:LONGEST_REASON]))
        return f"has failed ({failure_class}){cause or '.'} {remedy}".rstrip()
    how = "has failed" if state == "failed" else "was stopped"
    return f"{how} by an error of its own; smq logs {job} shows it" if reason is None else how + _because(reason)


def failed_together(count: int, owner: str | None, names: str, failure_class: str, remedy: str) -> str:
    """Return one notice for several jobs of an owner (an ARN) that failed at the same time with the same class."""
    return _one_line(f"{count} jobs of {_person(owner or '')} have failed ({failure_class}): {names}. {remedy}")


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def _person(arn: str) -> str:
    return arn.rpartition("/")[2].rpartition(":")[2]


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def notice(job: str, owner: str | None, project: str | None, news: str, longest: int | None = None) -> str:
    """Return a notice: a sentence about a job, on one line of at most ``longest`` characters (None: no limit).

    ``owner`` is an ARN, and ``news`` is the result of another function of this module. The text may contain user input:
    remove unprintable characters and chat markup.
    """
    line = _one_line(f"{job} ({_person(owner or '')}, project {project}) {news}")
    sentence = _sentence(line)
    if longest is not None and len(sentence) > longest:
        return f"{line[: longest - 1]}…"
    return sentence


def _one_line(text: str) -> str:
    """Return text on one line, without unprintable characters and chat markup."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split()).translate(_CHAT_MARKUP)
