"""Answer calls of any AWS client, and call the queue with that client's own credentials."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import boto3
import botocore.session
from botocore.credentials import Credentials

from sagemaker_queue.errors import QueueError
from sagemaker_queue.integrations.boto.hooks import Hooks, refused
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.queue.config.queue_config import QueueConfig
from sagemaker_queue_startup import EVERYWHERE, Reply, unregister

# maximum number of remembered callers; a process usually has one or two, a server may have a role for each tenant
_MOST = 32
_CREATE = "CreateTrainingJob"


class Callers:
    """The hooks of each caller. Clients with the same credentials in the same process are one caller.

    Calls go to ``queue`` if given, else to the queue of ``config``, else to the queue that ``find_config`` finds.
    Without ``queue``, the queue is called with the caller's credentials. Thread-safe without a lock: a lock that
    another thread holds during a fork would stay locked in the child process.
    """

    def __init__(
        self,
        queue: QueueClient | None = None,
        *,
        config: QueueConfig | None = None,
        preflight: bool = True,
        view: str | None = None,
    ) -> None:
        self._queue = queue
        self._config = config
        self._preflight = preflight
        self._view = view
        self._known: dict[object, Hooks] = {}

    def answer(self, model: Any, params: Mapping[str, Any], context: Mapping[str, Any], credentials: Any) -> Reply:
        """Answer a call, or return None to let the call pass."""
        try:
            hooks = self.hooks(credentials, context["client_region"])
        # No valid queue is configured. Refuse CreateTrainingJob, since no job may bypass the queue.
        except QueueError as error:
            return refused(error) if model.name == _CREATE else None
        return hooks.answer(model, params, context)

    def hooks(self, credentials: Any, region: str | None) -> Hooks:
        """Return the hooks for the clients with these credentials. Raises ConfigError if no queue is configured."""
        frozen = credentials.get_frozen_credentials() if isinstance(credentials, Credentials) else credentials
        # Include the secret: the id of an access key is public, and must not give access to another caller's hooks.
        key = (os.getpid(), frozen and (frozen.access_key, frozen.secret_key, frozen.token))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST:
                self._known = {}
            found = self._known.setdefault(key, self._made_for(credentials, region))
        return found

    def _made_for(self, credentials: Any, region: str | None) -> Hooks:
        session = _session_of(credentials, region)
        queue = self._queue or QueueClient(self._config, boto_session=session)
        return Hooks(session, queue, preflight=self._preflight, leave_other_regions=True, view=self._view)


def _session_of(credentials: Any, region: str | None) -> boto3.Session:
    """Return a session with the given credentials, for the hooks' own calls of AWS.

    Refreshable credentials stay refreshable. Without credentials, the environment's credentials are used. The session's
    region is the environment's region, else ``region``.
    """
    session: Any = botocore.session.Session()
    unregister(session.get_component("event_emitter"), EVERYWHERE)
    if isinstance(credentials, Credentials):
        session._credentials = credentials  # botocore has no public way to share refreshable credentials
    elif credentials:
        session.set_credentials(credentials.access_key, credentials.secret_key, credentials.token)
    if not session.get_config_variable("region"):
        session.set_config_variable("region", region)
    return boto3.Session(botocore_session=session)
