"""A launcher that delivers SIGTERM to scripts of the SageMaker SDKs, so that scripts can save their work on a stop.

SageMaker sends SIGTERM only to the first process of a container. With an estimator of the SDK v2 or a ModelTrainer of
the SDK v3, the first process is a shell that does not forward the signal. So the script gets no signal, and is killed
120 seconds later. The launcher replaces the first process and forwards SIGTERM. The request contains the launcher as
the container's entry point, so images need no change.

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

_PROGRAM = Path(__file__).parent / "jobs" / "packaging" / "container" / "sigterm_forwarder.py"
_LONGEST = 256  # characters of one word of an entry point: SageMaker's limit
_SHELL = ("/bin/sh", "-c", 'exec "$(command -v python3 || command -v python)" -c "$0" "$@"')
_UNPACK = (
    'import base64,sys,zlib;exec(zlib.decompress(base64.b64decode("".join(sys.argv[1:sys.argv.index("--")]))).decode())'
)


def entry_point(*command: str) -> list[str]:
    """Return a container's entry point that runs `command`, and forwards SIGTERM to the processes that handle SIGTERM.

    Without `command`, the launcher runs the entry point of SageMaker's own images, which runs an estimator's script.
    """
    packed = base64.b64encode(zlib.compress(_PROGRAM.read_bytes(), 9)).decode()
    pieces = [packed[at : at + _LONGEST] for at in range(0, len(packed), _LONGEST)]
    return [*_SHELL, _UNPACK, *pieces, "--", *command]


def wrap(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the CreateTrainingJob request with the launcher before the request's own entry point.

    A request that already has the launcher is returned unchanged.
    """
    algorithm = request["AlgorithmSpecification"]
    own = algorithm.get("ContainerEntrypoint") or []
    if _UNPACK in own:
        return dict(request)
    return {**request, "AlgorithmSpecification": {**algorithm, "ContainerEntrypoint": entry_point(*own)}}


def use(boto_session: boto3.Session) -> boto3.Session:
    """Add the launcher to every training job that this session's clients create; return the session.

    Call this before the session creates clients: existing clients are not affected.
    """

    def wrapped(params: dict[str, Any], **_: Any) -> None:
        if isinstance(params.get("AlgorithmSpecification"), Mapping):  # otherwise botocore reports the missing member
            params.update(wrap(params))

    # The event provide-client-params does not work here: botocore uses the result of only one handler of that event.
    register: Any = boto_session.events.register
    register("before-parameter-build.sagemaker.CreateTrainingJob", wrapped)
    return boto_session
