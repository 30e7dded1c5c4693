"""Checkpoint rules: a job's next attempt must find the job's checkpoints at their address in S3, and only these.

SageMaker copies the local folder to CheckpointConfig.S3Uri while a job trains. Before the next attempt starts,
SageMaker copies all objects under that address back into the folder (guide: checkpoints).
"""

import re
from collections.abc import Iterator
from posixpath import normpath

from job_queue.domain.errors import ValidationIssue
from job_queue.validation.issue import field_issue, quoted
from job_queue.validation.values import Json, hyperparameter, mapping, mappings, text

_URI, _LOCAL = "CheckpointConfig.S3Uri", "CheckpointConfig.LocalPath"
_ATTEMPT_NAME = re.compile(r"-qstamp-[0-9]+(?:/|$)")
_OPT_ML = "/opt/ml"
_TAKEN = ("code", "input", "model", "output")  # folders of /opt/ml (guide: training storage folders)


def _local_path(request: Json) -> Iterator[ValidationIssue]:
    """Require a folder for checkpoints only: SageMaker and its toolkit fill or empty the other folders of /opt/ml."""
    path = text(mapping(request, "CheckpointConfig"), "LocalPath")
    if not path:
        return
    if not path.startswith("/"):
        yield field_issue(_LOCAL, f"must begin with /, like {_OPT_ML}/checkpoints.")
        return
    folder = normpath(path).replace("//", "/", 1)
    below = folder.removeprefix(f"{_OPT_ML}/").split("/")[0]
    if f"{_OPT_ML}/".startswith(folder.rstrip("/") + "/"):
        yield field_issue(
            _LOCAL, f"is {quoted(path)}, which holds all of SageMaker's folders: use {_OPT_ML}/checkpoints."
        )
    elif folder.startswith(f"{_OPT_ML}/") and below in _TAKEN:
        what = f"is in {_OPT_ML}/{below}, which SageMaker uses itself: use {_OPT_ML}/checkpoints."
        yield field_issue(_LOCAL, what)


def _attempt(request: Json) -> Iterator[ValidationIssue]:
    """Refuse an address with the name of one attempt, as copied from DescribeTrainingJob: attempts differ in name."""
    if _ATTEMPT_NAME.search(text(mapping(request, "CheckpointConfig"), "S3Uri")):
        what = "holds the name of one attempt (-qstamp-): use the job's name, which is the same for all its attempts."
        yield field_issue(_URI, what)


def _own_folder(request: Json) -> Iterator[ValidationIssue]:
    """Require an address for checkpoints only: each start would copy all other objects there to the instances."""
    uri = text(mapping(request, "CheckpointConfig"), "S3Uri")
    if not uri:
        return
    for field, other in _other_folders(request, _folder(uri)):
        if _folder(other).startswith(_folder(uri)):
            what = f"must be a folder of its own, but {field} is in it: all of that would be copied to the instances."
            yield field_issue(_URI, what)


def _other_folders(request: Json, kept: str) -> Iterator[tuple[str, str]]:
    yield "OutputDataConfig.S3OutputPath", text(mapping(request, "OutputDataConfig"), "S3OutputPath")
    for index, channel in enumerate(mappings(request, "InputDataConfig")):
        source = mapping(mapping(channel, "DataSource"), "S3DataSource")
        yield f"InputDataConfig[{index}].DataSource.S3DataSource.S3Uri", text(source, "S3Uri")
    if kept.endswith(f"/{text(request, 'TrainingJobName')}/"):
        return  # the SDK puts the code of this job into a folder of that name; the code is a small file
    code = hyperparameter(request, "sagemaker_submit_directory")
    yield "HyperParameters.sagemaker_submit_directory", code if isinstance(code, str) else ""


def _folder(address: str) -> str:
    return address.rstrip("/") + "/"


CHECKPOINT_RULES = (_local_path, _attempt, _own_folder)
