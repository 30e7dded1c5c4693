"""The queue's HTTP API: signed requests, patient retries, typed answers."""

import json
import logging
import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import boto3
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError
from requests.auth import AuthBase

from sagemaker_queue.answers import Cancellation, JobDetail, JobPage, JobSummary, QueueStatus, Submission
from sagemaker_queue.config import QueueConfig, find_config
from sagemaker_queue.errors import ConfigError, InvalidRequest, NotAuthenticated, NotFound, QueueError, Unavailable
from sagemaker_queue.refusals import refusal

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
READ_SECONDS = 60.0  # API Gateway gives its own answer after 29 s
ATTEMPTS = 5
LONGEST_PAUSE_SECONDS = 8.0
PAGE_SIZE = 100
_WORTH_ANOTHER_TRY = frozenset({429, 500, 502, 503, 504})
_NO_ANSWER = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
_JOB_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", re.ASCII)


class QueueClient:
    """Talks to one queue.

    The queue is the one of ``config``, else the one that ``find_config`` finds from the keyword
    arguments, the environment and the profile file. ``boto_session`` gives credentials and region
    (default: the profile's, else the usual AWS ones). Methods raise the errors of
    ``sagemaker_queue.errors``; a lost connection, 429 and 5xx are retried first, with a random pause
    of at most ``pause_seconds``, doubled each time, between two tries. Submitting is retried too: the
    queue answers a request that it already knows with the job as it is.
    """

    def __init__(
        self,
        config: QueueConfig | None = None,
        *,
        boto_session: boto3.Session | None = None,
        url: str | None = None,
        api_id: str | None = None,
        profile: str | None = None,
        region: str | None = None,
        pause_seconds: float = 0.5,
        timeout_seconds: tuple[float, float] = (CONNECT_SECONDS, READ_SECONDS),
    ) -> None:
        self.config = config or find_config(url=url, api_id=api_id, profile=profile, region=region)
        self._pause_seconds = pause_seconds
        self._timeout_seconds = timeout_seconds
        self._http = requests.Session()
        self._http.headers.update({"Accept": "application/json", "User-Agent": "sagemaker-queue"})
        if self.config.api_id:
            self._http.headers["x-apigw-api-id"] = self.config.api_id
        self._http.auth = _Signature(self.config, boto_session)

    def submit(self, request: Mapping[str, Any]) -> Submission:
        """Queue a CreateTrainingJob request; the same request again returns the job as it is."""
        misfit = _first_non_json(request, "")
        if misfit:
            path, value = misfit
            raise InvalidRequest(
                f"{path} is {value!r} ({type(value).__name__}), which JSON cannot carry;"
                " use text, numbers, true or false, lists and objects.",
                path,
            )
        _, answer = self._call("POST", "/add-job", body=json.dumps(request))
        return Submission.from_json(answer)

    def jobs(self, states: str | Iterable[str] = "live") -> Iterator[JobSummary]:
        """Yield jobs page by page: ``live``, ``finished``, ``all``, or those in the given states.

        Live jobs come in the queue's order: highest priority first, then first come first served.
        """
        state = states if isinstance(states, str) else ",".join(states)
        query = {"state": state, "limit": str(PAGE_SIZE)}
        seen: set[str] = set()  # a job that moves between two pages could come twice
        while True:
            page = JobPage.from_json(self._call("GET", "/jobs", query=query)[1])
            for job in page.jobs:
                if job.job not in seen:
                    seen.add(job.job)
                    yield job
            if page.next is None:
                return
            query["next"] = page.next

    def job(self, name: str) -> JobDetail:
        """Return all that the queue knows of the job."""
        return JobDetail.from_json(self._call("GET", _job_path(name))[1])

    def cancel(self, name: str) -> Cancellation:
        """End the job: at once if it waits; a live one is stopped, which may take minutes."""
        status, answer = self._call("DELETE", _job_path(name))
        return Cancellation.from_json({**answer, "wasFinished": status == HTTPStatus.OK})

    def queue(self) -> QueueStatus:
        """Return the pools, who holds their instances, and who waits, in order."""
        return QueueStatus.from_json(self._call("GET", "/queue")[1])

    def _call(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: str | None = None
    ) -> tuple[int, dict[str, Any]]:
        url = self.config.url + path
        if query:
            # Percent signs only: a "+" for a space would be signed as a plus.
            url += "?" + urlencode(query, quote_via=quote, safe="")
        response = self._send(method, url, body)
        if not response.ok or response.is_redirect:
            raise refusal(response)
        try:
            answer = response.json()
        except requests.JSONDecodeError as error:
            raise QueueError(f"{url} did not answer as a queue does (no JSON); is the address right?") from error
        if not isinstance(answer, dict):
            raise QueueError(f"{url} did not answer as a queue does (no JSON object); is the address right?")
        return response.status_code, answer

    def _send(self, method: str, url: str, body: str | None) -> requests.Response:
        headers = {"Content-Type": "application/json"} if body is not None else None
        for attempt in range(1, ATTEMPTS + 1):
            try:
                response = self._http.request(
                    method,
                    url,
                    data=body.encode() if body is not None else None,
                    headers=headers,
                    timeout=self._timeout_seconds,
                    allow_redirects=False,  # the signature is for this address alone
                )
            except _NO_ANSWER as error:
                if attempt == ATTEMPTS:
                    raise Unavailable(
                        f"The queue at {self.config.url} cannot be reached ({type(error).__name__});"
                        " is the address right, and are you inside the network of its private API?"
                    ) from error
                logger.debug("%s %s: no answer, try %d: %s", method, url, attempt, error)
            except requests.RequestException as error:
                raise ConfigError(f"No request can be sent to {self.config.url}: {error}") from error
            else:
                if response.status_code not in _WORTH_ANOTHER_TRY or attempt == ATTEMPTS:
                    return response
                logger.debug("%s %s: status %d, try %d", method, url, response.status_code, attempt)
            longest = min(LONGEST_PAUSE_SECONDS, self._pause_seconds * 2 ** (attempt - 1))
            time.sleep(random.uniform(0, longest))
        raise AssertionError("the last try returns or raises")


class _Signature(AuthBase):
    """Signs each try anew (AWS Signature Version 4): a signature lasts five minutes."""

    def __init__(self, config: QueueConfig, boto_session: boto3.Session | None) -> None:
        try:
            self._session = boto_session or boto3.Session(profile_name=config.aws_profile)
        except BotoCoreError as error:
            raise ConfigError(f"AWS profile {config.aws_profile!r} cannot be used: {error}.") from error
        region = config.region or _region_of(config.url) or self._session.region_name
        if not region:
            raise ConfigError(
                "The queue's AWS region is not known: set AWS_DEFAULT_REGION, or region in the queue's profile."
            )
        self._region = region

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        try:
            credentials = self._session.get_credentials()
            frozen = credentials.get_frozen_credentials() if credentials else None
        except BotoCoreError as error:
            raise NotAuthenticated(f"AWS credentials could not be loaded: {error} Log in to AWS again.") from error
        if frozen is None:
            raise NotAuthenticated(
                "No AWS credentials were found to sign the request with: log in to AWS, or set AWS_PROFILE."
            )
        # Only what no proxy changes on the way is signed; botocore adds host and date.
        signed = {name: request.headers[name] for name in ("Content-Type", "x-apigw-api-id") if name in request.headers}
        to_sign = AWSRequest(method=request.method, url=request.url, data=request.body, headers=signed)
        SigV4Auth(frozen, "execute-api", self._region).add_auth(to_sign)
        request.headers.update(dict(to_sign.headers))
        return request


def _region_of(url: str) -> str | None:
    """Return the region that an API Gateway address contains: an API is signed for its own one."""
    found = re.search(r"\.execute-api\.([a-z0-9-]+)\.", urlsplit(url).hostname or "")
    return found.group(1) if found else None


def _job_path(name: str) -> str:
    if not _JOB_NAME.fullmatch(name):
        raise NotFound(f"There is no job {name!r}: a job's name has up to 63 letters, digits and inner hyphens.")
    return f"/jobs/{name}"


def _first_non_json(value: object, path: str) -> tuple[str, object] | None:
    """Return where the first value is that JSON has no type for, and that value; None if all is well."""
    if isinstance(value, Mapping):
        members: Iterable[tuple[object, str, object]] = (
            (key, f"{path}.{key}" if path else str(key), member) for key, member in value.items()
        )
    elif isinstance(value, list | tuple):
        members = (("", f"{path}[{index}]", member) for index, member in enumerate(value))
    else:
        finite = not isinstance(value, float) or abs(value) < float("inf")
        return None if isinstance(value, str | int | float | None) and finite else (path, value)
    for key, where, member in members:
        misfit = (where, key) if not isinstance(key, str) else _first_non_json(member, where)
        if misfit:
            return misfit
    return None
