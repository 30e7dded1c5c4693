"""The process behind `ministack.Ministack`. Run as a script: python server.py FD CRASH SEED CRASHES

FD is a bound socket. As soon as there is a file CRASHES, an invocation of a Lambda function has the probability CRASH
to be its process's undoing; for each process that is killed, the file gets one character more.
"""

import asyncio
import functools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import botocore.session
from hypercorn.asyncio import serve
from hypercorn.config import Config
from ministack.app import _request_account_scope, app
from ministack.core import lambda_runtime
from ministack.core.iam_evaluator import AuthError, enforce, pin_signed_body, pin_signed_request
from ministack.core.responses import set_request_account_id, set_request_region
from ministack.core.router import extract_access_key_id

ENCRYPTION = b"x-amz-server-side-encryption"
KEY = ENCRYPTION + b"-aws-kms-key-id"
AWS_KEY = b"alias/aws/s3"

AUTHORIZE = "/_local_cloud/authorize"
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


async def local_cloud(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """ministack, and what the local cloud adds to it."""
    if scope["type"] == "http" and scope["path"] == AUTHORIZE:
        await authorize(receive, send)
    else:
        await with_aws_key(scope, receive, send)


async def authorize(receive: Receive, send: Send) -> None:
    """Tell the emulator of SageMaker whether a caller may do what it asks for: an empty answer, or code and message."""
    content, more = b"", True
    while more:
        part = await receive()
        content, more = content + part.get("body", b""), part.get("more_body", False)
    answer = json.dumps(refusal(json.loads(content))).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def refusal(question: dict[str, Any]) -> dict[str, str]:
    """Why a request is refused: its signature is wrong, or a permission is lacking. Empty: it is not."""
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
            who = f"User: {refused.principal_arn} is not authorized to perform: {action} on resource: {resource}"
            return {"code": "AccessDeniedException", "message": f"{who} because no policy allows the action."}
    return {}


async def with_aws_key(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """ministack, with the KMS key that S3 takes where a request names none: aws/s3, which each account has.

    The SageMaker SDK relies on it for every upload of a source folder; ministack refuses such a request.
    """
    if scope["type"] == "http":
        headers = dict(scope["headers"])
        if headers.get(ENCRYPTION) == b"aws:kms" and KEY not in headers:
            scope = {**scope, "headers": [*scope["headers"], (KEY, AWS_KEY)]}
    await app(scope, receive, send)


class Crashes:
    """Decides which processes die, and records the deaths."""

    longest_life = 0.5  # seconds of work

    def __init__(self, probability: float, seed: int, record: Path) -> None:
        self._probability = probability
        self._random = Random(f"{seed}/crash")
        self._record = record
        self._lock = threading.Lock()

    def draw(self) -> float | None:
        """After how many seconds of further work a process is to die, if it is."""
        if not self._probability or not self._record.exists():
            return None
        with self._lock:
            drawn = self._random.random()
        return self.longest_life * drawn / self._probability if drawn < self._probability else None

    def kill(self, process: subprocess.Popen[str]) -> None:
        """The power fails: no handler, no last words."""
        if process.poll() is None:
            process.kill()
            with self._lock, self._record.open("a") as record:
                record.write(".")


def crashing_worker(crashes: Crashes) -> type[Any]:
    """ministack's process of a Lambda function, but it may die of its work.

    Once that is decided it has some seconds left in which it works, over as many invocations as that takes: so every
    moment of the work is as dangerous as any other, and no invocation is too short to be hit.
    """

    class CrashingWorker(lambda_runtime.Worker):  # type: ignore[misc]
        life: float | None = None

        def invoke(self, *arguments: Any, **options: Any) -> dict[str, Any]:
            lambda_runtime.ensure_spawned(self)  # its start is no work
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


def main(descriptor: int, crashes: Crashes) -> None:
    """Serve until a signal ends it."""
    lambda_runtime.Worker = crashing_worker(crashes)
    # ministack makes one for each service, only to look something up.
    botocore.session.get_session = functools.cache(botocore.session.get_session)  # type: ignore[assignment]
    config = Config()
    config.bind = [f"fd://{descriptor}"]
    config.keep_alive_timeout = 75
    asyncio.run(serve(local_cloud, config))  # type: ignore[arg-type]


if __name__ == "__main__":
    main(int(sys.argv[1]), Crashes(float(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
