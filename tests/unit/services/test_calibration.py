"""Calibrated starts: what the tick keeps of its estimates, what it learns from them, and what readers are told."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from job_queue.adapters.records.packed_json import compress, from_compressed, to_text
from job_queue.domain.expectations.past_estimates import LOOK_SECONDS, PastEstimates, PastLook
from job_queue.prediction.conformal import FEWEST_LOOKS, score
from job_queue.services.outlook import OutlookService
from tests.jobs import a_request
from tests.queue_harness import Harness
from tests.unit.queue_api import Api

HOUR = 3600.0


def look(queue: Harness) -> PastEstimates:
    """The past estimates after a look of a new process."""
    OutlookService(queue.repository, queue.dry_run.cluster, queue.clock).refresh(lambda: True)
    return queue.repository.outlook.past_estimates()


def one_waits() -> Harness:
    """Six jobs of an hour have ended, train-90 has just started, and train-91 waits."""
    queue = Harness(slots=1)
    for number in range(6):
        queue.submit(f"train-{number}")
        queue.training.run(f"train-{number}-qstamp-1", queue.now, queue.now + HOUR)
        queue.now += HOUR
        queue.end(f"train-{number}-qstamp-1")
    for name in ("train-90", "train-91"):
        queue.submit(name)
    return queue


def with_past_scores(queue: Harness, scores: Sequence[float], looks: int = FEWEST_LOOKS) -> None:
    """Store looks of which all jobs have started."""
    past = PastEstimates(tuple(PastLook(queue.now - LOOK_SECONDS + number, tuple(scores)) for number in range(looks)))
    queue.repository.outlook.replace_past_estimates(past)


def told(queue: Harness) -> float:
    """The wait that the only kept look has told train-91."""
    (only,) = queue.repository.outlook.past_estimates().looks
    return only.waiting[queue.job("train-91").submission]


def test_a_look_is_kept_every_three_hours_and_names_those_that_wait_by_their_submission() -> None:
    queue = one_waits()
    first = look(queue)
    assert [look.waiting.keys() for look in first.looks] == [{queue.job("train-91").submission}]
    assert told(queue) == pytest.approx(HOUR, abs=600)
    queue.now += LOOK_SECONDS - 60
    assert look(queue) == first
    queue.now += 60
    assert [look.at for look in look(queue).looks] == [queue.now - LOOK_SECONDS, queue.now]


def test_the_start_of_a_job_gives_a_score_while_it_runs() -> None:
    queue = one_waits()
    look(queue)
    expected = told(queue)
    queue.now += 2 * HOUR
    queue.end("train-90-qstamp-1")
    (only,) = look(queue).looks
    assert only.waiting == {}
    assert only.scores == pytest.approx([score(2 * HOUR, expected)], abs=0.01)


def test_the_start_of_a_job_that_has_ended_since_is_in_its_record() -> None:
    queue = one_waits()
    look(queue)
    expected = told(queue)
    queue.now += 2 * HOUR
    queue.end("train-90-qstamp-1")
    queue.training.run("train-91-qstamp-1", queue.now, queue.now + 30)
    queue.now += 30
    queue.end("train-91-qstamp-1")
    for name in ("train-92", "train-93"):
        queue.submit(name)
    assert look(queue).looks[0].scores == pytest.approx([score(2 * HOUR, expected)], abs=0.02)


@pytest.mark.parametrize("change", [{"held": True}, {"cancelled": True}])
def test_the_estimate_of_a_job_that_people_take_out_of_the_queue_is_dropped(change: dict[str, bool]) -> None:
    api = Api(queue=one_waits())
    look(api.queue)
    if "held" in change:
        api.call("PATCH", "/jobs/train-91", json.dumps(change))
    else:
        api.call("DELETE", "/jobs/train-91")
    (only,) = look(api.queue).looks
    assert (only.waiting, only.scores) == ({}, ())


def test_scores_survive_another_policy() -> None:
    queue = one_waits()
    with_past_scores(queue, [0.5])
    document = {"pools": [{"name": "default", "capacity": 1}], "projects": [{"name": "default"}]}
    queue.repository.apply_policy(json.dumps(document), 0, "ada", queue.now)
    assert [look.scores for look in look(queue).looks] == [(0.5,)] * FEWEST_LOOKS


def expected_start(api: Api) -> dict[str, Any]:
    answer: dict[str, Any] = api.call("GET", "/jobs/train-91")[1]["expectedStart"]
    return answer


def test_readers_are_told_an_interval_that_past_errors_have_given() -> None:
    api = Api(queue=one_waits())
    with_past_scores(api.queue, [score(HOUR / 3, HOUR), score(HOUR, HOUR), score(3 * HOUR, HOUR)])
    look(api.queue)
    expected = expected_start(api)
    assert (expected["level"], expected["looks"], expected["doubt"]) == (0.8, FEWEST_LOOKS, "SPREAD")
    assert expected["earliest"] < expected["likely"] < expected["latest"] <= expected["notAfter"]
    assert expected["start"] is not None, "the median of the simulations is told as before"
    assert expected["message"].startswith("Between 15 min and 3 h (8 of 10). Half of such jobs start by 20")
    assert " UTC, 19 of 20 by 20" in expected["message"]
    assert expected["message"].endswith(f" UTC. This estimate is based on only {FEWEST_LOOKS} earlier estimates.")
    for path in ("/jobs", "/queue"):
        _, answer = api.call("GET", path)
        (waiting,) = [it for it in answer.get("jobs", answer.get("waiting")) if it["job"] == "train-91"]
        assert waiting["expectedStart"] == expected, path
    _, plan = api.call("POST", "/plan", json.dumps(a_request("train-92")))
    assert (plan["expectedStart"]["level"], plan["expectedStart"]["looks"]) == (0.8, FEWEST_LOOKS)


def test_narrow_intervals_are_without_doubt() -> None:
    api = Api(queue=one_waits())
    with_past_scores(api.queue, [-0.01, 0, 0.01])
    look(api.queue)
    assert expected_start(api)["doubt"] is None


def test_a_job_without_a_start_in_simulations_has_an_interval_once_errors_are_known() -> None:
    api = Api(slots=1)
    for name in ("train-90", "train-91"):
        api.add(name, 1)
    look(api.queue)
    before = expected_start(api)
    assert (before["doubt"], before["latest"]) == ("UNKNOWN_RUNTIMES", None)
    assert before["message"].startswith("Unknown: the queue does not know how long")
    with_past_scores(api.queue, [score(HOUR, HOUR), score(3 * HOUR, HOUR)])
    look(api.queue)
    after = expected_start(api)
    assert (after["start"], after["doubt"], after["level"]) == (None, "UNKNOWN_RUNTIMES", 0.8)
    assert after["message"].startswith("Between 1 h and 3 h (8 of 10).")
    assert "Unknown: the queue does not know how long" in after["message"]


def test_a_job_on_hold_shows_no_expected_start_from_the_moment_of_the_hold() -> None:
    api = Api(queue=one_waits())
    with_past_scores(api.queue, [0.0])
    look(api.queue)
    assert expected_start(api)["start"]
    api.call("PATCH", "/jobs/train-91", json.dumps({"held": True}))
    assert expected_start(api) is None, "the estimate of the last minute does not apply"
    look(api.queue)
    assert expected_start(api) is None
    api.call("PATCH", "/jobs/train-91", json.dumps({"held": False}))
    assert expected_start(api) is None, "the latest estimate was made while the job was on hold"
    look(api.queue)
    assert expected_start(api)["start"]


def test_an_unreadable_row_is_as_none_and_doubts_of_earlier_versions_are_left_out() -> None:
    queue = one_waits()
    look(queue)
    rows = {key[2]: row for key, row in queue.tables.rows.items() if key[1] == "outlook"}
    stored = from_compressed(rows["told"]["content"])
    (estimate,) = stored["estimates"]
    stored["estimates"] = [{**estimate, "doubt": "OUTRANKED", "not_after": 1.5}]
    rows["told"]["content"] = compress(to_text(stored))
    assert queue.repository.outlook.for_readers().estimates["train-91"].doubt is None
    for broken in ("no JSON", compress(to_text({"looks": [{"at": "noon"}]}))):
        rows["past-estimates"]["content"] = broken
        assert queue.repository.outlook.past_estimates() == PastEstimates()


def test_the_row_of_a_full_history_is_small() -> None:
    queue = Harness()
    past = PastEstimates()
    for number in range(150):
        past = past.with_look(float(number), {f"{number:016x}{job:016x}": 1000.0 * job for job in range(100)})
    queue.repository.outlook.replace_past_estimates(past)
    (row,) = [row for key, row in queue.tables.rows.items() if key[2] == "past-estimates"]
    assert len(row["content"]) < 100_000
