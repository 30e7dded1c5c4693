"""``SAGEMAKER_QUEUE_INSTALL``: what a Python does when it starts, where the package is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.client.conftest import NOBODY
from tests.client.integrations.boto.hooked_clients import OWNER, REQUEST
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

LOADED = """
import sys
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"boto3", "botocore", "sagemaker_queue",
    "sagemaker_queue_startup", "inspect", "asyncio"}))
"""


def python(script: str, **settings: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "AWS_ENDPOINT_URL_STS": NOBODY, **settings},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_environment_has_the_file() -> None:
    """One line that asks for the variable first: it is run by each Python of the environment that starts."""
    file = Path(sysconfig.get_path("purelib"), "sagemaker_queue_startup.pth")
    (line,) = file.read_text().splitlines()
    assert line.startswith('import os; os.environ.get("SAGEMAKER_QUEUE_INSTALL") and ')


def test_without_the_variable_nothing_is_imported() -> None:
    assert python(LOADED) == "\n"


@pytest.mark.parametrize("off", ["0", "false", "No", " "])
def test_it_can_be_switched_off(off: str) -> None:
    hooked = "import botocore, botocore.session; print(botocore._INITIALIZERS)"
    assert python(hooked, SAGEMAKER_QUEUE_INSTALL=off) == "[]\n"


def test_with_it_neither_boto_nor_the_client_is_loaded_before_somebody_needs_it() -> None:
    assert python(LOADED, SAGEMAKER_QUEUE_INSTALL="1") == "sagemaker_queue_startup\n"
    s3 = "import boto3; boto3.Session(region_name='eu-west-1').client('s3')" + LOADED
    assert "sagemaker_queue " not in python(s3, SAGEMAKER_QUEUE_INSTALL="1")


def test_a_program_that_knows_nothing_of_it(server: ScriptedServer) -> None:
    server.always_answers(202, {"job": "job1", "state": "pending", "owner": OWNER})
    script = f"""
import importlib.resources, subprocess, sys
import botocore
assert importlib.resources.files("botocore").joinpath("cacert.pem").is_file()  # its loader is its own
job = "import boto3; print(boto3.Session().client('sagemaker').create_training_job(**{REQUEST!r})['TrainingJobArn'])"
exec(job)
subprocess.run([sys.executable, "-c", job], check=True)
import sagemaker_queue
sagemaker_queue.uninstall()
assert not botocore._INITIALIZERS
"""
    settings = {"SAGEMAKER_QUEUE_INSTALL": "1", "SAGEMAKER_QUEUE_URL": server.url}
    arn = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/job1"
    assert python(script, **settings).split() == [arn, arn]
    assert len(server.received) == 2


def test_a_check_whether_botocore_is_installed_leaves_the_hooks() -> None:
    script = """
import importlib.util, sys
finders = [type(finder).__name__ for finder in sys.meta_path]
for _ in range(2):
    assert importlib.util.find_spec("botocore") is not None
import botocore, sagemaker_queue_startup
print(sagemaker_queue_startup.is_hooking(), len(botocore._INITIALIZERS))
print(len(finders) - len(sys.meta_path), botocore.__spec__.loader is botocore.__loader__)
"""
    assert python(script, SAGEMAKER_QUEUE_INSTALL="1") == "True 1\n1 True\n"


@pytest.mark.parametrize("place", ["0", "len(sys.meta_path)"])
def test_another_finder_may_ask_all_finders(place: str) -> None:
    script = f"""
import sys, sagemaker_queue_startup
class Other:
    def find_spec(self, name, path=None, target=None):
        others = [it for it in sys.meta_path if it is not self and hasattr(it, "find_spec")]
        return next((spec for it in others if (spec := it.find_spec(name, path, target)) is not None), None)
sys.meta_path.insert({place}, Other())
import botocore
print(sagemaker_queue_startup.is_hooking())
"""
    assert python(script, SAGEMAKER_QUEUE_INSTALL="1") == "True\n"


def test_clients_that_were_there_before_it_began(server: ScriptedServer) -> None:
    """Another .pth file may load boto3 first, and make a session and clients."""
    server.always_answers(202, {"job": "job1", "state": "pending", "owner": OWNER})
    script = f"""
import boto3, os
early = boto3.client("sagemaker")
os.environ["SAGEMAKER_QUEUE_INSTALL"] = "1"
import sagemaker_queue_startup
sagemaker_queue_startup.begin()
for client in (early, boto3.client("sagemaker")):
    print(client.create_training_job(**{REQUEST!r})["TrainingJobArn"])
"""
    arn = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/job1"
    assert python(script, SAGEMAKER_QUEUE_URL=server.url).split() == [arn, arn]
    assert len(server.received) == 2
