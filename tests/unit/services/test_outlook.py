"""The outlook: what the history tells of live jobs, worked out beside the cycles, and used by them."""

import json
from datetime import datetime
from random import Random
from typing import Any

import pytest

from job_queue.adapters.records.packed_json import compress, from_compressed, to_text
from job_queue.domain import state_machine
from job_queue.domain.accounting.attempts import AttemptRecord
from job_queue.domain.expectations.outlook import STALE_SECONDS, Arrival, Outlook
from job_queue.domain.expectations.past_runtimes import PastRuntimes
from job_queue.domain.job import iso
from job_queue.scheduler import PastUse, WaitReason
from job_queue.services.outlook import OutlookService
from job_queue.simulation.forecast import CLOSE_SECONDS, Doubt, Estimate
from job_queue.simulation.workload import Overheads
from tests.jobs import NOW, OWNER, a_request
from tests.memory_tables import MemoryTables
from tests.queue_harness import Harness
from tests.unit.queue_api import Api

HOUR = 3600.0


def always() -> bool:
    return True


def outlooks(queue: Harness) -> OutlookService:
    return OutlookService(queue.repository, queue.dry_run.cluster, queue.clock)


def run(queue: Harness, name: str, seconds: float, provisioning: float = 100) -> None:
    """A job that runs to its end on an empty fleet."""
    queue.submit(name)
    launched = queue.now
    queue.training.run(f"{name}-qstamp-1", launched + provisioning, launched + provisioning + seconds)
    queue.now = launched + provisioning + seconds
    queue.end(f"{name}-qstamp-1")


def look(queue: Harness) -> Outlook:
    outlooks(queue).refresh(always)
    return queue.repository.outlook.latest()


def with_runs(count: int = 6, seconds: float = HOUR, slots: int = 1) -> Harness:
    queue = Harness(slots=slots)
    for number in range(count):
        run(queue, f"train-{number}", seconds)
    return queue


def test_a_waiting_job_is_told_when_the_one_before_it_has_ended_as_others_like_it_did() -> None:
    queue = with_runs()
    queue.submit("train-90")
    began = queue.now
    queue.training.run("train-90-qstamp-1", began + 100)
    queue.now += 600
    queue.submit("train-91")
    queue.submit("train-92")
    told = look(queue)
    first, second = told.estimates["train-91"], told.estimates["train-92"]
    assert first.start == pytest.approx(began + 100 + HOUR, abs=CLOSE_SECONDS)
    assert second.start == pytest.approx(began + 2 * (100 + HOUR), abs=2 * CLOSE_SECONDS)
    assert told.expected["train-90"] == pytest.approx(100 + HOUR, abs=60), "from its launch to its end"
    assert told.expected["train-91"] == pytest.approx(100 + HOUR, abs=60), "from its next start to its end"
    assert told.at == queue.now


def test_what_a_preempted_job_has_done_is_not_expected_again() -> None:
    queue = with_runs()
    queue.submit("train-90", 1)
    began = queue.now
    queue.training.run("train-90-qstamp-1", began + 100)
    queue.now += 100 + HOUR / 2
    queue.submit("urgent", 9)
    queue.training.end("train-90-qstamp-1", "Stopped")
    queue.event("train-90-qstamp-1")
    assert queue.state("train-90") == "preempted"
    assert look(queue).expected["train-90"] == pytest.approx(100 + HOUR / 2, abs=120)


def test_where_nothing_is_known_nobody_is_told_a_start() -> None:
    queue = Harness(slots=1)
    queue.submit("job1")
    queue.submit("job2")
    told = look(queue)
    assert told.expected == {}
    assert told.estimates["job2"].start is None
    assert told.estimates["job2"].doubt is Doubt.UNKNOWN_RUNTIMES


def test_without_a_history_a_limit_that_somebody_has_set_tells_something() -> None:
    queue = Harness(slots=1)
    limit = {"StoppingCondition": {"MaxRuntimeInSeconds": 7200}}
    queue.submit("job1", **limit)
    queue.submit("job2", **limit)
    told = look(queue).estimates["job2"]
    assert told.start is not None
    assert queue.now < told.start < queue.now + 7200 + HOUR


def test_who_is_held_never_starts() -> None:
    queue = Harness(slots=1)
    queue.submit("job1")
    queue.submit("job2")
    queue.repository.apply(state_machine.change(queue.job("job2"), "ada", queue.now, priority=1, held=True), queue.now)
    told = look(queue).estimates["job2"]
    assert (told.start, told.doubt, told.reason) == (None, Doubt.NEVER, WaitReason.HELD_BY_USER)


class Counting(MemoryTables):
    """Counts what is read of a table, and what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.history = self.writes = 0

    def query(self, table: str, *args: Any, **options: Any) -> Any:
        self.history += table == "sagemaker-queue-history"
        return super().query(table, *args, **options)

    def transact(self, *args: Any, **options: Any) -> Any:
        self.writes += 1
        return super().transact(*args, **options)


def test_while_no_job_lives_nothing_is_looked_up_or_stored() -> None:
    tables = Counting()
    queue = Harness(slots=2, tables=tables)
    queue.submit("job1")
    queue.end("job1-qstamp-1")
    tables.history = tables.writes = 0
    outlooks(queue).refresh(always)
    assert (tables.history, tables.writes) == (0, 0)


def test_the_history_is_read_once_and_what_is_recorded_late_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    learn = PastRuntimes.learn
    tables = Counting()
    queue = Harness(slots=1, tables=tables)
    service = outlooks(queue)
    learned = []

    def counted(past: PastRuntimes, record: AttemptRecord) -> None:
        learned.append(record.job)
        learn(past, record)

    monkeypatch.setattr(PastRuntimes, "learn", counted)
    for number in range(5):
        run(queue, f"train-{number}", HOUR)
    late = {key: row for key, row in tables.rows.items() if key[0] == "sagemaker-queue-history" and row["attempt"] == 1}
    last = max(late, key=lambda key: key[2])
    row = tables.rows.pop(last)
    queue.submit("train-90")
    queue.submit("train-91")
    service.refresh(always)
    assert queue.repository.outlook.latest().expected == {}, "four are too few"
    whole, tables.history = tables.history, 0
    tables.rows[last] = row  # its end was recorded after the look
    queue.now += 60
    service.refresh(always)
    again = tables.history
    assert queue.repository.outlook.latest().expected["train-91"] == pytest.approx(HOUR + 100, abs=60)
    assert again < whole / 5, "only the last hours are read again"
    queue.now += 60
    service.refresh(always)
    assert queue.repository.outlook.latest().expected["train-91"] == pytest.approx(HOUR + 100, abs=60)
    assert sorted(learned) == [f"train-{number}" for number in range(5)], "none is learned twice"


def test_a_look_that_takes_too_long_says_so() -> None:
    queue = with_runs()
    queue.submit("train-90")
    queue.submit("train-91")
    outlooks(queue).refresh(lambda: False)
    told = queue.repository.outlook.latest()
    assert told.estimates["train-91"] == Estimate("train-91", None, Doubt.NO_TIME)


def test_thousands_of_jobs_fit_in_a_row() -> None:
    queue = Harness()
    names = [f"{number:04}-{'x' * 58}" for number in range(3000)]
    draw = Random(1)
    expected = {name: draw.uniform(100, 1e5) for name in names}
    likely = {name: tuple(sorted(draw.uniform(100, 1e5) for _ in range(12))) for name in names}
    arrivals = tuple(Arrival(name, "vision", OWNER, 1, ({"p5": 3},), NOW - draw.uniform(0, 1e5)) for name in names)
    estimates = {
        name: Estimate(
            name,
            float(draw.randrange(10**9)),
            earliest=float(draw.randrange(10**9)),
            latest=float(draw.randrange(10**9)),
        )
        for name in names
    }
    past_use = {"vision": PastUse({"p5": 1e6}, {OWNER: 1e5}, 12.5, {OWNER: 3.5})}
    queue.repository.outlook.replace(
        Outlook(NOW, expected, likely, arrivals, 100.5, past_use, frozenset({"a"}), estimates)
    )
    rows = {key[2]: row for key, row in queue.tables.rows.items() if key[1] == "outlook"}
    assert len(rows["latest"]["content"]) < 400_000
    assert len(rows["told"]["content"]) < len(rows["latest"]["content"]) / 2, "readers read less"
    told = queue.repository.outlook.for_readers()
    assert (told.at, told.estimates[names[0]]) == (NOW, estimates[names[0]])
    assert told.expected[names[0]] == pytest.approx(expected[names[0]], abs=0.5)
    found = queue.repository.outlook.latest()
    assert (found.at, found.provisioning, found.past_use) == (NOW, 100.5, past_use)
    assert len(found.estimates) >= 1000
    assert found.estimates[names[0]] == estimates[names[0]]
    assert found.arrivals[0] == arrivals[0]
    assert found.likely[names[0]] == pytest.approx(likely[names[0]], abs=0.5)


@pytest.mark.parametrize("change", ["reason", "doubt", "content"])
def test_an_outlook_of_another_version_is_read_as_far_as_possible(change: str) -> None:
    queue = with_runs()
    queue.submit("train-90")
    queue.submit("train-91")
    assert look(queue).estimates["train-91"].start
    for place, row in queue.tables.rows.items():
        if place[1] == "outlook" and place[2] in ("latest", "told"):
            stored = from_compressed(row["content"])
            stored["estimates"] = [{**it, change: "LATER_VERSION"} for it in stored["estimates"]]
            row["content"] = b"?" if change == "content" else compress(to_text(stored))
    for read in (queue.repository.outlook.latest, queue.repository.outlook.for_readers):
        assert ("train-91" in read().estimates) == (change != "content")
    assert look(queue).estimates["train-91"].start, "the tick replaces the rows"


def test_a_cycle_serves_the_shortest_first_by_the_outlook() -> None:
    queue = Harness(slots=1)
    for number in range(6):
        run(queue, f"long-{number}", 10 * HOUR)
        run(queue, f"short-{number}", HOUR / 10)
    document = {
        "pools": [{"name": "default", "capacity": 1}],
        "projects": [{"name": "default", "quota": {"default": 1}}],
        "settings": {"order": "shortest"},
    }
    queue.repository.apply_policy(json.dumps(document), 0, "ada", queue.now)
    queue.submit("other")
    queue.submit("long-9")
    queue.submit("short-9")
    look(queue)
    queue.end("other-qstamp-1")
    assert (queue.state("short-9"), queue.state("long-9")) == ("running", "pending")


def with_one_that_waits() -> Api:
    """Six have ended, train-90 runs, and train-91 waits."""
    api = Api(queue=with_runs())
    api.add("train-90", 1)
    api.add("train-91", 1)
    return api


def test_the_api_tells_when_and_is_silent_once_that_is_old() -> None:
    api = with_one_that_waits()
    _, before = api.call("GET", "/jobs/train-91")
    assert before["expectedStart"] is None
    look(api.queue)
    _, job = api.call("GET", "/jobs/train-91")
    told = job["expectedStart"]
    assert told["start"]
    assert told["message"].startswith("Between 1 h and 1.5 h (a guess). The simulations start it at about 20")
    assert told["message"].endswith("(0 of 2 earlier estimates can be compared).")
    assert told["earliest"] <= told["likely"] <= told["latest"]
    assert (told["level"], told["looks"]) == (None, 0)
    assert told["toldAt"]
    _, running = api.call("GET", "/jobs/train-90")
    assert running["expectedStart"] is None
    for path in ("/jobs", "/queue"):
        _, answer = api.call("GET", path)
        (waiting,) = [it for it in answer.get("jobs", answer.get("waiting")) if it["job"] == "train-91"]
        assert waiting["expectedStart"] == told, path
    api.queue.now += STALE_SECONDS + 1
    _, later = api.call("GET", "/jobs/train-91")
    assert later["expectedStart"] is None


def test_the_api_tells_when_live_jobs_end_in_lists_and_alone() -> None:
    api = with_one_that_waits()
    queue = api.queue
    began = queue.now
    queue.training.run("train-90-qstamp-1", began + 100)
    queue.now += 600
    assert ends_told(api) == {"train-90": None, "train-91": None}, "nobody has looked ahead"
    look(queue)
    told = ends_told(api)
    assert told["train-90"] == pytest.approx(began + 100 + HOUR, abs=60)
    assert told["train-91"] == pytest.approx(began + 2 * (100 + HOUR), abs=CLOSE_SECONDS + 60)
    queue.now += STALE_SECONDS
    assert ends_told(api) == told
    queue.now += 1
    assert ends_told(api) == {"train-90": None, "train-91": None}, "that is old"


def test_without_past_runtimes_a_limit_below_the_default_of_sagemaker_gives_the_latest_end() -> None:
    api = Api()
    for name, limit in (("short", 7200), ("default", 86_400)):
        assert api.add(name, 1, StoppingCondition={"MaxRuntimeInSeconds": limit})[0] == 202
    assert ends_told(api) == {"short": None, "default": None}, "no outlook was computed"
    look(api.queue)
    ends = ends_told(api)
    assert ends["default"] is None
    assert ends["short"] == pytest.approx(api.queue.now + 2 * HOUR + Overheads().provisioning, abs=5)


def test_while_all_run_their_ends_are_told_and_never_lie_in_the_past() -> None:
    queue = with_runs()
    api = Api(queue=queue)
    api.add("train-90", 1)
    queue.now += 100 + HOUR - 60
    look(queue)
    queue.now += 240
    assert ends_told(api) == {"train-90": queue.now}


def test_no_end_is_told_of_a_job_that_is_being_stopped_or_has_ended_or_starts_nobody_knows_when() -> None:
    api = with_one_that_waits()
    api.call("PATCH", "/jobs/train-91", json.dumps({"held": True}))
    look(api.queue)
    api.call("DELETE", "/jobs/train-90")
    assert ends_told(api) == {"train-90": None, "train-91": None}
    api.queue.training.end("train-90-qstamp-1", "Stopped")
    api.queue.event("train-90-qstamp-1")
    _, ended = api.call("GET", "/jobs/train-90")
    assert (ended["state"], ended["expectedEnd"]) == ("stopped", None)


def ends_told(api: Api) -> dict[str, float | None]:
    """When live jobs end (epoch seconds): what the list tells, which the queue and each job's own page tell, too."""
    _, page = api.call("GET", "/jobs")
    told = {job["job"]: job["expectedEnd"] for job in page["jobs"]}
    _, status = api.call("GET", "/queue")
    assert {job["job"]: job["expectedEnd"] for job in status["active"] + status["waiting"]} == told
    assert {name: api.call("GET", f"/jobs/{name}")[1]["expectedEnd"] for name in told} == told
    return {name: end and datetime.fromisoformat(end).timestamp() for name, end in told.items()}


def test_only_a_request_for_advice_reads_the_whole_outlook(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(slots=1)
    read = []
    latest = api.queue.repository.outlook.latest

    def counted() -> Outlook:
        read.append(1)
        return latest()

    monkeypatch.setattr(api.queue.repository.outlook, "latest", counted)
    api.add("train-90", 1)
    status, _ = api.call("POST", "/add-job", json.dumps(a_request("train-91")))
    assert (status, read) == (202, [])
    api.call("GET", "/jobs/train-91")
    api.call("GET", "/jobs")
    api.call("GET", "/queue")
    assert read == []
    api.call("GET", "/jobs/train-91", advice="true")
    assert read == [1]


def test_a_plan_tells_when_a_job_would_start() -> None:
    api = with_one_that_waits()
    look(api.queue)
    before = dict(api.queue.tables.rows)
    _, answer = api.call("POST", "/plan", json.dumps(a_request("train-92")))
    assert answer["expectedStart"]["start"]
    assert "The simulations start it at about 20" in answer["expectedStart"]["message"]
    _, urgent = api.call("POST", "/plan", json.dumps(a_request("urgent", 9)))
    assert urgent["wouldStart"]
    assert api.queue.tables.rows == before, "nothing is stored"
    api.queue.end("train-90-qstamp-1")
    api.queue.end("train-91-qstamp-1")
    _, now = api.call("POST", "/plan", json.dumps(a_request("train-92")))
    assert (now["wouldStart"], now["expectedStart"]) == (True, None)


def with_settings(queue: Harness, projects: list[dict[str, Any]], **settings: Any) -> None:
    document = {"pools": [{"name": "default", "capacity": 1}], "projects": projects, "settings": settings}
    queue.repository.apply_policy(json.dumps(document), 0, "ada", queue.now)


def test_a_budget_that_is_spent_keeps_jobs_waiting_until_the_next_period() -> None:
    api = Api(slots=1)
    budget = {"instance_hours": 1, "period": "month"}
    with_settings(api.queue, [{"name": "default", "quota": {"default": 1}, "budget": budget}])
    run(api.queue, "job1", 2 * HOUR)
    service = outlooks(api.queue)
    service.refresh(always)
    api.add("job2", 1)
    _, job = api.call("GET", "/jobs/job2")
    assert (job["state"], job["reason"]["code"]) == ("pending", "OVER_BUDGET")
    api.queue.now += 31 * 86_400
    service.refresh(always)
    api.queue.tick()
    assert api.queue.state("job2") == "running"


def test_another_policy_counts_anew() -> None:
    queue = Harness(slots=1)
    project = {"name": "default", "quota": {"default": 1}}
    with_settings(queue, [{**project, "budget": {"instance_hours": 100, "period": "month"}}])
    run(queue, "job1", 2 * HOUR)
    service = outlooks(queue)
    service.refresh(always)
    assert queue.repository.outlook.latest().past_use["default"].spent == pytest.approx(2 * HOUR)
    document = {
        "pools": [{"name": "default", "capacity": 1}],
        "projects": [{**project, "owner_budget": {"instance_hours": 100, "period": "month"}}],
    }
    queue.repository.apply_policy(json.dumps(document), 1, "ada", queue.now)
    service.refresh(always)
    assert queue.repository.outlook.latest().past_use["default"].spent_by_owner == {OWNER: pytest.approx(2 * HOUR)}


def test_who_has_used_less_lately_goes_first() -> None:
    queue = Harness(slots=1)
    projects = [{"name": name, "over_quota": 1} for name in ("vision", "nlp")]
    with_settings(queue, projects, usage_half_life=86_400)
    of = {name: [{"Key": "project", "Value": name}] for name in ("vision", "nlp")}
    queue.submit("job1", None, Tags=of["vision"])
    queue.training.run("job1-qstamp-1", queue.now, queue.now + 3 * HOUR)
    queue.now += 3 * HOUR
    queue.submit("job2", None, Tags=of["vision"])
    queue.submit("job3", None, Tags=of["nlp"])
    queue.training.end("job1-qstamp-1")
    look(queue)
    queue.event("job1-qstamp-1")
    assert (queue.state("job3"), queue.state("job2")) == ("running", "pending")


def of_a_carrier(number: int) -> list[AttemptRecord]:
    """A carrier whose instance came after 300 s, and two members of it that ran an hour; one of three that came."""
    begin = NOW + number * 3 * HOUR
    common: dict[str, Any] = {
        **{"attempt": 1, "project": "default", "owner": OWNER, "outcome": "completed", "priority": 1},
        **{"submitted": iso(begin), "waiting_since": iso(begin), "instances": {}},
    }
    name = f"carrier--default--{number}"
    carrier = AttemptRecord(
        name, name, training_job_name=name, slots={"default": 1}, launched=iso(begin), began=iso(begin + 300),
        ended=iso(begin + 2 * HOUR), carries=8, **common,
    )  # fmt: skip
    members = [
        AttemptRecord(
            f"train-{number}-{place}", f"{name}{place}", training_job_name=f"{name}{place}", slots={"default": 0},
            launched=iso(begin + 300), began=iso(begin + 301), ended=iso(begin + 301 + HOUR), gpus=10, carrier=name,
            **common,
        )
        for place in range(2)
    ]  # fmt: skip
    return [*members, carrier]


def test_what_carriers_did_is_not_what_jobs_do() -> None:
    past = PastRuntimes()
    for number in range(6):
        for attempt in of_a_carrier(number):
            past.learn(attempt)
    queue = Harness(slots=1)
    queue.now = NOW + 18 * HOUR
    queue.submit("train-7-0", Tags=[{"Key": "priority", "Value": "1"}])
    told = past.outlook(queue.dry_run.cluster(), queue.now)
    assert told.provisioning == 300, "as long as carriers took to come, and not a second as a member takes to start"
    assert {it.name for it in told.arrivals if it.runtime is not None} == {
        f"train-{number}-{place}" for number in range(6) for place in range(2)
    }
    assert {it.gpus for it in told.arrivals if it.runtime is not None} == {10}
    assert {it.runtime for it in told.arrivals if it.runtime is not None} == {HOUR}
