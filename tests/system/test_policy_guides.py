"""The how-to pages about policies, typed on a terminal: their commands print the outputs that the pages show."""

import os
import sys
from pathlib import Path

import pytest

from local_cloud.aws.stack import LocalCloud
from tests.system.conftest import System
from tools.page_outputs import difference, steps
from tools.tutorials import reader

pytestmark = pytest.mark.thorough  # tests/client/cli has the tests of the commands

PAGES = Path(__file__).parents[2] / "docs/operate"
TWO_TEAMS = {
    "pools": [{"name": "p5", "instance_type": "ml.p5.48xlarge", "capacity": 8}],
    "projects": [{"name": "vision", "quota": {"p5": 5}}, {"name": "nlp", "quota": {"p5": 3}}],
}


def differences(page: str, cloud: LocalCloud, folder: Path) -> str:
    """Type the steps of a page, and return how the outputs differ from those on the page."""
    (folder / "here").mkdir()
    typed = steps((PAGES / page).read_text())
    programs = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    with reader(folder / "home", folder / "here", cloud.environment() | programs) as person:
        printed = [person.does(step) for step in typed]
    found = [
        f"$ {step.text}\n{changes}"
        for step, text in zip(typed, printed, strict=True)
        if step.shown and (changes := difference(step.shown, text))
    ]
    assert sum(bool(step.shown) for step in typed) > 1
    return "\n\n".join(found)


def test_the_first_policy_is_written_checked_and_applied(tmp_path: Path) -> None:
    with LocalCloud(slots=8) as cloud:
        found = differences("write-a-policy.md", cloud, tmp_path)
        assert not found, found


def test_a_policy_is_changed_previewed_applied_and_rolled_back(tmp_path: Path) -> None:
    with LocalCloud(slots=8) as cloud:
        system = System(cloud)
        system.queue.apply_policy(TWO_TEAMS, version=0)

        def submit(name: str, hours: int, instances: int = 1) -> None:
            tags = [{"Key": "project", "Value": name.partition("-")[0]}]
            limit = {"MaxRuntimeInSeconds": hours * 3600}
            system.queue.submit(
                system.request(
                    name, "import time; time.sleep(3600)", instances=instances, Tags=tags, StoppingCondition=limit
                )
            )

        running = [*(f"vision-{number}" for number in range(1, 8)), "nlp-1"]
        for name in running:
            submit(name, 4 if name.startswith("vision") else 2)
            system.wait_state(name, "running")
        submit("vision-8", 2)
        submit("vision-9", 2)
        submit("nlp-2", 3, instances=4)
        found = differences("change-a-policy.md", cloud, tmp_path)
        assert not found, found
