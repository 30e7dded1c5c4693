"""Another's checkpoints: a job that would write where a live job of somebody else does, above it or below."""

import hashlib
import json
import re
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_queue.adapters.records.claimed_places import CLAIMS_BELOW
from job_queue.domain.access.places import DEPTH, bucket_and_key, place_of
from job_queue.domain.errors import InvalidRequest
from job_queue.validation.json_text import json_object
from tests.jobs import OWNER, a_request
from tests.unit.queue_api import ADMIN, STRANGER, Api, Governed

pytestmark = pytest.mark.attack

CHECKPOINTS = "s3://bucket/checkpoints/vision/job1"


def submit(
    api: Api, name: str, caller: str, checkpoints: str | None, output: str = "s3://bucket/out"
) -> tuple[int, Any]:
    api.queue.now += 1
    changes: dict[str, Any] = {"OutputDataConfig": {"S3OutputPath": output}}
    request = a_request(name, **changes)
    del request["CheckpointConfig"]
    if checkpoints:
        request["CheckpointConfig"] = {"S3Uri": checkpoints}
    return api.call("POST", "/add-job", json.dumps(request), caller=caller, preflight="false")


@pytest.fixture(params=[2, 0], ids=["runs", "waits"])
def api(request: pytest.FixtureRequest) -> Api:
    """The owner's job lives."""
    api = Api(slots=request.param)
    assert submit(api, "victim", OWNER, CHECKPOINTS)[0] == 202
    return api


def claims(api: Api) -> list[str]:
    return [key[1] for key in api.queue.tables.rows if key[1].startswith("place#")]


@pytest.mark.parametrize(
    ("checkpoints", "output", "field"),
    [
        (CHECKPOINTS, "s3://bucket/out", "CheckpointConfig.S3Uri"),
        (CHECKPOINTS + "/", "s3://bucket/out", "CheckpointConfig.S3Uri"),
        ("s3://bucket//checkpoints/vision//job1", "s3://bucket/out", "CheckpointConfig.S3Uri"),
        (CHECKPOINTS + "/epoch/7", "s3://bucket/out", "CheckpointConfig.S3Uri"),
        ("s3://bucket/checkpoints/vision", "s3://bucket/out", "CheckpointConfig.S3Uri"),
        ("s3://bucket/checkpoints", "s3://bucket/out", "CheckpointConfig.S3Uri"),
        ("s3://bucket/out", "s3://other/out", "CheckpointConfig.S3Uri"),  # above the victim's output
        ("s3://bucket/out/victim-qstamp-1/output", "s3://other/out", "CheckpointConfig.S3Uri"),
        ("s3://bucket/out/victim-qstamp-99", "s3://other/out", "CheckpointConfig.S3Uri"),
        ("https://bucket.s3.us-east-1.amazonaws.com/checkpoints/vision/job1", "s3://o/o", "CheckpointConfig.S3Uri"),
        ("https://s3.us-east-1.amazonaws.com/bucket/checkpoints/vision/job1", "s3://o/o", "CheckpointConfig.S3Uri"),
        (None, CHECKPOINTS, "OutputDataConfig.S3OutputPath"),
        (None, CHECKPOINTS + "/deep/er", "OutputDataConfig.S3OutputPath"),
        ("s3://mine/a", CHECKPOINTS, "OutputDataConfig.S3OutputPath"),
    ],
)  # fmt: skip
def test_where_a_live_job_of_another_owner_writes(api: Api, checkpoints: str | None, output: str, field: str) -> None:
    before = claims(api)
    status, answer = submit(api, "thief", STRANGER, checkpoints, output)
    assert (status, answer["code"], answer["field"]) == (409, "Conflict", field)
    assert "victim" in answer["message"] and OWNER in answer["message"]
    assert api.queue.repository.record("thief") is None
    assert claims(api) == before
    body = json.dumps(a_request("thief", CheckpointConfig={"S3Uri": checkpoints or "s3://mine/b"},
                                OutputDataConfig={"S3OutputPath": output}))  # fmt: skip
    assert api.call("POST", "/plan", body, caller=STRANGER)[0] == 409


@pytest.mark.parametrize("part", ["TensorBoardOutputConfig", "DebugHookConfig", "ProfilerConfig"])
def test_nor_do_its_other_outputs_lie_there(api: Api, part: str) -> None:
    changes: dict[str, Any] = {part: {"S3OutputPath": CHECKPOINTS + "/logs"}}
    body = json.dumps(a_request("thief", **changes))
    status, answer = api.call("POST", "/add-job", body, caller=STRANGER, preflight="false")
    assert (status, answer["field"]) == (409, f"{part}.S3OutputPath")


def rules(*outputs: str) -> list[dict[str, str]]:
    common = {"RuleEvaluatorImage": "image"}
    return [{**common, "RuleConfigurationName": f"r{n}", "S3OutputPath": it} for n, it in enumerate(outputs)]


@pytest.mark.parametrize("part", ["DebugRuleConfigurations", "ProfilerRuleConfigurations"])
def test_nor_those_of_its_rules(api: Api, part: str) -> None:
    changes: dict[str, Any] = {part: rules("s3://mine/x", CHECKPOINTS + "/x")}
    body = json.dumps(a_request("thief", **changes))
    status, answer = api.call("POST", "/add-job", body, caller=STRANGER, preflight="false")
    assert (status, answer["field"]) == (409, f"{part}[1].S3OutputPath")


def test_nobody_has_the_queue_look_at_places_without_end() -> None:
    changes: dict[str, Any] = {"DebugRuleConfigurations": rules(*(f"s3://mine/{n}/{'x/' * 30}" for n in range(9)))}
    status, answer = Api().call("POST", "/add-job", json.dumps(a_request("deep", **changes)), preflight="false")
    assert (status, answer["field"]) == (400, "DebugRuleConfigurations[8].S3OutputPath")


@pytest.mark.parametrize("place", ["s3://bucket", "s3://bucket/", "s3://bucket//", "https://bucket.s3.amazonaws.com/"])
def test_nobody_has_a_bucket_to_themselves(place: str) -> None:
    status, answer = submit(Api(), "squatter", STRANGER, place)
    assert (status, answer["field"]) == (403, "CheckpointConfig.S3Uri")
    assert "a separate folder" in answer["remedy"]


@pytest.mark.parametrize(("place", "status"), [("team", 403), ("team/vision", 403), ("team/vision/job1", 202)])
def test_nor_what_the_policy_gives_to_a_project(place: str, status: int) -> None:
    projects = [{"name": "default", "buckets": ["bucket", "data/team/vision"]}]
    api = Governed(projects=projects, departments=[], settings={"allow_oversubscription": True})
    answered, answer = submit(api, "squatter", STRANGER, f"s3://data/{place}")
    assert answered == status, answer


@pytest.mark.parametrize("caller", [STRANGER, ADMIN])
@pytest.mark.parametrize(
    ("checkpoints", "output"),
    [
        (CHECKPOINTS + "2", "s3://bucket/out"),
        ("s3://bucket/checkpoints/vision/job", "s3://bucket/out"),
        ("s3://bucket/checkpoints/nlp/job1", "s3://bucket"),
        ("s3://bucket/out/thief", "s3://bucket/out"),
        ("s3://Bucket/checkpoints/vision/job1", "s3://bucket/out"),
        (None, "s3://bucket"),
    ],
)
def test_beside_it_there_is_room(api: Api, caller: str, checkpoints: str | None, output: str) -> None:
    assert submit(api, "other", caller, checkpoints, output)[0] == 202


def test_an_owner_may_use_a_place_twice(api: Api) -> None:
    for number, place in enumerate((CHECKPOINTS, CHECKPOINTS + "/below", "s3://bucket/checkpoints")):
        assert submit(api, f"again{number}", OWNER, place)[0] == 202
    for name in ("victim", "again0", "again2"):
        assert api.call("DELETE", f"/jobs/{name}", caller=OWNER)[0] == 202
        if f"{name}-qstamp-1" in api.queue.training.requests:
            api.queue.end(f"{name}-qstamp-1", "Stopped")
    status, answer = submit(api, "thief", STRANGER, CHECKPOINTS)  # one that is below it still lives
    assert (status, "again1" in answer.get("message", "")) == (409, True)


def test_the_same_request_again_is_no_conflict(api: Api) -> None:
    assert submit(api, "victim", OWNER, CHECKPOINTS)[0] == 200


def test_a_place_is_free_once_its_job_has_ended(api: Api) -> None:
    assert len(claims(api)) == 2
    assert api.call("DELETE", "/jobs/victim", caller=OWNER)[0] == 202
    if api.queue.training.requests:
        assert submit(api, "early", STRANGER, CHECKPOINTS)[0] == 409, "it is stopping, and may still write"
        api.queue.end("victim-qstamp-1", "Stopped")
    assert claims(api) == []
    api.queue.now += 60  # what keeps two submissions of one moment apart is over
    assert submit(api, "next", STRANGER, CHECKPOINTS)[0] == 202


def test_a_preempted_job_keeps_its_place() -> None:
    api = Api(slots=1)
    submit(api, "victim", OWNER, CHECKPOINTS)
    assert api.add("urgent", 9)[0] == 202
    api.queue.end("victim-qstamp-1", "Stopped")
    assert api.queue.state("victim") == "preempted"
    assert submit(api, "thief", STRANGER, CHECKPOINTS)[0] == 409


def test_a_row_that_a_restored_table_has_left_holds_nobody_up() -> None:
    api = Api()
    submit(api, "victim", OWNER, CHECKPOINTS)
    del api.queue.tables.rows["sagemaker-queue", "victim"]
    api.queue.now += 60
    assert submit(api, "next", STRANGER, CHECKPOINTS)[0] == 202


def test_of_two_who_find_it_free_at_the_same_moment_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api()
    add = api.queue.repository.add

    def overtaken(*args: Any, **more: Any) -> Any:
        monkeypatch.setattr(api.queue.repository, "add", add)
        assert submit(api, "first", OWNER, CHECKPOINTS)[0] == 202
        return add(*args, **more)

    monkeypatch.setattr(api.queue.repository, "add", overtaken)
    status, answer = submit(api, "second", STRANGER, CHECKPOINTS)
    assert (status, answer["code"]) == (503, "Unavailable")
    assert submit(api, "second", STRANGER, CHECKPOINTS)[0] == 409, "the client sends it again"


def test_the_look_is_bounded_however_many_jobs_there_are() -> None:
    api = Api(slots=0)
    calls: list[int] = []
    query = api.queue.tables.query

    def counted(table: str, line: str, limit: int | None = None, after: str | None = None) -> Any:
        rows = query(table, line, limit, after)
        if line.startswith("place#"):
            calls.append(len(rows))
        return rows

    api.queue.tables.query = counted  # type: ignore[method-assign]
    for number in range(CLAIMS_BELOW):
        key = ("place#bucket", f"{place_of(f's3://b/x/{number}')[2:]}/!j{number}")
        row = {"line": key[0], "position": key[1], "owner": STRANGER}
        api.queue.tables.rows["sagemaker-queue-lines", *key] = row
    assert submit(api, "deep", STRANGER, "s3://bucket/" + "a/" * 400, "s3://bucket/" + "b/" * 400)[0] == 202
    assert len(calls) <= 2 * (DEPTH + 1) + 2
    assert sum(calls) <= 2 * CLAIMS_BELOW + 20 * DEPTH
    status, answer = submit(api, "above", STRANGER, "s3://bucket/x")
    assert (status, answer["code"]) == (409, "TooMany")
    assert answer["remedy"]


def test_many_owners_at_one_moment_do_not_refuse_one_another() -> None:
    """500 submissions a minute: two of these places had one lock when a lock's name had four digits."""
    seen: dict[str, int] = {}
    pairs: list[tuple[int, int]] = []
    for number in range(2000):
        name = hashlib.sha256(place_of(f"s3://bucket/{number}/job").encode()).hexdigest()[:4]
        if name in seen:
            pairs.append((seen[name], number))
        seen[name] = number
    assert pairs
    api = Api(slots=0)
    for one, other in pairs[:3]:
        for number, owner in ((one, OWNER), (other, STRANGER)):
            status, answer = submit(api, f"job{number}", owner, f"s3://bucket/{number}/job", f"s3://bucket/o{number}")
            assert status == 202, answer


SLOW_BUT_CERTAIN = re.compile(r"(?:(.+)\.)?s3(?:[.-][a-z0-9-]+)*\.amazonaws\.com(?:\.cn)?", re.ASCII)
LABELS = st.sampled_from(["s3", "s3-us", "a", "b-1", "amazonaws", "com", "cn", "S", "us-east-1", "", "-", "s3x"])


@given(st.lists(LABELS, max_size=6))
def test_the_bucket_in_a_host_is_that_of_the_last_label_s3(labels: list[str]) -> None:
    for domain in ("amazonaws.com", "amazonaws.com.cn", "example.com"):
        host = ".".join([*labels, domain])
        found = SLOW_BUT_CERTAIN.fullmatch(host.lower())
        expected = (f"https:{host}", "b/k") if found is None else (found[1], "b/k") if found[1] else ("b", "k")
        if host and "" not in labels:
            assert bucket_and_key(f"https://{host}/b/k") == expected


@pytest.mark.parametrize("part", ["-a", ".a", "s3.", "s3-", "a.s3", "."])
def test_the_time_for_an_address_is_linear_in_its_length(part: str) -> None:
    """A pattern with nested repetitions would need longer than a person can wait."""
    for end in ("/x", ".amazonaws.com/x", ".amazonaws.com!/x", "!"):
        bucket_and_key(f"https://s3{part * 500}{end}")


def test_capital_letters_in_a_host_make_no_other_place(api: Api) -> None:
    status, _ = submit(
        api, "x", STRANGER, "https://bucket.S3.us-east-1.AmazonAWS.com/checkpoints/vision/job1", "s3://o/o"
    )
    assert status in (400, 409)


@pytest.mark.parametrize("where", ["InstanceType", "name"])
def test_no_suggestion_is_sought_for_a_long_text(api: Api, where: str) -> None:
    wrong = "a" + "0" * 200_000 + "!"
    request = a_request("x")
    request["ResourceConfig"] |= {"InstanceType": wrong} if where == "InstanceType" else {wrong: 1}
    assert api.call("POST", "/add-job", json.dumps(request))[0] == 400


def test_long_names_around_many_values_need_no_memory_for_each_value() -> None:
    body = "[0]"
    for _ in range(40):
        body = f'{{"{"n" * 78}": {body}}}'
    body = body.replace("[0]", json.dumps([0] * 100_000 + ["\ud800"]))
    tracemalloc.start()
    with pytest.raises(InvalidRequest) as refused:
        json_object(body, "a request")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused.value.field and refused.value.field.endswith("[100000]")
    assert most < 100_000_000
