"""Requests that nobody should send: each is answered by a sentence, and what is refused changes nothing."""

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from job_queue.validation import against_sagemaker
from tests.jobs import NOW, OWNER, ROLE, a_body, a_request
from tests.payloads import api_event
from tests.training_requests import shape
from tests.unit.queue_api import ADMIN, STRANGER, Api, Governed, a_policy, first_error, stored
from tests.unit.validation.generated_requests import field_of, parts_of, some_members, spoilt

REFUSALS = {400, 403, 404, 409, 413}


class Attacked(Api):
    """An API with a job of ada's, which checks after every call that a refusal changed nothing."""

    def __init__(self) -> None:
        super().__init__(slots=1)
        self.add("adas")
        self.add("waits")

    def call(
        self, method: str, path: str, body: str | None = None, caller: str = OWNER, **query: str
    ) -> tuple[int, Any]:
        before, calls = stored(self.queue), list(self.queue.training.calls)
        status, content = super().call(method, path, body, caller, **query)
        assert status < 500, content
        if status >= 400:
            assert status in REFUSALS
            json.dumps(content, ensure_ascii=False).encode()
            assert len(content["message"]) < 3000
            assert stored(self.queue) == before
            assert self.queue.training.calls == calls
        return status, content

    def event(self, event: dict[str, Any]) -> tuple[int, Any]:
        """Hand over an event that `call` cannot make."""
        before = stored(self.queue)
        answer = self.resolver.resolve(event, {})  # type: ignore[arg-type]
        content = json.loads(answer["body"])
        assert answer["statusCode"] < 500, content
        if answer["statusCode"] >= 400:
            assert stored(self.queue) == before
            content = first_error(content)
        return answer["statusCode"], content


def all_pass(request: dict[str, Any]) -> dict[str, Any]:
    """A request of the model's shape, put right where rules of prose and of the queue would stop it."""
    sound = a_request("generated")
    apart = ("ServerlessJobConfig", "EnableManagedSpotTraining", "ModelPackageConfig", "InputDataConfig", "Tags")
    put_right = {name: value for name, value in request.items() if name not in apart} | {
        name: sound[name]
        for name in ("TrainingJobName", "RoleArn", "AlgorithmSpecification", "ResourceConfig", "StoppingCondition")
    }
    if "CheckpointConfig" in put_right:  # the queue refuses a whole bucket, and folders of other jobs
        put_right["CheckpointConfig"] |= {"S3Uri": "s3://bucket/checkpoints/generated"}
    return put_right


# --- CreateTrainingJob requests, from the service model ----------------------------------------------

generated = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@generated
@given(some_members())
def test_a_request_that_sagemaker_would_take_is_accepted(drawn: dict[str, Any]) -> None:
    api, request = Attacked(), all_pass(drawn)
    status, answer = api.call("POST", "/add-job", json.dumps(request))
    if against_sagemaker(request):  # rules of the debugger are all that is left
        assert status == 400
        assert answer["field"].startswith(("Profiler", "DebugRule"))
        return
    assert status == 202, answer
    assert api.call("GET", "/jobs/generated")[1]["request"] == request
    assert api.call("POST", "/add-job", json.dumps(request))[0] == 200


@generated
@given(some_members())
def test_whatever_fits_the_model_is_accepted_or_told_what_it_lacks(drawn: dict[str, Any]) -> None:
    status, answer = Attacked().call("POST", "/add-job", json.dumps(drawn | {"RoleArn": ROLE}))
    assert status == 202 or (status == 400 and answer["field"])


@generated
@given(st.data())
def test_a_request_with_one_fault_is_refused_and_the_field_named(data: st.DataObject) -> None:
    request = data.draw(some_members().map(all_pass))
    path, found = data.draw(st.sampled_from(parts_of(request, shape())))
    wrong = copy.deepcopy(request)
    place: Any = wrong
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = data.draw(st.sampled_from([it for it in spoilt(found) if type(it) is not object]))
    status, answer = Attacked().call("POST", "/add-job", json.dumps(wrong))
    assert status == 400
    assert answer["field"].startswith(field_of(path))


# --- bodies ------------------------------------------------------------------------------------------

ROUTES = [("POST", "/add-job"), ("POST", "/plan"), ("PATCH", "/jobs/adas"), ("PUT", "/policy")]
SOUND = {
    "/add-job": a_body("another"),
    "/plan": a_body("another"),
    "/jobs/adas": '{"priority": 5, "held": false}',
    "/policy": json.dumps({"policy": a_policy(), "version": 0, "force": True}),
}


@pytest.mark.parametrize(
    "body",
    [
        None,
        "",
        " ",
        "null",
        "[]",
        "[[]]",
        '"text"',
        "0",
        "{}",
        "{",
        "\ufeff{}",
        "\x00",
        "<xml/>",
        "a=1&b=2",
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": ' + "9" * 5000 + "}",
        '{"priority": 1, "priority": 2}',
        r'{"\ud800": 1}',
        '{"__proto__": {}, "constructor": 1}',
        "[" * 200_000,
        '{"a":' * 1000 + "1" + "}" * 1000,
        "{" + " " * 600_000 + "}",
    ],
    ids=lambda body: repr(body)[:30],
)
def test_a_body_that_is_nothing_the_routes_know_is_refused(body: str | None) -> None:
    api = Attacked()
    assert {api.call(method, path, body, caller=ADMIN)[0] for method, path in ROUTES} <= {400, 413}


@pytest.mark.parametrize(("method", "path"), ROUTES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_body_with_parts_cut_out_doubled_or_changed_does_no_harm(data: st.DataObject, method: str, path: str) -> None:
    body = SOUND[path]
    for _ in range(data.draw(st.integers(1, 3))):
        start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(body))] * 2)))
        part = data.draw(st.sampled_from(["", body[start:end] * 2, "0", "null", '"', "[]", "1e400", "\\u0000", "{"]))
        body = body[:start] + part + body[end:]
    Attacked().call(method, path, body, caller=ADMIN)


@pytest.mark.parametrize("body", [b"\xff\xfe{}", b"\x80", b'{"a": "\xed\xa0\x80"}', b"\x1f\x8b\x08", b""])
def test_a_body_of_bytes_that_are_no_text_is_refused(body: bytes) -> None:
    api = Attacked()
    for method, path in ROUTES:
        event = api_event(method, path, body=base64.b64encode(body).decode(), caller=ADMIN)
        assert api.event(event | {"isBase64Encoded": True})[0] == 400


@pytest.mark.parametrize("body", ["!", "é", "a", "AAA", "{}"])
def test_a_body_that_claims_to_be_base64_and_is_not_is_refused(body: str) -> None:
    event = api_event("POST", "/add-job", body=body, caller=OWNER)
    assert Attacked().event(event | {"isBase64Encoded": True})[0] == 400


def test_a_body_in_base64_is_read() -> None:
    event = api_event("POST", "/add-job", body=base64.b64encode(a_body("coded").encode()).decode(), caller=OWNER)
    assert Attacked().event(event | {"isBase64Encoded": True})[0] == 202


def test_the_content_type_is_not_asked() -> None:
    api = Attacked()
    types = ["", "text/xml", "application/x-www-form-urlencoded", "a/b; charset=utf-7", "\x00"]
    for number, content_type in enumerate(types):
        event = api_event("POST", "/add-job", body=a_body(f"typed{number}"), caller=OWNER)
        event["headers"] = {"Content-Type": content_type}
        assert api.event(event)[0] == 202


@pytest.mark.parametrize("characters", [2500, 2600])
def test_a_request_of_a_few_hundred_kilobytes_is_kept_whole_or_refused(characters: int) -> None:
    values = {f"key{number}": "x" * min(characters, 2500) for number in range(100)}
    environment = {f"KEY{number}": "x" * (characters - 2500) for number in range(100)} if characters > 2500 else {}
    body = a_body("large", HyperParameters=values, Environment=environment)
    api = Attacked()
    status, answer = api.call("POST", "/add-job", body)
    if characters == 2500:
        assert status == 202
        assert api.call("GET", "/jobs/large")[1]["request"] == json.loads(body)
    else:
        assert (status, answer["code"]) == (413, "TooLarge")


# --- names and addresses -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-",
        "a-",
        "a_b",
        "a b",
        "a\n",
        "a" * 64,
        "x-qstamp-1",
        "adas-qstamp-2",
        "a" * 53 + "-qstamp-1",
        "-qstamp-1",
        "аdas",  # noqa: RUF001  (a Cyrillic а)
        "job１",  # noqa: RUF001  (a wide 1)
        "é",
        "😀",
        "a\u200bb",
        "a\x00",
        "../a",
        "%61",
        "a/b",
        "<b>",
        "'; drop table jobs",
        "${jndi}",
    ],
    ids=repr,
)
def test_a_name_that_a_job_cannot_have_is_refused(name: str) -> None:
    api = Attacked()
    for path in ("/add-job", "/plan"):
        status, answer = api.call("POST", path, a_body(name))
        assert (status, answer["field"]) == (400, "TrainingJobName")


def test_an_unusual_name_is_one_all_the_same() -> None:
    api = Attacked()
    for name in ("a", "9", "A" * 63, "a--b", "x-qstamp", "x-qstamp-1a", "qstamp-1", "control"):
        assert api.call("POST", "/add-job", a_body(name))[0] == 202
        assert api.call("GET", f"/jobs/{name}")[1]["job"] == name
        assert api.call("DELETE", f"/jobs/{name}")[0] == 202


ADDRESSES = [
    "/jobs/%61das",
    "/jobs/%2561das",
    "/jobs/adas%00",
    "/jobs/adas%0a",
    "/jobs/adas%2f",
    "/jobs/%ff",
    "/jobs/%F0%9F%98%80",
    "/jobs/é",
    "/jobs/adas ",
    "/jobs/ adas",
    "/jobs/ADAS",
    "/jobs/adas-qstamp-1",
    "/jobs/adas;",
    "/jobs/adas?x=1",
    "/jobs/adas#",
    "/jobs/./adas",
    "/jobs/../jobs/adas",
    "/jobs//adas",
    "/jobs/x/../adas",
    "/jobs/x%2f..%2fadas",
    "/jobs\\adas",
    "//jobs/adas",
    "/prod/jobs/adas",
    "/jobs/..",
    "/jobs/*",
    "/jobs/{name}",
    "/jobs/\ud800",
    "/jobs/" + "a" * 10_000,
    "/" + "a/" * 4000,
    "/add-job/../jobs/adas",
    "",
]


@pytest.mark.parametrize("path", ADDRESSES, ids=lambda path: repr(path)[:40])
def test_only_the_plain_address_of_a_job_is_its_address(path: str) -> None:
    api = Attacked()
    for method, body in [("GET", None), ("DELETE", None), ("PATCH", '{"priority": 9}')]:
        assert api.call(method, path, body)[0] == 404


def test_a_method_that_there_is_not_is_not_found() -> None:
    api = Attacked()
    for method in ("HEAD", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "GETT", "", "POST\n", "é"):
        for path in ("/jobs/adas", "/queue", "/add-job"):
            assert api.call(method, path, a_body())[0] == 404, (method, path)


HEADERS: list[dict[str, str] | None] = [
    {"X-HTTP-Method-Override": "DELETE"},
    {"X-HTTP-Method": "DELETE", "X-Method-Override": "DELETE"},
    {"X-Original-URL": "/policy", "X-Rewrite-URL": "/policy", "X-Forwarded-Prefix": "/../"},
    {"Content-Length": "-1", "Transfer-Encoding": "chunked", "Host": "elsewhere", "Expect": "x" * 8000},
    {"Accept": "\x00", "Accept-Encoding": "gzip;q=NaN", "Content-Encoding": "gzip", "Range": "bytes=0-1"},
    None,
]


def test_headers_make_no_difference() -> None:
    api = Attacked()
    event = api_event("GET", "/jobs/adas", caller=OWNER)
    for headers in HEADERS:
        multiple = {name: [value, value] for name, value in headers.items()} if headers else None
        status, answer = api.event(event | {"headers": headers, "multiValueHeaders": multiple})
        assert (status, answer["job"], answer["state"]) == (200, "adas", "running")
    assert api.queue.state("adas") == "running"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "501"}, "limit"),
        ({"limit": "1e3"}, "limit"),
        ({"limit": "٣"}, "limit"),
        ({"limit": "-1"}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"limit": "9" * 5000}, "limit"),
        ({"state": ""}, "state"),
        ({"state": "dancing"}, "state"),
        ({"state": "x" * 5000}, "state"),
        ({"state": "live,\ud800"}, "state"),
        ({"state": "live;drop"}, "state"),
        ({"next": "!"}, "next"),
        ({"next": "é"}, "next"),
        ({"next": "A" * 8000}, "next"),
        ({"next": base64.urlsafe_b64encode(b"[" * 5000).decode()}, "next"),
        ({"next": base64.urlsafe_b64encode(b"9" * 5000).decode()}, "next"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_query_that_means_nothing_is_refused_and_the_parameter_named(query: dict[str, str], field: str) -> None:
    status, answer = Attacked().call("GET", "/jobs", **query)
    assert (status, answer["field"]) == (400, field)


KEY = {"jobName": "adas", "finished": "yes", "stateSince": "2026-11-21T00:00:00.000000Z"}


@pytest.mark.parametrize(
    "place",
    [
        {"live": "x"},
        {"live": "0999999998#2026-11-21T00:00:00.000000Z#" + "a" * 2000},
        {"live": "\ud800"},
        {"finished": {**KEY, "finished": "no"}},
        {"finished": {**KEY, "jobName": "a" * 3000}},
        {"finished": {**KEY, "stateSince": "z"}},
        {"finished": {**KEY, "stateSince": ""}},
        {"finished": {**KEY, "more": "x"}},
        {"finished": KEY, "live": "x"},
        {"live": 5},
        {"finished": "abc"},
        {"finished": {"jobName": 5}},
        {"finished": {}},
    ],
    ids=lambda place: repr(place)[:40],
)
def test_a_token_that_the_queue_cannot_have_given_is_refused(place: dict[str, Any]) -> None:
    token = base64.urlsafe_b64encode(json.dumps(place).encode()).decode()
    status, answer = Attacked().call("GET", "/jobs", state="all", next=token)
    assert (status, answer["field"]) == (400, "next")


def test_unknown_query_parameters_make_no_difference() -> None:
    api = Attacked()
    assert api.call("GET", "/jobs", junk="\x00" * 1000, Action="DELETE")[0] == 200
    assert api.call("GET", "/jobs/adas", **{"X-Amz-Signature": "", "limit": "-1"})[0] == 200


# --- people ------------------------------------------------------------------------------------------


STRANGERS = [
    STRANGER,
    OWNER.upper(),
    OWNER + "x",
    OWNER + " ",
    OWNER[:-1],
    "*",
    "arn:aws:iam::999999999999:user/ada",
    "arn:aws:iam::123456789012:root",
    "arn:aws:sts::123456789012:assumed-role/user/ada",
]


def test_only_its_owner_and_admins_cancel_change_hold_release_or_requeue_a_job() -> None:
    api = Attacked()
    for caller in STRANGERS:
        for method, body in [
            ("DELETE", None),
            ("PATCH", '{"priority": 9}'),
            ("PATCH", '{"held": true}'),
            ("PATCH", '{"held": false}'),
            ("PATCH", '{"priority": 0, "held": false}'),
            ("PATCH", '{"requeue": true}'),
            ("PATCH", '{"requeue": false}'),
            ("PATCH", '{"held": true, "now": true}'),
            ("PATCH", '{"remoteDebug": true}'),
        ]:
            status, answer = api.call(method, "/jobs/waits", body, caller=caller)
            assert (status, answer["code"]) == (403, "Forbidden"), caller


def test_a_role_that_is_not_allowed_is_not_used() -> None:
    api = Attacked()
    for role in (
        ROLE + "x",
        ROLE.replace("training", "admin"),
        ROLE.replace("123456789012", "123456789013"),
        ROLE.replace("role/", "role/training/../"),
        ROLE.replace("arn:aws:", "arn:aws-cn:"),
    ):
        for path in ("/add-job", "/plan"):
            status, answer = api.call("POST", path, a_body("borrowed", RoleArn=role))
            assert (status, answer["field"]) == (403, "RoleArn"), role


@pytest.mark.parametrize("tags", [{"project": "nlp"}, {"project": "ops", "priority": "11"}], ids=str)
def test_tags_get_nobody_above_what_the_policy_gives(tags: dict[str, str]) -> None:
    api = Governed()
    before = stored(api.queue)
    status, answer = api.tagged("tagged", caller=STRANGER, **tags)
    assert (status, answer["field"]) == (403, f"Tags[{len(tags) - 1}].Value")
    assert stored(api.queue) == before


def test_nobody_wears_the_queues_own_tags() -> None:
    api = Attacked()
    for key in ("queue-name", "queue-job", "Queue-Submission", "QUEUE-ATTEMPT", "queue-"):
        body = a_body("disguised", Tags=[{"Key": "team", "Value": "x"}, {"Key": key, "Value": "sagemaker-queue"}])
        status, answer = api.call("POST", "/add-job", body)
        assert (status, answer["field"]) == (400, "Tags[1].Key"), key


def test_a_name_belongs_to_who_had_it_first() -> None:
    api = Attacked()
    other, same = (api.call("POST", "/add-job", a_body("adas", *more), caller=STRANGER) for more in ([5], []))
    assert other == same  # so nobody finds out by guessing what the request says
    assert (other[0], other[1]["code"]) == (409, "NameTaken")
    assert api.call("POST", "/add-job", a_body("adas"), caller=OWNER)[0] == 200
    assert api.call("DELETE", "/jobs/adas", caller=STRANGER)[0] == 403


def test_who_floods_the_queue_with_refused_requests_leaves_no_trace() -> None:
    api = Attacked()
    for number in range(200):
        api.queue.now = NOW + number
        api.call("POST", "/add-job", a_body(f"flood{number}", RoleArn=STRANGER))
    assert api.queue.states() == {"adas": "running", "waits": "pending"}
