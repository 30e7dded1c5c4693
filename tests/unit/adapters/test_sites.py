"""AWS clients of other sites: the credentials of a role, and the pause after calls without an answer.

The calls reach a server on this machine, so that requests and errors are botocore's own.
"""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs

import pytest
from botocore.config import Config
from botocore.exceptions import HTTPClientError
from botocore.httpsession import URLLib3Session

from job_queue.adapters.sagemaker import LaunchResult, SageMakerTraining, StopResult
from job_queue.adapters.sites import clients as clients_module
from job_queue.adapters.sites.clients import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    SiteClients,
    SiteUnreachableError,
)
from job_queue.domain.errors import Unavailable
from job_queue.domain.fleet.sites import Site
from local_cloud.ports import free_ports
from tests.jobs import a_request
from tests.waiting import PATIENCE

ROLE = "arn:aws:iam::222222222222:role/sagemaker-queue-satellite-us-east-2"
OHIO, LAB = Site("us-east-2"), Site("us-east-2", ROLE)
EXTERNAL_ID = "a-text-of-the-queue-1"
ASSUMED = (
    "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>ASIAOFLAB</AccessKeyId>"
    "<SecretAccessKey>secret</SecretAccessKey><SessionToken>token</SessionToken>"
    "<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
)
DENIED = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not authorized</Message></Error></ErrorResponse>"


class Aws(ThreadingHTTPServer):
    """STS and SageMaker on a free port of 127.0.0.1."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.calls: list[tuple[str, str]] = []  # (operation, Authorization)
        self.assumed: list[dict[str, list[str]]] = []
        self.trusts = True
        self.hangs_up = False  # after it has read a call


class _Handler(BaseHTTPRequestHandler):
    server: Aws

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        operation = self.headers.get("X-Amz-Target", "").partition(".")[2] or parse_qs(body)["Action"][0]
        self.server.calls.append((operation, self.headers["Authorization"]))
        if operation == "AssumeRole":
            self.server.assumed.append(parse_qs(body))
            self._answer(200 if self.server.trusts else 403, ASSUMED if self.server.trusts else DENIED, "text/xml")
        elif self.server.hangs_up:
            self.close_connection = True
        else:
            self._answer(200, json.dumps({"TrainingJobArn": "arn", "TrainingJobSummaries": []}), "application/json")

    def _answer(self, status: int, body: str, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    with Aws() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOFTHEQUEUE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        for name in ("_READING", "_LAUNCHING"):  # on a busy machine the server may answer after many seconds
            patient = getattr(clients_module, name).merge(Config(connect_timeout=PATIENCE, read_timeout=PATIENCE))
            monkeypatch.setattr(clients_module, name, patient)
        yield server
        server.shutdown()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def training(clients: SiteClients, site: Site) -> SageMakerTraining:
    reading, launching = (clients.client("sagemaker", site, launching=it) for it in (False, True))
    return SageMakerTraining(reading, launching, site=site)


def test_threads_share_the_clients_of_a_site(aws: Aws) -> None:
    clients = SiteClients(EXTERNAL_ID, lambda: 0.0)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: clients.client("sagemaker", LAB), range(8)))
    assert len(set(map(id, made))) == 1


def test_without_a_role_the_own_credentials_are_used_in_the_other_region(aws: Aws) -> None:
    assert training(SiteClients(EXTERNAL_ID, Clock()), OHIO).create(a_request()) == (LaunchResult.LAUNCHED, "")
    ((operation, signed),) = aws.calls
    assert operation == "CreateTrainingJob" and "AKIAOFTHEQUEUE/" in signed and "/us-east-2/sagemaker/" in signed


def test_a_role_is_assumed_once_with_the_external_id(aws: Aws) -> None:
    api = training(SiteClients(EXTERNAL_ID, Clock()), LAB)
    assert api.create(a_request())[0] is LaunchResult.LAUNCHED
    assert api.stop("job1-qstamp-1") is StopResult.ASKED
    assert [operation for operation, _ in aws.calls] == ["AssumeRole", "CreateTrainingJob", "StopTrainingJob"]
    assert "/us-east-1/sts/" in aws.calls[0][1] and "ASIAOFLAB/" in aws.calls[1][1]
    (assumed,) = aws.assumed
    assert (assumed["RoleArn"], assumed["ExternalId"]) == ([ROLE], [EXTERNAL_ID])


def test_a_role_that_may_not_be_assumed_is_no_answer_of_sagemaker(aws: Aws) -> None:
    """SageMaker was not asked, so a launch did not happen, and a stop is not denied."""
    aws.trusts = False
    api = training(SiteClients(EXTERNAL_ID, Clock()), LAB)
    result, message = api.create(a_request())
    assert result is LaunchResult.UNREACHABLE
    assert message.startswith("us-east-2 of account 222222222222 cannot be reached: ") and "AccessDenied" in message
    assert api.stop("job1-qstamp-1") is StopResult.UNKNOWN
    with pytest.raises(Unavailable, match="cannot be reached"):
        api.describe("job1-qstamp-1")
    assert [operation for operation, _ in aws.calls] == ["AssumeRole"]


def test_a_site_that_refuses_connections_is_asked_less_and_less(monkeypatch: pytest.MonkeyPatch, aws: Aws) -> None:
    clock = Clock()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_ports()}")  # the port has no server
    api = training(SiteClients("", clock), OHIO)
    asked: list[float] = []
    monkeypatch.setattr("botocore.httpsession.URLLib3Session.send", counted(clock, asked))
    for _ in range(200):
        assert api.create(a_request())[0] is LaunchResult.UNREACHABLE
        clock.now += 1
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert pauses == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, *[LONGEST_PAUSE_SECONDS] * (len(pauses) - 2)]


def counted(clock: Clock, asked: list[float]) -> Callable[..., Any]:
    """Return the sender of requests, with a note of the time of each request."""
    send = URLLib3Session.send

    def send_counted(session: URLLib3Session, request: Any) -> Any:
        asked.append(clock.now)
        return send(session, request)

    return send_counted


def test_a_call_without_an_answer_may_have_taken_effect(aws: Aws) -> None:
    clock = Clock()
    api = training(SiteClients("", clock), OHIO)
    aws.hangs_up = True
    assert api.create(a_request())[0] is LaunchResult.UNKNOWN
    aws.hangs_up = False
    assert api.create(a_request("job2"))[0] is LaunchResult.UNREACHABLE
    clock.now += FIRST_PAUSE_SECONDS
    assert api.create(a_request("job2"))[0] is LaunchResult.LAUNCHED
    assert api.create(a_request("job3"))[0] is LaunchResult.LAUNCHED


def test_a_site_without_a_valid_certificate_is_paused(monkeypatch: pytest.MonkeyPatch, aws: Aws) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://127.0.0.1:{aws.server_port}")  # the server speaks no TLS
    clock = Clock()
    api = training(SiteClients("", clock), OHIO)
    assert api.create(a_request())[0] is LaunchResult.UNKNOWN
    result, message = api.create(a_request("job2"))
    assert result is LaunchResult.UNREACHABLE and "SSL" in message


def test_a_proxy_that_fails_is_no_proof_that_a_call_was_not_sent(monkeypatch: pytest.MonkeyPatch, aws: Aws) -> None:
    # botocore gives the same error for a connection that a proxy closes after it has passed the call on.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://sagemaker.example")
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{free_ports()}")
    api = training(SiteClients("", Clock()), OHIO)
    result, message = api.create(a_request())
    assert result is LaunchResult.UNKNOWN and "proxy" in message
    assert api.create(a_request("job2"))[0] is LaunchResult.UNREACHABLE


def test_the_pause_of_one_site_is_none_of_another(aws: Aws) -> None:
    clients = SiteClients(EXTERNAL_ID, Clock())
    aws.trusts = False
    assert training(clients, LAB).create(a_request())[0] is LaunchResult.UNREACHABLE
    assert training(clients, Site("eu-west-1")).create(a_request())[0] is LaunchResult.LAUNCHED


def test_the_pause_of_one_role_is_none_of_another(aws: Aws) -> None:
    clients = SiteClients(EXTERNAL_ID, Clock())
    aws.trusts = False
    assert training(clients, LAB).create(a_request())[0] is LaunchResult.UNREACHABLE
    aws.trusts = True
    assert training(clients, Site("us-east-2", f"{ROLE}-2")).create(a_request())[0] is LaunchResult.LAUNCHED


def test_pages_are_guarded_like_other_calls(aws: Aws) -> None:
    clock = Clock()
    reading = SiteClients(EXTERNAL_ID, clock).client("sagemaker", OHIO)

    def pages() -> list[Any]:
        return list(reading.get_paginator("list_training_jobs").paginate())

    assert [page["TrainingJobSummaries"] for page in pages()] == [[]]
    aws.hangs_up = True
    with pytest.raises(HTTPClientError):
        pages()
    before = len(aws.calls)
    with pytest.raises(SiteUnreachableError):
        pages()
    assert len(aws.calls) == before, "the site is left alone"
