"""Mailboxes of carriers: orders that agents accept, and contents of a mailbox that the queue must not believe."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from job_queue.adapters.carriers.mailbox import LARGEST, AgentActivity, Mailboxes, key_of, member_of, reported_attempts
from job_queue.adapters.sagemaker import LaunchResult, StopResult
from job_queue.carrier_agent import seal
from job_queue.domain.errors import Unavailable
from job_queue.domain.job import Job
from job_queue.domain.launching.proof import attempt_tags, is_current_attempt_of
from job_queue.scheduler import GpuAllocation, JobState
from tests.jobs import NOW, a_job
from tests.mailboxes import BUCKET, AgentInMemory, BucketInMemory, mailboxes, small_key

CARRIER, ATTEMPT = "c-qstamp-1", "m-qstamp-1"
IN, OUT = f"carriers/{CARRIER}/in", f"carriers/{CARRIER}/out"
ENDED, ASSIGN, STOP = f"{OUT}/{ATTEMPT}/ended.json", f"{IN}/{ATTEMPT}/assign.json", f"{IN}/{ATTEMPT}/stop.json"
ALIVE, INTRODUCTION = f"{OUT}/alive.json", f"{OUT}/agent.json"
SECRET = "5ec4e7" * 5

GARBAGE = [
    b"",
    b"[]",
    b"7",
    b"null",
    b"{",
    b"{}",
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"report": 7, "code": 7, "order": 7, "signature": 7, "key": 7}',
    b'{"report": [], "code": {}, "order": {}, "signature": [], "key": null}',
    b'{"report": "{}", "code": "", "order": "{}", "signature": "", "key": ""}',
    b'{"report": "\\ud800", "code": "\\ud800", "order": "\\ud800", "signature": "\\ud800", "key": "\\ud800"}',
    b'{"report": "{}", "code": "zz", "order": "{}", "signature": "zz", "key": "zz"}',
    b'{"report": "{}", "code": "00", "order": "{}", "signature": "00", "key": "0"}',
    b'{"key": "1", "order": "[]", "signature": ""}',
    json.dumps({"key": f"{seal.PRIME - 1:x}"}).encode(),
    json.dumps({"key": f"{seal.PRIME:x}"}).encode(),
    json.dumps({"key": f"{seal.PRIME + 2:x}"}).encode(),
    json.dumps({"key": "f" * 513}).encode(),
    json.dumps({"key": "-5"}).encode(),
    json.dumps({"key": " 5"}).encode(),
    json.dumps({"key": "0x5"}).encode(),
    json.dumps({"key": "1_0"}).encode(),
    json.dumps({"key": "\u0665"}).encode(),
    json.dumps({"status": "Completed", "at": NOW, "started": NOW}).encode(),
    json.dumps({"key": "5", "more": "y" * LARGEST}).encode(),
]


@dataclass
class World:
    """A carrier whose agent has introduced itself, and a member that is recorded on it."""

    bucket: BucketInMemory
    queue: Mailboxes
    agent: AgentInMemory
    carrier: Job
    member: Job

    def write(self, key: str, content: bytes) -> None:
        """Write as a role does that may write into the bucket."""
        self.bucket.put_object(Bucket=BUCKET, Key=key, Body=content)

    def write_report(self, name: str, report: Any, *, key: bytes | None = None, coded_as: str | None = None) -> None:
        """Write a report with an authentication code, of the agent's key unless another is given."""
        text = report if isinstance(report, str) else json.dumps(report)
        code = seal.authentication(key or self.key, text, coded_as or name)
        self.write(f"{OUT}/{name}.json", json.dumps({"report": text, "code": code}).encode())

    @property
    def key(self) -> bytes:
        """The key that the queue and the agent share."""
        found = key_of(self.carrier)
        assert found is not None
        return found

    def end(self, **changes: Any) -> dict[str, Any]:
        """Return a report of the member's end."""
        names = {"carrier": CARRIER, "attempt": ATTEMPT, "submission": self.member.submission, "call": 1}
        return {**names, "at": NOW - 5, "started": NOW - 9, "status": "Completed", "reason": "", **changes}


@pytest.fixture
def world() -> World:
    bucket = BucketInMemory(lambda: NOW)
    carrier = a_job("c", state=JobState.RUNNING, launched=CARRIER, carries=8, secret=SECRET)
    carriers = {"c": carrier}
    queue = mailboxes(bucket, carriers.get)
    agent = AgentInMemory(bucket, queue.settings("c", SECRET), lambda: NOW)
    assert agent.introduce()
    introduction = queue.introduction(CARRIER)
    assert introduction is not None and introduction.written == NOW
    carriers["c"] = carrier = replace(carrier, agent_key=introduction.number)
    member = a_job(
        "m",
        state=JobState.RUNNING,
        launched=ATTEMPT,
        carrier_attempt=CARRIER,
        allocation=GpuAllocation("c", (2, 3)),
        sent=1,
        secret="s",
    )
    return World(bucket, queue, agent, carrier, member)


# --- orders ------------------------------------------------------------------------------------------


def test_an_assignment_is_accepted_once_and_a_repeated_one_meets_itself(world: World) -> None:
    assert world.queue.assign(world.member, {"Environment": {"A": "b"}}) == (LaunchResult.LAUNCHED, "")
    assert world.agent.look() == {ATTEMPT: {"request": {"Environment": {"A": "b"}}, "gpus": [2, 3], "tenths": 10}}
    before = world.bucket.objects[ASSIGN]
    assert world.queue.assign(world.member, {"Environment": {"A": "b"}})[0] is LaunchResult.NAME_TAKEN
    assert world.bucket.objects[ASSIGN] == before
    found = world.queue.describe(world.member)
    assert found is not None
    assert (found.status, found.ended_at, found.began, found.carrier) == ("InProgress", None, None, CARRIER)
    assert is_current_attempt_of(ATTEMPT, found.tags, replace(world.member, sent=0)), (
        "the call is the one that was signed"
    )


@pytest.mark.attack
def test_a_request_is_encrypted(world: World) -> None:
    world.queue.assign(world.member, {"Environment": {"PASSWORD": "hunter2"}})
    content = world.bucket.objects[ASSIGN][0]
    hidden = base64.b64decode(json.loads(json.loads(content)["order"])["sealed"])
    for place in (content, hidden):
        assert b"hunter2" not in place
        assert b"PASSWORD" not in place


@pytest.mark.attack
def test_the_settings_of_a_carrier_do_not_give_its_key_away(world: World) -> None:
    """DescribeTrainingJob shows the settings. The queue's number depends on the secret, and on the carrier."""
    settings = world.queue.settings("c", SECRET)
    assert set(settings) == {"mailbox", "order_key", "queue_key"}
    assert SECRET not in json.dumps(settings)
    others = world.queue.settings("c", "another"), world.queue.settings("d", SECRET)
    assert len({it["queue_key"] for it in (settings, *others)}) == 3


@pytest.mark.attack
def test_no_key_is_used_for_the_mailbox_of_another_carrier(world: World) -> None:
    member = replace(world.member, carrier_attempt="d-qstamp-1")
    assert world.queue.assign(member, {})[0] is LaunchResult.NOT_NOW
    assert not [key for key in world.bucket.objects if key.startswith("carriers/d-qstamp-1/")]


@pytest.mark.attack
@pytest.mark.parametrize("content", GARBAGE)
def test_foreign_content_in_the_place_of_an_order_is_replaced(world: World, content: bytes) -> None:
    world.write(ASSIGN, content)
    assert world.agent.look() == {}
    assert world.queue.assign(world.member, {}) == (LaunchResult.LAUNCHED, "")
    assert world.queue.describe(world.member) is not None


@pytest.mark.attack
@pytest.mark.parametrize(
    "changes", [{"do": "stop"}, {"carrier": "d-qstamp-1"}, {"attempt": "n-qstamp-1"}, {"submission": "another"}]
)
def test_another_signed_order_in_the_place_of_an_order_is_replaced(world: World, changes: dict[str, str]) -> None:
    names = {"do": "assign", "carrier": CARRIER, "attempt": ATTEMPT, "submission": world.member.submission, "call": 1}
    text = json.dumps({**names, **changes})
    world.write(ASSIGN, json.dumps({"order": text, "signature": small_key().sign(text).hex()}).encode())
    assert world.queue.describe(world.member) is None
    assert world.queue.assign(world.member, {}) == (LaunchResult.LAUNCHED, "")


@pytest.mark.attack
def test_an_order_signed_by_another_key_is_replaced(world: World) -> None:
    names = {"do": "assign", "carrier": CARRIER, "attempt": ATTEMPT, "submission": world.member.submission, "call": 1}
    text = json.dumps(names)
    world.write(ASSIGN, json.dumps({"order": text, "signature": small_key(1).sign(text).hex()}).encode())
    assert world.queue.describe(world.member) is None
    assert world.queue.assign(world.member, {}) == (LaunchResult.LAUNCHED, "")


def test_nothing_is_assigned_to_a_carrier_whose_agent_has_no_key(world: World) -> None:
    carriers = {"c": replace(world.carrier, agent_key=None)}
    queue = mailboxes(world.bucket, lambda name: carriers.get(name))  # noqa: PLW0108
    assert queue.assign(world.member, {})[0] is LaunchResult.NOT_NOW
    assert queue.assign(replace(world.member, allocation=None), {})[0] is LaunchResult.NOT_NOW
    assert mailboxes(world.bucket, lambda name: None).assign(world.member, {})[0] is LaunchResult.NOT_NOW
    carriers["c"] = world.carrier
    assert queue.assign(world.member, {})[0] is LaunchResult.LAUNCHED, "the missing key is not remembered"


def test_nothing_is_assigned_or_stopped_while_orders_cannot_be_signed(world: World) -> None:
    class Down:
        modulus = small_key().modulus

        def sign(self, text: str) -> bytes:
            raise Unavailable("scripted")

    client: Any = world.bucket
    queue = Mailboxes(client, BUCKET, Down(), lambda _: (), {"c": world.carrier}.get)
    assert queue.assign(world.member, {}) == (LaunchResult.NOT_NOW, "scripted")
    assert queue.stop(world.member) is StopResult.UNKNOWN
    assert not [key for key in world.bucket.objects if key.startswith(IN)]


def test_a_stop_reaches_the_agent_and_may_be_repeated(world: World) -> None:
    world.queue.assign(world.member, {})
    world.agent.look()
    assert not world.agent.is_stopped(ATTEMPT)
    assert [world.queue.stop(world.member) for _ in range(2)] == [StopResult.ASKED] * 2
    assert world.agent.is_stopped(ATTEMPT)
    world.agent.report(ATTEMPT, "Stopped", "the queue asked for it")
    assert world.queue.stop(world.member) is StopResult.ENDED_ALREADY


@pytest.mark.attack
def test_a_stop_of_an_earlier_launch_does_not_stop_a_later_one(world: World) -> None:
    later = replace(world.member, sent=2)
    world.queue.assign(later, {})
    world.agent.look()
    assert world.queue.stop(world.member) is StopResult.ASKED
    assert not world.agent.is_stopped(ATTEMPT)
    assert world.queue.stop(later) is StopResult.ASKED
    assert world.agent.is_stopped(ATTEMPT)


def test_orders_of_an_attempt_that_has_ended_are_removed(world: World) -> None:
    world.queue.assign(world.member, {})
    world.queue.stop(world.member)
    world.queue.assign(replace(world.member, launched="m-qstamp-2"), {})
    world.queue.forget(world.member)
    assert [key for key in world.bucket.objects if key.startswith(IN)] == [f"{IN}/m-qstamp-2/assign.json"]
    world.queue.forget(world.member)


# --- reports -----------------------------------------------------------------------------------------


@pytest.mark.attack
@pytest.mark.parametrize("content", GARBAGE)
def test_garbage_is_never_believed(world: World, content: bytes) -> None:
    for key in (ENDED, ASSIGN, ALIVE, INTRODUCTION):
        world.write(key, content)
    assert world.queue.describe(world.member) is None
    assert world.queue.agent_activity(world.carrier) == AgentActivity()
    assert world.queue.stop(world.member) is StopResult.ASKED
    if json.dumps({"key": "5"}).encode()[:-1] not in content or len(content) > LARGEST:
        assert world.queue.introduction(CARRIER) is None


def test_a_report_of_the_agent_is_read(world: World) -> None:
    assert world.queue.describe(world.member) is None
    world.queue.assign(world.member, {})
    world.agent.look()
    world.agent.report(ATTEMPT, "Completed", None, NOW - 9)
    found = world.queue.describe(world.member)
    assert found is not None
    assert (found.status, found.failure, found.ended_at, found.began) == ("Completed", None, NOW, NOW - 9)
    assert found.tags == attempt_tags(world.member, call=1)
    again = world.queue.describe(replace(world.member, sent=2))
    assert again is not None
    assert again.tags == found.tags, "the call is the one that was reported"


@pytest.mark.attack
@pytest.mark.parametrize(
    "changes", [{"carrier": "d-qstamp-1"}, {"attempt": "n-qstamp-1"}, {"submission": "another"}, {"submission": None}]
)
def test_an_authentic_report_about_another_attempt_is_refused(world: World, changes: dict[str, Any]) -> None:
    world.write_report(f"{ATTEMPT}/ended", world.end(**changes))
    assert world.queue.describe(world.member) is None
    world.queue.assign(world.member, {})
    found = world.queue.describe(world.member)
    assert found is not None and found.status == "InProgress"
    assert world.queue.stop(world.member) is StopResult.ASKED


@pytest.mark.attack
def test_a_report_with_a_wrong_code_is_refused(world: World) -> None:
    name = f"{ATTEMPT}/ended"
    world.write_report(name, world.end(), key=b"k" * 32)
    assert world.queue.describe(world.member) is None
    for other in ("alive", f"{ATTEMPT}/started", "n-qstamp-1/ended", ""):
        world.write_report(name, world.end(), coded_as=other or " ")
        assert world.queue.describe(world.member) is None
    world.write_report(name, world.end())
    message = json.loads(world.bucket.objects[ENDED][0])
    for code in ("", message["code"][:-1], message["code"].upper(), message["code"] + "0", message["code"][:-1] + "g"):
        world.write(ENDED, json.dumps({**message, "code": code}).encode())
        assert world.queue.describe(world.member) is None, code
    changed = message["report"].replace("Completed", "Failed")
    world.write(ENDED, json.dumps({**message, "report": changed}).encode())
    assert world.queue.describe(world.member) is None
    world.write(ENDED, json.dumps(message).encode())
    assert world.queue.describe(world.member) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"status": ["Completed"], "reason": {"a": 1}, "at": "now", "started": []},
        {"status": {}, "at": None, "started": True, "call": "1"},
        {"status": "Failed", "at": float("nan"), "started": float("inf"), "reason": "\ud800 word"},
        {"status": "Failed", "at": -1, "started": 1e300, "call": -1},
        {"status": "InProgress", "at": None, "started": None},
        {"status": "Exploded", "at": 10**400, "started": None, "reason": "x" * 100_000, "call": None},
    ],
)
def test_odd_fields_of_an_authentic_report_can_be_stored(world: World, changes: dict[str, Any]) -> None:
    world.write_report(f"{ATTEMPT}/ended", world.end(**changes))
    found = world.queue.describe(world.member)
    assert found is not None
    assert (found.status, found.ended_at, found.began) == ("Failed", NOW, None)
    assert len((found.failure or "").encode()) <= 4096
    assert all(isinstance(text, str) for tag in found.tags.items() for text in tag)


@pytest.mark.parametrize("text", ["", "[]", "7", "null", "{", "[" * 100_000])
def test_an_authentic_report_that_is_no_object_is_refused(world: World, text: str) -> None:
    world.write_report(f"{ATTEMPT}/ended", text)
    world.write_report("alive", text)
    assert world.queue.describe(world.member) is None
    assert world.queue.agent_activity(world.carrier) == AgentActivity()


def test_a_member_that_its_carriers_stop_ended_has_failed(world: World) -> None:
    world.write_report(f"{ATTEMPT}/ended", world.end(status="Stopped", reason="the carrier was stopped"))
    found = world.queue.describe(world.member)
    assert found is not None
    assert (found.status, found.failure) == ("Failed", "InternalServerError: the carrier was stopped")


def test_a_heartbeat_names_members_that_run_and_that_have_ended(world: World) -> None:
    assert world.queue.agent_activity(world.carrier) == AgentActivity()
    other = replace(world.member, name="n", launched="n-qstamp-1", submission="other")
    for job in (world.member, other):
        world.queue.assign(job, {})
    world.agent.look()
    world.agent.report(ATTEMPT, "Completed", None)
    world.agent.beat()
    expected = AgentActivity(NOW, frozenset({member_of(other)}), frozenset({member_of(world.member)}))
    assert world.queue.agent_activity(world.carrier) == expected
    assert world.queue.agent_activity(replace(world.carrier, agent_key=None)) == AgentActivity()


@pytest.mark.attack
def test_a_heartbeat_is_refused_unless_this_carriers_agent_has_written_it(world: World) -> None:
    beat = {"carrier": CARRIER, "at": NOW, "beat": 1, "members": [], "ended": []}
    world.write_report("alive", {**beat, "carrier": "d-qstamp-1"})
    assert world.queue.agent_activity(world.carrier) == AgentActivity()
    world.write_report("alive", beat, key=b"k" * 32)
    assert world.queue.agent_activity(world.carrier) == AgentActivity()
    world.write_report("alive", beat, coded_as=f"{ATTEMPT}/ended")
    assert world.queue.agent_activity(world.carrier) == AgentActivity()
    world.write_report("alive", {**beat, "at": NOW + 1e9})
    assert world.queue.agent_activity(world.carrier) == AgentActivity()
    world.write_report("alive", {**beat, "members": [1, "a", None], "ended": {"b": 1}})
    assert world.queue.agent_activity(world.carrier) == AgentActivity(NOW, frozenset({"a"}), frozenset())


@pytest.mark.attack
def test_an_agent_that_finds_another_introduction_does_not_replace_it(world: World) -> None:
    before = world.bucket.objects[INTRODUCTION]
    second = AgentInMemory(world.bucket, world.queue.settings("c", SECRET), lambda: NOW)
    assert not second.introduce()
    assert world.bucket.objects[INTRODUCTION] == before


@pytest.mark.attack
def test_an_agent_reads_a_foreign_object_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    s3: Any = world.agent.mailbox._s3
    look = s3.read

    def noted(bucket: str, key: str, most: int) -> Any:
        assert most == LARGEST
        read.append(key)
        return look(bucket, key, most)

    monkeypatch.setattr(s3, "read", noted)
    world.write(ASSIGN, b"{}")
    world.write(f"{IN}/n-qstamp-1/assign.json", b" " * (LARGEST + 1))
    for _ in range(3):
        assert world.agent.look() == {}
    assert read == [ASSIGN]


@pytest.mark.attack
@pytest.mark.parametrize("place", ["..", "-m", "m-", "m n", "m" * 64, "", ATTEMPT + "/x"])
def test_an_agent_considers_names_of_attempts_alone(world: World, place: str) -> None:
    """The name of an attempt becomes the name of a folder."""
    world.write(f"{IN}/{place}/assign.json", b"{}")
    assert world.agent.mailbox.arrived() == {}


@pytest.mark.attack
def test_an_agent_considers_and_remembers_so_many_objects(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("job_queue.carrier_agent.mailbox.MOST_OBJECTS", 8)
    monkeypatch.setattr("job_queue.carrier_agent.mailbox.MOST_REJECTED", 5)
    for number in range(20):
        world.write(f"{IN}/x{number}-qstamp-1/assign.json", b"{}")
    assert len(world.agent.mailbox.arrived()) == 8
    assert world.agent.look() == {}
    assert len(world.agent.mailbox._rejected) <= 5


def test_a_heartbeat_names_so_many_of_those_that_have_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("job_queue.carrier_agent.mailbox.MOST_ENDED", 2)
    for number in range(1, 5):
        world.queue.assign(replace(world.member, launched=f"m-qstamp-{number}"), {})
        world.agent.look()
        world.agent.report(f"m-qstamp-{number}", "Completed", None)
    world.agent.beat()
    ended = {f"m-qstamp-{number}/{world.member.submission}" for number in (3, 4)}
    assert world.queue.agent_activity(world.carrier).ended == ended


# --- S3 ----------------------------------------------------------------------------------------------


@pytest.fixture
def s3() -> Iterator[Any]:
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        yield client


def test_a_bucket_of_s3_is_written_read_and_emptied(world: World, s3: Any) -> None:
    queue = Mailboxes(s3, BUCKET, small_key(), lambda _: (), {"c": world.carrier}.get)
    assert queue.describe(world.member) is None
    assert queue.introduction(CARRIER) is None
    assert queue.assign(world.member, {})[0] is LaunchResult.LAUNCHED
    assert queue.assign(world.member, {})[0] is LaunchResult.NAME_TAKEN
    s3.put_object(Bucket=BUCKET, Key=ASSIGN, Body=b"{}")
    assert queue.assign(world.member, {})[0] is LaunchResult.LAUNCHED
    assert queue.stop(world.member) is StopResult.ASKED
    queue.forget(world.member)
    assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET, Prefix=IN)
    queue.upload_agent()
    assert s3.list_objects_v2(Bucket=BUCKET, Prefix=queue.agent.partition(f"{BUCKET}/")[2])["KeyCount"] == 1


def test_a_bucket_that_does_not_answer_is_unavailable(world: World, s3: Any) -> None:
    queue = Mailboxes(s3, "missing", small_key(), lambda _: (), {"c": world.carrier}.get)
    for ask in (lambda: queue.describe(world.member), lambda: queue.agent_activity(world.carrier), queue.upload_agent):
        with pytest.raises(Unavailable):
            ask()
    assert queue.assign(world.member, {})[0] is LaunchResult.NOT_NOW
    assert queue.stop(world.member) is StopResult.UNKNOWN
    queue.forget(world.member)


@pytest.mark.attack
def test_an_object_that_s3_does_not_return_is_foreign_content(s3: Any, world: World) -> None:
    queue = Mailboxes(s3, BUCKET, small_key(), lambda _: (), {"c": world.carrier}.get)
    for key in (ENDED, ASSIGN, ALIVE, INTRODUCTION):
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"{}", StorageClass="GLACIER")
    with pytest.raises(ClientError):
        s3.get_object(Bucket=BUCKET, Key=ENDED)
    assert queue.describe(world.member) is None
    assert queue.agent_activity(world.carrier) == AgentActivity()
    assert queue.introduction(CARRIER) is None
    assert queue.stop(world.member) is StopResult.ASKED
    assert queue.assign(world.member, {})[0] is LaunchResult.LAUNCHED
    order = queue.describe(world.member)
    assert order is not None and order.status == "InProgress"


@pytest.mark.attack
@pytest.mark.parametrize(
    ("code", "message", "unreadable"),
    [
        ("AccessDenied", "User: arn:aws:sts::1:role/q is not authorized to perform: kms:Decrypt on the resource", True),
        ("AccessDenied", "The ciphertext refers to a customer master key that does not exist", True),
        ("InvalidRequest", "The object was stored using a form of Server Side Encryption. The correct ...", True),
        ("KMS.DisabledException", "arn:aws:kms:us-east-1:1:key/k is disabled.", True),
        ("AccessDenied", "User: arn:aws:sts::1:role/q is not authorized to perform: s3:GetObject", False),
        ("KMS.KMSInternalException", "An internal error occurred.", False),
        ("KMS.ThrottlingException", "Rate exceeded", False),
        ("SlowDown", "Please reduce your request rate.", False),
    ],
)
def test_a_refusal_concerns_the_object_or_the_queue(
    world: World, monkeypatch: pytest.MonkeyPatch, code: str, message: str, unreadable: bool
) -> None:
    status = {"HTTPStatusCode": 500 if "Internal" in code else 403}
    refused = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": status}
    keys = {ENDED, ASSIGN}
    get = world.bucket.get_object

    def refuse(*, Bucket: str, Key: str) -> Any:  # noqa: N803
        if Key in keys:
            raise ClientError(refused, "GetObject")  # type: ignore[arg-type]
        return get(Bucket=Bucket, Key=Key)

    monkeypatch.setattr(world.bucket, "get_object", refuse)
    world.agent.beat()
    if unreadable:
        assert world.queue.describe(world.member) is None
    else:
        with pytest.raises(Unavailable):
            world.queue.describe(world.member)
    if code == "InvalidRequest":
        return
    keys.add(ALIVE)  # the queue itself has lost the key, so nothing is known of the member
    for read in (lambda: world.queue.describe(world.member), lambda: world.queue.agent_activity(world.carrier)):
        with pytest.raises(Unavailable):
            read()


# --- events ------------------------------------------------------------------------------------------


def told(key: Any, source: Any = "aws.s3") -> dict[str, Any]:
    return {"body": json.dumps({"source": source, "detail": {"object": {"key": key}}})}


def test_a_batch_tells_of_attempts() -> None:
    keys = (ENDED, INTRODUCTION, ENDED)
    assert reported_attempts({"Records": [told(key) for key in keys]}) == [
        (CARRIER, ATTEMPT),
        (CARRIER, None),
        (CARRIER, ATTEMPT),
    ]


@pytest.mark.attack
@pytest.mark.parametrize(
    "record",
    [
        {},
        {"body": None},
        {"body": 7},
        {"body": ""},
        {"body": "{"},
        {"body": "[]"},
        {"body": "[" * 100_000},
        {"body": '{"source": "aws.s3"}'},
        {"body": '{"source": "aws.s3", "detail": []}'},
        {"body": '{"source": "aws.s3", "detail": {"object": []}}'},
        told(ENDED, "somebody.else"),
        told(ENDED, ["aws.s3"]),
        told(None),
        told(7),
        told([ENDED]),
        told(""),
        told(ALIVE),
        told(ASSIGN),
        told("x" + ENDED),
        told(ENDED + "x"),
        told(ENDED + "\n"),
        told("carriers//out//ended.json"),
        told("carriers/../out/m-qstamp-1/ended.json"),
        told("carriers/c-qstamp-1/out/a/b/ended.json"),
        told("carriers/c-qstamp-1/out/-m/ended.json"),
        told("carriers/c#1/out/m-qstamp-1/ended.json"),
        told(f"carriers/{'c' * 1000}/out/agent.json"),
        told("carriers/c-qstamp-1/out/\ud800/ended.json"),
        told("carriers/c-qstamp-1/out/m\u0661/ended.json"),
    ],
)
def test_garbage_in_a_batch_is_left_out(record: dict[str, Any]) -> None:
    assert reported_attempts({"Records": [record, told(ENDED)]}) == [(CARRIER, ATTEMPT)]
