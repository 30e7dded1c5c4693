"""AWS clients for each site. A site that does not respond gets no calls for a while, so other sites do not wait."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

import boto3
from boto3.session import Session
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
)
from botocore.session import get_session

from job_queue.domain.fleet.sites import Site

SESSION_NAME = "sagemaker-queue"
SESSION_SECONDS = 3600  # of assumed credentials; they are fetched again before they expire
FIRST_PAUSE_SECONDS = 15.0  # after the first call without an answer
LONGEST_PAUSE_SECONDS = 60.0

# Timeouts are short, so that a call without an answer does not use up the time of a cycle. Distant regions answer in
# less than a second.
_READING = Config(retries={"total_max_attempts": 2}, connect_timeout=2, read_timeout=5)
_LAUNCHING = Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=8)


class SiteUnreachableError(BotoCoreError):
    """The error of a call that was not sent: the site does not respond, or the site's role cannot be assumed."""

    fmt = "{site} cannot be reached: {why}"


def is_service_failure(error: ClientError) -> bool:
    """Return whether the service itself failed (HTTP status 500 or more). Otherwise the service refused the call."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", HTTPStatus.BAD_REQUEST)
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR


class SiteClients:
    """The AWS clients of the queue's process for all sites but the home site.

    :param external_id: sent with each AssumeRole; empty: none is sent.
    :param clock: returns a time in seconds that never goes back.
    """

    def __init__(self, external_id: str, clock: Callable[[], float]) -> None:
        self._external_id = external_id
        self._clock = clock
        self._sessions: dict[Site, Session] = {}
        self._clients: dict[tuple[Site, str, bool], Any] = {}
        self._pauses: dict[Site, _Pause] = {}
        self._creating = threading.Lock()  # threads that launch at one site must not all assume its role

    def client(self, service: str, site: Site, *, launching: bool = False) -> Any:
        """Return a boto3 client of a service at a site. During the site's pause the client sends no calls.

        :param launching: whether the client sends each call only once. The queue records each launch before the
            call, so the client must not repeat the call.
        """
        key = (site, service, launching)
        with self._creating:
            if key not in self._clients:
                config = _LAUNCHING if launching else _READING
                session: Any = self._session(site)  # `client` has an overload for each service's literal name
                made = session.client(service, config=config)
                pause = self._pauses.setdefault(site, _Pause(self._clock))
                self._clients[key] = _GuardedClient(made, site, pause)
            return self._clients[key]

    def _session(self, site: Site) -> Session:
        if site not in self._sessions:
            self._sessions[site] = self._assumed(site) if site.role else boto3.Session(region_name=site.region)
        return self._sessions[site]

    def _assumed(self, site: Site) -> Session:
        """Return a session with the credentials of the site's role, which are fetched by the first call."""
        own = get_session()
        source = own.get_credentials()
        extra: dict[str, Any] = {"RoleSessionName": SESSION_NAME, "DurationSeconds": SESSION_SECONDS}
        if self._external_id:
            extra["ExternalId"] = self._external_id
        config = own.get_default_client_config() or Config()
        own.set_default_client_config(config.merge(_READING))
        fetcher = AssumeRoleCredentialFetcher(own.create_client, source, site.role or "", extra_args=extra)
        session = get_session()
        session._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")  # type: ignore[attr-defined]
        return Session(botocore_session=session, region_name=site.region)


class _Pause:
    """The time in which a site gets no calls, because earlier calls got no answer."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = 0.0
        self._failures = 0
        self.why = ""

    @property
    def is_on(self) -> bool:
        """Whether the pause is in force, so that no call is sent."""
        return self._clock() < self._until

    def begin(self, why: str) -> None:
        """Begin a pause. Each further call without an answer doubles the pause, up to `LONGEST_PAUSE_SECONDS`."""
        self._failures += 1
        seconds = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** (self._failures - 1))
        self._until, self.why = self._clock() + seconds, why

    def end(self) -> None:
        """End the pause, because the site has answered. The next pause is short again."""
        self._until, self._failures = 0.0, 0


class _GuardedClient:
    """A client that sends no calls during its site's pause.

    :raises SiteUnreachableError: from each operation, if the call was certainly not sent.
    """

    def __init__(self, client: Any, site: Site, pause: _Pause) -> None:
        self._client = client
        self._site = site
        self._pause = pause

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name in ("meta", "exceptions", "can_paginate", "generate_presigned_url") or not callable(found):
            return found
        if name == "get_paginator":
            return lambda operation: _GuardedPaginator(found(operation), self._call)
        return lambda **request: self._call(partial(found, **request))

    def _call(self, operation: Callable[[], Any]) -> Any:
        if self._pause.is_on:
            raise SiteUnreachableError(site=self._site.text, why=self._pause.why)
        try:
            answer = operation()
        except ClientError as error:
            if error.operation_name == "AssumeRole":  # the call was not sent, because the role could not be assumed
                raise self._unreachable(error) from error
            self._pause.end()
            raise
        except (EndpointConnectionError, ConnectTimeoutError, CredentialRetrievalError) as error:
            raise self._unreachable(error) from error
        except (HTTPClientError, ConnectionError) as error:  # no answer, but the call may have taken effect
            self._pause.begin(str(error))
            raise
        self._pause.end()
        return answer

    def _unreachable(self, error: Exception) -> SiteUnreachableError:
        self._pause.begin(str(error))
        return SiteUnreachableError(site=self._site.text, why=str(error))


class _GuardedPaginator:
    """A paginator that sends no calls during its site's pause."""

    def __init__(self, paginator: Any, guard: Callable[[Callable[[], Any]], Any]) -> None:
        self._paginator = paginator
        self._guard = guard

    def paginate(self, **request: Any) -> Iterator[Any]:
        """Yield the pages of the answer."""
        pages = iter(self._paginator.paginate(**request))
        while (page := self._guard(partial(next, pages, None))) is not None:
            yield page
