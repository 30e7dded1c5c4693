"""Answer a request through the hooks, or sign the request as its caller and pass the request on to SageMaker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, InvalidRegionError
from botocore.model import OperationNotFoundError

from sagemaker_queue.errors import NotAuthenticated, QueueError
from sagemaker_queue.integrations.boto.callers import Callers
from sagemaker_queue.integrations.proxy import protocol
from sagemaker_queue.integrations.proxy.keys import CredentialsByKey
from sagemaker_queue.integrations.proxy.messages import ProxyRefusal, Request, Response, error, success
from sagemaker_queue.integrations.proxy.server import Server
from sagemaker_queue.integrations.proxy.signature import SERVICE, Caller, verified
from sagemaker_queue.queue.config.queue_config import QueueConfig
from sagemaker_queue.queue.transport import not_loaded
from sagemaker_queue_startup import OPERATIONS, PARAMETERS

logger = logging.getLogger(__name__)

_Config: Any = Config  # Config's types lack the option ignore_configured_endpoint_urls
_MOST_AT_ONCE = 100  # maximum number of pooled connections to SageMaker
_CREATE = "CreateTrainingJob"
# Headers that belong to one connection only, and headers that the proxy itself sets.
_NOT_PASSED_ON = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "expect", "host", "content-length", "date", "server"),
        *("authorization", "x-amz-date", "x-amz-security-token", "x-amz-content-sha256"),
    }
)


def proxy(config: QueueConfig, port: int, *, preflight: bool = True) -> Server:
    """Return a server that answers in place of SageMaker. Raises QueueError, and OSError if the port cannot be used."""

    def make_session() -> boto3.Session:
        return boto3.Session(profile_name=config.aws_profile)

    try:
        keys = CredentialsByKey(make_session)
        if keys.proxy_credentials() is None:
            raise NotAuthenticated("No AWS credentials were found: log in to AWS, or set AWS_PROFILE.")
    except (BotoCoreError, ClientError) as error:
        raise not_loaded(error) from error
    server = Server(port)
    server.answer = Gateway(Callers(config=config, preflight=preflight), keys, make_session(), server.names).answer
    return server


class Gateway:
    """The part of the proxy that answers requests. Thread-safe.

    ``session`` provides SageMaker's address in each region. ``own_names`` are the proxy's own hosts with their ports.
    """

    def __init__(
        self, callers: Callers, keys: CredentialsByKey, session: boto3.Session, own_names: Collection[str]
    ) -> None:
        self._callers = callers
        self._keys = keys
        self._session = session
        self._own_names = own_names
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Response:
        """Return the answer to a request. An error becomes an answer, so nothing is raised."""
        try:
            caller = verified(request, self._keys.find)
            client = self._client(caller.region)
            return self._answer_of_queue(request, caller, client) or _forward(request, caller, client)
        except ProxyRefusal as refusal:
            return refusal.response
        except (BotoCoreError, QueueError) as failure:
            return error(503, "ServiceUnavailable", f"smq proxy got no answer: {failure}")
        except Exception as failure:  # noqa: BLE001  # one failed request must not stop the proxy
            logger.error("A request could not be answered: %s: %s", type(failure).__name__, failure)
            return error(500, "InternalFailure", f"smq proxy failed: {type(failure).__name__}")

    def _answer_of_queue(self, request: Request, caller: Caller, client: Any) -> Response | None:
        """Return the hooks' answer; None if the hooks let the request pass.

        Raises ProxyRefusal for a CreateTrainingJob request that botocore cannot read: no job may bypass the queue.
        """
        name = protocol.operation_of(request, OPERATIONS[SERVICE])
        if name not in OPERATIONS[SERVICE]:
            return None
        given = protocol.content(request)
        try:
            model = client.meta.service_model.operation_model(name)
            parameters = protocol.parameters(given, model)
        except (protocol.NotInModel, OperationNotFoundError) as reason:
            if name == _CREATE:  # no job may bypass the queue
                raise ProxyRefusal(
                    400, "ValidationException", f"The queue cannot take this request: {reason}"
                ) from None
            return None  # SageMaker's answer explains the fault
        context = {
            "client_region": caller.region,
            "client_config": client.meta.config,
            PARAMETERS: parameters,
        }
        reply = self._callers.answer(model, {"url": client.meta.endpoint_url}, context, caller.credentials)
        return None if reply is None else _in_protocol(reply, model)

    def _client(self, region: str) -> Any:
        """Return a client that provides SageMaker's address, service model and connections in a region.

        The client's operations are not called. Raises ProxyRefusal if the region's name is not valid.
        """
        with self._lock:
            if region not in self._clients:
                create: Callable[..., Any] = self._session.client
                try:
                    client = create(SERVICE, region_name=region, config=_Config(max_pool_connections=_MOST_AT_ONCE))
                except InvalidRegionError as reason:
                    raise ProxyRefusal(
                        400, "InvalidSignatureException", f"Credential should be scoped: {reason}"
                    ) from None
                if urlsplit(client.meta.endpoint_url).netloc in self._own_names:
                    # The user's endpoint setting for all programs names this proxy, and the proxy must not call itself.
                    elsewhere = _Config(max_pool_connections=_MOST_AT_ONCE, ignore_configured_endpoint_urls=True)
                    client = create(SERVICE, region_name=region, config=elsewhere)
                self._clients[region] = client
            return self._clients[region]


def _in_protocol(reply: tuple[Any, Any], model: Any) -> Response:
    """Return the hooks' answer in SageMaker's protocol."""
    answer = reply[1]
    request_id = answer.get("ResponseMetadata", {}).get("RequestId", "")
    failure = answer.get("Error")
    if failure:
        return error(reply[0].status_code, failure.get("Code", ""), failure.get("Message", ""), request_id)
    return success(protocol.serialized(answer, model), request_id)


def _forward(request: Request, caller: Caller, client: Any) -> Response:
    """Send the request to SageMaker under a new signature, and return the answer. Bodies pass unchanged.

    Retries are left to the caller.
    """
    url = client.meta.endpoint_url.rstrip("/") + request.path
    outgoing: Any = AWSRequest(request.method, url, data=request.body)
    for name, value in request.headers.items():
        if name.lower() not in _NOT_PASSED_ON:
            outgoing.headers[name] = value
    SigV4Auth(caller.credentials, client.meta.service_model.signing_name, caller.region).add_auth(outgoing)
    # Use the client's connections, which have the user's settings for certificates, proxies and timeouts.
    answer = client._endpoint.http_session.send(outgoing.prepare())
    headers = {name: value for name, value in answer.headers.items() if name.lower() not in _NOT_PASSED_ON}
    return Response(answer.status_code, answer.content, headers)
