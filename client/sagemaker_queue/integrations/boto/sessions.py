"""Send the training jobs of a session, of a client's events or of the whole process through the queue.

The first handler of a client answers the call. The handlers of a session (``boto_session``, ``install``) or of events
(``hook``) come before the handlers of all sessions (``install(everywhere=True)``).
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import boto3
import botocore
from botocore.hooks import HierarchicalEmitter

import sagemaker_queue_startup as startup
from sagemaker_queue.errors import ConfigError
from sagemaker_queue.integrations.boto import outputs
from sagemaker_queue.integrations.boto.callers import Callers
from sagemaker_queue.integrations.boto.hooks import Hooks, view_of
from sagemaker_queue.integrations.boto.lookup import JobLookup
from sagemaker_queue.integrations.sdk_v3 import follow_waits, leave_waits
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.queue.config.queue_config import find_config
from sagemaker_queue_startup import EVENTS, EVERYWHERE, Answerer, Reply, Responder

_HOOKS = "_sagemaker_queue_hooks"  # the attribute of a boto3 session with its hooks
_SESSION = "session"  # the name of the handlers of one session


class _Everywhere:
    """The state of ``install`` and of SAGEMAKER_QUEUE_INSTALL in this process. ``uninstall`` resets this state."""

    callers = Callers()
    default: boto3.Session | None = None  # the session that install() hooked
    lock = threading.Lock()


def boto_session(
    session: boto3.Session | None = None,
    *,
    queue: QueueClient | None = None,
    preflight: bool = True,
    hooks: str | None = None,
) -> boto3.Session:
    """Return a boto3 session that sends its training jobs to the queue, for libraries that take a boto3 session.

    The session is ``session`` (default: a new one). Clients that the session creates after this call use ``queue``
    (default: the queue that ``find_config`` finds, with the session's credentials). With ``preflight``, a job that is
    certain to fail is refused at once.

    ``hooks`` selects the view of the calls that describe or list training jobs. The view ``"jobs"`` shows the queue's
    jobs under their own names. The view ``"attempts"`` shows SageMaker's training jobs; calls that create or stop a job
    still go to the queue. Default: the environment variable ``SAGEMAKER_QUEUE_HOOKS``, else ``"jobs"``.
    Raises ConfigError if no queue is configured.
    """
    _check_queue(queue)
    session = session or _new_session()
    view = None if hooks is None else view_of(hooks)
    session_hooks = hooks_of(session, queue)
    session_hooks.preflight = preflight
    session_hooks.view = view or session_hooks.view
    return session


def install(
    *, everywhere: bool = False, queue: QueueClient | None = None, preflight: bool = True, hooks: str | None = None
) -> boto3.Session:
    """Send the training jobs of boto3's default session through the queue, and return that session.

    ``boto3.client`` uses the default session. The SageMaker SDKs use the default session unless the program passes
    another session. Without ``everywhere``, call this function before any client is created. ``queue``, ``preflight``
    and ``hooks`` are as for ``boto_session``.

    With ``everywhere``, the training jobs of every session of this process go through the queue. This includes present
    and future sessions and clients of botocore, boto3, aiobotocore and aioboto3. Without ``queue``, the queue is called
    with each client's own credentials. A job in another region than the queue's goes to SageMaker, with a warning.
    ``uninstall`` undoes the effect of this function.
    """
    _check_queue(queue)
    if boto3.DEFAULT_SESSION is None:
        boto3.setup_default_session()
    session = boto3.DEFAULT_SESSION
    assert session is not None
    if not everywhere:
        _Everywhere.default = session
        return boto_session(session, queue=queue, preflight=preflight, hooks=hooks)
    config = None if queue else find_config()
    callers = Callers(queue, config=config, preflight=preflight, view=view_of(hooks))
    with _Everywhere.lock:
        _Everywhere.callers = callers
        startup.hook_new_sessions(botocore)  # first, so that a session created meanwhile is not missed
        hook_existing_emitters()
    return session


def hook_existing_emitters() -> None:
    """Let the queue answer calls of the sessions and clients that exist in this process."""
    for emitter in _live_emitters():
        _change_atomically(emitter, startup.hook_everywhere)


def uninstall() -> None:
    """Undo ``install``, or the effect of ``SAGEMAKER_QUEUE_INSTALL``, in this process.

    Sessions of ``boto_session`` and events that were passed to ``hook`` stay hooked.
    """
    with _Everywhere.lock:
        startup.unhook_new_sessions(botocore)  # handlers that the loop below does not find then let calls pass
        _Everywhere.callers = Callers()
        for emitter in _live_emitters():
            _change_atomically(emitter, lambda found: startup.unregister(found, EVERYWHERE))
        session, _Everywhere.default = _Everywhere.default, None
        found = _hooks_on(session)
        if session is not None and found is not None:
            found.active = False  # existing clients keep their handlers, which now let all calls pass
            startup.unregister(session.events, _SESSION)
            delattr(session, _HOOKS)
    leave_waits()


def hook(emitter: Any, *, queue: QueueClient | None = None, preflight: bool = True, hooks: str | None = None) -> None:
    """Send the training jobs of the clients with these events through the queue.

    ``emitter`` is the event emitter of botocore, aiobotocore or the AWS CLI: ``client.meta.events``,
    ``session.events`` of boto3 and aioboto3, ``session.get_component("event_emitter")`` of botocore and aiobotocore.
    A session's emitter affects clients that are created after this call.

    Without ``queue``, the queue is called with each client's own credentials. With aiobotocore, the queue is called in
    a thread, so that the event loop is not blocked. ``queue``, ``preflight`` and ``hooks`` are as for ``boto_session``.
    A second call replaces the queue.
    """
    _check_queue(queue)
    if not hasattr(emitter, "register_last"):
        raise TypeError(f"hook() takes events, such as client.meta.events or session.events, not {emitter!r}")
    config = None if queue else find_config()
    callers = Callers(queue, config=config, preflight=preflight, view=view_of(hooks))
    startup.unregister(emitter, EVERYWHERE)  # otherwise the handler of all sessions would answer first
    startup.unregister(emitter, EVENTS)
    startup.register(emitter, EVENTS, Responder(_following(callers.answer)))


def _check_queue(queue: object) -> None:
    if queue is not None and not hasattr(queue, "submit"):
        raise TypeError(f"queue must be a QueueClient, such as QueueClient(url=...), not {queue!r}")


def output_address(address: str, *, queue: QueueClient | None = None) -> str:
    """Correct the S3 address of an output that an SDK has computed from a job's name: use the last attempt's folder.

    SageMaker writes outputs below the names of attempts. So ``latest_job_debugger_artifacts_path()`` of the SDK v2 and
    ``output_data`` of the v3 name empty folders. Other addresses are returned unchanged. ``queue`` is as for
    ``boto_session``. Raises QueueError.
    """
    jobs = JobLookup(queue or QueueClient())
    return outputs.true_address(jobs.find_recent, address, jobs.buckets_of)


def hooks_of(session: boto3.Session, queue: QueueClient | None = None) -> Hooks:
    """Return a session's hooks; create and register hooks if there are none. ``queue`` replaces the hooks' queue."""
    found = _hooks_on(session)
    if found is None:
        found = Hooks(session, queue or QueueClient(boto_session=session))
        register(found, session.events)
        setattr(session, _HOOKS, found)
    elif queue is not None:
        found.jobs = JobLookup(queue)
    return found


def _hooks_on(session: object) -> Hooks | None:
    """Return the hooks of a session, or None. A mock has every attribute, so the type is checked."""
    found = getattr(session, _HOOKS, None)
    return found if isinstance(found, Hooks) else None


def register(session_hooks: Hooks, events: Any) -> None:
    """Let a session's hooks answer calls of the clients with these events. A second call changes nothing."""

    def answer(model: Any, params: Mapping[str, Any], context: Mapping[str, Any], _: Any) -> Reply:
        return session_hooks.answer(model, params, context)

    startup.unregister(events, EVERYWHERE)  # otherwise the handler of all sessions would answer first
    startup.register(events, _SESSION, Responder(_following(answer)))


def answer_everywhere(model: Any, params: Mapping[str, Any], context: Mapping[str, Any], credentials: Any) -> Reply:
    """Answer a call of any client of the process, or return None to let the call pass."""
    if not startup.is_hooking():
        return None
    return _following(_Everywhere.callers.answer)(model, params, context, credentials)


def answer_for_events(model: Any, params: Mapping[str, Any], context: Mapping[str, Any], credentials: Any) -> Reply:
    """Answer a call of a client with events that an integration hooked, or return None to let the call pass."""
    return _following(_INTEGRATIONS.answer)(model, params, context, credentials)


_INTEGRATIONS = Callers()


def _following(answer: Answerer) -> Answerer:
    """Wrap ``answer`` to first patch the SageMaker SDK v3, which the program may have imported since the last call."""

    def followed(*call: Any) -> Reply:
        follow_waits(_jobs_of)
        return answer(*call)

    return followed


def _jobs_of(session: boto3.Session | None) -> tuple[boto3.Session, JobLookup] | None:
    session = session or boto3.DEFAULT_SESSION
    if session is None:
        return None
    found = _hooks_on(session)
    if found is None and startup.is_hooking():
        try:
            found = _Everywhere.callers.hooks(session.get_credentials(), session.region_name)
        except ConfigError:
            return None
    return (session, found.jobs) if found else None


def _after_fork() -> None:
    _Everywhere.lock = threading.Lock()  # a thread of the parent, which does not exist here, may have held the lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _live_emitters() -> Iterator[HierarchicalEmitter]:
    """Yield the event emitters of all sessions and clients. A client has a copy of its session's emitter.

    Every emitter is yielded twice, since an unhooked copy may be created during the first round. Objects that
    ``gc.freeze`` has hidden are not found.
    """
    for _ in range(2):
        for found in gc.get_objects():
            if issubclass(type(found), HierarchicalEmitter):  # isinstance would call __class__ of proxy objects
                yield found


def _change_atomically(emitter: HierarchicalEmitter, change: Callable[[HierarchicalEmitter], None]) -> None:
    """Change an emitter that other threads may be using: botocore's emitters have no lock.

    The change starts while no other thread copies or changes an emitter. Python switches threads only after the switch
    interval, which is raised to longer than the change takes. So no other thread runs during the change.
    """
    interval = sys.getswitchinterval()
    for _ in range(_MOST_TRIES):
        sys.setswitchinterval(_LONGER_THAN_A_CHANGE_SECONDS)
        try:
            if not _others_change_emitters():
                change(emitter)
                emitter.register(_NO_EVENT, _nothing, unique_id=_NO_EVENT)  # clears the emitter's cache of handlers
                emitter.unregister(_NO_EVENT, unique_id=_NO_EVENT)
                return
        finally:
            sys.setswitchinterval(interval)
        time.sleep(_PAUSE_SECONDS)
    change(emitter)  # another thread has used emitters for seconds, so waiting longer is useless


def _others_change_emitters() -> bool:
    """Return whether another thread is in a method of a botocore emitter, except in a method that emits events."""
    own = threading.get_ident()
    frames = [frame for thread, frame in sys._current_frames().items() if thread != own]
    for frame in frames:
        found: FrameType | None = frame
        while found is not None:
            if found.f_code.co_filename == _EVENTS_FILE and found.f_code.co_name not in _EMITTING:
                return True
            found = found.f_back
    return False


_EVENTS_FILE = HierarchicalEmitter.__init__.__code__.co_filename
# These functions run handlers for as long as an AWS call takes, so the change does not wait for their end.
_EMITTING = frozenset({"emit", "emit_until_response", "_emit"})
_LONGER_THAN_A_CHANGE_SECONDS = 1.0
_PAUSE_SECONDS, _MOST_TRIES = 0.001, 3000
_NO_EVENT = "sagemaker-queue-nothing"


def _nothing(**_: Any) -> None: ...


def _new_session() -> boto3.Session:
    """Return a new session with the settings of boto3's default session. The default session itself stays unhooked."""
    default = boto3.DEFAULT_SESSION
    if default is None:
        return boto3.Session()
    credentials = default.get_credentials()
    given = credentials.get_frozen_credentials() if credentials and credentials.method == "explicit" else None
    return boto3.Session(
        aws_access_key_id=given.access_key if given else None,
        aws_secret_access_key=given.secret_key if given else None,
        aws_session_token=given.token if given else None,
        region_name=default.region_name,
        profile_name=None if default.profile_name == "default" else default.profile_name,
    )
