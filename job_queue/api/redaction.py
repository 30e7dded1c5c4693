"""What of a job only its owner and admins are shown.

People put keys and passwords where a container finds them: into its environment, its hyperparameters, the words of its
command. Names stay, as others have to see what a job is; values do not. Nor does what a program said when it failed:
SageMaker repeats the command there, with all its words, and whatever the program has written last.
"""

from collections.abc import Mapping
from typing import Any

from job_queue.domain.access.program_output import REDACTED

# Paths to what programs are told; "*" stands for each element of a list.
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
    """A CreateTrainingJob request without the values that may be secret."""
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
    """The same shape, with the names of members."""
    if isinstance(value, Mapping):
        return {name: _hidden(below) for name, below in value.items()}
    if isinstance(value, list):
        return [_hidden(below) for below in value]
    return REDACTED
