"""Held and idle: who holds instances whose GPUs do nothing is marked, with a few calls an hour."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import pytest

from job_queue.domain.domain_events import DomainEvent, IdleInstances
from job_queue.domain.errors import Unavailable
from job_queue.domain.expectations.outlook import STALE_SECONDS, Outlook
from job_queue.services.outlook import OutlookService
from job_queue.services.watches.idleness import LOOK_SECONDS, IdleWatch
from tests.jobs import P5
from tests.queue_harness import Harness
from tests.unit.queue_api import Api

MINUTES = 30
HALF_AN_HOUR = MINUTES * 60
NOTHING = [0.0] * 6
A_BIT = [0.0, 0.0, 0.0, 4.9, 0.0, 0.0]
WORKS = [0.0, 0.0, 0.0, 5.0, 0.0, 0.0]


class Watched:
    """A queue whose GPUs do what the test says, by host."""

    def __init__(self, slots: int = 4) -> None:
        self.api = Api(slots=slots)
        self.queue: Harness = self.api.queue
        self.gpus: dict[str, list[float]] = {}
        self.asked: list[tuple[str, ...]] = []
        self.counted: list[Mapping[str, int]] = []
        self.broken = False
        watch = IdleWatch(lambda site: self._utilization, MINUTES, self._notify)
        self._service = OutlookService(self.queue.repository, self.queue.dry_run.cluster, self.queue.clock, watch)

    def _utilization(
        self, hosts: Sequence[str], since: float, until: float, period: float, may_go_on: Callable[[], bool]
    ) -> dict[str, list[float]]:
        self.asked.append(tuple(hosts))
        if self.broken:
            raise Unavailable("CloudWatch did not tell what GPUs do.")
        assert until - since == HALF_AN_HOUR
        assert until % period == 0
        assert 0 <= self.queue.now - until < period
        return {host: self.gpus[host] for host in hosts if host in self.gpus}

    def _notify(self, event: DomainEvent) -> None:
        assert isinstance(event, IdleInstances)
        self.counted.append(event.counts)

    def look(self, later: float = 0) -> Outlook:
        """The next tick."""
        self.queue.now += later
        self._service.refresh(lambda: True)
        return self.queue.repository.outlook.latest()

    def idle_for(self, name: str) -> float | None:
        """Seconds that a job has been idle for, as the API tells in lists and of itself."""
        _, alone = self.api.call("GET", f"/jobs/{name}")
        for path in ("/jobs", "/queue"):
            _, answer = self.api.call("GET", path)
            (listed,) = [it for it in answer.get("jobs", answer.get("active")) if it["job"] == name]
            assert listed["idleSince"] == alone["idleSince"], path
        since = alone["idleSince"]
        return None if since is None else self.queue.now - datetime.fromisoformat(since).timestamp()


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_who_does_nothing_for_half_an_hour_is_marked_until_it_works_again(watched: Watched) -> None:
    watched.queue.submit("held")
    watched.gpus = {"held-qstamp-1/algo-1": A_BIT}
    watched.look(HALF_AN_HOUR - 1)
    assert (watched.asked, watched.counted) == ([], []), "it has not run for so long"
    watched.look(1)
    since = watched.idle_for("held")
    assert since is not None
    assert HALF_AN_HOUR <= since < HALF_AN_HOUR + 300
    watched.look(3 * LOOK_SECONDS)
    assert watched.idle_for("held") == since + 3 * LOOK_SECONDS, "since then"
    assert watched.counted[-1] == {"default": 1}
    watched.gpus = {"held-qstamp-1/algo-1": WORKS}
    watched.look(LOOK_SECONDS)
    assert watched.idle_for("held") is None
    assert watched.counted[-1] == {"default": 0}


def test_cloudwatch_is_asked_every_five_minutes_by_whichever_process(watched: Watched) -> None:
    watched.queue.submit("held")
    watched.gpus = {"held-qstamp-1/algo-1": NOTHING}
    watched.look(HALF_AN_HOUR)
    for _ in range(4):
        watched.look(60)
    assert len(watched.asked) == 1
    assert watched.counted == [{"default": 1}] * 5, "the metric has no gaps"
    watched.look(60)
    assert len(watched.asked) == 2


@pytest.mark.parametrize(
    ("others", "idle"),
    [
        pytest.param({"algo-2": NOTHING}, True, id="all"),
        pytest.param({"algo-2": WORKS}, False, id="the other works"),
        pytest.param({}, False, id="nobody hears of the other"),
        pytest.param({"algo-2": NOTHING[:4]}, True, id="the latest figures are late"),
        pytest.param({"algo-2": NOTHING[:3]}, False, id="too few figures"),
    ],
)
def test_a_gang_is_idle_if_all_of_it_is(watched: Watched, others: dict[str, list[float]], idle: bool) -> None:
    watched.queue.submit("gang", instances=2)
    watched.gpus = {f"gang-qstamp-1/{host}": figures for host, figures in {"algo-1": NOTHING, **others}.items()}
    watched.look(HALF_AN_HOUR)
    assert watched.asked == [("gang-qstamp-1/algo-1", "gang-qstamp-1/algo-2")]
    assert bool(watched.idle_for("gang")) is idle
    assert watched.counted == [{"default": 2 if idle else 0}]


def test_of_a_cluster_with_other_instances_those_with_gpus_count(watched: Watched) -> None:
    groups = [
        {"InstanceGroupName": "data", "InstanceType": "ml.c5.18xlarge", "InstanceCount": 2},
        {"InstanceGroupName": "train", "InstanceType": P5, "InstanceCount": 1},
    ]
    watched.queue.submit("mixed", ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 30})
    watched.gpus = {"mixed-qstamp-1/algo-3": NOTHING}
    watched.look(HALF_AN_HOUR)
    assert watched.idle_for("mixed") is not None


def test_nobody_asks_about_instances_without_gpus(watched: Watched) -> None:
    for name, kind in (("cpu", "ml.c5.18xlarge"), ("trainium", "ml.trn1.32xlarge")):
        resources = {"InstanceType": kind, "InstanceCount": 1, "VolumeSizeInGB": 30}
        watched.queue.submit(name, ResourceConfig=resources)
    watched.look(HALF_AN_HOUR)
    assert (watched.asked, watched.counted) == ([], [])


def test_where_cloudwatch_does_not_tell_nobody_is_marked_and_the_rest_goes_on(watched: Watched) -> None:
    watched.queue.submit("held")
    watched.gpus = {"held-qstamp-1/algo-1": NOTHING}
    watched.look(HALF_AN_HOUR)
    watched.broken = True
    told = watched.look(LOOK_SECONDS)
    assert told.at == watched.queue.now
    assert watched.idle_for("held") is None
    watched.look(LOOK_SECONDS - 1)
    assert len(watched.asked) == 2, "not each minute"


def test_another_attempt_begins_anew_and_what_is_old_is_not_told(watched: Watched) -> None:
    watched.queue.submit("held")
    watched.gpus = {"held-qstamp-1/algo-1": NOTHING}
    watched.look(HALF_AN_HOUR)
    watched.queue.now += STALE_SECONDS + 1
    assert watched.idle_for("held") is None
    watched.look()
    assert watched.idle_for("held") is not None
    watched.queue.end("held-qstamp-1", "Failed", failure="CapacityError: none left")
    watched.queue.tick(600)
    assert watched.queue.job("held").launched == "held-qstamp-2"
    watched.look()
    assert watched.idle_for("held") is None


@pytest.mark.parametrize(("idle_after", "leaves"), [(2000, "held"), (9000, "low"), (None, "low")])
def test_by_the_policy_it_makes_room_first(idle_after: float | None, leaves: str) -> None:
    watched = Watched(slots=2)
    document = {
        "pools": [{"name": "default", "capacity": 2}],
        "projects": [{"name": "default", "quota": {"default": 2}}],
        "settings": {"idle_after": idle_after},
    }
    queue = watched.queue
    queue.repository.apply_policy(json.dumps(document), 0, "ada", queue.now)
    queue.submit("low", 1)
    queue.submit("held", 5)
    watched.gpus = {"low-qstamp-1/algo-1": WORKS, "held-qstamp-1/algo-1": NOTHING}
    watched.look(HALF_AN_HOUR)
    watched.look(LOOK_SECONDS)
    queue.submit("urgent", 9)
    assert queue.state(leaves) == "stopping"


def test_who_made_room_for_being_idle_takes_no_place_of_who_works_until_it_has_run_again() -> None:
    watched = Watched(slots=2)
    document = {
        "pools": [{"name": "default", "capacity": 2}],
        "projects": [{"name": "default", "quota": {"default": 2}}],
        "settings": {"idle_after": HALF_AN_HOUR},
    }
    queue = watched.queue
    queue.repository.apply_policy(json.dumps(document), 0, "ada", queue.now)
    queue.submit("low", 1)
    queue.submit("held", 5)
    watched.gpus = {"low-qstamp-1/algo-1": WORKS, "held-qstamp-1/algo-1": NOTHING}
    watched.look(HALF_AN_HOUR)
    watched.look(LOOK_SECONDS)
    queue.submit("urgent", 9)
    queue.end("held-qstamp-1", "Stopped")
    for _ in range(3):
        queue.tick()
    assert [queue.state(name) for name in ("low", "held", "urgent")] == ["running", "preempted", "running"]
    (told,) = [it for it in watched.api.call("GET", "/queue")[1]["waiting"] if it["job"] == "held"]
    assert "It was stopped because its GPUs were idle" in told["reason"]["message"]
    queue.end("urgent-qstamp-1")
    assert (queue.state("held"), queue.job("held").left_idle) == ("running", False)
    queue.submit("next", 9)  # it works now: the lowest priority makes room, as ever
    assert queue.state("low") == "stopping"
