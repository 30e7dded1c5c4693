"""Training jobs that somebody has made to look like the queue's attempts: they end, stop and replace nothing."""

from typing import Any

import pytest

from job_queue.adapters.sagemaker import LaunchResult
from job_queue.controller.launcher import SIGNATURE_SECONDS
from job_queue.domain.domain_events import DomainEvent, ForgedAttempt
from job_queue.domain.errors import Unavailable
from tests.jobs import a_request
from tests.queue_harness import Harness

pytestmark = pytest.mark.attack


class TellingQueue(Harness):
    """Keeps what the queue tells of forged attempts."""

    def __init__(self, slots: int) -> None:
        self.told: list[tuple[str, str]] = []
        super().__init__(slots, notify=self._notify)

    def _notify(self, event: DomainEvent) -> None:
        if isinstance(event, ForgedAttempt):
            self.told.append((event.training_job, event.claimed))


def tags_of(queue: Harness, attempt: str) -> dict[str, str]:
    """What anybody may read who may list tags."""
    return dict(queue.training.jobs[attempt].tags)


def forge(queue: Harness, name: str, tags: dict[str, str], **resources: Any) -> None:
    """Create a training job with these tags, as a person could who may create training jobs."""
    request = a_request(name, Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
    request["ResourceConfig"] = {**request["ResourceConfig"], **resources}
    queue.training.create(request)
    queue.training.calls.clear()


@pytest.mark.parametrize("name", ["mine", "victim-qstamp-2", "victim-qstamp-7", "victim-qstamp-01", "vIctim-qstamp-1"])
@pytest.mark.parametrize("ends", ["event", "tick"])
def test_copied_tags_on_another_name_end_nobodys_job(name: str, ends: str) -> None:
    queue = TellingQueue(slots=2)
    queue.submit("victim", 1)
    forge(queue, name, tags_of(queue, "victim-qstamp-1"))
    if ends == "event":
        queue.end(name)
    else:
        queue.tick()
        queue.end(name)
        queue.tick()
    assert queue.state("victim") == "running"
    assert queue.training.stopped == set()
    assert (name, "victim") in queue.told


def test_a_forged_attempt_uses_slots_and_is_never_stopped_nor_taken_for_the_victims() -> None:
    queue = TellingQueue(slots=2)
    queue.submit("victim", 1)
    forge(queue, "mine", tags_of(queue, "victim-qstamp-1"))
    queue.event("mine")
    queue.submit("other", 1)
    assert queue.states() == {"victim": "running", "other": "pending"}, "two instances are in use"
    for _ in range(3):
        queue.tick()
    assert queue.training.stopped == set()
    (external,) = queue.repository.external()
    assert (external.name, external.forged, external.orphan) == ("mine", True, False)
    assert queue.told == [("mine", "victim")], "told of once"
    queue.end("mine")
    queue.tick()
    assert queue.states() == {"victim": "running", "other": "running"}
    assert queue.repository.external() == []


def test_a_training_job_under_the_next_attempts_name_is_not_adopted() -> None:
    queue = TellingQueue(slots=2)
    queue.submit("victim", 1, instances=2)
    tags = {**tags_of(queue, "victim-qstamp-1"), "queue-attempt": "2"}
    queue.submit("urgent", 9, instances=2)
    queue.end("victim-qstamp-1", "Stopped")
    assert queue.state("victim") == "preempted"
    forge(queue, "victim-qstamp-2", tags)
    queue.tick()
    assert queue.state("victim") == "preempted", "it is not this job's attempt"
    queue.end("urgent-qstamp-1")
    queue.tick()
    assert queue.training.stopped == {"victim-qstamp-1"}, "only the attempt that made room"
    queue.end("victim-qstamp-2")
    queue.tick()
    assert queue.job("victim").launched == "victim-qstamp-3"
    queue.end("victim-qstamp-3")
    assert queue.state("victim") == "completed"


def test_a_name_that_is_taken_beforehand_costs_the_victim_a_number() -> None:
    queue = TellingQueue(slots=3)
    forge(queue, "victim-qstamp-1", {"queue-name": "sagemaker-queue", "queue-job": "victim", "queue-attempt": "1"})
    queue.submit("victim", 1)
    queue.tick()
    assert queue.job("victim").launched == "victim-qstamp-2"
    assert queue.training.stopped == set()
    queue.end("victim-qstamp-1")
    assert queue.state("victim") == "running"


def test_the_proof_of_a_refused_call_which_the_trail_shows_counts_no_more() -> None:
    queue = TellingQueue(slots=3)
    sent: list[Any] = []
    create = queue.training.create

    def seen(request: Any) -> Any:
        sent.append(request)
        return create(request)

    queue.training.create = seen  # type: ignore[method-assign]
    queue.training.script = [LaunchResult.NOT_NOW]
    queue.submit("victim", 1)
    assert queue.state("victim") == "pending"
    forge(queue, "victim-qstamp-1", {tag["Key"]: tag["Value"] for tag in sent[0]["Tags"]})
    queue.controller.tick(queue.invocation())
    assert queue.state("victim") == "pending", "not adopted"
    queue.tick()
    assert queue.job("victim").launched == "victim-qstamp-2"
    queue.end("victim-qstamp-1")
    assert queue.state("victim") == "running"


def test_the_proof_of_a_throttled_call_counts_no_more() -> None:
    queue = Harness(slots=3)
    queue.training.script = [LaunchResult.THROTTLED]
    queue.submit("victim", 1)
    job = queue.job("victim")
    assert job.state == "starting"
    assert (job.sent, job.valid_proofs) == (1, ())
    queue.tick()
    assert queue.training.jobs["victim-qstamp-1"].tags["queue-proof"].startswith("2-")
    queue.end("victim-qstamp-1")
    assert queue.state("victim") == "completed"


def test_the_next_attempts_proof_cannot_be_read_from_any_before() -> None:
    queue = Harness(slots=1)
    queue.submit("victim", 1)
    first = tags_of(queue, "victim-qstamp-1")["queue-proof"]
    queue.submit("urgent", 9)
    queue.end("victim-qstamp-1", "Stopped")
    queue.end("urgent-qstamp-1")
    assert queue.job("victim").launched == "victim-qstamp-2"
    assert tags_of(queue, "victim-qstamp-2")["queue-proof"].split("-")[1] != first.split("-")[1]
    secret = queue.job("victim").secret
    assert secret and all(secret not in str(job.tags) for job in queue.training.jobs.values())


def test_the_secret_is_not_shown() -> None:
    queue = Harness()
    queue.submit("victim", 1)
    secret = queue.job("victim").secret
    assert secret and secret not in repr(queue.record("victim"))


def test_tags_taken_from_ones_own_attempt_do_not_count_it_twice() -> None:
    queue = Harness(slots=3)
    queue.submit("job1", 1)
    attempt = queue.training.jobs["job1-qstamp-1"]
    attempt.tags.clear()  # type: ignore[attr-defined]
    queue.event("job1-qstamp-1")
    queue.tick()
    assert queue.repository.external() == []
    queue.training.end("job1-qstamp-1")
    queue.event("job1-qstamp-1")
    queue.tick()
    assert queue.state("job1") == "completed", "a name is taken once: what was accepted under it is the attempt"


def test_an_attempt_that_an_earlier_version_launched_is_known_until_it_ends() -> None:
    queue = Harness(slots=1)
    queue.submit("old", 1)
    for row in queue.tables.rows.values():
        if row.get("jobName") == "old":
            for attribute in ("secret", "sent", "unheard"):
                row.pop(attribute)
    queue.training.jobs["old-qstamp-1"].tags.pop("queue-proof")  # type: ignore[attr-defined]
    forge(queue, "mine", tags_of(queue, "old-qstamp-1"))
    queue.end("mine")
    assert queue.state("old") == "running"
    queue.submit("urgent", 9)
    queue.end("old-qstamp-1", "Stopped")
    queue.end("urgent-qstamp-1")
    assert queue.job("old").launched == "old-qstamp-2"
    assert "queue-proof" in tags_of(queue, "old-qstamp-2")


# --- while it is not known whether a call took effect --------------------------------------------------


def sent_by(queue: Harness) -> list[dict[str, str]]:
    """The tags of each call, as the trail shows them, also where SageMaker refused."""
    sent: list[dict[str, str]] = []
    create = queue.training.create

    def seen(request: Any) -> Any:
        sent.append({tag["Key"]: tag["Value"] for tag in request["Tags"]})
        return create(request)

    queue.training.create = seen  # type: ignore[method-assign]
    return sent


@pytest.mark.parametrize("refusal", [LaunchResult.NO_CAPACITY, LaunchResult.NOT_NOW, LaunchResult.THROTTLED])
def test_a_refused_calls_proof_counts_no_more_while_an_earlier_call_is_unanswered(refusal: LaunchResult) -> None:
    queue = TellingQueue(slots=3)
    sent = sent_by(queue)
    queue.training.script = ["never", refusal]
    queue.submit("victim", 1)
    queue.tick()
    assert [tags["queue-proof"].split("-")[0] for tags in sent] == ["1", "2"]
    forge(queue, "victim-qstamp-1", sent[1])
    queue.tick(120)
    assert queue.state("victim") == "starting", "not adopted"
    queue.training.end("victim-qstamp-1")
    queue.event("victim-qstamp-1")
    assert queue.state("victim") == "starting", "not ended"
    outlive_calls(queue)
    assert queue.job("victim").launched == "victim-qstamp-2"


def outlive_calls(queue: Harness) -> None:
    """Let time pass until no older call for a launch can take effect: its name may become free until then."""
    queue.tick(SIGNATURE_SECONDS + 120)
    queue.tick(120)


def test_a_proof_added_to_a_taken_name_comes_too_late() -> None:
    queue = TellingQueue(slots=3)
    sent = sent_by(queue)
    forge(queue, "victim-qstamp-1", {})
    sent.clear()
    queue.now += 300
    queue.training.script = ["never"]  # SageMaker's answer "the name is taken" is lost
    queue.submit("victim", 1)
    queue.training.jobs["victim-qstamp-1"].tags.update(sent[0])  # type: ignore[attr-defined]
    queue.training.end("victim-qstamp-1")
    queue.event("victim-qstamp-1")
    assert queue.state("victim") == "starting"
    outlive_calls(queue)
    assert queue.job("victim").launched == "victim-qstamp-2"


def test_a_proof_added_while_sagemaker_does_not_say_who_has_the_name_comes_too_late() -> None:
    queue = TellingQueue(slots=3)
    sent = sent_by(queue)
    forge(queue, "victim-qstamp-1", {})
    sent.clear()
    describe = queue.training.describe

    def down(name: str) -> Any:
        raise Unavailable("scripted")

    queue.training.describe = down  # type: ignore[method-assign]
    queue.submit("victim", 1)
    queue.training.describe = describe  # type: ignore[method-assign]
    queue.training.jobs["victim-qstamp-1"].tags.update(sent[0])  # type: ignore[attr-defined]
    queue.tick()
    assert queue.state("victim") == "starting", "created at the same time: it may be the attempt"
    queue.training.end("victim-qstamp-1")
    outlive_calls(queue)
    assert queue.job("victim").launched == "victim-qstamp-2"


def test_an_attempt_that_lost_its_tags_before_the_queue_heard_of_it_is_not_launched_twice() -> None:
    queue = TellingQueue(slots=3)
    queue.training.script = ["lost"]
    queue.submit("victim", 1)
    queue.training.jobs["victim-qstamp-1"].tags.clear()  # type: ignore[attr-defined]
    for _ in range(4):
        queue.tick(120)
        assert list(queue.training.jobs) == ["victim-qstamp-1"]
    assert queue.state("victim") == "starting"
    assert "when it has ended" in str(queue.job("victim").reason)
    assert sum("when it has ended" in entry.cause for entry in queue.record("victim").history) == 1, "told once"
    queue.training.end("victim-qstamp-1", "Stopped")
    queue.event("victim-qstamp-1")
    outlive_calls(queue)
    assert queue.job("victim").launched == "victim-qstamp-2"


def test_a_cancelled_job_in_that_case_ends_when_the_training_job_does() -> None:
    queue = Harness(slots=3)
    queue.training.script = ["lost"]
    queue.submit("victim", 1)
    queue.training.jobs["victim-qstamp-1"].tags.clear()  # type: ignore[attr-defined]
    queue.tick(120)
    queue.cancel("victim")
    queue.tick(120)
    assert queue.state("victim") == "starting", "its attempt may be alive"
    queue.training.end("victim-qstamp-1", "Stopped")
    outlive_calls(queue)
    assert queue.state("victim") == "stopped"


def test_a_proof_of_an_attempt_that_was_given_up_makes_nobody_an_orphan_to_be_stopped() -> None:
    queue = TellingQueue(slots=3)
    sent = sent_by(queue)
    forge(queue, "victim-qstamp-1", {})
    sent.clear()
    queue.submit("victim", 1)
    assert queue.job("victim").launched == "victim-qstamp-2"
    queue.training.jobs["victim-qstamp-1"].tags.update(sent[0])  # type: ignore[attr-defined]
    queue.repository.drop_external("victim-qstamp-1")
    queue.tick()
    queue.tick()
    assert queue.training.stopped == set()


def test_the_proof_of_a_call_that_was_refused_for_good_makes_nobody_an_orphan_to_be_stopped() -> None:
    queue = TellingQueue(slots=3)
    sent = sent_by(queue)
    queue.training.script = [LaunchResult.REFUSED]
    queue.submit("victim", 1)
    assert queue.state("victim") == "failed"
    forge(queue, "victim-qstamp-1", sent[0])
    queue.tick()
    queue.tick()
    assert queue.training.stopped == set()
    assert ("victim-qstamp-1", "victim") in queue.told
