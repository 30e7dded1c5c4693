"""Send signed requests to the queue's HTTP API, retry after temporary failures, and return the answer's JSON object."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import boto3
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from requests.auth import AuthBase
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    wait_random_exponential,
)
from urllib3.exceptions import LocationParseError

from sagemaker_queue.errors import (
    ConfigError,
    InvalidOption,
    NoAccountProfile,
    NotAuthenticated,
    QueueError,
    Unavailable,
)
from sagemaker_queue.queue.config.queue_config import ACCOUNT_PROFILES_VARIABLE, QueueConfig
from sagemaker_queue.queue.error_mapping import refusal

logger = logging.getLogger(__name__)

ATTEMPTS = 5
LONGEST_PAUSE_SECONDS = 8.0
LONGEST_RETRY_AFTER_SECONDS = 30.0  # limit of the answer's Retry-After; longer values are reduced to this limit
_ONE_SHORT_QUESTION = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2})
_WORTH_ANOTHER_TRY = frozenset({429, 500, 502, 503, 504})
_NO_ANSWER = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)


class Transport:
    """A sender of requests to one queue. The keyword arguments are the same as for QueueClient."""

    def __init__(
        self,
        config: QueueConfig,
        boto_session: boto3.Session | None,
        *,
        tries: int,
        pause_seconds: float,
        timeout_seconds: tuple[float, float],
    ) -> None:
        self._url = config.url
        self._timeout_seconds = timeout_seconds
        self._retrying = Retrying(
            retry=retry_if_exception_type(_NO_ANSWER) | retry_if_result(_is_passing_failure),
            stop=stop_after_attempt(tries),
            wait=_Wait(pause_seconds),
            before_sleep=_log_retry,
            retry_error_callback=_last_outcome,
        )
        self._headers = {"Accept": "application/json", "User-Agent": "sagemaker-queue"}
        if config.api_id:
            self._headers["x-apigw-api-id"] = config.api_id
        # Without this setting, requests to this machine would go, signed and unencrypted, to the environment's proxy.
        self._proxies = {"no_proxy": urlsplit(config.url).hostname or ""} if config.on_this_machine else None
        self._signature = Signature(config, boto_session)
        self._http = (os.getpid(), self._session())

    @property
    def region(self) -> str:
        """The queue's AWS region, for which requests are signed."""
        return self._signature.region

    def caller_arn(self) -> str:
        """Return the ARN that STS reports for the credentials that sign requests; the queue sees the same ARN."""
        return self._signature.caller_arn()

    def aws_session(self, account: str | None = None, *, job: str | None = None) -> boto3.Session:
        """Return the session that signs requests, or with ``account`` the session of that account's AWS profile.

        Raises NoAccountProfile for an account without a profile; its message names ``job``.
        """
        return self._signature.session_of(account, job)

    def call(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, content: object = None
    ) -> tuple[int, dict[str, Any]]:
        """Send a request with ``content`` as JSON, and return the status and the JSON object of a successful answer.

        Raises QueueError for any other answer; the error's ``retry_after`` is the answer's Retry-After in seconds.
        """
        url = self._url + path
        if query:
            try:
                # Write a space as %20, because a "+" would be signed as a plus sign.
                url += "?" + urlencode(query, quote_via=quote, safe="")
            except UnicodeEncodeError as fault:
                raise InvalidOption(f"{fault.object!r} is not UTF-8 text, and cannot be sent.") from fault
        response = self._send(method, url, None if content is None else json.dumps(content, default=dict))
        if not response.ok or response.is_redirect:
            error = refusal(response)
            error.retry_after = _retry_after(response)
            raise error
        try:
            answer = response.json()
        except requests.JSONDecodeError as error:
            raise QueueError(f"{url} did not answer as a queue does (no JSON); is the address right?") from error
        if not isinstance(answer, dict):
            raise QueueError(f"{url} did not answer as a queue does (no JSON object); is the address right?")
        return response.status_code, answer

    def _send(self, method: str, url: str, body: str | None) -> requests.Response:
        try:
            return self._retrying(
                self._session_of_this_process().request,
                method,
                url,
                data=body.encode() if body is not None else None,
                headers={"Content-Type": "application/json"} if body is not None else None,
                timeout=self._timeout_seconds,
                allow_redirects=False,  # the signature is valid for this address only
                proxies=self._proxies,
            )
        except _NO_ANSWER as error:
            raise Unavailable(
                f"The queue at {self._url} cannot be reached ({type(error).__name__});"
                " is the address right, and are you inside the network of its private API?"
            ) from error
        except LocationParseError as error:  # its text may contain a password of the proxy
            raise ConfigError(
                "The address of the proxy is not valid: correct HTTPS_PROXY, or name the queue's host in NO_PROXY."
            ) from error
        except requests.RequestException as error:
            raise ConfigError(f"No request can be sent to {self._url}: {error}") from error

    def _session(self) -> requests.Session:
        session = requests.Session()
        session.headers.update(self._headers)
        session.auth = self._signature
        return session

    def _session_of_this_process(self) -> requests.Session:
        """Return this process's session. After a fork, a new session is created.

        Otherwise parent and child would share connections and read each other's answers.
        """
        process, session = self._http
        if process != os.getpid():
            session = self._session()
            self._http = (os.getpid(), session)
        return session


def _is_passing_failure(response: requests.Response) -> bool:
    return response.status_code in _WORTH_ANOTHER_TRY


class _Wait:
    """The pause before the next try, in seconds.

    The pause is random, and the bound of the random pause grows with each try. If the answer's Retry-After is longer
    than the random pause, the Retry-After is added, but at most LONGEST_RETRY_AFTER_SECONDS.
    """

    def __init__(self, pause_seconds: float) -> None:
        self._backoff = wait_random_exponential(multiplier=pause_seconds, max=LONGEST_PAUSE_SECONDS)

    def __call__(self, state: RetryCallState) -> float:
        pause = float(self._backoff(state))
        if state.outcome is None or state.outcome.failed:
            return pause
        asked = _retry_after(state.outcome.result()) or 0.0
        return pause if asked <= pause else min(asked, LONGEST_RETRY_AFTER_SECONDS) + pause


def _retry_after(response: requests.Response) -> float | None:
    """Return the seconds in the header Retry-After; None if the header is missing or contains a date."""
    text = response.headers.get("Retry-After", "")
    return float(text) if re.fullmatch(r"\d{1,5}", text) else None


def _log_retry(state: RetryCallState) -> None:
    """Log a warning if the queue got too many requests (status 429); log other temporary failures at debug level."""
    assert state.outcome is not None
    pause = state.next_action.sleep if state.next_action else 0
    if not state.outcome.failed and state.outcome.result().status_code == HTTPStatus.TOO_MANY_REQUESTS:
        logger.warning("Too many requests to the queue (status 429); trying again in %.1f seconds.", pause)
    else:
        logger.debug("The queue did not answer; trying again in %.1f seconds.", pause)


def _last_outcome(state: RetryCallState) -> requests.Response:
    """Return the last response, or raise the last error."""
    assert state.outcome is not None
    response: requests.Response = state.outcome.result()
    return response


class Signature(AuthBase):
    """The signature of requests (AWS Signature Version 4). Each try is signed again: a signature lasts five minutes."""

    def __init__(self, config: QueueConfig, boto_session: boto3.Session | None) -> None:
        self._session = boto_session or session_of_profile(config)
        region = config.region or region_of(config.url) or self._session.region_name
        if not region:
            raise ConfigError(
                "The queue's AWS region is not known: set AWS_DEFAULT_REGION, or region in the queue's profile."
            )
        self.region = region
        self._profiles = config.profile_by_account
        self._sessions: dict[str, boto3.Session] = {}  # by account

    def session_of(self, account: str | None, job: str | None) -> boto3.Session:
        """Return the session of the AWS profile of ``account``; if ``account`` is None, the one that signs requests.

        Raises NoAccountProfile if ``account`` has no usable profile; the message names ``job``.
        """
        if account is None:
            return self._session
        if account not in self._sessions:
            profile = self._profiles.get(account)
            if profile is None:
                raise NoAccountProfile(_no_profile(account, job))
            try:
                self._sessions[account] = boto3.Session(profile_name=profile)
            except BotoCoreError as error:
                raise NoAccountProfile(
                    f"AWS profile {profile!r} of account {account} cannot be used: {error}."
                ) from error
        return self._sessions[account]

    def caller_arn(self) -> str:
        """Return the ARN that STS names for the credentials. Raises NotAuthenticated if STS names none."""
        try:
            sts = self._session.client("sts", region_name=self.region, config=_ONE_SHORT_QUESTION)
            return str(sts.get_caller_identity()["Arn"])
        except (BotoCoreError, ClientError) as error:
            raise NotAuthenticated(f"AWS (STS) does not say whose credentials these are: {error}") from error

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the signature to the request's headers. Raises NotAuthenticated if there are no usable credentials."""
        try:
            credentials = self._session.get_credentials()
            frozen = credentials.get_frozen_credentials() if credentials else None
        except (BotoCoreError, ClientError) as error:
            raise not_loaded(error) from error
        if frozen is None:
            raise NotAuthenticated(
                "No AWS credentials were found to sign the request with: log in to AWS, or set AWS_PROFILE."
            )
        # Sign only headers that a proxy on the way does not change; botocore adds host and date.
        signed = {name: request.headers[name] for name in ("Content-Type", "x-apigw-api-id") if name in request.headers}
        to_sign = AWSRequest(method=request.method, url=request.url, data=request.body, headers=signed)
        SigV4Auth(frozen, "execute-api", self.region).add_auth(to_sign)
        request.headers.update(dict(to_sign.headers))
        return request


def session_of_profile(config: QueueConfig) -> boto3.Session:
    """Return a session with the credentials of ``config.aws_profile``, in the queue's region.

    Raises ConfigError if the AWS profile cannot be used.
    """
    try:
        return boto3.Session(profile_name=config.aws_profile, region_name=config.region or region_of(config.url))
    except BotoCoreError as error:
        raise ConfigError(f"AWS profile {config.aws_profile!r} cannot be used: {error}.") from error


def not_loaded(error: BotoCoreError | ClientError) -> NotAuthenticated:
    """Return the error to raise if credentials cannot be loaded.

    A ClientError means that STS refused to assume the role of the AWS profile.
    """
    refused = isinstance(error, ClientError)
    remedy = "Log in to AWS again, or correct role_arn in the AWS profile." if refused else "Log in to AWS again."
    return NotAuthenticated(f"AWS credentials could not be loaded: {str(error).rstrip('.')}. {remedy}")


def _no_profile(account: str, job: str | None) -> str:
    """Return a message about an account without a profile, and how to set one."""
    where = f"{job} is in account {account}" if job else f"The client is to be one of account {account}"
    return (
        f"{where}, and no AWS profile of that account is set. Set one of ~/.aws/config: smq config set"
        f" account_profiles {account}=PROFILE; or set {ACCOUNT_PROFILES_VARIABLE}."
    )


def region_of(url: str) -> str | None:
    """Return the region in an API Gateway address, for which requests must be signed; None for other addresses."""
    found = re.search(r"\.execute-api\.([a-z0-9-]+)\.", urlsplit(url).hostname or "")
    return found.group(1) if found else None
