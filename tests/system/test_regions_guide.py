"""docs/operate/regions.md, taken literally: its commands, typed into an account with two regions.

The local cloud has one account here, in which the page's other account is a number only.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from job_queue.domain.policy_validation import parse_policy
from local_cloud.aws.ministack import Ministack
from local_cloud.aws.session import AccountKeys
from local_cloud.aws.stack import ACCOUNT, REGION
from tests.system.test_deploy_guide import account, assert_shown, aws, root_keys, steps
from tests.system.test_guide import ROOT, Person
from tools.markdown import code_blocks

__all__ = ["account", "aws", "root_keys"]  # fixtures
PAGE = (ROOT / "docs/operate/regions.md").read_text()
SITE, OTHER_ACCOUNT = "us-east-2", "222222222222"
HOME_STACK = (
    "sam deploy --no-confirm-changeset --parameter-overrides VpcEndpointIds=vpce-0123456789abcdef0"
    f" AllowedRoleArns=arn:aws:iam::{ACCOUNT}:role/training"
)
BUCKET_OF_SAM = f"""\
python -c "from samcli.lib.bootstrap.bootstrap import manage_stack; manage_stack(profile=None, region='{REGION}')"
"""


@pytest.fixture
def operator(account: Ministack, aws: Any, root_keys: AccountKeys, tmp_path: Path) -> Person:
    """An administrator in a checkout, in an account that has the queue's stack."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("job_queue", "api_contract"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("template.yaml", "satellite.yaml", "samconfig.toml", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, checkout)
    person = Person(
        tmp_path,
        checkout,
        AWS_ENDPOINT_URL=account.url,
        AWS_ACCESS_KEY_ID=root_keys.access,
        AWS_SECRET_ACCESS_KEY=root_keys.secret,
        AWS_DEFAULT_REGION=REGION,
        NO_PROXY="127.0.0.1",
        SAM_CLI_CHECK_UPDATES="0",
    )
    person.environment["PATH"] = f"{Path(sys.executable).parent}:{person.environment['PATH']}"
    person.types(BUCKET_OF_SAM)
    for bucket in aws("s3").list_buckets()["Buckets"]:  # it refuses http, which is all that the local cloud has
        aws("s3").delete_bucket_policy(Bucket=bucket["Name"])
    person.types(HOME_STACK)
    return person


@pytest.mark.thorough
def test_the_page_prepares_a_site_and_tells_the_queue(
    account: Ministack, aws: Any, root_keys: AccountKeys, operator: Person
) -> None:
    typed = steps(PAGE)
    assert [block.split()[0].partition("=")[0] for block, _ in typed] == ["QUEUE_ROLE", "sam", "sam"]
    told = operator.types("\n".join([*(block for block, _ in typed), "echo external: $EXTERNAL_ID"]))
    for block, output in typed:
        assert_shown(output, told, block)
    external_id = told.partition("external: ")[2].split()[0]

    there = boto3.Session(root_keys.access, root_keys.secret, region_name=SITE)
    create: Any = there.client
    (rule,) = create("events", endpoint_url=account.url).list_rules()["Rules"]
    (target,) = create("events", endpoint_url=account.url).list_targets_by_rule(Rule=rule["Name"])["Targets"]
    assert target["Arn"] == f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/default"
    assert json.loads(rule["EventPattern"])["region"] == [SITE]
    trust = aws("iam").get_role(RoleName=f"sagemaker-queue-satellite-{SITE}")["Role"]["AssumeRolePolicyDocument"]
    (trusted,) = trust["Statement"]
    assert trusted["Condition"] == {"StringEquals": {"sts:ExternalId": external_id}}

    (stack,) = aws("cloudformation").describe_stacks(StackName="training-job-queue")["Stacks"]
    outputs = {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}
    assert trusted["Principal"] == {"AWS": outputs["RoleArn"]}
    function = aws("lambda").get_function_configuration(FunctionName=outputs["FunctionName"])
    assert function["Environment"]["Variables"]["SATELLITE_EXTERNAL_ID"] == external_id
    (statement,) = json.loads(aws("events").describe_event_bus()["Policy"])["Statement"]
    assert statement["Principal"] == {"AWS": [OTHER_ACCOUNT]}


def test_the_policy_of_the_page_names_the_site_that_the_commands_prepare() -> None:
    pools, projects = (code for language, code in code_blocks(PAGE) if language == "yaml")
    policy = yaml.safe_load(pools) | yaml.safe_load(projects)
    assert parse_policy(policy)
    assert policy["projects"][0]["bucket_by_region"].keys() == {REGION, SITE}
    at_home, there = policy["pools"]
    assert "region" not in at_home and "role" not in at_home
    (told,) = (block for block, _ in steps(PAGE) if "SatelliteRoleArns" in block)
    assert f"SatelliteRoleArns={there['role']} " in told
    assert there["region"] == SITE and there["role"].endswith(f"-{SITE}")
