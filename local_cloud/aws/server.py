"""The server process of the local cloud: ministack, with access control, AWS's limits and injected crashes.

`ministack.Ministack` runs this module as a script: python server.py FD CRASH SEED CRASHES [LIMITS THROTTLED]

FD is the descriptor of a bound socket. Once the file CRASHES exists, CRASH is the probability, per invocation, that the
process of a Lambda function is killed. For each killed process, one character is appended to CRASHES. LIMITS are the
read and write units a second of each partition key in DynamoDB, such as 3000/1000. For each throttled call, one
character is appended to the file THROTTLED.
"""

import asyncio
import functools
import hmac
import json
import os
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import botocore.session
from hypercorn.asyncio import serve
from hypercorn.config import Config
from ministack.app import _request_account_scope, app
from ministack.core import iam_evaluator, lambda_runtime
from ministack.core.iam_evaluator import AuthError, enforce, pin_signed_body, pin_signed_request
from ministack.core.responses import get_account_id, set_request_account_id, set_request_region
from ministack.core.router import extract_access_key_id
from ministack.services import dynamodb, s3, sts

sys.path.append(
    str(Path(__file__).resolve().parents[2])
)  # this is a script, and the local cloud is no installed package

from local_cloud.aws import limits, log_filters  # noqa: E402
from local_cloud.aws.callers import TOKEN_HEADER, foreign  # noqa: E402
from local_cloud.dynamodb import table_keys  # noqa: E402
from local_cloud.dynamodb.key_throttle import KeyLimits, KeyThrottle, parse_limits  # noqa: E402
from local_cloud.dynamodb.requests import MEASURED, MeteredCalls  # noqa: E402
from local_cloud.services import event_buses, task_tokens  # noqa: E402
from local_cloud.sites import assumed_roles, questions, server_side  # noqa: E402
from local_cloud.sites.server_side import ServerSites  # noqa: E402

ENCRYPTION = b"x-amz-server-side-encryption"
KEY = ENCRYPTION + b"-aws-kms-key-id"
AWS_KEY = b"alias/aws/s3"
OWNER_HEADERS = (b"x-amz-expected-bucket-owner", b"x-amz-source-expected-bucket-owner")
ANOTHER_OWNER = b"<Error><Code>AccessDenied</Code><Message>The bucket belongs to another account.</Message></Error>"

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class AccessControl:
    """The access control of the server. Programs that have the address of the local cloud are admitted.

    ministack's own endpoints (/_ministack/reset, /_ministack/config and others) can reset or reconfigure the server,
    and do not check credentials. Here these endpoints require the token, which only the process that started the server
    has. All other calls must be signed, if ministack checks signatures at all. Calls of a REST API are exempt, because
    ministack checks their signatures itself.
    """

    def __init__(self, port: int, token: str, sites: ServerSites, *, auth: bool, account: str) -> None:
        self._port = port
        self._sites = sites
        self._endpoints: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            questions.AUTHORIZE: refusal,
            questions.ACCOUNT: server_side.account,
            questions.FORWARD: server_side.forward,
            questions.OUTAGES: sites.change,
            questions.EXPIRE: server_side.expire,
        }
        self._account = account.encode()
        self._token = token.encode()
        self._auth = auth

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Refuse a request, or let ministack or the endpoint of the local cloud answer it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http" and (reason := self._refusal(scope)):
            await _answer(send, 403, {"message": f"Forbidden: {reason}."})
        elif scope["type"] == "http" and await self._sites.keep_from(scope, send):
            return
        elif scope["type"] == "http" and not self._owns_the_bucket(scope):
            await _send(send, 403, b"application/xml", ANOTHER_OWNER)
        elif scope["type"] == "http" and (endpoint := self._endpoints.get(scope["path"])):
            await _answer(send, 200, endpoint(json.loads(await _content(receive))))
        else:
            await with_aws_key(scope, receive, send)

    def _owns_the_bucket(self, scope: dict[str, Any]) -> bool:
        """Return False if the request expects another account as the bucket's owner; ministack does not check this."""
        headers = {name.lower(): value for name, value in scope["headers"]}
        source = urllib.parse.unquote(headers.get(b"x-amz-copy-source", b"").decode("latin-1"))
        expected = zip(map(headers.get, OWNER_HEADERS), (scope["path"], source), strict=True)
        return all(owner is None or owner == self._owner(path) for owner, path in expected)

    def _owner(self, path: str) -> bytes:
        """Return the account of the bucket that a path begins with; the home account if there is no such bucket."""
        owner: str | None = s3._bucket_owner_account(path.lstrip("/").partition("/")[0])
        return owner.encode() if owner else self._account

    def _refusal(self, scope: dict[str, Any]) -> str | None:
        raw = dict(scope["headers"])
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        if reason := foreign(headers, self._port):
            return reason
        path = scope["path"]
        if path.startswith("/_") or path in ("/health", "/reset"):
            known = hmac.compare_digest(raw.get(TOKEN_HEADER.encode(), b""), self._token)
            return None if known else "this endpoint is closed"
        signed = b"authorization" in raw or b"Signature=" in scope.get("query_string", b"")
        if self._auth and not signed and not (path.startswith("/restapis/") and "/_user_request_" in path):
            return "the request is not signed"
        return None


async def _answer(send: Send, status: int, content: dict[str, str]) -> None:
    await _send(send, status, b"application/json", json.dumps(content).encode())


async def _send(send: Send, status: int, kind: bytes, body: bytes) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _content(receive: Receive) -> bytes:
    content, more = b"", True
    while more:
        part = await receive()
        content, more = content + part.get("body", b""), part.get("more_body", False)
    return content


def refusal(question: dict[str, Any]) -> dict[str, str]:
    """Return the code and the message of the refusal if the caller lacks a needed permission, else an empty object."""
    headers = {name.lower(): value for name, value in question["headers"]}
    key = extract_access_key_id(headers, {})
    set_request_account_id(_request_account_scope(key))
    set_request_region(question["region"])
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    pin_signed_request("POST", "/", {}, raw)
    pin_signed_body(question["body"].encode("latin-1"))
    for needed in question["needed"]:
        action, resource = needed["action"], needed["resource"]
        refused = enforce(key, action, "sagemaker", question["region"], resource, needed["context"])
        if isinstance(refused, AuthError):
            return {"code": refused.code, "message": refused.message}
        if refused is not None:
            denied = f"User: {refused.principal_arn} is not authorized to perform: {action} on resource: {resource}"
            return {"code": "AccessDeniedException", "message": f"{denied} because no policy allows the action."}
    return {}


async def with_aws_key(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Pass a request to ministack. If the request asks for KMS encryption without a key, add S3's default key.

    The SageMaker SDK uploads source folders without naming a key. ministack would refuse these requests.
    """
    if scope["type"] == "http":
        headers = dict(scope["headers"])
        if headers.get(ENCRYPTION) == b"aws:kms" and KEY not in headers:
            scope = {**scope, "headers": [*scope["headers"], (KEY, AWS_KEY)]}
    await app(scope, receive, send)


def verify_root_signatures(access: str, sites: ServerSites) -> None:
    """Make ministack verify the root user's signatures like those of all other users.

    By default ministack treats several access keys as the root user's: the configured key, `test`, any twelve digits,
    and an empty key. The signatures of requests with these keys are not verified.
    """

    def is_root(key: str) -> bool:
        return (bool(access) and key == access) or sites.is_root(key)

    identity_of = iam_evaluator.resolve_caller_identity

    def resolve_caller_identity(key: str) -> dict[str, Any] | None:
        if not is_root(key):
            found: dict[str, Any] | None = identity_of(key)
            return found
        account = get_account_id()
        root = {"accessKey": key, "accountId": account, "userArn": f"arn:aws:iam::{account}:root", "userId": account}
        return {**root, "principalOrgId": None, "session": None}

    iam_evaluator.is_root_access_key = sts.is_root_access_key = is_root
    iam_evaluator._is_root_key = lambda key: False  # else ministack would not verify the root user's signatures
    iam_evaluator.resolve_caller_identity = resolve_caller_identity


class Crashes:
    """The choice of the processes that are killed, and a record of the killed processes."""

    longest_life = 0.5  # seconds of work

    def __init__(self, probability: float, seed: int, record: Path) -> None:
        self._probability = probability
        self._random = Random(f"{seed}/crash")
        self._record = record
        self._lock = threading.Lock()

    def draw(self) -> float | None:
        """Return the seconds of work after which a process is killed; None if the process is not killed."""
        if not self._probability or not self._record.exists():
            return None
        with self._lock:
            drawn = self._random.random()
        return self.longest_life * drawn / self._probability if drawn < self._probability else None

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill a process without a chance to clean up, as in a power failure."""
        if process.poll() is None:
            # Write the record first, so that a caller that sees the end of the process finds it counted.
            with self._lock, self._record.open("a") as record:
                record.write(".")
            process.kill()


def crashing_worker(crashes: Crashes) -> type[Any]:
    """Return ministack's class for the process of a Lambda function, changed so that it may be killed during its work.

    A process that is going to be killed first works for up to half a second, in one or several invocations. So a crash
    is equally likely at every moment of the work, even in very short invocations.
    """

    class CrashingWorker(lambda_runtime.Worker):  # type: ignore[misc]
        life: float | None = None

        def invoke(self, *arguments: Any, **options: Any) -> dict[str, Any]:
            lambda_runtime.ensure_spawned(self)  # starting the process does not count as work
            if self.life is None:
                self.life = crashes.draw()
            if self.life is None:
                return self._invoke(*arguments, **options)
            process, began = self._proc, time.monotonic()
            death = threading.Timer(self.life, crashes.kill, [process])
            death.start()
            try:
                return self._invoke(*arguments, **options)
            finally:
                death.cancel()
                left = self.life - (time.monotonic() - began)
                self.life = left if left > 0 and process.poll() is None else None

        def _invoke(self, *arguments: Any, **options: Any) -> dict[str, Any]:
            answer: dict[str, Any] = super().invoke(*arguments, **options)
            return answer

    return CrashingWorker


def throttle_keys(limits: KeyLimits, record: Path) -> None:
    """Throttle each partition key of ministack's DynamoDB beyond these limits.

    :param record: a file to which one character is appended for each throttled call.
    """
    handle_request = dynamodb.handle_request
    throttle = KeyThrottle(limits, time.monotonic)

    def item_of(table: str, key: Any) -> Any:
        return dynamodb._get_item_by_key(dynamodb._tables[table], key)

    async def metered(method: str, path: str, headers: dict[str, str], body: bytes, query: Any) -> tuple[Any, ...]:
        operation = headers.get("x-amz-target", "").rpartition(".")[2]
        answers: list[tuple[Any, tuple[Any, ...]]] = []

        def handle(_: str, request: Any) -> tuple[int, dict[str, Any]]:
            call = handle_request(method, path, headers, json.dumps(request).encode(), query)
            try:
                call.send(None)  # runs the coroutine to its end, because the coroutine never waits
            except StopIteration as done:
                content = json.loads(done.value[2] or b"{}")
                answers.append((content, done.value))
                return done.value[0], content
            raise RuntimeError(f"ministack's {operation} waits")

        if operation not in MEASURED:
            return tuple(await handle_request(method, path, headers, body, query))
        try:
            request = json.loads(body)
        except ValueError:
            return tuple(await handle_request(method, path, headers, body, query))
        status, content = MeteredCalls(throttle, dynamodb._tables.get, item_of, handle).call(operation, request)
        for known, answer in answers:
            if known is content:
                return answer
        with record.open("a") as throttled:
            throttled.write(".")
        return status, {"Content-Type": "application/x-amz-json-1.0"}, json.dumps(content).encode()

    dynamodb.handle_request = metered


def exit_with_parent() -> None:
    """Exit once the other end of the standard input is closed, even if the parent process was killed."""
    sys.stdin.buffer.read()
    os._exit(0)


def main(descriptor: int, crashes: Crashes) -> None:
    """Serve until a signal, or the end of the parent process."""
    threading.Thread(target=exit_with_parent, daemon=True).start()
    # Lambda functions inherit the environment and must not have the token.
    token, auth = os.environ.pop("LOCAL_CLOUD_TOKEN"), os.environ["AUTH"] == "true"
    keys = json.loads(os.environ.pop("LOCAL_CLOUD_ROOT_KEYS", "[]"))
    sites = ServerSites([tuple(key) for key in keys])
    application = AccessControl(int(os.environ["GATEWAY_PORT"]), token, sites, auth=auth, account=get_account_id())
    if auth:
        verify_root_signatures(os.environ["AWS_ACCESS_KEY_ID"], sites)
        table_keys.install()
        assumed_roles.install()
    if keys:
        sites.install()
    event_buses.install()
    lambda_runtime.Worker = crashing_worker(crashes)
    log_filters.install()
    limits.install()
    task_tokens.install()
    # ministack creates a session for each lookup of a service's model; one shared session is enough.
    botocore.session.get_session = functools.cache(botocore.session.get_session)  # type: ignore[assignment]
    config = Config()
    config.bind = [f"fd://{descriptor}"]
    config.keep_alive_timeout = 75
    asyncio.run(serve(application, config))  # type: ignore[arg-type]


if __name__ == "__main__":
    if len(sys.argv) > 5:  # noqa: PLR2004
        throttle_keys(parse_limits(sys.argv[5]), Path(sys.argv[6]))
    main(int(sys.argv[1]), Crashes(float(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
