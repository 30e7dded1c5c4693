"""What must become of a failed job, computed anew from SageMaker's truth, the job's tags and the policy's rules.

Two things are not certain: whether the log was read before the end was recorded, and whether an attempt ran just longer
or shorter than a limit. So a job has a set of possible counts, and the recorded counts must be among them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from tests.torture.failure_samples import Failed, Sample

EARLY_SECONDS = 300
ROW_SECONDS = 3600
CLOCK_SECONDS = 2  # events tell whole milliseconds, and agents' reports whole seconds
FREE_IN_A_ROW = 5
RETRIES_OF_A_RULE = 3  # of a job whose `retry_on` retries, without `retries`
FREE, COUNTED, NEVER = "retry free", "retry", "fail"
RETRIED_FREE = {"communication", "hardware", "internal", "capacity", "quota"}
RETRIED = {"memory", "unknown"}


@dataclass(frozen=True, slots=True)
class Counts:
    """The retries of a job after some of its failures, and the action after the last failure."""

    used: int = 0
    free_in_a_row: int = 0
    last: tuple[int, str, bool] | None = None  # the number and the class of the last failure, and whether it was early
    action: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """A failure as the queue may have seen it: with its log or without."""

    failure_class: str
    exit_code: int | None
    text: str
    has_lost_carrier: bool = False


@dataclass(frozen=True, slots=True)
class Orders:
    """A user's and an admin's instructions about failures of a job."""

    retries: int
    rules: tuple[tuple[str, Any, str], ...]  # condition, value, action; the first one that applies decides

    @classmethod
    def of(cls, details: str, policy_rules: Iterable[Mapping[str, Any]]) -> "Orders":
        """Read the tags of a request.

        :param policy_rules: those of the job's project, then those of the policy.
        """
        tags = {tag["Key"]: tag["Value"] for tag in json.loads(details)["Tags"]}
        words = [_word(word) for word in tags.get("retry_on", "").split()]
        by_rule = RETRIES_OF_A_RULE if any(action == COUNTED for _, _, action in words) else 0
        rules = [
            (condition, rule[condition], rule["action"])
            for rule in policy_rules
            for condition in ("match", "exit_code", "failure_class")
            if condition in rule
        ]
        return cls(int(tags.get("retries", by_rule)), (*words, *rules))

    def action(self, view: View) -> tuple[str, bool]:
        """Return the action after a failure, and whether a rule chose it."""
        for condition, value, action in self.rules if not view.has_lost_carrier else ():
            if condition == "match":
                applies = _contains(view.text, value)
            else:
                applies = value == (view.exit_code if condition == "exit_code" else view.failure_class)
            if applies:
                return action, True
        if view.failure_class in RETRIED_FREE:
            return FREE, False
        return (COUNTED if view.failure_class in RETRIED else NEVER), False


def _word(word: str) -> tuple[str, Any, str]:
    what, _, action = word.partition("=")
    action = {"": COUNTED, "retry-fresh": COUNTED, "retry-free": FREE, "retry-free-fresh": FREE}.get(action, action)
    if what.isdecimal():
        return "exit_code", int(what), action
    return ("match", what.removeprefix("text:"), action) if ":" in what else ("failure_class", what, action)


def _contains(text: str, pattern: str) -> bool:
    place, text = 0, text.lower().replace("_", " ")
    for part in pattern.lower().replace("_", " ").split("*"):
        found = text.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return True


def views(failed: Failed | None, reason: str, *, is_log_read: bool, is_member: bool) -> Iterator[View]:
    """Yield the forms in which the queue may have seen a failure.

    :param is_member: whether the queue may also have taken the failure for the loss of its carrier.
    """
    if is_member:
        yield View("internal", None, "InternalServerError: ", has_lost_carrier=True)
    if failed is None and not reason:
        return  # its carrier has ended, or was stopped
    sample = failed.sample if failed else _ordinary(reason)
    if not (is_member and sample.by_reason == "internal"):
        yield View(sample.by_reason, sample.exit_code, sample.reason)
    if sample.by_log and is_log_read:
        yield View(sample.by_log, sample.exit_code, "\n".join((sample.reason, *sample.lines)))


def _ordinary(reason: str) -> Sample:
    """Return the failure that walks of all kinds have."""
    known = {"CapacityError": "capacity", "InternalServerError": "internal"}
    by_reason = known.get(reason.partition(":")[0], "unknown")
    return Sample(by_reason, reason, int(reason.rsplit(maxsplit=1)[-1]) if by_reason == "unknown" else None)


def after_failure(
    before: Iterable[Counts], number: int, seen: Sequence[View], seconds: float | None, orders: Orders
) -> set[Counts]:
    """Return the possible counts after a failure.

    :param number: of the attempt.
    :param seconds: that the attempt ran; None: not known.
    """
    earlier = _sides(seconds, EARLY_SECONDS)
    longer = [not it for it in _sides(seconds, ROW_SECONDS)]
    return {
        _after(counts, number, view, orders, early=early, ends_row=ends_row)
        for counts, view, early, ends_row in product(before, seen, earlier, longer)
    }


def _sides(seconds: float | None, limit: int) -> list[bool]:
    """Return whether a time is below a limit; both answers if that is not certain."""
    if seconds is None or abs(seconds - limit) <= CLOCK_SECONDS:
        return [True, False]
    return [seconds < limit]


def _after(counts: Counts, number: int, view: View, orders: Orders, *, early: bool, ends_row: bool) -> Counts:
    action, by_rule = orders.action(view)
    if view.failure_class == "capacity":
        return replace(counts, action=FREE)
    if view.failure_class == "internal" and not by_rule:
        return replace(counts, last=(number, "internal", False), action=FREE)
    row = 0 if ends_row else counts.free_in_a_row
    fails_again = early and view.failure_class != "unknown" and counts.last == (number - 1, view.failure_class, True)
    after = Counts(counts.used, row, (number, view.failure_class, early), NEVER)
    if action == NEVER or fails_again:
        return after
    if action == FREE and row < FREE_IN_A_ROW:
        return replace(after, free_in_a_row=row + 1, action=FREE)
    return replace(after, used=counts.used + 1, action=COUNTED) if counts.used < orders.retries else after
