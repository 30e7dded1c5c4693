"""A proxy between a queue and a SageMaker that answer by script, and what is sent to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from sagemaker_queue.integrations.proxy.server import Server
    from tests.client.conftest import Received, ScriptedServer

KEY, SECRET = "AKIDEXAMPLE", "not-a-secret"


@dataclass
class Proxied:
    """What stands around a proxy."""

    queue: ScriptedServer
    sagemaker: ScriptedServer
    server: Server
    client: Any
    """Of boto3, without hooks, whose SageMaker is the proxy."""

    @property
    def url(self) -> str:
        return f"http://{self.server.address}/"

    def signed(
        self,
        operation: str = "ListModels",
        body: bytes = b"{}",
        *,
        key: str = KEY,
        secret: str = SECRET,
        token: str | None = None,
        url: str = "",
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        region: str = "eu-west-1",
        service: str = "sagemaker",
    ) -> AWSRequest:
        """Return a request as an SDK signs it."""
        sent = {"X-Amz-Target": f"SageMaker.{operation}", "Content-Type": "application/x-amz-json-1.1"}
        request = AWSRequest(method, url or self.url, data=body, headers={**sent, **(headers or {})})
        return self.sign(request, key=key, secret=secret, token=token, region=region, service=service)

    @staticmethod
    def sign(
        request: AWSRequest,
        *,
        key: str = KEY,
        secret: str = SECRET,
        token: str | None = None,
        region: str = "eu-west-1",
        service: str = "sagemaker",
    ) -> AWSRequest:
        """Sign a request as it is now."""
        credentials: Any = Credentials(key, secret, token)
        SigV4Auth(credentials, service, region).add_auth(request)
        return request

    def send(self, request: Any, **changed: str) -> requests.Response:
        """Send it, with headers that are changed after it was signed; ``X_Amz_Date`` stands for X-Amz-Date."""
        headers = {**dict(request.headers), **{name.replace("_", "-"): value for name, value in changed.items()}}
        with requests.Session() as session:
            session.trust_env = False
            return session.request(request.method, request.url, data=request.data, headers=headers, timeout=PATIENCE)

    def passed_on(self) -> Received:
        """The one request that SageMaker got."""
        (received,) = self.sagemaker.received
        return received


def said(response: requests.Response) -> tuple[int, str]:
    """Status and code of an error, which is said in three places alike."""
    body = json.loads(response.content)
    assert response.headers["x-amzn-ErrorType"] == body["__type"] and body["message"]
    assert response.headers["Content-Type"] == "application/x-amz-json-1.1"
    assert response.headers["x-amzn-RequestId"]
    return response.status_code, body["__type"]
