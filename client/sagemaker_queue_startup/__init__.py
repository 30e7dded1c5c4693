"""What of the queue's client may be there in any program: its hooks on botocore, without what answers.

A ``.pth`` file imports it when Python starts with ``SAGEMAKER_QUEUE_INSTALL=1``. So it needs the standard library
alone, imports botocore nowhere, and loads the client itself, with boto3, at the first call that may concern a training
job. Programs that never make one do not pay for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Optional

VARIABLE = "SAGEMAKER_QUEUE_INSTALL"
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

PARAMETERS = "sagemaker_queue.parameters"  # in the context of a call: what it was given, before it was serialized
_ASKED = "sagemaker_queue.asked"  # in the context of a call: one of our handlers has it
# The names of handlers: those that every session has, and those that somebody gave to certain events.
EVERYWHERE, EVENTS = "everywhere", "events"

Reply = Optional[tuple[Any, Any]]
Answerer = Callable[[Any, Mapping[str, Any], Mapping[str, Any], Any], Reply]
"""Takes the operation's model, the request, the call's context and the credentials that would sign. Gives what botocore
wants instead of a response, or None to let the call pass."""


class Responder:
    """A handler of ``before-call`` events, of botocore or aiobotocore."""

    def __init__(self, answer: Answerer) -> None:
        self._answer = answer

    def __call__(
        self, model: Any, params: Mapping[str, Any], context: dict[str, Any], request_signer: Any, **_: Any
    ) -> Any:
        """Answer the call, or return None to let it pass; for aiobotocore, return what will do so when awaited."""
        if PARAMETERS not in context or _ASKED in context or _is_unsigned(request_signer):
            return None
        from inspect import iscoroutinefunction  # noqa: PLC0415  # takes a third of the time of a start of Python

        context[_ASKED] = True
        credentials = getattr(request_signer, "_credentials", None)  # of the client, whatever its session has
        if iscoroutinefunction(request_signer.sign):
            return self._answer_in_a_thread(model, params, context, credentials)
        return self._answer(model, params, context, credentials)

    async def _answer_in_a_thread(self, model: Any, params: Any, context: Any, credentials: Any) -> Reply:
        """Ask the queue where nobody waits: the event loop goes on meanwhile."""
        import asyncio  # noqa: PLC0415  # who has an event loop, has it loaded

        frozen = await credentials.get_frozen_credentials() if credentials else None
        return await asyncio.to_thread(self._answer, model, params, context, frozen)


def _is_unsigned(request_signer: Any) -> bool:
    """Tell whether a client signs nothing: nobody can be asked for in its name, and SageMaker refuses it."""
    botocore = sys.modules.get("botocore")  # is there if a client calls
    return botocore is not None and getattr(request_signer, "_signature_version", None) is botocore.UNSIGNED


def register(emitter: Any, name: str, respond: Responder) -> None:
    """Let a responder answer for the clients that have these events. Under the same name, it is done once."""
    for service, operations in OPERATIONS.items():
        for operation in operations:
            of = f"{service}.{operation}"
            emitter.register_last(f"provide-client-params.{of}", _remember, unique_id=f"sagemaker-queue-{name}-p-{of}")
            emitter.register_last(f"before-call.{of}", respond, unique_id=f"sagemaker-queue-{name}-{of}")


def unregister(emitter: Any, name: str) -> None:
    """Undo it."""
    for service, operations in OPERATIONS.items():
        for operation in operations:
            of = f"{service}.{operation}"
            emitter.unregister(f"provide-client-params.{of}", unique_id=f"sagemaker-queue-{name}-p-{of}")
            emitter.unregister(f"before-call.{of}", unique_id=f"sagemaker-queue-{name}-{of}")


def leave_alone(emitter: Any) -> None:
    """Let all calls of a client pass, whoever hooks its events now or later: it is one by which the hooks ask AWS."""
    # This comes before the event that is answered, whatever is registered for that.
    emitter.register_first("provide-client-params", _pass, unique_id="sagemaker-queue-pass")


def _pass(context: dict[str, Any], **_: Any) -> None:
    context[_ASKED] = True


def _remember(params: Mapping[str, Any], context: dict[str, Any], **_: Any) -> None:
    context[PARAMETERS] = params


def _answer_everywhere(model: Any, params: Mapping[str, Any], context: Mapping[str, Any], credentials: Any) -> Reply:
    from sagemaker_queue.integrations.boto.sessions import answer_everywhere  # noqa: PLC0415  # boto3

    return answer_everywhere(model, params, context, credentials)


def _answer_for_events(model: Any, params: Mapping[str, Any], context: Mapping[str, Any], credentials: Any) -> Reply:
    from sagemaker_queue.integrations.boto.sessions import answer_for_events  # noqa: PLC0415  # boto3

    return answer_for_events(model, params, context, credentials)


_respond_everywhere = Responder(_answer_everywhere)
_respond_for_events = Responder(_answer_for_events)


def hook_lazily(emitter: Any) -> None:
    """Do as ``sagemaker_queue.hook(emitter)`` does, without a look at the configuration before a call needs it."""
    unregister(emitter, EVERYWHERE)  # would come first otherwise
    register(emitter, EVENTS, _respond_for_events)


def hook_everywhere(emitter: Any) -> None:
    """Let the queue answer for the clients that have these events, as ``install(everywhere=True)`` has said."""
    register(emitter, EVERYWHERE, _respond_everywhere)


def hook_session(session: Any) -> None:
    """Do so for a botocore session, which calls this when it is made."""
    hook_everywhere(session.get_component("event_emitter"))


def begin() -> None:
    """Have every botocore session of this process hooked, if the environment wants it: for the ``.pth`` file."""
    from os import environ  # noqa: PLC0415

    if environ.get(VARIABLE, "").strip().lower() in _OFF:
        return
    botocore = sys.modules.get("botocore")
    if botocore is not None:  # another .pth file has loaded it, and may have made clients
        from sagemaker_queue.integrations.boto.sessions import hook_what_is_there  # noqa: PLC0415  # boto3

        hook_new_sessions(botocore)
        hook_what_is_there()
    elif not any(isinstance(finder, _BotocoreFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BotocoreFinder())


def hook_new_sessions(botocore: Any) -> None:
    """Have botocore hook each session that is made from now on, also those of aiobotocore."""
    global _hooking  # noqa: PLW0603
    if not _hooking:
        _hooking = True
        botocore.register_initializer(hook_session)


def leave_new_sessions(botocore: Any) -> None:
    """Undo it."""
    global _hooking  # noqa: PLW0603
    if _hooking:
        _hooking = False
        botocore.unregister_initializer(hook_session)


def is_hooking() -> bool:
    """Tell whether every new session is hooked."""
    return _hooking


_hooking = False


class _BotocoreFinder:
    """Notices the first import of botocore, whoever provides it: the AWS CLI brings its own."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find botocore as it would be found without this, and have its loader tell."""
        if name != "botocore" or self not in sys.meta_path:
            return None
        from importlib.util import find_spec  # noqa: PLC0415

        sys.meta_path.remove(self)  # it is not asked again, by find_spec neither
        spec: Any = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _TellingLoader(spec.loader)
        return spec


class _TellingLoader:
    """Loads botocore as its own loader does, which it leaves in its place, and hooks the sessions to come."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: Any) -> Any:
        """Make the module as ever."""
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        """Execute the module as ever."""
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        hook_new_sessions(module)
