"""Programs that were not written for the queue, unchanged, with a preemption in the middle.

These are light, and are here already; `make clients` runs the others, each in an environment of its own.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from local_cloud.aws.stack import LocalCloud
from tools.client_environments import Failed
from tools.client_programs import CLIENTS
from tools.clients import SLOTS, Trial

pytestmark = pytest.mark.thorough

PROGRAMS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    with LocalCloud(slots=SLOTS) as cloud:
        yield Trial(cloud)


@pytest.mark.parametrize("name", ["boto3", "boto3-proxy", "awscli"])
def test_a_program_does_not_notice(trial: Trial, name: str) -> None:
    trial.run(name, CLIENTS[name], PROGRAMS)


def test_what_goes_past_the_queue_is_noticed(trial: Trial) -> None:
    """The same program, run as it is."""
    boto3 = CLIENTS["boto3"]
    bare = replace(boto3, command=boto3.command[boto3.command.index("--") + 1 :])
    with pytest.raises(Failed, match="its job went past the queue"):
        trial.run("bare", bare, PROGRAMS)
