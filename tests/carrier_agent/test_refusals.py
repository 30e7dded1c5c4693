"""Assignments that the agent refuses: the queue gets a report even if S3 fails, and no GPU is lost."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest

from job_queue.carrier_agent import seal
from job_queue.carrier_agent.agent import Agent
from job_queue.carrier_agent.gpus import Gpus
from job_queue.carrier_agent.mailbox import Mailbox, context
from job_queue.carrier_agent.s3 import S3, CredentialSource, S3Error
from tests.carrier_agent.carrier import BUCKET
from tests.carrier_agent.conftest import KEYS
from tests.mailboxes import small_key
from tests.waiting import until

KEY_OF_QUEUE = 12345


class FlakyMailbox(Mailbox):
    """A mailbox whose first reports of ends do not reach S3."""

    failures = 3

    def report(self, attempt: str, what: str, report: dict[str, Any]) -> None:
        if what == "ended" and self.failures:
            self.failures -= 1
            raise S3Error("PUT: 503 SlowDown", 503)
        super().report(attempt, what, report)


class Scene:
    """An agent in this process, with a real S3."""

    def __init__(self, url: str, base: Path) -> None:
        variables = {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        self.prefix = f"carriers/{uuid4().hex[:8]}"
        self.client = boto3.client("s3", endpoint_url=url, **KEYS)
        s3 = S3(CredentialSource(variables), variables)
        queue = seal.public_number(KEY_OF_QUEUE)
        self.mailbox = FlakyMailbox(s3, f"s3://{BUCKET}/{self.prefix}", small_key().modulus, queue)
        self.gpus = Gpus(2, base / "mps")
        self.agent = Agent(s3, self.mailbox, self.gpus, base, poll=0.05)
        self._thread = threading.Thread(target=self.agent.run)
        self._thread.start()

    def close(self) -> None:
        self.agent.close()
        self._thread.join()

    def assign(self, attempt: str, **changes: Any) -> None:
        entry = {"ContainerEntrypoint": ["/bin/sh", "-c"], "ContainerArguments": ["echo up"]}
        key = seal.shared_key(KEY_OF_QUEUE, int(self.mailbox.public, 16), self.mailbox.carrier)
        hidden = json.dumps({"request": {"AlgorithmSpecification": entry}}).encode()
        sealed = seal.sealed(key, hidden, context(self.mailbox.carrier, attempt, 1))
        names = {"do": "assign", "carrier": self.mailbox.carrier, "attempt": attempt, "submission": "s", "call": 1}
        order = json.dumps({**names, "gpus": [0], "tenths": 10, "sealed": sealed, **changes})
        message = {"order": order, "signature": small_key().sign(order).hex()}
        self.put(f"in/{attempt}/assign.json", json.dumps(message).encode())

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}", Body=content)

    def end_of(self, attempt: str) -> dict[str, Any]:
        key = f"{self.prefix}/out/{attempt}/ended.json"
        until(lambda: "Contents" in self.client.list_objects_v2(Bucket=BUCKET, Prefix=key))
        report: dict[str, Any] = json.loads(
            json.loads(self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read())["report"]
        )
        return report


@pytest.fixture
def scene(s3_url: str, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(s3_url, tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("wrong", [{"gpus": [7]}, {"gpus": "0"}, {"sealed": "00"}, {"tenths": None}])
def test_a_refusal_is_reported_once_s3_answers(scene: Scene, wrong: dict[str, Any]) -> None:
    scene.assign("m-qstamp-1", **wrong)
    assert scene.end_of("m-qstamp-1")["status"] == "Failed"
    assert scene.mailbox.failures == 0


def test_an_error_before_the_start_is_reported_and_the_gpus_are_free_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_disk(path: str) -> Any:
        raise OSError(5, "Input/output error", path)

    with monkeypatch.context() as patch:
        patch.setattr("job_queue.carrier_agent.agent.shutil.disk_usage", no_disk)
        scene.assign("m-qstamp-1")
        ended = scene.end_of("m-qstamp-1")
        assert (ended["status"], ended["reason"].partition(":")[0]) == ("Failed", "InternalServerError")
    scene.assign("n-qstamp-1")
    assert scene.end_of("n-qstamp-1")["status"] == "Completed"


def test_an_attempt_begins_if_its_stop_order_cannot_be_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def unread(attempt: str) -> bool:
        raise S3Error("GET: 403 InvalidObjectState", 403)

    monkeypatch.setattr(scene.mailbox, "is_stopped", unread)
    scene.put("in/m-qstamp-1/stop.json", b"{}")
    scene.assign("m-qstamp-1")
    assert scene.end_of("m-qstamp-1")["status"] == "Completed"


def test_an_attempt_whose_thread_does_not_start_is_refused_and_its_gpus_are_free_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(thread: threading.Thread) -> None:
        if thread.name == "m-qstamp-1":
            raise RuntimeError("can't start new thread")
        start(thread)

    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    scene.assign("m-qstamp-1")
    assert scene.end_of("m-qstamp-1")["status"] == "Failed"
    scene.assign("n-qstamp-1")
    assert scene.end_of("n-qstamp-1")["status"] == "Completed"
