"""Rules of CreateTrainingJob that its service model states only in prose, or not at all.

Each rule names its source. "Model" is the documentation text inside botocore's SageMaker model. "Guide" is the
SageMaker developer guide. "Seen" is an error that SageMaker is known to have answered. `service_model.py` checks the
constraints of the model itself; here a field of the wrong type counts as absent.
"""

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

from job_queue.domain.errors import ValidationIssue
from job_queue.validation.issue import MOST_ISSUES, field_issue
from job_queue.validation.resources import RESOURCE_RULES
from job_queue.validation.values import Json, integer, mapping, mappings, repeats, text

_DAY = 86_400  # seconds
_MOST_TAGS = 50
_QUEUE_TAGS = 4  # tags that the queue adds to every attempt; a fifth tag follows if there is room
MOST_REQUEST_TAGS = _MOST_TAGS - _QUEUE_TAGS
_PROFILING_INTERVALS = (100, 200, 500, 1000, 5000, 60000)  # milliseconds


def against_sagemaker(request: Mapping[str, Any]) -> list[ValidationIssue]:
    """Return the issues that SageMaker would find in a request that fits the service model; at most `MOST_ISSUES`."""
    return list(islice(chain.from_iterable(rule(request) for rule in _RULES), MOST_ISSUES))


def _algorithm(request: Json) -> Iterator[ValidationIssue]:
    """Require either TrainingImage or AlgorithmName (model: AlgorithmSpecification.AlgorithmName)."""
    if "ServerlessJobConfig" in request:
        return
    algorithm = mapping(request, "AlgorithmSpecification")
    image, name = algorithm.get("TrainingImage"), algorithm.get("AlgorithmName")
    if image and name:
        yield field_issue(
            "AlgorithmSpecification.AlgorithmName", "and TrainingImage exclude each other: keep one of them."
        )
    elif not image and not name:
        what = "is missing: name the container's image, or an algorithm in AlgorithmName."
        yield field_issue("AlgorithmSpecification.TrainingImage", what)


def _spot(request: Json) -> Iterator[ValidationIssue]:
    """Require MaxWaitTimeInSeconds for spot training, and refuse this field otherwise.

    The field limits the wait for spot capacity and the training together.

    Sources: model (MaxWaitTimeInSeconds); seen ("Invalid MaxWaitTimeInSeconds. It is only supported when
    EnableManagedSpotTraining is set to true").
    """
    limits = mapping(request, "StoppingCondition")
    wait, field = integer(limits, "MaxWaitTimeInSeconds"), "StoppingCondition.MaxWaitTimeInSeconds"
    runtime = integer(limits, "MaxRuntimeInSeconds") or _DAY
    if request.get("EnableManagedSpotTraining") is not True:
        if wait is not None:
            yield field_issue(field, "is only for spot training: leave it out, or set EnableManagedSpotTraining.")
    elif wait is None:
        yield field_issue(field, "is missing: spot training needs it, to run and to wait for capacity.")
    elif wait < runtime:
        yield field_issue(field, "is too small: it includes MaxRuntimeInSeconds (86400 where that is left out).")


def _runtime(request: Json) -> Iterator[ValidationIssue]:
    """Limit the runtime to 28 days (model: StoppingCondition.MaxRuntimeInSeconds)."""
    runtime = integer(mapping(request, "StoppingCondition"), "MaxRuntimeInSeconds")
    if runtime is not None and runtime > 28 * _DAY:
        what = f"is too large: SageMaker runs a job for at most {28 * _DAY} seconds, 28 days."
        yield field_issue("StoppingCondition.MaxRuntimeInSeconds", what)


def _channels(request: Json) -> Iterator[ValidationIssue]:
    """Require a unique name and one source for each channel (model: Channel).

    SageMaker puts the data of a channel into /opt/ml/input/data/<name> (guide: training storage paths).
    """
    channels = mappings(request, "InputDataConfig")
    yield from repeats(channels, "InputDataConfig", "ChannelName")
    for index, channel in enumerate(channels):
        field, source = f"InputDataConfig[{index}].DataSource", mapping(channel, "DataSource")
        if len(source) != 1:
            yield field_issue(field, "must name one source: S3DataSource, FileSystemDataSource or DatasetSource.")
        if mapping(source, "S3DataSource").get("S3DataType") == "AugmentedManifestFile":
            yield from _augmented_manifest(request, channel, f"InputDataConfig[{index}].InputMode")


def _augmented_manifest(request: Json, channel: Json, field: str) -> Iterator[ValidationIssue]:
    """Require Pipe mode (model: S3DataSource.S3DataType)."""
    mode = channel.get("InputMode") or mapping(request, "AlgorithmSpecification").get("TrainingInputMode")
    if mode != "Pipe":
        yield field_issue(field, "must be Pipe: an AugmentedManifestFile cannot be read in another mode.")


def _tags(request: Json) -> Iterator[ValidationIssue]:
    """Limit the tags to 50, including the queue's own. Require unique keys (case-sensitive) without `aws:`.

    Sources: model (TagList, Tag.Key); guide, AWS tagging (prefix).
    """
    tags, most = mappings(request, "Tags"), MOST_REQUEST_TAGS
    if len(tags) > most:
        yield field_issue("Tags", f"has {len(tags)} tags; it may have {most}, as the queue adds {_QUEUE_TAGS}.")
    yield from repeats(tags, "Tags", "Key")
    for index, tag in enumerate(tags):
        if text(tag, "Key").lower().startswith("aws:"):
            yield field_issue(f"Tags[{index}].Key", "begins with aws:, which is reserved for AWS; choose another key.")


def _debugger(request: Json) -> Iterator[ValidationIssue]:
    """Require unique rule names, and one of the profiling intervals that SageMaker accepts.

    Source: model (RuleConfigurationName, ProfilingIntervalInMilliseconds).
    """
    for rules in ("DebugRuleConfigurations", "ProfilerRuleConfigurations"):
        yield from repeats(mappings(request, rules), rules, "RuleConfigurationName")
    interval = integer(mapping(request, "ProfilerConfig"), "ProfilingIntervalInMilliseconds")
    if interval is not None and interval not in _PROFILING_INTERVALS:
        few = ", ".join(map(str, _PROFILING_INTERVALS))
        yield field_issue("ProfilerConfig.ProfilingIntervalInMilliseconds", f"must be one of {few}.")


_RULES = (_algorithm, *RESOURCE_RULES, _spot, _runtime, _channels, _tags, _debugger)
