"""Each recipe of docs/operate/policy-recipes.md, applied to a queue by the command that operators use."""

from pathlib import Path

import pytest
import yaml

from local_cloud.aws.stack import LocalCloud
from local_cloud.sagemaker.account.options import Account, parse_plan
from tests.system.conftest import System
from tests.system.test_policy_example import smq
from tests.test_policy_pages import recipes

pytestmark = pytest.mark.thorough  # tests/test_policy_pages.py reads them by the queue's rules


def test_each_recipe_can_be_applied(tmp_path: Path) -> None:
    with LocalCloud(slots=12, account=Account(plans=(parse_plan("winter=4,-60,+999999"),))) as cloud:
        for version, (name, policy) in enumerate(recipes().items(), start=1):
            file = tmp_path / f"{name}.yaml"
            file.write_text(yaml.safe_dump(policy))
            applied = smq(cloud, "policy", "apply", "--yes", str(file))
            assert applied.stdout.endswith(f"Version {version} is applied.\n"), (name, applied.stderr)
            shown = System(cloud).queue.queue()
            assert [pool.name for pool in shown.pools] == [pool["name"] for pool in policy["pools"]]
            assert [project.name for project in shown.projects] == [one["name"] for one in policy["projects"]]
