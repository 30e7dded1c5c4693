"""A preemptible job that has run for an hour without a checkpoint is found once, with a few look-ups."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from job_queue.adapters.dynamodb import Update
from job_queue.adapters.records.packed_json import compress, from_compressed, to_text
from job_queue.domain.domain_events import DomainEvent, UnsavedJob
from job_queue.domain.errors import Unavailable
from job_queue.domain.expectations.outlook import STALE_SECONDS
from job_queue.domain.expectations.unsaved import LOOKUP_SECONDS, MOST_LOOKUPS, unsaved_candidates
from job_queue.domain.job import iso
from job_queue.scheduler import JobState
from job_queue.services.outlook import OutlookService
from job_queue.services.watches.unsaved_work import UnsavedWork
from tests.jobs import OWNER, a_job, a_request
from tests.queue_harness import Harness
from tests.unit.queue_api import Api

HOUR = 3600


class Bucket:
    """The times of checkpoints by the name of the job, and which were looked up."""

    def __init__(self) -> None:
        self.written: dict[str, float] = {}
        self.asked: list[str] = []
        self.broken = False
        self.complete = True  # whether all objects are read

    def written_since(self, address: str, since: float) -> bool | None:
        name = address.rpartition("/")[2]
        self.asked.append(name)
        if self.broken:
            raise Unavailable("S3 is slow")
        if self.written.get(name, 0) >= since:
            return True
        return False if self.complete else None


class Watched:
    """A queue with jobs that save or do not save."""

    def __init__(self) -> None:
        self.events: list[UnsavedJob] = []
        self.queue = Harness(slots=30, notify=self._note)
        self.api = Api(slots=30, queue=self.queue)
        self.bucket = Bucket()
        work = UnsavedWork(self.queue.repository, lambda site: self.bucket.written_since)
        self._service = OutlookService(
            self.queue.repository, self.queue.dry_run.cluster, self.queue.clock, unsaved_work=work
        )

    def _note(self, event: DomainEvent) -> None:
        if isinstance(event, UnsavedJob):
            self.events.append(event)

    def look(self, later: float = 0, may_go_on: bool = True) -> list[str]:
        """Return the names of the jobs of new events after the next tick."""
        self.queue.now += later
        before = len(self.events)
        self._service.refresh(lambda: may_go_on)
        return [event.job.name for event in self.events[before:]]

    def unsaved_since(self, name: str) -> float | None:
        """Return when the job began to run unsaved, as the API has it in lists and of itself."""
        _, alone = self.api.call("GET", f"/jobs/{name}")
        _, answer = self.api.call("GET", "/jobs")
        (listed,) = [job for job in answer["jobs"] if job["job"] == name]
        assert listed["unsavedSince"] == alone["unsavedSince"]
        since = alone["unsavedSince"]
        return None if since is None else datetime.fromisoformat(since).timestamp()


@pytest.fixture
def watched() -> Watched:
    return Watched()


def without_folder(name: str) -> dict[str, Any]:
    request = a_request(name)
    del request["CheckpointConfig"]
    return request


def test_a_job_that_saves_nothing_in_an_hour_is_found_once(watched: Watched) -> None:
    began = watched.queue.now
    watched.queue.submit("job1")
    assert watched.look(HOUR - 1) == [] and watched.bucket.asked == []
    assert watched.look(1) == ["job1"]
    assert watched.events[0].has_folder
    assert watched.unsaved_since("job1") == pytest.approx(began, abs=1)
    for _ in range(60):
        assert watched.look(60) == []
    assert len(watched.bucket.asked) == 1 + HOUR // LOOKUP_SECONDS
    watched.queue.now += STALE_SECONDS + 1
    assert watched.unsaved_since("job1") is None, "the outlook is too old"


def test_a_job_that_saves_is_looked_up_once(watched: Watched) -> None:
    watched.queue.submit("job1")
    watched.bucket.written["job1"] = watched.queue.now + 60
    for _ in range(100):
        assert watched.look(HOUR / 10) == []
    assert watched.bucket.asked == ["job1"]
    assert watched.unsaved_since("job1") is None


def test_a_later_checkpoint_ends_the_mark(watched: Watched) -> None:
    watched.queue.submit("job1")
    watched.look(HOUR)
    watched.bucket.written["job1"] = watched.queue.now
    assert watched.look(LOOKUP_SECONDS) == []
    assert watched.unsaved_since("job1") is None
    watched.look(10 * HOUR)
    assert len(watched.bucket.asked) == 2


def test_a_checkpoint_of_an_earlier_attempt_does_not_count(watched: Watched) -> None:
    watched.queue.submit("job1")
    watched.bucket.written["job1"] = watched.queue.now + 60
    assert watched.look(HOUR) == []
    watched.queue.change("job1", requeue=True)
    watched.queue.end("job1-qstamp-1", "Stopped")
    assert watched.look(60) == []
    assert watched.look(HOUR) == ["job1"]
    assert watched.events[0].job.launched == "job1-qstamp-2"


def test_a_job_without_a_checkpoint_folder_is_found_without_a_look_at_s3(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.queue.submissions.submit(without_folder("job1"), OWNER)
    watched.queue.wake()
    assert watched.look(HOUR) == ["job1"]
    assert not watched.events[0].has_folder
    with monkeypatch.context() as patched:
        patched.setattr(watched.queue.repository, "record", None)  # a job has no checkpoint folder for good
        assert watched.look(HOUR) == []
    for _ in range(10):
        assert watched.look(HOUR) == []
    assert watched.bucket.asked == [] and watched.unsaved_since("job1")


def test_a_job_that_cannot_be_preempted_loses_nothing(watched: Watched) -> None:
    watched.queue.submit("job1", Tags=[{"Key": "preemptible", "Value": "false"}])
    assert watched.look(2 * HOUR) == [] and watched.bucket.asked == []


@pytest.mark.parametrize(("most", "preempted", "found"), [(None, 3, True), (2, 1, True), (2, 2, False), (2, 3, False)])
def test_a_job_at_its_own_limit_of_preemptions_loses_nothing(most: int | None, preempted: int, found: bool) -> None:
    job = a_job("job1", state=JobState.RUNNING, launched="job1-qstamp-9", started=iso(1_700_000_000))
    job = replace(job, max_preemptions=most, preempted_in_all=preempted)
    assert bool(unsaved_candidates([job], 1_700_000_000 + HOUR)) is found


def test_a_folder_that_cannot_be_read_completely_says_nothing(watched: Watched) -> None:
    watched.queue.submit("job1")
    watched.bucket.complete = False
    watched.bucket.written["job1"] = watched.queue.now - 60
    assert watched.look(2 * HOUR) == [] and watched.unsaved_since("job1") is None
    assert watched.look(HOUR) == [] and watched.bucket.asked == ["job1"]


def test_an_outage_of_s3_says_nothing_and_is_tried_again(watched: Watched) -> None:
    watched.queue.submit("job1")
    watched.bucket.broken = True
    assert watched.look(HOUR) == [] and watched.unsaved_since("job1") is None
    watched.bucket.broken = False
    assert watched.look(60) == ["job1"]


def test_look_ups_are_bounded(watched: Watched) -> None:
    for number in range(MOST_LOOKUPS + 2):
        watched.queue.submit(f"job{number:02}")
    assert watched.look(HOUR, may_go_on=False) == []
    assert len(watched.look()) == MOST_LOOKUPS
    assert watched.look(60) == ["job10", "job11"]


def test_nothing_is_read_if_no_job_has_run_for_an_hour(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> None:
        raise AssertionError("the outlook was read")

    watched.queue.submit("job1")
    monkeypatch.setattr(watched.queue.repository.outlook, "latest", read)
    assert watched.look(HOUR - 1) == []


def test_an_outlook_of_an_earlier_version_is_readable(watched: Watched) -> None:
    watched.queue.submit("job1")
    watched.look(60)
    tables = watched.queue.repository.outlook._tables
    for position in ("latest", "told"):
        key = {"line": "outlook", "position": position}
        row = tables.get(watched.queue.repository.outlook._lines_table, key)
        assert row is not None
        content = from_compressed(row["content"])
        del content["saved_work"]
        tables.update(
            Update(watched.queue.repository.outlook._lines_table, key, set={"content": compress(to_text(content))})
        )
    assert watched.unsaved_since("job1") is None
    assert watched.look(HOUR) == ["job1"]
