"""The logs of failed attempts as CloudWatch Logs returns them: missing, late, on two pages, or throttled."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from job_queue.domain.fleet.sites import Site, key_of
from tests.torture.failure_samples import Failed
from tests.torture.faults import Call, Fault

SECOND_PAGE = "second"
NOISE = "epoch 3: loss 0.731"


def _no_answer() -> Any:
    raise ReadTimeoutError(endpoint_url="https://logs.us-east-1.amazonaws.com")


def _error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "simulated"}}, "FilterLogEvents")


def _refused(fault: Fault) -> Any:
    if fault is Fault.UNREACHABLE:
        raise EndpointConnectionError(endpoint_url="https://logs.us-east-2.amazonaws.com")
    raise _error("ThrottlingException")


class SimulatedLogs:
    """A client of CloudWatch Logs for `FailureLog`.

    :param ask: makes a call for the invocation that runs now.
    """

    def __init__(self, ask: Callable[[Call], Any], clock: Callable[[], float]) -> None:
        self.failed: dict[str, Failed] = {}  # by the name of the training job
        self.read: set[str] = set()  # training jobs whose last lines an invocation has received
        self._ask = ask
        self._clock = clock

    def at(self, site: Site | None) -> "_LogsOfSite":
        """The client of a site."""
        return _LogsOfSite(partial(self._filter, site))

    def _filter(self, site: Site | None, /, **request: Any) -> dict[str, Any]:
        effect = partial(self._page, request, site)
        words, where = request["logStreamNamePrefix"], site.key if site else ""
        page: dict[str, Any] = self._ask(Call("log", words, effect, _no_answer, _refused, where))
        return page

    def rename(self, old: str, new: str) -> None:
        """Keep the failure of a deleted training job under another name."""
        if old in self.failed:
            self.failed[new] = self.failed.pop(old)
        if old in self.read:
            self.read.remove(old)
            self.read.add(new)

    def _page(self, request: Mapping[str, Any], site: Site | None) -> dict[str, Any]:
        stream, pattern = request["logStreamNamePrefix"], request.get("filterPattern")
        before = pattern.strip('"') if pattern else ""  # of each line of a member in the log of its carrier
        name = before.removesuffix("| ") or stream.removesuffix("/")
        name = key_of(name, site)
        failed = self.failed.get(name)
        if failed is None or failed.readable_at is None:
            raise _error("ResourceNotFoundException")
        if failed.readable_at > self._clock():
            return {"events": []}
        at = int(failed.ended * 1000) - 1
        if failed.is_long and "nextToken" not in request:
            return {"events": [_event(stream, at, before + NOISE)], "nextToken": SECOND_PAGE}
        lines = failed.sample.lines if at >= request["startTime"] else ()
        if lines:
            self.read.add(name)
        return {"events": [_event(stream, at, before + line) for line in lines]}


class _LogsOfSite:
    def __init__(self, filter_log_events: Callable[..., dict[str, Any]]) -> None:
        self.filter_log_events = filter_log_events


def _event(stream: str, at: int, message: str) -> dict[str, Any]:
    return {"logStreamName": f"{stream}algo-1-17", "timestamp": at, "message": message}
