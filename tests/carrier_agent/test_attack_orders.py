"""Orders that the queue did not give, or not to this agent, or not any more: the agent obeys none of them."""

import json
from pathlib import Path
from typing import Any

import boto3
import pytest

from job_queue.carrier_agent import seal
from job_queue.carrier_agent.mailbox import KEY_WORDS, context, key_line
from tests.carrier_agent.carrier import BUCKET, Carrier
from tests.carrier_agent.conftest import KEYS
from tests.mailboxes import small_key
from tests.waiting import until

pytestmark = pytest.mark.attack

FOR_EVER = "echo up; while :; do sleep 0.05; done"
VICTIM = "victim-qstamp-1"


def order(agent: Carrier, call: int, attempt: str = VICTIM, **changes: Any) -> str:
    """Return the text of an order, encrypted with the right key as if that were known."""
    entry = {"ContainerEntrypoint": ["/bin/sh", "-c"], "ContainerArguments": ["echo forged"]}
    hidden = json.dumps({"request": {"AlgorithmSpecification": entry}}).encode()
    sealed = seal.sealed(agent.key, hidden, context(agent.name, attempt, call))
    names = {"do": "assign", "carrier": agent.name, "attempt": attempt, "submission": "s", "call": call}
    return json.dumps({**names, "gpus": [0], "tenths": 10, "sealed": sealed, **changes})


def has_looked(carrier: Carrier, attempt: str = "probe-qstamp-1") -> None:
    """Wait until the agent has obeyed an order that was written later, about an attempt that it looks at later."""
    carrier.assign(attempt, "echo looked", gpus=(7,))
    ended = carrier.end_of(attempt)
    assert ended["status"] == "Completed", ended["reason"]
    carrier.assign(attempt.replace("qstamp-1", "qstamp-2"), "echo again", gpus=(7,))
    ended = carrier.end_of(attempt.replace("qstamp-1", "qstamp-2"))
    assert ended["status"] == "Completed", ended["reason"]


def reports(carrier: Carrier, attempt: str = VICTIM) -> list[str]:
    """Return what the agent has reported of an attempt."""
    return [key for key in carrier.keys("out/") if key.startswith(f"{attempt}/")]


@pytest.mark.parametrize("signature", ["", "00", "00" * 64, "ff" * 64, "zz", None, 7, []])
def test_an_order_without_a_signature_is_not_obeyed(carrier: Carrier, signature: Any) -> None:
    carrier.put(f"in/{VICTIM}/assign.json", json.dumps({"order": order(carrier, 9), "signature": signature}).encode())
    carrier.put("in/other-qstamp-1/assign.json", order(carrier, 9, "other-qstamp-1").encode())
    has_looked(carrier)
    assert not reports(carrier) and not reports(carrier, "other-qstamp-1")
    assert "forged" not in carrier.lines(VICTIM)


def test_an_order_signed_by_another_key_is_not_obeyed(carrier: Carrier) -> None:
    text = order(carrier, 9)
    signature = small_key(1).sign(text).rjust((carrier.orders.modulus.bit_length() + 7) // 8, b"\x00")
    carrier.put(f"in/{VICTIM}/assign.json", json.dumps({"order": text, "signature": signature.hex()}).encode())
    has_looked(carrier)
    assert not reports(carrier)
    carrier.assign(VICTIM, "echo mine")
    assert carrier.end_of(VICTIM)["status"] == "Completed"
    assert carrier.lines(VICTIM).count("mine") == 1


def test_an_order_that_was_changed_is_not_obeyed(carrier: Carrier) -> None:
    message = json.loads(carrier.signed(order(carrier, 9)))
    message["order"] = message["order"].replace('"gpus": [0]', '"gpus": [0, 1]')
    carrier.put(f"in/{VICTIM}/assign.json", json.dumps(message).encode())
    has_looked(carrier)
    assert not reports(carrier)


@pytest.mark.parametrize("changes", [{"attempt": "another-qstamp-1"}, {"carrier": "another"}, {"do": "stop"}])
def test_an_order_that_was_moved_is_not_obeyed(carrier: Carrier, changes: dict[str, str]) -> None:
    carrier.put(f"in/{VICTIM}/assign.json", carrier.signed(json.dumps({**json.loads(order(carrier, 9)), **changes})))
    has_looked(carrier)
    assert not reports(carrier)


def test_an_order_from_another_carriers_mailbox_is_not_obeyed(carrier: Carrier, s3_url: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Carrier(carrier.s3, s3_url, tmp_path / "other")
    try:
        other.start()
        other.assign(VICTIM, FOR_EVER)
        other.until_says(VICTIM, "up")
        carrier.put(f"in/{VICTIM}/assign.json", other.get(f"in/{VICTIM}/assign.json"))
        has_looked(carrier)
        assert not reports(carrier)
        assert not carrier.processes(VICTIM)
    finally:
        other.close()


def test_a_signed_order_that_is_encrypted_for_another_agent_fails_and_runs_nothing(carrier: Carrier) -> None:
    sealed = seal.sealed(b"k" * 32, b'{"request": {}}', context(carrier.name, VICTIM, 9))
    carrier.put(f"in/{VICTIM}/assign.json", carrier.signed(order(carrier, 9, sealed=sealed)))
    ended = carrier.end_of(VICTIM)
    assert ended["status"] == "Failed"
    assert ended["reason"] == "InternalServerError: its assignment cannot be read"
    assert any("for another agent" in line for line in carrier.lines(VICTIM))


@pytest.mark.thorough
def test_an_order_that_is_replayed_after_the_end_is_not_obeyed(carrier: Carrier) -> None:
    carrier.assign(VICTIM, "echo once", gpus=(0,))
    content = carrier.get(f"in/{VICTIM}/assign.json")
    ended = carrier.end_of(VICTIM)
    for number in range(2):
        carrier.put(f"in/{VICTIM}/assign.json", content)
        has_looked(carrier, f"probe{number}-qstamp-1")
    assert carrier.report(VICTIM) == ended
    assert carrier.lines(VICTIM).count("once") == 1


@pytest.mark.thorough
def test_a_stop_of_nobody_is_not_obeyed(carrier: Carrier) -> None:
    carrier.assign(VICTIM, FOR_EVER)
    carrier.until_says(VICTIM, "up")
    stop = {"do": "stop", "carrier": carrier.name, "attempt": VICTIM, "submission": "s", "call": 9}
    text = json.dumps(stop)
    forged = [
        json.dumps({"order": text, "signature": small_key(1).sign(text).hex()}).encode(),
        json.dumps({"order": text, "signature": ""}).encode(),
        b"{}",
        carrier.get(f"in/{VICTIM}/assign.json"),
        *(
            carrier.signed(json.dumps({**stop, **changes}))
            for changes in (
                {"call": 0},  # an earlier launch
                {"submission": "an earlier one"},
                {"attempt": "another-qstamp-1"},
                {"carrier": "another"},
            )
        ),
    ]
    for number, content in enumerate(forged):
        carrier.put(f"in/{VICTIM}/stop.json", content)
        has_looked(carrier, f"probe{number}-qstamp-1")
        assert carrier.report(VICTIM) is None, content
        assert carrier.processes(VICTIM)
    carrier.stop(VICTIM)
    assert carrier.end_of(VICTIM)["status"] == "Stopped"


CUSTOMER_KEY = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": b"k" * 32}


@pytest.mark.parametrize("how", [{"StorageClass": "GLACIER"}, CUSTOMER_KEY], ids=["archived", "customer key"])
def test_objects_that_s3_does_not_return_delay_no_other_order(carrier: Carrier, how: dict[str, Any]) -> None:
    for attempt in ("a-qstamp-1", "z-qstamp-1"):
        for do in ("assign", "stop"):
            carrier.s3.put_object(Bucket=BUCKET, Key=f"{carrier.prefix}/in/{attempt}/{do}.json", Body=b"{}", **how)
    carrier.assign(VICTIM, FOR_EVER)
    carrier.until_says(VICTIM, "up")
    carrier.stop(VICTIM)
    assert carrier.end_of(VICTIM)["status"] == "Stopped"
    unread = [line for line in carrier.log if "cannot be carried out" in line]
    assert 2 <= len(unread) <= 20, "each object is read less and less often"


def test_an_order_that_s3_does_not_return_is_obeyed_once_it_is_replaced(carrier: Carrier) -> None:
    place = f"{carrier.prefix}/in/{VICTIM}/assign.json"
    carrier.s3.put_object(Bucket=BUCKET, Key=place, Body=b"{}", StorageClass="GLACIER")
    has_looked(carrier, "probe-qstamp-1")
    carrier.assign(VICTIM, "echo mine")
    assert carrier.end_of(VICTIM)["status"] == "Completed"


@pytest.mark.parametrize("field", ["sealed", "gpus", "tenths"])
def test_a_signed_order_that_lacks_a_field_is_refused_and_others_go_on(carrier: Carrier, field: str) -> None:
    carrier.assign("other-qstamp-1", FOR_EVER, gpus=(1,))
    carrier.until_says("other-qstamp-1", "up")
    content = {name: value for name, value in json.loads(order(carrier, 9)).items() if name != field}
    carrier.put(f"in/{VICTIM}/assign.json", carrier.signed(json.dumps(content)))
    assert carrier.end_of(VICTIM)["status"] == "Failed"
    has_looked(carrier)
    assert carrier.processes("other-qstamp-1")


@pytest.mark.parametrize("changes", [{"call": "9"}, {"call": None}, {"submission": 7}])
def test_a_signed_order_with_a_field_of_another_type_is_not_obeyed(carrier: Carrier, changes: dict[str, Any]) -> None:
    carrier.put(f"in/{VICTIM}/assign.json", carrier.signed(json.dumps({**json.loads(order(carrier, 9)), **changes})))
    has_looked(carrier)
    assert not reports(carrier)


def test_the_log_names_the_key_before_it_is_published(carrier: Carrier) -> None:
    until(lambda: "agent.json" in carrier.keys("out/"))
    named = [line for line in carrier.log if KEY_WORDS in line]
    assert named == [f"carrier| {key_line(json.loads(carrier.get('out/agent.json'))['key'])}"]


def test_no_member_names_a_key(carrier: Carrier) -> None:
    carrier.assign(VICTIM, f"echo '{key_line('5')}'; printf '\\rcarrier| {key_line('5')}\\n'")
    carrier.end_of(VICTIM)
    assert len([line for line in carrier.log if line.startswith(f"carrier| {KEY_WORDS}")]) == 1


def test_an_agent_ends_if_the_key_of_another_program_cannot_be_read(s3_url: str, tmp_path: Path) -> None:
    carrier = Carrier(boto3.client("s3", endpoint_url=s3_url, **KEYS), s3_url, tmp_path)
    place = f"{carrier.prefix}/out/agent.json"
    carrier.s3.put_object(Bucket=BUCKET, Key=place, Body=b"{}", StorageClass="GLACIER")
    try:
        carrier.start()
        assert carrier.wait() == 1
        assert any("cannot be read" in line for line in carrier.log)
    finally:
        carrier.close()


@pytest.mark.parametrize("content", [b'{"key": "5"}', b"", b"garbage"])
def test_an_agent_ends_if_another_program_has_introduced_itself(s3_url: str, tmp_path: Path, content: bytes) -> None:
    carrier = Carrier(boto3.client("s3", endpoint_url=s3_url, **KEYS), s3_url, tmp_path)
    carrier.put("out/agent.json", content)
    try:
        carrier.start()
        assert carrier.wait() == 1
        assert carrier.get("out/agent.json") == content
        assert carrier.keys("out/") == ["agent.json"]
        assert any("another program has introduced itself" in line for line in carrier.log)
    finally:
        carrier.close()
