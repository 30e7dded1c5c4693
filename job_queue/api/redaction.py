"""Replace the values of a request that only the job's owner and admins may see.

Users put keys and passwords into the environment, the hyperparameters and the command of a container. So these values
are replaced. The names of variables and hyperparameters stay, because other users need them to recognise a job.

The message of a failed program also repeats its whole command and its last output. `domain.access.program_output`
replaces this message.
"""

from collections.abc import Mapping
from typing import Any

from job_queue.domain.access.program_output import REDACTED

# Paths to values that the program receives. "*" means each element of a list.
_PRIVATE = (
    ("Environment",),
    ("HyperParameters",),
    ("AlgorithmSpecification", "ContainerEntrypoint"),
    ("AlgorithmSpecification", "ContainerArguments"),
    ("DebugHookConfig", "HookParameters"),
    ("DebugHookConfig", "CollectionConfigurations", "*", "CollectionParameters"),
    ("DebugRuleConfigurations", "*", "RuleParameters"),
    ("ProfilerConfig", "ProfilingParameters"),
    ("ProfilerRuleConfigurations", "*", "RuleParameters"),
)


def redacted(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a CreateTrainingJob request in which values that may be secret are replaced."""
    shown: Any = dict(request)
    for path in _PRIVATE:
        shown = _without(shown, path)
    return dict(shown)


def _without(value: Any, path: tuple[str, ...]) -> Any:
    if not path:
        return _hidden(value)
    name, *rest = path
    if name == "*":
        return [_without(element, tuple(rest)) for element in value] if isinstance(value, list) else _hidden(value)
    if not isinstance(value, Mapping) or name not in value:
        return value
    return {**value, name: _without(value[name], tuple(rest))}


def _hidden(value: Any) -> Any:
    """Return a value of the same shape, in which names stay and all other values are replaced."""
    if isinstance(value, Mapping):
        return {name: _hidden(below) for name, below in value.items()}
    if isinstance(value, list):
        return [_hidden(below) for below in value]
    return REDACTED
