"""SIGTERM for scripts that the SageMaker SDKs start, so that they can save their work when their job is stopped.

SageMaker sends SIGTERM to the first process of a container only. With an estimator of the SDK v2 or a ModelTrainer of
the SDK v3 that is a shell which does not pass it on: the script is killed 120 seconds later and never knows. The
launcher is a first process that does. It travels in the request, as the container's entry point; no image has to be
changed.

    PyTorch(..., container_entry_point=launcher.entry_point())                          # SDK v2
    Session(boto_session=launcher.use(sagemaker_queue.boto_session()))                  # SDK v3, boto3
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3

_PROGRAM = Path(__file__).parent / "packaging" / "container" / "first_process.py"
_LONGEST = 256  # characters of one word of an entry point, SageMaker's limit
_SHELL = ("/bin/sh", "-c", 'exec "$(command -v python3 || command -v python)" -c "$0" "$@"')
_UNPACK = (
    'import base64,sys,zlib;exec(zlib.decompress(base64.b64decode("".join(sys.argv[1:sys.argv.index("--")]))).decode())'
)


def entry_point(*command: str) -> list[str]:
    """A container's entry point that runs `command` and passes SIGTERM on to the processes that handle it.

    Without a command it runs what SageMaker's own images begin with, which runs the script of an estimator.
    """
    packed = base64.b64encode(zlib.compress(_PROGRAM.read_bytes(), 9)).decode()
    pieces = [packed[at : at + _LONGEST] for at in range(0, len(packed), _LONGEST)]
    return [*_SHELL, _UNPACK, *pieces, "--", *command]


def wrap(request: Mapping[str, Any]) -> dict[str, Any]:
    """A CreateTrainingJob request whose container begins with the launcher."""
    algorithm = request["AlgorithmSpecification"]
    own = algorithm.get("ContainerEntrypoint") or []
    if _UNPACK in own:
        return dict(request)
    return {**request, "AlgorithmSpecification": {**algorithm, "ContainerEntrypoint": entry_point(*own)}}


def use(boto_session: boto3.Session) -> boto3.Session:
    """Have every training job that this session's clients create begin with the launcher; gives the session.

    Call it before the session makes clients: those that it has made already do not know.
    """

    def wrapped(params: dict[str, Any], **_: Any) -> None:
        if isinstance(params.get("AlgorithmSpecification"), Mapping):  # what a request lacks, botocore will say
            params.update(wrap(params))

    # Not provide-client-params: of all handlers' answers to that, botocore takes one.
    register: Any = boto_session.events.register
    register("before-parameter-build.sagemaker.CreateTrainingJob", wrapped)
    return boto_session
