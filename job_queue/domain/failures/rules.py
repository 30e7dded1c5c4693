"""The rules that choose the action after a failed attempt. The first rule that applies decides.

The rules of the job's tag come first, then those of its project and of the policy, then the built-in actions. A pattern
of a rule is a text with `*`, and not a regular expression. The parts of a pattern are searched one after the other, so
no pattern of a user can take long.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from job_queue.domain.failures.classes import DEFAULT_ACTIONS, REMEDIES, Failure
from job_queue.domain.failures.failed_gpus import remedy_for_returned
from job_queue.domain.job import FailedAttempt, Job, clipped
from job_queue.scheduler import FailureAction, FailureClass, FailureRule, Policy

EARLY_SECONDS = 5 * 60  # an attempt that fails within this time after its start fails early
MOST_FREE_RETRIES = 5  # free retries in a row; further ones use up the job's `retries`
SERIES_END_SECONDS = 3600  # an attempt that has run for this time resets the number of free retries in a row
MOST_JOB_RULES = 10
DEFAULT_RETRIES = 3  # retries of a job whose tag `retry_on` asks for retries, without a tag `retries`
MOST_LINES = 5
LINE_BYTES = 200
SENTENCE_BYTES = 400

_EXIT_CODE = re.compile(r"-?[0-9]{1,3}", re.ASCII)
_TEXT = "text:"
_ACTIONS = {
    "fail": (FailureAction.FAIL, False),
    "retry": (FailureAction.RETRY, False),
    "retry-free": (FailureAction.RETRY_FREE, False),
    "retry-fresh": (FailureAction.RETRY, True),
    "retry-free-fresh": (FailureAction.RETRY_FREE, True),
}
_FRESH_CLASSES = frozenset({FailureClass.HARDWARE})  # classes whose built-in action avoids the failed instances
_BUILT_IN = "built-in"


class RuleError(ValueError):
    """A fault in the tag `retry_on`, as a sentence with a remedy."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class NamedRule:
    """A rule with the text that describes it to people."""

    rule: FailureRule
    text: str


def rules_of_tag(text: str) -> tuple[NamedRule, ...]:
    """Return the rules in a tag `retry_on`: `137 communication=retry-free text:lost_connection=fail`.

    Each word is an exit code, a class, or `text:` and a part of the reason or of a log line. In such a part, `_` stands
    for a space. The action after `=` is `retry` by default.

    :raises RuleError: the tag is empty or has too many rules, or a word is no rule.
    """
    words = [word for word in re.split(r"[\s,+]+", text.strip()) if word]
    if not words:
        raise RuleError("The tag retry_on is empty.", "Name exit codes or classes, such as 137 communication.")
    if len(words) > MOST_JOB_RULES:
        raise RuleError(
            f"The tag retry_on has {len(words)} rules; it may have {MOST_JOB_RULES}.",
            "Leave out rules that other rules cover, or ask an admin to put a rule into the policy.",
        )
    return tuple(map(_rule_of_word, words))


def _rule_of_word(word: str) -> NamedRule:
    what, equals, name = word.partition("=")
    action = _ACTIONS.get(name if equals else "retry")
    if not what or "=" in name:
        raise RuleError(
            f"The tag retry_on has the word {word!r}, which does not have the form condition=action.",
            "Write an exit code, a class or text: and a text, then nothing or = and an action.",
        )
    if action is None:
        raise RuleError(
            f"The tag retry_on has the word {word!r}, whose action is unknown.",
            f"Write {', '.join(_ACTIONS)} after the sign =, or nothing for retry.",
        )
    then, fresh = action
    text = f"retry_on: {word}"
    if _EXIT_CODE.fullmatch(what) and abs(int(what)) <= 255:
        return NamedRule(FailureRule(then, exit_code=int(what), fresh_instances=fresh), text)
    if what.startswith(_TEXT) and len(what) > len(_TEXT):
        return NamedRule(FailureRule(then, match=what.removeprefix(_TEXT), fresh_instances=fresh), text)
    known = [it.value for it in FailureClass if it is not FailureClass.CAPACITY]
    if what not in known:
        close = get_close_matches(what, known, n=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        raise RuleError(
            f"The tag retry_on has the word {word!r}, which is no condition: an exit code from -255 to 255, a class or "
            "text: and a text.",
            f"{hint}Classes: {', '.join(known)}. Write text: before a part of the reason or of a log line.",
        )
    return NamedRule(FailureRule(then, failure_class=FailureClass(what), fresh_instances=fresh), text)


def asks_for_retries(rules: Iterable[NamedRule]) -> bool:
    """Return whether a rule of a tag has an action that uses retries (`retry` or `retry-fresh`)."""
    return any(it.rule.action is FailureAction.RETRY for it in rules)


def rules_for(tag: str | None, project: str, policy: Policy) -> Iterator[NamedRule]:
    """Yield the rules for a job: those of its tag `retry_on`, of its project, and of the policy.

    :param tag: the value of the tag. A tag that only an earlier version accepted has no rules.
    """
    yield from _rules_of_stored_tag(tag)
    own = next((it.failure_rules for it in policy.projects if it.name == project), ())
    for number, rule in enumerate(own, 1):
        yield NamedRule(rule, f"failure_rules {number} of the project {project}: {described(rule)}")
    for number, rule in enumerate(policy.failure_rules, 1):
        yield NamedRule(rule, f"failure_rules {number} of the policy: {described(rule)}")


def _rules_of_stored_tag(tag: str | None) -> tuple[NamedRule, ...]:
    try:
        return rules_of_tag(tag) if tag else ()
    except RuleError:
        return ()


def described(rule: FailureRule) -> str:
    """Return the conditions and the action of a rule as text."""
    conditions = (
        ("match", rule.match and repr(rule.match)),
        ("exit_code", None if rule.exit_code is None else str(rule.exit_code)),
        ("failure_class", rule.failure_class and rule.failure_class.value),
    )
    named = " ".join(f"{name} {value}" for name, value in conditions if value)
    return f"{named}, {rule.action.value}{' on fresh instances' if rule.fresh_instances else ''}"


def contains(pattern: str, text: str) -> bool:
    """Return whether a text contains a pattern. `*` matches any characters.

    Upper and lower case are equal, and `_` and a space are equal.

    The parts of the pattern are searched from left to right, each after the previous part. The earliest place of a part
    is always right, because it leaves the most text for the later parts.
    """
    text, place = _folded(text), 0
    for part in _folded(pattern).split("*"):
        place = text.find(part, place)
        if place < 0:
            return False
        place += len(part)
    return True


def _folded(text: str) -> str:
    return text.lower().replace(" ", "_")


def choose(
    attempt: int,
    failure: Failure,
    exit_code: int | None,
    texts: Sequence[str],
    rules: Iterable[NamedRule],
    *,
    rank: str = "",
    lines: Sequence[str] = (),
) -> FailedAttempt:
    """Return the failure of an attempt with the action that the first applicable rule chooses.

    :param texts: the FailureReason and the last log lines.
    :param rank: the rank that failed first; `lines` are its last log lines.
    """
    matching = (it for it in rules if _applies(it.rule, failure.failure_class, exit_code, texts))
    found = next(matching, None)
    default = DEFAULT_ACTIONS[failure.failure_class]
    return FailedAttempt(
        attempt=attempt,
        failure_class=failure.failure_class.value,
        sentence=clipped(failure.sentence, SENTENCE_BYTES),
        action=(found.rule.action if found else default).value,
        rule=found.text if found else f"{_BUILT_IN}: {failure.failure_class.value}, {default.value}",
        rank=rank or None,
        lines=tuple(clipped(line, LINE_BYTES) for line in lines[-MOST_LINES:]),
        exit_code=exit_code,
        fresh_instances=found.rule.fresh_instances if found else failure.failure_class in _FRESH_CLASSES,
    )


def chosen_again(job: Job, failed: FailedAttempt, tag: str | None, policy: Policy) -> FailedAttempt:
    """Return a recorded failure with the action that the present rules choose, without regard to limits of retries.

    Rules with a `match` are compared with the job's reason and with the recorded sentence and lines, because no other
    lines are kept. The result has no rank, no lines and no GPUs.
    """
    known = {it.value: it for it in FailureClass}
    failure_class = known.get(failed.failure_class, FailureClass.UNKNOWN)
    failure = Failure(failure_class, failed.sentence, "")
    texts = [job.reason or "", failed.sentence, *failed.lines]
    return choose(failed.attempt, failure, failed.exit_code, texts, rules_for(tag, job.project, policy))


def remedy_for(failure_class: str) -> str:
    """Return the remedy for a recorded class; empty for a class of a later version."""
    return next((remedy for it, remedy in REMEDIES.items() if it == failure_class), "")


def remedy_of(failed: FailedAttempt) -> str:
    """Return the remedy for a recorded failure."""
    return remedy_for_returned(failed) or remedy_for(failed.failure_class)


def is_built_in(failed: FailedAttempt) -> bool:
    """Return whether no rule of the job, the project or the policy chose the action."""
    return failed.rule.startswith(_BUILT_IN)


def _applies(rule: FailureRule, failure_class: FailureClass, exit_code: int | None, texts: Sequence[str]) -> bool:
    if rule.failure_class is not None and rule.failure_class is not failure_class:
        return False
    if rule.exit_code is not None and rule.exit_code != exit_code:
        return False
    return rule.match is None or any(contains(rule.match, text) for text in texts)


def decided(job: Job, failed: FailedAttempt, ran: float) -> tuple[FailedAttempt, int]:
    """Return the failure with its action under the limits of retries, and the new number of free retries in a row.

    - If two attempts in a row fail early with the same class, the job fails. Unknown causes are never the same class.
    - After `MOST_FREE_RETRIES` free retries in a row, a retry counts. An attempt that has run for `SERIES_END_SECONDS`
      resets the number.
    - If no retries are left, the job fails.

    :param ran: seconds from the start of the attempt to its failure.
    """
    failed = replace(failed, early=ran <= EARLY_SECONDS)
    in_a_row = 0 if ran >= SERIES_END_SECONDS else job.free_retried
    if failed.action == FailureAction.FAIL:
        return failed, in_a_row
    if _fails_early_again(job.failure, failed):
        minutes = EARLY_SECONDS // 60
        why = f"two attempts in a row failed with the same class, each within {minutes} minutes of its start"
        return replace(failed, action=FailureAction.FAIL.value, rule=why), in_a_row
    if failed.action == FailureAction.RETRY_FREE and in_a_row < MOST_FREE_RETRIES:
        return failed, in_a_row + 1
    if job.retried < job.retries:
        return replace(failed, action=FailureAction.RETRY.value), in_a_row
    used = f"{MOST_FREE_RETRIES} free retries in a row" if failed.action == FailureAction.RETRY_FREE else "all retries"
    rule = f"{used} are used" if job.retries or failed.action == FailureAction.RETRY_FREE else "the job has no retries"
    return replace(failed, action=FailureAction.FAIL.value, rule=f"{failed.rule}; {rule}"), in_a_row


def _fails_early_again(before: FailedAttempt | None, failed: FailedAttempt) -> bool:
    return (
        before is not None
        and failed.failure_class != FailureClass.UNKNOWN
        and before.failure_class == failed.failure_class
        and before.attempt + 1 == failed.attempt
        and before.early
        and failed.early
    )
