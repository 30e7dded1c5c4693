"""The agent in every Python that an image may have, as far as this machine has it."""

import os
import subprocess
from pathlib import Path
from shutil import which

import boto3
import pytest

from tests.carrier_agent.carrier import BUCKET, Carrier
from tests.carrier_agent.conftest import KEYS


@pytest.mark.parametrize("minor", range(8, 15))
def test_the_agent_runs_in_it(s3_url: str, tmp_path: Path, minor: int) -> None:
    python = interpreter(f"3.{minor}")
    if python is None:
        pytest.skip(f"this machine has no Python 3.{minor}")
    carrier = Carrier(boto3.client("s3", endpoint_url=s3_url, **KEYS), s3_url, tmp_path, python)
    try:
        carrier.start()
        request = {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/{carrier.prefix}/saved"}}
        carrier.assign("one-qstamp-1", 'echo 1 > "$SM_CHECKPOINT_DIR/step"', request=request)
        carrier.assign("two-qstamp-1", "echo up; while :; do sleep 0.05; done", gpus=(1,), tenths=5)
        assert carrier.end_of("one-qstamp-1")["status"] == "Completed"
        carrier.until_says("two-qstamp-1", "up")
        assert carrier.terminate() == 0
        assert carrier.end_of("two-qstamp-1")["status"] == "Stopped"
        assert carrier.get("saved/step") == b"1\n"
    finally:
        carrier.close()


def interpreter(version: str) -> str | None:
    """One that runs, of pyenv's, or of those on PATH."""
    versions = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found = [str(path) for path in versions.glob(f"{version}.*/bin/python")] + [which(f"python{version}") or ""]
    for python in filter(None, found):
        answer = subprocess.run([python, "-c", "print('here')"], capture_output=True, text=True, check=False)
        if answer.stdout == "here\n":
            return python
    return None
