"""Task tokens of Step Functions that expire as on AWS, unlike those of ministack.

- A token is closed when its task or its execution has ended: SendTask* is refused with TaskTimedOut. ministack accepts
  heartbeats and results for stopped executions.
- A task fails with States.HeartbeatTimeout if no heartbeat comes for HeartbeatSeconds. ministack ignores the field.
- Each try of a task has a token of its own. ministack reuses the token of the first try.
"""

import contextvars
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ministack.core.responses import error_response_json, new_uuid
from ministack.services import stepfunctions

PAUSE_SECONDS = 0.05  # shortest pause between two checks of an overdue task
Answer = Any  # ministack's response
Json = dict[str, Any]


@dataclass
class _Task:
    """A task that waits, or has waited, for a call with its token."""

    execution: Mapping[str, Any]
    last_heartbeat: float = field(default_factory=time.monotonic)  # monotonic seconds; at first the start of the task
    closed: threading.Event = field(default_factory=threading.Event)

    @property
    def waits(self) -> bool:
        return not self.closed.is_set() and self.execution["status"] == "RUNNING"


_tasks: dict[str, _Task] = {}
# The execution that runs in this thread, and the context object (`$$`) that Step Functions gives its states.
_current: ContextVar[tuple[Json, Json]] = ContextVar("_current")


def install() -> None:
    """Replace the parts of ministack's Step Functions that wait for tokens and receive them."""
    execute, invoke = stepfunctions._execute_task, stepfunctions._invoke_with_callback

    def execute_task(state: Json, given: Any, execution: Json, context: Json) -> Any:
        _current.set((execution, context))
        return execute(state, given, execution, context)

    def invoke_with_callback(resource: str, given: Any, token: str, state: Json) -> Any:
        execution, context = _current.get()
        task = _tasks[token] = _Task(execution)
        if allowed := state.get("HeartbeatSeconds"):
            # A new thread has no context variables. ministack needs two of them, the account and the region, to find a
            # token.
            run = contextvars.copy_context().run
            threading.Thread(target=run, args=(_expect_heartbeats, token, task, allowed), daemon=True).start()
        try:
            return invoke(resource, given, token, state)
        finally:
            task.closed.set()
            context["Task"] = {"Token": new_uuid()}

    stepfunctions._execute_task = execute_task
    stepfunctions._invoke_with_callback = invoke_with_callback
    for name in ("_send_task_success", "_send_task_failure", "_send_task_heartbeat"):
        setattr(stepfunctions, name, _checked(getattr(stepfunctions, name)))


def _checked(handle: Callable[[Json], Answer]) -> Callable[[Json], Answer]:
    """Wrap a handler of SendTask*: refuse a closed token, and count a call with an open token as a heartbeat."""

    def call(request: Json) -> Answer:
        task = _tasks.get(request.get("taskToken", ""))
        if task and not task.waits:
            return error_response_json("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'", 400)
        if task:
            task.last_heartbeat = time.monotonic()
        return handle(request)

    return call


def _expect_heartbeats(token: str, task: _Task, allowed: float) -> None:
    """Let a task fail if it has had no heartbeat for the allowed number of seconds."""
    while not task.closed.wait(max(PAUSE_SECONDS, task.last_heartbeat + allowed - time.monotonic())):
        waiting = stepfunctions._task_tokens.get(token)
        if time.monotonic() - task.last_heartbeat >= allowed and waiting:
            waiting["error"] = {"Error": "States.HeartbeatTimeout", "Cause": f"No heartbeat for {allowed} seconds"}
            waiting["event"].set()
            return
