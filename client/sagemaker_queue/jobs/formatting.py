"""Formatting of times, sizes, names and states of jobs for users."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

from api_contract.intervals import interval_in_words, short_interval
from api_contract.models import Expectation, JobDetail, JobSummary

# C0 except tab and line feed, DEL, C1, marks that change the direction of text, and surrogates.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Escape sequences: CSI (colours, the cursor), OSC and similar (the title, the clipboard), and short sequences.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    # The text of a sequence may not contain an introducer: n introducers without an end would take n * n steps.
    r"|(?:\x1b[PX\]^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)

MEGABYTE = 1_000_000
FIRST_ESTIMATE_SECONDS = 90  # time after which the first estimate of a new job has certainly been made
NOT_YET = "…"  # in place of an estimate that is still missing
NOT_ESTIMATED = "Not estimated yet. The queue estimates starts once a minute."
LONGEST_CELL = 72  # characters
_IN_FURTHER_POOLS = "(tag start_by); it may now run in "  # part of the cause of a missed start in the history
_GOING_TO_BE_STOPPED = "; it is going to be stopped"  # end of the cause of a hang in the history
# SageMaker's report of a failed program: AlgorithmError: ExecuteUserScriptError: ExitCode 1 ErrorMessage "..."
_PROGRAM_FAILED = re.compile(r"AlgorithmError: (?:ExecuteUserScriptError: ?)?(.*)", re.DOTALL)
_EXIT_CODE = re.compile(r"exit ?code:? ?([0-9]{1,3})\b", re.IGNORECASE)
_CLASSIFIED = re.compile(r" \[[a-z_]+: ([^\]]*)\]$")
_PYTHON_ERROR = re.compile(r"\b[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)(?:: [^\n]*)?$", re.MULTILINE)
_RETRIED = re.compile(r"failed, (?P<how>retry [0-9]+ of [0-9]+|retried free): (?P<why>.*)", re.DOTALL)
_BEGINS_FORMULA = ("=", "+", "-", "@", "\t")


def age(start: datetime | None, until: datetime | None = None) -> str:
    """Return the time from ``start`` to now (or ``until``) in its two largest units: ``3d4h``, ``2h05m``, ``41s``."""
    return "" if start is None else duration(since(start, until))


def duration(time: float) -> str:
    """Return a number of seconds in its two largest units: ``3d4h``, ``2h05m``, ``41s``."""
    seconds = max(0, int(time))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days}d{hours % 24}h"
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    return f"{minutes}m{seconds % 60:02}s" if minutes else f"{seconds}s"


def in_words(time: float) -> str:
    """Return a number of seconds as words, in its two largest units: ``2 hours 5 minutes``, ``1 day``."""
    left = max(0, int(time))
    parts: list[tuple[int, str]] = []
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append((count, unit))
    return " ".join(amount(count, unit) for count, unit in parts[:2] if count) or "0 seconds"


def since(start: datetime | None, end: datetime | None = None) -> float:
    """Return the seconds from ``start`` to now (or ``end``); 0 if the start is unknown."""
    return ((end or datetime.now(timezone.utc)) - start).total_seconds() if start else 0.0


def moment(time: datetime | None) -> str:
    """Return the time in UTC, to the second; empty for None."""
    return time.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S") if time else ""


def short_owner(arn: str | None) -> str | None:
    """Return ``alice`` for a user's ARN, ``Role/session`` for an assumed role's, ``root`` for the account's."""
    resource = (arn or "").rpartition(":")[2]
    return resource.partition("/")[2] or resource or None


def is_not_estimated_yet(job: JobSummary) -> bool:
    """Return whether the first estimate of a live job may still be missing: the queue computes estimates once a minute.

    A job on hold gets no estimate.
    """
    changed = max((time for time in (job.entry_time, job.state_since) if time is not None), default=None)
    return not job.finished and not job.held and changed is not None and since(changed) < FIRST_ESTIMATE_SECONDS


def start_cell(job: JobSummary) -> str:
    """Return the time until a waiting job's expected start, as ``starts_in``; NOT_YET until the first estimate."""
    is_missing = job.waits and job.expected_start is None and is_not_estimated_yet(job)
    return NOT_YET if is_missing else starts_in(job.expected_start)


def end_cell(job: JobSummary) -> str:
    """Return the time until a live job's expected end, as ``ends_in``; NOT_YET until the first estimate."""
    is_missing = job.expected_end is None and job.state != "stopping" and is_not_estimated_yet(job)
    return NOT_YET if is_missing else ends_in(job.expected_end)


def starts_in(expected: Expectation | None) -> str:
    """Return the time until a job's expected start: ``20m-3h``, ``~20m-3h`` for a guess, ``?`` if unknown.

    The text is empty without an expectation, or if the job can never start. Queues of earlier versions report no
    interval: the text is then ``2h05m``, or ``~2h05m`` for a guess.
    """
    if expected is None or expected.doubt == "NEVER":
        return ""
    if (interval := short_interval(expected, datetime.now(timezone.utc))) is not None:
        return interval
    if expected.start is None:
        return "?"
    until = _time_until(expected.start)
    return f"~{until}" if expected.doubt and until != "soon" else until


def ends_in(end: datetime | None) -> str:
    """Return the time until a job's expected end: ``2h05m``; empty if unknown."""
    return _time_until(end) if end else ""


def end_sentence(end: datetime | None) -> str | None:
    """Return a sentence about a job's expected end: ``At about 2026-11-21 14:20 UTC, in 2h05m.``."""
    if end is None:
        return None
    until = _time_until(end)
    return f"At about {end.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC, {until if until == 'soon' else f'in {until}'}."


def _time_until(time: datetime) -> str:
    seconds = (time - datetime.now(timezone.utc)).total_seconds()
    return duration(seconds) if seconds > 0 else "soon"


def concise(text: str) -> str:
    """Shorten SageMaker's report of a failed program in a reason or cause.

    SageMaker puts the program's last output, such as a traceback, on one line. The result has the exit code, and the
    cause that the queue has found, or else the last line of the traceback.
    """
    found = _PROGRAM_FAILED.search(text)
    if found is None:
        return text
    report, code = found[1], _EXIT_CODE.search(found[1])
    classified, errors = _CLASSIFIED.search(report), _PYTHON_ERROR.findall(report)
    if not (code or classified or errors):
        return text
    exit_code = f"exit code {code[1]}" if code else ""
    if classified:
        short = f"{classified[1].rstrip('.')} ({exit_code})" if exit_code else classified[1]
    else:
        short = ": ".join(filter(None, [exit_code, shortened(errors[-1].rstrip('"')) if errors else ""]))
    return f"{text[: found.start()]}{short}"


def end_of_attempt(outcome: str, cause: str) -> str:
    """Return how an attempt ended, with a retry at the end: ``failed (exit code 3); retry 1 of 2``."""
    retried = _RETRIED.fullmatch(cause)
    if retried is None:
        why = cause.removeprefix(f"{outcome}: ")
        return f"{outcome}: {concise(why)}" if why else outcome
    return f"{outcome} ({concise(retried['why'])}); {retried['how']}"


def has_further_pools(job: JobDetail) -> bool:
    """Return whether a job's history says that it missed its start and may now run in further pools of its project."""
    return any(_IN_FURTHER_POOLS in transition.cause for transition in job.history)


def is_stopped_for_hang(job: JobDetail) -> bool:
    """Return whether a job's history says that the queue is stopping the present attempt because of a hang."""
    causes = (transition.cause for transition in job.history if transition.attempt == job.attempt)
    return any(cause.startswith("hangs: ") and cause.endswith(_GOING_TO_BE_STOPPED) for cause in causes)


_STAGES = {
    "Starting": ("provisioning", "SageMaker is getting its instances"),
    "LaunchingMLInstances": ("provisioning", "SageMaker is launching its instances"),
    "PreparingTrainingStack": ("provisioning", "SageMaker is preparing its instances"),
    "Pending": ("provisioning", "SageMaker waits for capacity"),
    "Downloading": ("downloading", "SageMaker is downloading its input data"),
    "DownloadingTrainingImage": ("downloading", "SageMaker is downloading its image"),
    "Uploading": ("uploading", "SageMaker is uploading its results"),
    "Interrupted": ("interrupted", "SageMaker has taken its spot instances back"),
    "Restarting": ("restarting", "SageMaker is restarting it"),
}
"""SecondaryStatus of a running attempt that does not train -> a word for tables, and a sentence without full stop."""


def stage_word(job: JobSummary) -> str | None:
    """Return SageMaker's step before or after the training of a running job, as a word; None while the job trains."""
    known = _STAGES.get(job.secondary_status or "") if job.state == "running" else None
    return known[0] if known else None


def stage_sentence(job: JobSummary) -> str | None:
    """Return SageMaker's step before or after the training of a running job, as text; None while the job trains."""
    known = _STAGES.get(job.secondary_status or "") if job.state == "running" else None
    return known[1] if known else None


def state_sentence(job: JobSummary, *, with_start: bool = True) -> str:
    """Return the state of a job, its position if it waits, the reason and the expected start, as text on one line.

    ``with_start`` says whether the text contains the expected start.
    """
    position = f", {place(job.position)}" if job.position else ""
    reason = f": {clean(concise(job.reason.message))}" if job.reason and job.reason.message else ""
    expected = _expected_start(job.expected_start) if with_start and reason.endswith(".") else ""
    failed = f" ({clean(job.failure_class)})" if job.state == "failed" and job.failure_class else ""
    stage = f": {stage_sentence(job)}" if stage_sentence(job) else ""
    return f"{job.job} {predicate(job.state)}{failed}{position}{stage}{reason}{expected}"


def _expected_start(expected: Expectation | None) -> str:
    if expected is None:
        return ""
    if (interval := interval_in_words(expected, datetime.now(timezone.utc))) is not None:
        return f" Expected wait: {interval}."
    return f" Expected start: about {_to_ten_minutes(expected.start)}." if expected.start else ""


def predicate(state: str) -> str:
    """Return a state as a predicate: ``is pending``, ``failed``, ``was stopped``."""
    return {"completed": state, "failed": state, "stopped": "was stopped"}.get(state, f"is {state}")


def outcome(how: str | None, failure_class: str | None) -> str | None:
    """Return the outcome of an attempt, with the class of its failure: ``failed: gpu_memory``."""
    return f"{how}: {failure_class}" if how and failure_class else how


def _to_ten_minutes(time: datetime) -> str:
    """Return a time rounded to ten minutes, because programs print the sentence again whenever its text changes."""
    rounded = datetime.fromtimestamp(round(time.timestamp() / 600) * 600, timezone.utc)
    return f"{rounded:%Y-%m-%d %H:%M} UTC"


def clean(cell: object) -> object:
    """Return text on one line, with ? for unprintable characters, because a reason may contain a script's output.

    Other values are returned unchanged.
    """
    if not isinstance(cell, str):
        return cell
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(cell.split()))


def visible(text: str) -> str:
    """Return text with control characters as escapes in JSON's syntax; line feeds and tabs stay."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """Return a key or a name on one line with escaped control characters, so that different names stay different."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def log_line(text: str) -> str:
    """Return a line of a log as a terminal would show it, without control sequences (colours, titles, the cursor).

    A progress bar, which returns to the start of its line, is reduced to its last state.
    """
    parts = [part for part in text.split("\r") if part.strip()]
    return _CONTROLS.sub("", _SEQUENCE.sub("", parts[-1] if parts else ""))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'ls'?`` if a known word is similar, else empty text."""
    from difflib import get_close_matches  # noqa: PLC0415  # needed only after a typing error

    close = get_close_matches(word, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def ordinal(number: int) -> str:
    """Return an ordinal number: ``1st``, ``2nd``, ``3rd``, ``4th``."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def place(position: int) -> str:
    """Return a position as text: ``3rd in the queue``."""
    return f"{ordinal(position)} in the queue"


def amount(count: int, thing: str) -> str:
    """Return a number with a noun: ``1 job`` or ``2 jobs``."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def gpus(count: float) -> str:
    """Return a number of GPUs: ``1 GPU`` or ``0.5 GPUs``."""
    return f"{count:g} {'GPU' if count == 1 else 'GPUs'}"


def instances(slots: Mapping[str, int]) -> str:
    """Return slots by pool as text: ``2 instances of p5 and 1 instance of c6``."""
    return " and ".join(f"{amount(count, 'instance')} of {clean(pool)}" for pool, count in slots.items())


def file_size(count: int) -> str:
    """Return a number of bytes as ``12 bytes``, ``3.4 kB``, ``12.3 MB`` or ``1.2 GB``."""
    if count < 1000:
        return amount(count, "byte")
    for unit, size in (("GB", 10**9), ("MB", 10**6)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1000:,.1f} kB"


def cut(cell: object, width: int) -> object:
    """Return text cut to ``width`` characters, with an ellipsis; return other values unchanged."""
    return f"{cell[: width - 1]}…" if isinstance(cell, str) and len(cell) > width else cell


def shortened(text: str | None) -> str:
    """Return text on one line, cut to LONGEST_CELL characters."""
    return str(cut(" ".join((text or "").split()), LONGEST_CELL))


def csv_cell(value: object) -> object:
    """Return a value as a CSV cell on one line; times are in UTC. A leading ' keeps text from becoming a formula."""
    if isinstance(value, datetime):
        return moment(value)
    if not isinstance(value, str):
        return "" if value is None else value
    text = " ".join(value.split())
    return f"'{text}" if text.startswith(_BEGINS_FORMULA) else text
