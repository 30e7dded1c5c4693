"""Calls to the server process about ministack's state: access keys, permissions, events, outages and sessions."""

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

from local_cloud.aws.callers import TOKEN_HEADER

AUTHORIZE = "/_local_cloud/authorize"
ACCOUNT = "/_local_cloud/account"
FORWARD = "/_local_cloud/forward"
OUTAGES = "/_local_cloud/outages"
EXPIRE = "/_local_cloud/expire"
PATIENCE = 10.0  # seconds


class Questions:
    """The client of the local cloud's own endpoints in server.py, which require `token`."""

    def __init__(self, endpoint: str, token: str) -> None:
        self._endpoint = endpoint
        self._headers = {TOKEN_HEADER: token}
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def ask(self, path: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer. Raise OSError if no answer arrives within PATIENCE seconds."""
        request = urllib.request.Request(  # noqa: S310  (ministack's)
            self._endpoint + path, json.dumps(question).encode(), self._headers, method="POST"
        )
        with self._open(request, timeout=PATIENCE) as answer:
            return dict(json.load(answer))
