"""Pools are drained and undrained over the API: now, at a time, with running jobs, members and warm pools."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from job_queue.adapters.items import POLICY, metadata_key
from job_queue.domain.cluster_state import StoredDrains
from job_queue.domain.domain_events import DomainEvent, PoolDrained, PoolUndrained
from job_queue.domain.errors import Refused
from job_queue.domain.job import iso
from job_queue.scheduler import Drain, DrainStops
from job_queue.services.drains import MOST_DRAINS
from tests.jobs import NOW, OWNER, P5
from tests.queue_harness import Harness
from tests.unit.queue_api import ADMIN, P4, Api, Governed, a_policy

HOUR = 3600


class Drained(Api):
    """An API with the pools p5 and p4, in which each request can ask for both by the tag `pools`."""

    def __init__(self, p5: int = 1, p4: int = 1, queue: Harness | None = None) -> None:
        super().__init__(queue=queue or Harness(p5 + p4))
        pools = [
            {"name": "p5", "instance_type": P5, "capacity": p5},
            {"name": "p4", "instance_type": P4, "capacity": p4},
        ]
        policy = {"pools": pools, "projects": [{"name": "default", "quota": {"p5": p5, "p4": p4}}]}
        self.queue.repository.apply_policy(json.dumps(policy), 0, "ada", self.queue.now)

    def add_tagged(self, name: str, seconds: int | None = 86_400, **tags: str) -> tuple[int, Any]:
        listed = [{"Key": key, "Value": value} for key, value in tags.items()]
        return self.add(name, Tags=listed, StoppingCondition={"MaxRuntimeInSeconds": seconds})

    def drain(self, pool: str = "p5", caller: str = ADMIN, **more: object) -> tuple[int, Any]:
        return self.call("POST", "/drain", json.dumps({"pool": pool, **more}), caller=caller)

    def undrain(self, pool: str = "p5", caller: str = ADMIN) -> tuple[int, Any]:
        return self.call("POST", "/undrain", json.dumps({"pool": pool}), caller=caller)

    def pool(self, name: str = "p5") -> dict[str, Any]:
        _, status = self.call("GET", "/queue")
        found: dict[str, Any] = next(pool for pool in status["pools"] if pool["name"] == name)
        return found

    def reason(self, name: str) -> str:
        _, job = self.call("GET", f"/jobs/{name}")
        reason: str = job["reason"]["code"]
        return reason

    def outcomes(self, name: str) -> list[str]:
        return [attempt.outcome for attempt in self.queue.record(name).attempts]


def in_time(seconds: float) -> str:
    return datetime.fromtimestamp(NOW + seconds, UTC).isoformat()


# --- now -------------------------------------------------------------------------------------------------


def test_a_drain_stops_the_running_jobs_which_keep_their_position_and_resume_after_it() -> None:
    api = Drained()
    api.add_tagged("first")
    status, answer = api.drain(reason="new disks")
    assert (status, answer["stopping"], answer["staying"]) == (200, 1, 0)
    assert (answer["drain"]["inForce"], answer["drain"]["by"], answer["wasDrained"]) == (True, ADMIN, False)
    job = api.queue.job("first")
    assert (job.state, job.drained_by) == ("stopping", ADMIN)
    api.queue.end("first-qstamp-1", "Stopped")
    api.add_tagged("second")
    assert api.queue.states() == {"first": "preempted", "second": "pending"}
    assert (api.reason("first"), api.reason("second")) == ("DRAINED", "DRAINED")
    record = api.queue.record("first")
    assert (record.job.preempted, record.job.drained_by, record.job.attempt) == ((), None, 2)
    causes = [entry.cause for entry in record.history]
    assert causes[3:5] == [f"stopping: p5 is drained by {ADMIN}: new disks", f"drained by {ADMIN}"]
    _, history = api.call("GET", "/history", since=iso(api.queue.now - HOUR))
    assert [(it["outcome"], it["madeRoomFor"]) for it in history["attempts"]] == [("drained", None)]
    api.undrain()
    assert api.queue.states() == {"first": "running", "second": "pending"}


def test_a_stopped_job_resumes_in_another_pool_that_it_accepts() -> None:
    api = Drained()
    api.add_tagged("first", pools="p5 p4")
    api.drain()
    api.queue.end("first-qstamp-1", "Stopped")
    assert (api.queue.state("first"), dict(api.queue.job("first").slots)) == ("running", {"p4": 1})
    assert api.outcomes("first") == ["drained"]


@pytest.mark.parametrize(
    ("stops", "tags", "stopped"),
    [
        ("preemptible", {"preemptible": "false"}, False),
        ("preemptible", {"interactive": "true"}, False),
        ("preemptible", {"max_preemptions": "0"}, False),
        ("preemptible", {"max_preemptions": "1"}, True),
        ("all", {"preemptible": "false"}, True),
        ("all", {"max_preemptions": "0"}, True),
        ("all", {"interactive": "true"}, True),
        ("none", {}, False),
    ],
)
def test_the_jobs_that_a_drain_stops(stops: str, tags: dict[str, str], stopped: bool) -> None:
    api = Drained()
    api.add_tagged("first", 86_400, **tags)
    _, answer = api.drain(stops=stops)
    assert api.queue.state("first") == ("stopping" if stopped else "running")
    assert (answer["stopping"], answer["staying"]) == ((1, 0) if stopped else (0, 1))
    api.queue.end("first-qstamp-1", "Stopped" if stopped else "Completed")
    api.add_tagged("second")
    assert api.queue.state("second") == "pending"


def test_a_job_that_completes_while_it_is_stopped_is_completed_and_a_cancelled_one_stays_cancelled() -> None:
    api = Drained(p5=2)
    for name in ("first", "second"):
        api.add_tagged(name)
    api.drain()
    api.call("DELETE", "/jobs/second")
    api.queue.end("first-qstamp-1", "Completed")
    api.queue.end("second-qstamp-1", "Stopped")
    assert (api.queue.state("first"), api.queue.state("second")) == ("completed", "stopped")


def test_a_starting_job_is_stopped_once_sagemaker_has_accepted_it() -> None:
    api = Drained()
    create = api.queue.training.create
    asked: list[int] = []

    def slow(*args: Any, **named: Any) -> Any:
        if not asked:
            asked.append(api.drain()[0])
            assert api.queue.state("first") == "starting"
        return create(*args, **named)

    api.queue.training.create = slow  # type: ignore[method-assign]
    api.add_tagged("first")
    assert asked == [200]
    assert api.queue.state("first") == "stopping"


# --- at a time -------------------------------------------------------------------------------------------


def test_a_scheduled_drain_keeps_long_jobs_from_starting_and_stops_jobs_at_its_time() -> None:
    api = Drained(p5=3)
    api.add_tagged("runs")
    status, answer = api.drain(at=in_time(2 * HOUR), reason="move")
    assert (status, answer["drain"]["inForce"], answer["stopping"]) == (200, False, 1)
    api.add_tagged("long", 2 * HOUR)
    api.add_tagged("short", HOUR)
    assert api.queue.states() == {"runs": "running", "long": "pending", "short": "running"}
    assert api.reason("long") == "DRAINED"
    assert (api.pool()["capacity"], api.pool()["drain"]["reason"]) == (3, "move")
    api.queue.tick(2 * HOUR - 60)
    assert api.queue.state("runs") == "running", "its time has not come"
    api.queue.tick(60)
    assert api.queue.states() == {"runs": "stopping", "long": "pending", "short": "stopping"}
    assert (api.pool()["capacity"], api.pool()["drain"]["inForce"]) == (0, True)


def test_a_time_without_a_zone_is_utc_and_a_time_that_is_just_over_is_now() -> None:
    api = Drained()
    _, answer = api.drain(at=in_time(HOUR).removesuffix("+00:00"))
    assert datetime.fromisoformat(answer["drain"]["at"]) == datetime.fromtimestamp(NOW + HOUR, UTC)
    _, answer = api.drain(at=in_time(-60))
    assert (answer["drain"]["inForce"], answer["wasDrained"]) == (True, True)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"at": "2001-01-01T00:00:00Z"}, "at"),
        ({"at": "9001-01-01T00:00:00Z"}, "at"),
        ({"at": "tomorrow"}, "at"),
        ({"stops": "some"}, "stops"),
        ({"reason": "x" * 301}, "reason"),
        ({"reason": 1}, "reason"),
        ({"until": "2030-01-01T00:00:00Z"}, "until"),
    ],
)
def test_wrong_requests_are_refused_and_change_nothing(body: dict[str, Any], field: str) -> None:
    api = Drained()
    status, refusal = api.drain(**body)
    assert (status, refusal["code"], refusal["field"]) == (400, "InvalidRequest", field)
    assert api.pool()["drain"] is None


def test_a_reason_is_kept_on_one_line() -> None:
    api = Drained()
    assert api.drain(reason=" new\n disks\x1b[31m ")[1]["drain"]["reason"] == "new disks [31m"


# --- which pool, and by whom -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/drain", "/undrain"])
def test_an_unknown_pool_is_refused_with_those_that_are_meant(path: str) -> None:
    api = Drained()
    status, refusal = api.call("POST", path, '{"pool": "P5"}', caller=ADMIN)
    assert (status, refusal["code"], refusal["field"]) == (404, "NotFound", "pool")
    assert refusal["message"] == "The policy has no pool 'P5'. Did you mean p5?"
    other = api.call("POST", path, '{"pool": "other"}', caller=ADMIN)[1]
    assert other["message"] == "The policy has no pool 'other'. There are p5 and p4."


def test_only_admins_drain_and_undrain() -> None:
    api = Drained()
    assert api.drain(caller=OWNER)[0] == 403
    api.drain()
    assert api.undrain(caller=OWNER)[0] == 403
    assert api.pool()["drain"] is not None


def test_a_pool_that_is_not_drained_is_undrained_without_an_error() -> None:
    api = Drained()
    assert api.undrain() == (200, {"pool": "p5", "drain": None, "wasDrained": False, "stopping": 0, "staying": 0})


def test_the_default_pool_can_be_drained_without_a_policy() -> None:
    api = Api(slots=1)
    api.add("first")
    assert api.call("POST", "/drain", '{"pool": "default"}', caller=ADMIN)[0] == 200
    assert api.queue.state("first") == "stopping"
    assert api.queue.repository.policy() is None
    api.call("POST", "/undrain", '{"pool": "default"}', caller=ADMIN)
    api.queue.end("first-qstamp-1", "Stopped")
    assert api.queue.state("first") == "running"


def test_a_policy_keeps_drains_and_the_drain_of_a_removed_pool_can_be_ended() -> None:
    api = Governed()
    api.call("POST", "/drain", '{"pool": "p4"}', caller=ADMIN)
    api.call("POST", "/drain", '{"pool": "p5"}', caller=ADMIN)
    removed = a_policy()
    removed["pools"] = removed["pools"][:1]
    removed["projects"] = [{"name": "ops"}]
    removed["departments"] = []
    assert api.put(removed, 1)[0] == 200
    _, status = api.call("GET", "/queue")
    assert [(pool["name"], pool["drain"] is not None) for pool in status["pools"]] == [("p5", True)]
    assert api.put(a_policy(), 2)[0] == 200
    _, status = api.call("GET", "/queue")
    assert [pool["drain"] is not None for pool in status["pools"]] == [True, True], "it applies to the pool again"
    assert api.put(removed, 3)[0] == 200
    _, answer = api.call("POST", "/undrain", '{"pool": "p4"}', caller=ADMIN)
    assert answer["wasDrained"] is True
    assert set(api.queue.repository.drains().by_pool) == {"p5"}


# --- what is stored --------------------------------------------------------------------------------------


def test_the_row_of_the_policy_cannot_be_filled_with_drains_of_former_pools() -> None:
    api = Drained()
    former = {f"gone{number}": Drain(int(NOW), ADMIN, "x" * 300, DrainStops.ALL) for number in range(MOST_DRAINS - 1)}
    api.queue.repository.replace_drains(StoredDrains(1, former))
    assert api.drain("p5")[0] == 200
    status, answer = api.drain("p4")
    assert (status, answer["field"]) == (400, "pool")
    assert "100 pools are drained, and at most 100 can be; 99 of them are no longer in the policy." in answer["message"]
    assert answer["remedy"] == "End a drain first: smq undrain gone0."
    assert api.drain("p5", stops="all")[0] == 200, "a drain that is replaced needs no room"
    assert api.undrain("gone0")[0] == 200
    assert api.drain("p4")[0] == 200


def test_a_drain_is_stored_with_the_policy_and_read_with_the_metadata() -> None:
    api = Drained()
    api.drain(reason="move", stops="all", at=in_time(HOUR))
    drain = Drain(int(NOW) + HOUR, ADMIN, "move", DrainStops.ALL, int(NOW))
    metadata = api.queue.repository.metadata()
    assert (metadata.drains.version, metadata.drains.by_pool) == (1, {"p5": drain})
    assert metadata.policy == api.queue.repository.policy()


def test_rows_of_earlier_versions_have_no_drains() -> None:
    api = Drained()
    assert "drainsVersion" not in api.queue.tables.rows["sagemaker-queue-lines", *metadata_key(POLICY).values()]
    drains = api.queue.repository.metadata().drains
    assert (drains.version, drains.by_pool) == (0, {})


def test_two_requests_at_the_same_time_lose_no_drain() -> None:
    api = Drained()
    stored = api.queue.repository.drains()
    api.drain("p5")
    with pytest.raises(Refused):
        api.queue.repository.replace_drains(StoredDrains(stored.version + 1, {}))
    assert set(api.queue.repository.drains().by_pool) == {"p5"}


def test_a_plan_from_before_a_drain_is_not_recorded() -> None:
    """The drain arrives after a cycle has read the state and before the cycle records its starts."""
    api = Drained()
    api.queue.accept("first")
    commit = api.queue.repository.commit
    drained: list[StoredDrains] = []

    def commit_late(*args: Any, **options: Any) -> None:
        if not drained:
            drained.append(api.queue.repository.drains())
            stored = drained[0]
            drain = Drain(int(api.queue.now), ADMIN)
            api.queue.repository.replace_drains(StoredDrains(stored.version + 1, {"p5": drain}))
        commit(*args, **options)

    api.queue.repository.commit = commit_late  # type: ignore[method-assign]
    api.queue.wake()
    assert api.queue.state("first") == "pending"
    assert api.queue.training.requests == {}


def test_observers_are_told_of_drains() -> None:
    told: list[DomainEvent] = []
    api = Drained(queue=Harness(2, notify=told.append))
    api.drain(reason="move")
    api.undrain()
    api.undrain()
    drain = Drain(int(NOW), ADMIN, "move", DrainStops.PREEMPTIBLE, int(NOW))
    about = [event for event in told if isinstance(event, PoolDrained | PoolUndrained)]
    assert about == [PoolDrained("p5", drain), PoolUndrained("p5", drain, ADMIN)]
