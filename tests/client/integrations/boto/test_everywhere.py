"""``install(everywhere=True)`` and ``hook``: whose training jobs go through the queue, in whose name, until when."""

from __future__ import annotations

import asyncio
import copy
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.hooks import HierarchicalEmitter
from moto import mock_aws

import sagemaker_queue_startup as startup
from sagemaker_queue import ConfigError, QueueClient, boto_session, hook, install, uninstall
from sagemaker_queue.integrations.boto import sessions
from sagemaker_queue.integrations.boto.hooks import HANDLERS
from tests.client.integrations.boto.hooked_clients import OWNER, REQUEST
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

SUBMITTED = {"job": "job1", "state": "pending", "owner": OWNER}


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """SageMaker and S3 are moto's, for what bypasses the queue."""
    with mock_aws():
        yield
    uninstall()


@pytest.fixture
def configured(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    """The environment names the queue, which takes every job."""
    monkeypatch.setenv("SAGEMAKER_QUEUE_URL", server.url)
    server.always_answers(202, SUBMITTED)
    return server


def everywhere(**settings: Any) -> None:
    install(everywhere=True, preflight=False, **settings)


def client_of(session: Any, service: str = "sagemaker", **settings: Any) -> Any:
    create: Any = getattr(session, "client", None) or session.create_client
    return create(service, **{"region_name": "eu-west-1", **settings})


def is_queued(client: Any, server: ScriptedServer, name: str = "job1") -> bool:
    """Create a job and tell where it went: the queue heard of it, or moto did, and not both."""
    before = len(server.received)
    client.create_training_job(**{**REQUEST, "TrainingJobName": name})
    return len(server.received) == before + 1


class TestEverySession:
    def test_those_made_before_and_after_and_their_clients(self, configured: ScriptedServer) -> None:
        sessions = [boto3.Session(), botocore.session.get_session()]
        clients = [client_of(session) for session in sessions]
        everywhere()
        later = [boto3.Session(), botocore.session.get_session()]
        clients += [client_of(session) for session in sessions + later]
        assert all(is_queued(client, configured) for client in clients)
        assert len(configured.received) == 6

    @pytest.mark.thorough
    def test_a_client_that_signs_nothing_asks_in_nobodys_name(self, configured: ScriptedServer) -> None:
        everywhere()
        keys = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "x"}
        for given in ({}, keys):
            unsigned = client_of(boto3.Session(), config=Config(signature_version=UNSIGNED), **given)
            assert not is_queued(unsigned, configured, f"job{len(given)}")
        assert not configured.received

    @pytest.mark.thorough
    def test_uninstall_undoes_it_for_all_of_them(self, configured: ScriptedServer) -> None:
        before = boto3.Session()
        early = client_of(before)
        everywhere()
        meanwhile = boto3.Session()
        clients = [early, client_of(before), client_of(meanwhile)]
        uninstall()
        clients += [client_of(meanwhile), client_of(boto3.Session())]
        queued = [is_queued(client, configured, f"job{number}") for number, client in enumerate(clients)]
        assert queued == [False] * 5
        events = early.meta.events._emitter
        assert not [name for name in events._unique_id_handlers if name.startswith("sagemaker-queue")]

    def test_uninstall_undoes_the_default_session_too(
        self, configured: ScriptedServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        session = install(preflight=False)
        client = client_of(session)
        assert is_queued(client, configured)
        uninstall()
        assert [is_queued(client, configured, "one"), is_queued(client_of(session), configured, "two")] == [False] * 2
        install(preflight=False)
        assert is_queued(client_of(session), configured)

    @pytest.mark.thorough
    def test_what_a_finished_install_left_behind_lets_all_pass(self, configured: ScriptedServer) -> None:
        """Of a client that the search does not find: gc.freeze has put it aside."""
        everywhere()
        client = client_of(boto3.Session())
        uninstall()
        startup.hook_everywhere(client.meta.events)
        assert not is_queued(client, configured)

    @pytest.mark.thorough
    def test_a_session_with_a_queue_of_its_own_keeps_it(self, configured: ScriptedServer) -> None:
        other = QueueClient(url="http://127.0.0.1:9/prod", tries=1)
        before = boto_session(boto3.Session(), queue=other, preflight=False)
        everywhere()
        after = boto_session(boto3.Session(), queue=other, preflight=False)
        for session in before, after:
            with pytest.raises(ClientError, match="127.0.0.1:9"):
                client_of(session).create_training_job(**REQUEST)
        assert configured.received == []

    @pytest.mark.thorough
    def test_what_the_hooks_ask_aws_is_not_answered_by_hooks(self, configured: ScriptedServer) -> None:
        """Those of a session ask by a client of it, which those of every session find, too."""
        session = boto_session(boto3.Session(), preflight=False)
        client = client_of(session)
        configured.always_answers(200, {"jobs": [], "next": None})
        for _ in range(2):
            client.list_training_jobs()
            everywhere()
        client_of(boto3.Session()).list_training_jobs()
        assert len(configured.received) == 3

    @pytest.mark.thorough
    @pytest.mark.parametrize("by", ["install", "hook", "environment"])
    def test_attempts_are_shown_where_one_says_so(
        self, configured: ScriptedServer, by: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = client_of(boto3.Session())
        if by == "install":
            everywhere(hooks="attempts")
        elif by == "hook":
            hook(client.meta.events, preflight=False, hooks="attempts")
        else:
            monkeypatch.setenv("SAGEMAKER_QUEUE_HOOKS", "attempts")
            everywhere()
        assert client.list_training_jobs()["TrainingJobSummaries"] == []
        assert configured.received == []
        assert is_queued(client, configured)

    def test_a_view_that_there_is_not_is_refused_at_once(self, configured: ScriptedServer) -> None:
        for wrong in (lambda: install(everywhere=True, hooks="all"), lambda: hook(boto3.Session().events, hooks="all")):
            with pytest.raises(ConfigError, match="hooks is 'all'"):
                wrong()
        assert not startup.is_hooking()

    def test_no_queue_is_configured(self) -> None:
        with pytest.raises(ConfigError, match="No queue is configured"):
            install(everywhere=True)
        assert not startup.is_hooking()

    def test_one_that_the_environment_hooked_refuses_jobs_without_a_queue(self) -> None:
        startup.hook_new_sessions(botocore)
        client = client_of(boto3.Session())
        with pytest.raises(ClientError, match="No queue is configured"):
            client.create_training_job(**REQUEST)
        assert client.list_training_jobs()["TrainingJobSummaries"] == []
        with pytest.raises(ClientError, match="Could not find"):  # moto's word: asked, as if there were no hooks
            client.describe_training_job(TrainingJobName="unknown")

    @pytest.mark.thorough
    def test_other_services_get_no_handlers(self) -> None:
        def handlers(service: str, operation: str) -> int:
            events = client_of(boto3.Session(), service).meta.events._emitter
            return sum(
                len(list(events._handlers.prefix_search(f"{event}.{service}.{operation}")))
                for event in ("provide-client-params", "before-call", "after-call", "before-send", "request-created")
            )

        calls = [("s3", "PutObject"), ("sagemaker", "CreateEndpoint"), ("dynamodb", "PutItem")]
        before = [handlers(*call) for call in calls]
        everywhere(queue=QueueClient(url="http://127.0.0.1:9/prod"))
        assert [handlers(*call) for call in calls] == before
        assert handlers("sagemaker", "CreateTrainingJob") > before[1]

    def test_the_light_part_knows_all_that_can_be_answered(self) -> None:
        assert {service: set(names) for service, names in startup.OPERATIONS.items()} == {
            service: set(handlers) for service, handlers in HANDLERS.items()
        }


class TestInWhoseName:
    def test_each_client_asks_with_its_own_credentials(self, configured: ScriptedServer) -> None:
        everywhere()
        session = boto3.Session("AKIDONE", "one")
        clients = [client_of(session), client_of(session, aws_access_key_id="AKIDTWO", aws_secret_access_key="two")]
        for client in [*clients, *clients]:
            assert is_queued(client, configured)
        signers = [request.headers["Authorization"].partition("Credential=")[2][:7] for request in configured.received]
        assert signers == ["AKIDONE", "AKIDTWO"] * 2

    @pytest.mark.thorough
    @pytest.mark.attack
    def test_the_name_of_a_key_is_not_enough(self, configured: ScriptedServer) -> None:
        """Somebody gives a server, which makes sessions for its users, another's key without the secret."""
        everywhere()
        for secret in "right", "wrong", "right":
            is_queued(client_of(boto3.Session("AKIDVICTIM", secret)), configured)
        signatures = [request.headers["Authorization"].partition("Signature=")[2] for request in configured.received]
        assert signatures[1] not in (signatures[0], signatures[2])
        credentials = [hooks.session.get_credentials() for hooks in sessions._Everywhere.callers._known.values()]
        secrets = {found.secret_key for found in credentials if found}
        assert secrets == {"right", "wrong"}

    @pytest.mark.thorough
    def test_credentials_that_are_renewed_stay_so(self, configured: ScriptedServer) -> None:
        from datetime import datetime, timedelta, timezone

        from botocore.credentials import RefreshableCredentials

        keys = [f"AKID{number}" for number in range(9)]

        def renew() -> dict[str, str]:
            soon = datetime.now(timezone.utc) + timedelta(seconds=1)  # so they are renewed whenever they are used
            return {"access_key": keys.pop(0), "secret_key": "s", "token": "t", "expiry_time": soon.isoformat()}

        everywhere()
        session: Any = botocore.session.get_session()
        session._credentials = RefreshableCredentials.create_from_metadata(renew(), renew, "test")
        client = client_of(session)
        assert is_queued(client, configured) and is_queued(client, configured)
        signers = [request.headers["Authorization"].partition("Credential=")[2][:5] for request in configured.received]
        assert signers[0] != signers[1]

    @pytest.mark.thorough
    def test_a_job_of_another_region_is_sagemakers(
        self, configured: ScriptedServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        everywhere()
        session = boto3.Session()
        here, there = client_of(session), client_of(session, region_name="us-west-2")
        assert [is_queued(there, configured), is_queued(here, configured)] == [False, True]
        assert "us-west-2 goes to SageMaker directly: the queue runs jobs in eu-west-1" in caplog.text


class TestConcurrently:
    @pytest.mark.thorough
    def test_threads_that_make_sessions_while_all_are_hooked(self, configured: ScriptedServer) -> None:
        begin = threading.Barrier(5)

        def work(number: int) -> list[Any]:
            begin.wait()
            return [client_of(boto3.Session()) for _ in range(3)]

        with ThreadPoolExecutor(4) as threads:
            made = [threads.submit(work, number) for number in range(4)]
            begin.wait()
            everywhere()
            clients = [client for future in made for client in future.result()]
            results = list(threads.map(is_created, clients))
        assert (all(results), len(configured.received)) == (True, 12)

    @pytest.mark.thorough
    def test_events_that_are_copied_and_added_to_meanwhile(self) -> None:
        """A client begins with a copy of its session's events, which takes a while; boto3 adds to a session's own."""
        names = [f"others.{number}.event" for number in range(100)]
        made: list[HierarchicalEmitter] = []
        over = threading.Event()

        heard: Any = lambda **_: "heard"  # noqa: E731

        def use() -> list[tuple[HierarchicalEmitter, str]]:
            registered: list[tuple[HierarchicalEmitter, str]] = []
            while not over.is_set():
                events = made[-1]
                for number in range(3):
                    copy.copy(events)
                    registered.append((events, f"own.{len(registered)}.{number}"))
                    events.register(registered[-1][1], heard)
                time.sleep(0)
            return registered

        def make() -> None:
            events = HierarchicalEmitter()
            for name in names:
                events.register(name, heard)
            made.append(events)

        make()
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # each thread is interrupted wherever that is possible
        try:
            with ThreadPoolExecutor(1) as threads:
                used = threads.submit(use)
                try:
                    for _ in range(150):
                        make()
                        time.sleep(0.001)
                        sessions._change_atomically(made[-1], startup.hook_everywhere)
                finally:
                    over.set()
                registered = used.result()
        finally:
            sys.setswitchinterval(interval)
        assert all(events.emit(name) for events, name in registered)
        assert all(events.emit(name) for events in made for name in names)

    def test_forks(self, configured: ScriptedServer) -> None:
        script = [sys.executable, "-W", "ignore", "-c", FORKS]
        done = subprocess.run(script, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert (done.returncode, done.stderr, sorted(done.stdout.split())) == (0, "", ["child", "parent"])
        assert len(configured.received) == 3


def is_created(client: Any) -> bool:
    return bool(client.create_training_job(**REQUEST)["TrainingJobArn"])


# The child comes into being while another thread holds every lock of the parent's hooks.
FORKS = f"""
import os, threading, boto3, sagemaker_queue
from sagemaker_queue.integrations.boto.sessions import _Everywhere
sagemaker_queue.install(everywhere=True, preflight=False)
client = boto3.Session().client("sagemaker")
request = {REQUEST!r}
client.create_training_job(**request)
hooks = list(_Everywhere.callers._known.values())[0]
held, forked = threading.Event(), threading.Event()

def hold():
    with _Everywhere.lock, hooks._lock, hooks.jobs._lock:
        held.set()
        forked.wait()

holder = threading.Thread(target=hold)
holder.start()
held.wait()
child = os.fork()
if not child:
    free = [lock.acquire(blocking=False) for lock in (_Everywhere.lock, hooks._lock, hooks.jobs._lock)]
    assert all(free), free
    _Everywhere.lock.release()
    client.create_training_job(**request)
    sagemaker_queue.uninstall()
    print("child", flush=True)
    os._exit(0)
forked.set()
holder.join()
client.create_training_job(**request)
_, status = os.waitpid(child, 0)
assert status == 0, status
print("parent")
"""


class TestHook:
    def test_one_client(self, configured: ScriptedServer) -> None:
        session = boto3.Session()
        client, other = client_of(session), client_of(session)
        hook(client.meta.events, preflight=False)
        assert [is_queued(client, configured), is_queued(other, configured)] == [True, False]

    def test_the_clients_to_come_of_a_bare_session(self, configured: ScriptedServer) -> None:
        session = botocore.session.get_session()
        hook(session.get_component("event_emitter"), preflight=False)
        assert is_queued(client_of(session), configured)

    @pytest.mark.thorough
    def test_another_queue_replaces_the_first_also_where_every_session_has_one(
        self, configured: ScriptedServer
    ) -> None:
        everywhere()
        client = client_of(boto3.Session())
        hook(client.meta.events, queue=QueueClient(url="http://127.0.0.1:9/prod", tries=1), preflight=False)
        with pytest.raises(ClientError, match="127.0.0.1:9"):
            client.create_training_job(**REQUEST)
        hook(client.meta.events, preflight=False)
        assert is_queued(client, configured)

    def test_an_event_loop_goes_on_while_the_queue_is_asked(self) -> None:
        """aiobotocore awaits what a handler returns; `make clients` runs the real one."""
        answered = threading.Event()

        def answer(model: Any, params: Any, context: Any, credentials: Any) -> tuple[str, Any]:
            assert answered.wait(PATIENCE)
            return "answer", credentials

        class Credentials:
            async def get_frozen_credentials(self) -> str:
                return "frozen"

        class Signer:
            _credentials = Credentials()

            async def sign(self) -> None: ...

        async def call() -> Any:
            respond = startup.Responder(answer)
            context: dict[str, Any] = {startup.PARAMETERS: {}}
            reply = asyncio.ensure_future(respond(None, {}, context, Signer()))
            await asyncio.sleep(0)
            answered.set()  # only a loop that goes on comes here
            assert respond(None, {}, context, Signer()) is None  # another one of ours has the call
            return await reply

        assert asyncio.run(call()) == ("answer", "frozen")


class TestElsewhere:
    """What makes training jobs where no client can be asked."""

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("operation", "request_", "instead"),
        [
            ("create_pipeline", {"PipelineName": "p", "RoleArn": REQUEST["RoleArn"]}, "instead of TrainingStep"),
            ("create_auto_ml_job_v2", {}, "smq submit"),
            ("create_hyper_parameter_tuning_job", {}, "smq sweep"),
        ],
    )
    def test_the_warning_says_what_queues_instead(
        self, configured: ScriptedServer, caplog: pytest.LogCaptureFixture, operation: str, request_: Any, instead: str
    ) -> None:
        everywhere()
        model = botocore.session.get_session().get_service_model("sagemaker")
        client = client_of(boto3.Session())
        name = client.meta.method_to_api_mapping[operation]
        assert model.operation_model(name)
        client.meta.events.emit_until_response(
            f"before-call.sagemaker.{name}",
            model=model.operation_model(name),
            params={"url": "https://api.sagemaker.eu-west-1.amazonaws.com/"},
            request_signer=client._request_signer,
            context={startup.PARAMETERS: request_, "client_region": "eu-west-1", "client_config": None},
        )
        assert "goes to SageMaker directly" in caplog.text
        assert instead in caplog.text

    def test_a_job_of_aws_batch(self, configured: ScriptedServer, caplog: pytest.LogCaptureFixture) -> None:
        everywhere()
        client = client_of(boto3.Session(), "batch", endpoint_url="http://127.0.0.1:9")
        if not hasattr(client, "submit_service_job"):
            pytest.skip("this botocore does not know the operation")
        client.meta.events.register("before-send.batch", lambda **_: (_ for _ in ()).throw(RuntimeError("sent")))
        with caplog.at_level(logging.WARNING), pytest.raises(RuntimeError, match="sent"):
            client.submit_service_job(
                jobName="job1", jobQueue="fast", serviceRequestPayload="{}", serviceJobType="SAGEMAKER_TRAINING"
            )
        assert "The training job job1 goes to the AWS Batch queue fast, not through this queue" in caplog.text
        assert "instead of TrainingQueue.submit()" in caplog.text


def test_what_is_no_queue_or_no_emitter_is_refused_at_once(configured: ScriptedServer) -> None:
    queue: Any = "https://queue.example"
    for call in (boto_session, install, lambda **given: hook(HierarchicalEmitter(), **given)):
        with pytest.raises(TypeError, match=r"queue must be a QueueClient, such as QueueClient\(url=...\), not 'https"):
            call(queue=queue)
    with pytest.raises(TypeError, match="hook.. takes events, such as client.meta.events"):
        hook(client_of(boto3.Session()))
