"""The signed calls of docs/reference/http-api.md work as they are printed: with curl, and with botocore."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.conftest import FOREVER, System

PAGE = (Path(__file__).parents[2] / "docs/reference/http-api.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def printed(system: System, *command: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, **system.cloud.environment()}, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.thorough
def test_curl(system: System) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    answer = json.loads(printed(system, "bash", "-c", block("bash")))
    assert answer.keys() == json.loads(block("json")).keys()
    assert answer["owner"].startswith("arn:aws:iam::")


@pytest.mark.thorough
def test_botocore(system: System) -> None:
    system.run("first", FOREVER)
    assert re.fullmatch(r"first running\n", printed(system, sys.executable, "-c", block("python")))


def test_an_unsigned_call_is_refused(system: System) -> None:
    """Otherwise the other tests would prove nothing."""
    unsigned = re.sub(r" +--(aws-sigv4|user|header) .*\n", "", block("bash"))
    with pytest.raises(subprocess.CalledProcessError) as refused:
        printed(system, "bash", "-c", unsigned)
    assert "403" in refused.value.stderr
