"""Rules for failures: the tag retry_on, patterns, the order of the rules, and the limits of retries."""

import time
from dataclasses import replace
from typing import Any

import pytest

from job_queue.domain import state_machine
from job_queue.domain.accounting.ending import Ending
from job_queue.domain.failures import (
    RuleError,
    asks_for_retries,
    choose,
    chosen_again,
    classify,
    decided,
    remedy_for,
    rules_for,
    rules_of_tag,
)
from job_queue.domain.failures.rules import (
    EARLY_SECONDS,
    LINE_BYTES,
    MOST_FREE_RETRIES,
    MOST_LINES,
    SERIES_END_SECONDS,
    contains,
)
from job_queue.domain.job import FailedAttempt, JobRecord, iso
from job_queue.domain.policy_validation import parse_policy
from job_queue.scheduler import FailureAction, FailureClass, FailureRule, JobState
from tests.jobs import NOW, a_job

LATE = EARLY_SECONDS + 1


def failed(action: str = "retry", failure_class: str = "memory", **changes: Any) -> FailedAttempt:
    return replace(FailedAttempt(1, failure_class, "", action, "r"), **changes)


# --- the tag -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "rule"),
    [
        ("137", FailureRule(FailureAction.RETRY, exit_code=137)),
        ("-9=fail", FailureRule(FailureAction.FAIL, exit_code=-9)),
        ("communication=retry-free", FailureRule(FailureAction.RETRY_FREE, failure_class=FailureClass.COMMUNICATION)),
        ("hardware=retry-free-fresh", FailureRule(FailureAction.RETRY_FREE, None, None, FailureClass.HARDWARE, True)),
        ("text:Lost_Peer=retry-fresh", FailureRule(FailureAction.RETRY, match="Lost_Peer", fresh_instances=True)),
    ],
)
def test_a_word_of_the_tag_is_a_rule(word: str, rule: FailureRule) -> None:
    (found,) = rules_of_tag(word)
    assert (found.rule, found.text) == (rule, f"retry_on: {word}")


@pytest.mark.parametrize("text", ["137 memory=fail", "137,memory=fail", "137+memory=fail", "  137  memory=fail "])
def test_words_are_separated_by_spaces_commas_and_plus_signs(text: str) -> None:
    assert [it.text for it in rules_of_tag(text)] == ["retry_on: 137", "retry_on: memory=fail"]


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("", "is empty", "137"),
        ("comunication", "which is no condition", "Did you mean communication?"),
        ("capacity", "which is no condition", "Classes: user_error"),
        ("137=again", "action is unknown", "retry-free"),
        ("137=", "action is unknown", "retry-free"),
        ("137=Retry", "action is unknown", "retry-free"),
        ("137=retry=fail", "does not have the form condition=action", "Write an exit code"),
        ("=fail", "does not have the form condition=action", "Write an exit code"),
        ("256", "which is no condition: an exit code from -255 to 255", "Classes"),
        ("text:", "which is no condition", "Classes"),
        (" ".join(map(str, range(11))), "has 11 rules", "Leave out"),
    ],
)
def test_a_word_that_is_no_rule_is_refused(text: str, message: str, remedy: str) -> None:
    with pytest.raises(RuleError, match=message) as caught:
        rules_of_tag(text)
    assert remedy in caught.value.remedy


def test_only_retries_that_count_need_retries() -> None:
    assert asks_for_retries(rules_of_tag("memory=fail 137"))
    assert not asks_for_retries(rules_of_tag("memory=fail communication=retry-free"))


# --- patterns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("lost peer", "worker 3: LOST PEER 7", True),
        ("lost_peer", "worker 3: lost peer 7", True),
        ("worker*7", "worker 3: lost peer 7", True),
        ("7*worker", "worker 3: lost peer 7", False),
        ("a*a", "a", False),
        ("ab*ab*c", "abxabab c", True),
        ("*", "", True),
        ("[a-z]+", "abc", False),
    ],
)
def test_a_pattern_is_a_text_with_stars(pattern: str, text: str, *, found: bool) -> None:
    assert contains(pattern, text) is found


def test_a_pattern_takes_no_longer_than_its_text_allows() -> None:
    began = time.process_time()
    assert not contains("a*" * 100 + "b", "a" * 100_000)
    assert time.process_time() - began < 1


# --- the order of the rules --------------------------------------------------------------------------


def a_policy(**changes: Any) -> Any:
    return parse_policy(
        {
            "pools": [{"name": "p5", "instance_type": "ml.p5.48xlarge", "capacity": 1}],
            "projects": [{"name": "default"}, {"name": "own", "failure_rules": [{"exit_code": 3, "action": "retry"}]}],
            "failure_rules": [{"match": "lost*peer", "action": "retry free"}, {"exit_code": 3, "action": "fail"}],
        }
        | changes
    )


@pytest.mark.parametrize(
    ("tag", "project", "exit_code", "line", "action", "rule"),
    [
        ("3=retry-free", "own", 3, "", "retry free", "retry_on: 3=retry-free"),
        (None, "own", 3, "lost a peer", "retry", "failure_rules 1 of the project own: exit_code 3, retry"),
        (None, "default", 3, "", "fail", "failure_rules 2 of the policy: exit_code 3, fail"),
        (
            "4",
            "default",
            5,
            "lost a peer",
            "retry free",
            "failure_rules 1 of the policy: match 'lost*peer', retry free",
        ),
        (None, "default", 137, "", "retry", "built-in: memory, retry"),
        ("nonsense", "default", 137, "", "retry", "built-in: memory, retry"),
    ],
)
def test_the_first_rule_that_applies_decides(
    tag: str | None, project: str, exit_code: int, line: str, action: str, rule: str
) -> None:
    failure = classify(None, exit_code, [])
    found = choose(1, failure, exit_code, ["AlgorithmError", line], rules_for(tag, project, a_policy()))
    assert (found.action, found.rule) == (action, rule)


def test_each_condition_of_a_rule_must_apply() -> None:
    rules = rules_for(None, "default", a_policy(failure_rules=[{"exit_code": 3, "match": "peer", "action": "fail"}]))
    named = tuple(rules)
    assert choose(1, classify(None, 3, []), 3, ["lost peer"], named).action == "fail"
    assert choose(1, classify(None, 3, []), 3, ["lost"], named).rule.startswith("built-in")
    assert choose(1, classify(None, 4, []), 4, ["lost peer"], named).rule.startswith("built-in")


def test_lines_and_sentences_are_bounded() -> None:
    found = choose(1, classify(None, 1, []), 1, [], (), rank="algo-2", lines=["ä" * 1000] * 30)
    assert len(found.lines) == MOST_LINES
    assert max(len(line.encode()) for line in found.lines) <= LINE_BYTES


def test_a_recorded_failure_is_compared_with_the_present_rules() -> None:
    job = a_job(failure=failed(exit_code=3), reason="AlgorithmError: exit code 3")
    assert job.failure is not None
    assert chosen_again(job, job.failure, None, a_policy()).rule == "failure_rules 2 of the policy: exit_code 3, fail"
    later = failed(failure_class="of_a_later_version")
    assert chosen_again(job, later, None, a_policy(failure_rules=[])).rule == "built-in: unknown, retry"
    assert (remedy_for("memory") != "", remedy_for("of_a_later_version")) == (True, "")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"action": "fail"}, "needs match, exit_code or failure_class"),
        ({"action": "fail", "match": "**"}, "without a text"),
        ({"action": "fail", "match": "x" * 201}, "match .*has 201 characters, and may have 200"),
        ({"action": "retry", "failure_class": "capacity"}, "waits in any case"),
        ({"action": "retry", "failure_class": "memroy"}, "memory"),
        ({"action": "free", "exit_code": 1}, "retry free"),
        ({"action": "fail", "exit_code": 1000}, "exit_code"),
        ({"exit_code": 1}, "action"),
    ],
)
@pytest.mark.parametrize("place", ["policy", "project"])
def test_a_wrong_rule_is_refused(rule: dict[str, Any], message: str, place: str) -> None:
    own = {"failure_rules": [rule]}
    changes = own if place == "policy" else {"projects": [{"name": "default", **own}]}
    with pytest.raises(Exception, match=message):
        a_policy(**changes)


# --- the limits of retries ---------------------------------------------------------------------------


def test_a_retry_counts_and_a_free_one_does_not() -> None:
    job = a_job(retries=1)
    assert [it.action for it, _ in (decided(job, failed(), LATE), decided(job, failed("retry free"), LATE))] == [
        "retry",
        "retry free",
    ]
    assert decided(job, failed("retry free"), LATE)[1] == 1
    assert decided(job, failed(), LATE)[1] == 0


def test_without_retries_the_job_fails() -> None:
    assert decided(a_job(), failed(), LATE)[0].rule == "r; the job has no retries"
    assert decided(a_job(retries=2, retried=2), failed(), LATE)[0].rule == "r; all retries are used"


def test_free_retries_in_a_row_are_limited() -> None:
    most = a_job(free_retried=MOST_FREE_RETRIES)
    assert decided(most, failed("retry free"), LATE)[0].action == "fail"
    assert decided(a_job(free_retried=MOST_FREE_RETRIES, retries=1), failed("retry free"), LATE)[0].action == "retry"
    assert decided(most, failed("retry free"), SERIES_END_SECONDS) == (failed("retry free"), 1)


@pytest.mark.parametrize(
    ("before", "ran", "action"),
    [
        (failed(early=True), 1, "fail"),
        (failed("retry free", early=True), EARLY_SECONDS, "fail"),
        (failed(early=True), LATE, "retry"),
        (failed(early=False), 1, "retry"),
        (failed(failure_class="communication", early=True), 1, "retry"),
        (None, 1, "retry"),
    ],
)
def test_the_same_early_failure_twice_ends_the_retries(before: FailedAttempt | None, ran: float, action: str) -> None:
    job = a_job(retries=9, failure=before)
    assert decided(job, failed(attempt=2), ran)[0].action == action


def test_failures_that_are_not_in_a_row_or_not_known_do_not_end_the_retries() -> None:
    job = a_job(retries=9, failure=failed(early=True))
    assert decided(job, failed(attempt=3), 1)[0].action == "retry"
    unknown = a_job(retries=9, failure=failed(failure_class="unknown", early=True))
    assert decided(unknown, failed(failure_class="unknown", attempt=2), 1)[0].action == "retry"


@pytest.mark.parametrize("rule", ["internal=fail", "internal", "text:carrier=fail"])
@pytest.mark.parametrize(("carrier", "state"), [("carrier--x-qstamp-1", "pending"), (None, "failed")])
def test_the_end_of_a_carrier_ends_no_member(rule: str, carrier: str | None, state: str) -> None:
    """A rule about errors of SageMaker is not about a carrier, which the queue may have stopped itself."""
    job = a_job(state=JobState.RUNNING, launched="job1-qstamp-1", started=iso(NOW), carrier_attempt=carrier)
    ending = Ending("Failed", failure="InternalServerError: its carrier has ended")
    chosen = state_machine.failed_attempt(job, ending, (), rules_of_tag(rule))
    end = state_machine.end(JobRecord(job, "{}"), replace(ending, failed=chosen), NOW + 60)
    assert (end.new.state, end.new.retried, end.new.free_retried) == (state, 0, 0)
    assert end.ended is not None
    assert end.ended.failure_class == "internal"
