"""Hooks on botocore, loaded when a Python program starts; the client that answers the hooked calls is loaded later.

A ``.pth`` file imports this module when Python starts with ``SAGEMAKER_QUEUE_INSTALL=1``. So the module needs only the
standard library and does not import botocore. The client, with boto3, is imported at the first call that may concern a
training job, so that other programs do not start more slowly.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable, Mapping
from typing import Any, Optional

VARIABLE = "SAGEMAKER_QUEUE_INSTALL"
"""Queue the training jobs of any Python program: `1` turns this on; `0` and `off` turn it off. Default: off."""
_OFF = frozenset({"", "0", "false", "no", "off"})

OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "sagemaker": (
        "CreateTrainingJob",
        "DescribeTrainingJob",
        "ListTrainingJobs",
        "Search",
        "StopTrainingJob",
        "UpdateTrainingJob",
        "DeleteTrainingJob",
        "ListTags",
        "AddTags",
        "DeleteTags",
        "CreateModel",
        "CreateModelPackage",
        "CreateProcessingJob",
        "CreateTransformJob",
        "CreateHyperParameterTuningJob",
        "CreatePipeline",
        "StartPipelineExecution",
        "CreateAutoMLJob",
        "CreateAutoMLJobV2",
    ),
    "cloudwatch-logs": ("DescribeLogStreams", "GetLogEvents", "FilterLogEvents", "StartQuery"),
    "cloudwatch": ("GetMetricStatistics", "GetMetricData"),
    "batch": ("SubmitServiceJob",),
}
"""The calls that may concern a training job, by service, as botocore's events name them."""

PARAMETERS = "sagemaker_queue.parameters"  # key in the context of a call: its parameters before serialization
_ASKED = "sagemaker_queue.asked"  # key in the context of a call: no further handler of the queue answers the call
# The names of handlers: EVERYWHERE for handlers of every session, EVENTS for handlers of a certain emitter.
EVERYWHERE, EVENTS = "everywhere", "events"
ANSWERS = "sagemaker_queue.integrations.boto.sessions"
"""The client's module that answers calls."""

Reply = Optional[tuple[Any, Any]]
Answerer = Callable[[Any, Mapping[str, Any], Mapping[str, Any], Any], Reply]
"""A function of the operation's model, the request, the call's context and the signing credentials. The function
returns the response in botocore's form, or None to let the call pass."""


class Responder:
    """A handler of ``before-call`` events, of botocore or aiobotocore."""

    def __init__(self, answer: Answerer) -> None:
        self._answer = answer

    def __call__(
        self, model: Any, params: Mapping[str, Any], context: dict[str, Any], request_signer: Any, **_: Any
    ) -> Any:
        """Return the answer to the call, or None to let the call pass; for aiobotocore, an awaitable of the answer."""
        if PARAMETERS not in context or _ASKED in context or _is_unsigned(request_signer):
            return None
        from inspect import iscoroutinefunction  # noqa: PLC0415  # takes a third of Python's start time

        context[_ASKED] = True
        credentials = getattr(request_signer, "_credentials", None)  # the client's, not the session's
        if iscoroutinefunction(request_signer.sign):
            return self._answer_in_a_thread(model, params, context, credentials)
        return self._answer(model, params, context, credentials)

    async def _answer_in_a_thread(self, model: Any, params: Any, context: Any, credentials: Any) -> Reply:
        """Ask the queue in a thread, so that the event loop is not blocked."""
        import asyncio  # noqa: PLC0415  # already loaded in a program with an event loop

        frozen = await credentials.get_frozen_credentials() if credentials else None
        return await asyncio.to_thread(self._answer, model, params, context, frozen)


def _is_unsigned(request_signer: Any) -> bool:
    """Return whether a client does not sign. The queue gets no identity then, and SageMaker refuses such calls."""
    botocore = sys.modules.get("botocore")  # loaded, because a client calls
    return botocore is not None and getattr(request_signer, "_signature_version", None) is botocore.UNSIGNED


def register(emitter: Any, name: str, respond: Responder) -> None:
    """Add a responder to the clients with this emitter; a second call with the same name has no effect."""
    for service, operations in OPERATIONS.items():
        for operation in operations:
            of = f"{service}.{operation}"
            emitter.register_last(f"provide-client-params.{of}", _remember, unique_id=f"sagemaker-queue-{name}-p-{of}")
            emitter.register_last(f"before-call.{of}", respond, unique_id=f"sagemaker-queue-{name}-{of}")


def unregister(emitter: Any, name: str) -> None:
    """Remove the responder of that name."""
    for service, operations in OPERATIONS.items():
        for operation in operations:
            of = f"{service}.{operation}"
            emitter.unregister(f"provide-client-params.{of}", unique_id=f"sagemaker-queue-{name}-p-{of}")
            emitter.unregister(f"before-call.{of}", unique_id=f"sagemaker-queue-{name}-{of}")


def pass_all_calls(emitter: Any) -> None:
    """Exempt a client from the hooks: all its calls go to AWS. The hooks need such clients for their own calls."""
    # The event provide-client-params comes before the event before-call, which the hooks answer.
    emitter.register_first("provide-client-params", _pass, unique_id="sagemaker-queue-pass")


def _pass(context: dict[str, Any], **_: Any) -> None:
    context[_ASKED] = True


def _remember(params: Mapping[str, Any], context: dict[str, Any], **_: Any) -> None:
    context[PARAMETERS] = params


def _client() -> Any:
    """Import and return the client's module ANSWERS, which imports boto3 and ``sagemaker_queue_startup``."""
    from importlib import import_module  # noqa: PLC0415

    return import_module(ANSWERS)


def _answer_everywhere(model: Any, params: Mapping[str, Any], context: Mapping[str, Any], credentials: Any) -> Reply:
    reply: Reply = _client().answer_everywhere(model, params, context, credentials)
    return reply


def _answer_for_events(model: Any, params: Mapping[str, Any], context: Mapping[str, Any], credentials: Any) -> Reply:
    reply: Reply = _client().answer_for_events(model, params, context, credentials)
    return reply


_respond_everywhere = Responder(_answer_everywhere)
_respond_for_events = Responder(_answer_for_events)


def hook_lazily(emitter: Any) -> None:
    """Add hooks to an emitter as ``sagemaker_queue.hook`` does, but read the configuration only at the first call."""
    unregister(emitter, EVERYWHERE)  # otherwise the handler of all sessions would be called first
    register(emitter, EVENTS, _respond_for_events)


def hook_everywhere(emitter: Any) -> None:
    """Let the queue answer for the clients with this emitter, with the settings of ``install(everywhere=True)``."""
    register(emitter, EVERYWHERE, _respond_everywhere)


def hook_session(session: Any) -> None:
    """Add the hooks to a botocore session; botocore calls this function for each new session."""
    hook_everywhere(session.get_component("event_emitter"))


def begin() -> None:
    """Add the hooks to every botocore session of this process if VARIABLE is on; called by the ``.pth`` file."""
    from os import environ  # noqa: PLC0415

    if environ.get(VARIABLE, "").strip().lower() in _OFF:
        return
    botocore = sys.modules.get("botocore")
    if botocore is not None:  # another .pth file has imported botocore, and may have created clients
        hook_new_sessions(botocore)
        _client().hook_existing_emitters()
    elif not any(isinstance(finder, _BotocoreFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BotocoreFinder())


def hook_new_sessions(botocore: Any) -> None:
    """Make botocore hook each session that is created later, including sessions of aiobotocore."""
    global _hooking  # noqa: PLW0603
    if not _hooking:
        _hooking = True
        botocore.register_initializer(hook_session)


def unhook_new_sessions(botocore: Any) -> None:
    """Undo ``hook_new_sessions``; existing sessions stay hooked."""
    global _hooking  # noqa: PLW0603
    if _hooking:
        _hooking = False
        botocore.unregister_initializer(hook_session)


def is_hooking() -> bool:
    """Return whether every new session is hooked."""
    return _hooking


_hooking = False


class _BotocoreFinder:
    """A finder that hooks botocore at its first import, from any path: the AWS CLI has a copy of its own.

    The finder stays in ``sys.meta_path`` until botocore is imported, because programs also ask for specs without an
    import.
    """

    def __init__(self) -> None:
        self._asking: set[int] = set()  # threads that ask the other finders now

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec that botocore has without this finder, with a loader that adds the hooks."""
        if name != "botocore" or get_ident() in self._asking:  # other finders ask all finders, too
            return None
        self._asking.add(get_ident())
        try:
            return self._spec(name, path, target)
        finally:
            self._asking.discard(get_ident())

    def _spec(self, name: str, path: Any, target: Any) -> Any:
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec: Any = next((found for found in specs if found is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _HookingLoader(spec.loader, self)
        return spec


class _HookingLoader:
    """A loader that imports botocore by its usual loader, restores that loader, and hooks new sessions."""

    def __init__(self, loader: Any, finder: Any) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: Any) -> Any:
        """Create the module by the usual loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        """Execute the module by the usual loader, then hook new sessions and remove the finder."""
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        hook_new_sessions(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
