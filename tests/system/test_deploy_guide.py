"""docs/deploy.md, taken literally: its commands, typed one after the other into an account in which nothing is."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from samtranslator.yaml_helper import yaml_parse

from api_contract import VERSION
from local_cloud.aws.ministack import Ministack
from local_cloud.aws.stack import ACCOUNT, REGION
from tests.local_cloud.emulator import client
from tests.system.test_guide import ROOT, Person, blocks

PAGE = (ROOT / "docs/deploy.md").read_text()

# Not typed as it stands: what is typed instead, and why.
STAND_INS = {
    "make setup": (":", "it is how the environment of the tests was made"),
    ". .venv/bin/activate": (":", "the programs of that environment are found without it"),
    "sam build": (":", "tests/system/test_guide.py types it; here nobody calls the function"),
    "aws organizations create-policy --name keep-for-the-queue --type SERVICE_CONTROL_POLICY --description"
    ' "Names and tags of the training job queue" --content file://examples/iam/keep_for_the_queue.json': (
        ":",
        "the account here is no organization's; tests/system/test_permissions.py has the policy's effect",
    ),
    "python -m pip wheel --quiet --no-deps --wheel-dir client-wheel .": (
        f"mkdir client-wheel && touch client-wheel/sagemaker_queue-{VERSION}-py3-none-any.whl",
        "the checkout of this test has no client; tests/test_artifact.py builds the wheel",
    ),
    **dict.fromkeys(
        (
            "smq doctor",
            "(mkdir -p first-job && cd first-job && smq submit --name first -- python -c 'print(\"it works\")')",
            "smq wait first",
            "smq show first",
            "smq policy apply examples/two_teams.yaml",
        ),
        (
            "smq config show",
            "the address is one of AWS; test_guide.py types such commands, test_permissions.py has a user's rights",
        ),
    ),
}

# Before the stack is removed: its parameters have the values of all deployments, and the groups have their policies.
LOOK_AT_THE_STACK = """
stack() {
  aws cloudformation describe-stacks --stack-name training-job-queue --output text \\
    --query "Stacks[0].Parameters[?ParameterKey=='$1'].ParameterValue"
}
group() {
  aws iam list-attached-group-policies --group-name $1 --query "AttachedPolicies[].PolicyName" --output text
}
echo kept: $(stack MaxCapacity) $(stack EndpointCidr) $(stack AdminArns) $(stack GuardrailPolicyArns)
echo attached: $(group queue-operators) and $(group researchers)
"""


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Ministack]:
    server = Ministack(tmp_path, auth=False, region=REGION)
    try:
        server.start({})
        yield server
    finally:
        server.close()


@pytest.fixture
def administrator(account: Ministack, tmp_path: Path) -> Person:
    """Somebody in a checkout, with tools, and with an AWS account in which nothing is."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("job_queue", "api_contract", "examples"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("template.yaml", "samconfig.toml"):
        shutil.copy(ROOT / name, checkout)
    person = Person(
        tmp_path,
        checkout,
        AWS_ENDPOINT_URL=account.url,
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="test",
        AWS_DEFAULT_REGION=REGION,
        NO_PROXY="127.0.0.1",
    )
    person.environment["PATH"] = f"{Path(sys.executable).parent}:{person.environment['PATH']}"
    person.environment["SAM_CLI_CHECK_UPDATES"] = "0"
    return person


def typed(block: str) -> str:
    """What is typed of a block."""
    return "\n".join(STAND_INS[line][0] if line in STAND_INS else line for line in block.splitlines())


@pytest.mark.thorough
def test_from_an_empty_account_to_none_again(account: Ministack, administrator: Person) -> None:
    shell = [typed(block) for block in blocks(PAGE)]
    removed = next(number for number, block in enumerate(shell) if block.startswith("sam delete"))
    look = "aws dynamodb list-tables --query TableNames --output text"
    shell.insert(removed, LOOK_AT_THE_STACK)
    removed += 1
    told = administrator.types("\n".join([*shell[: removed + 1], f"echo left: $({look})", *shell[removed + 1 :], look]))
    address = r"^https://[a-z0-9]+-vpce-[0-9a-f]+\.execute-api\.us-east-1\.amazonaws\.com/prod$"
    assert re.search(address, told, re.MULTILINE), told
    own = f"arn:aws:iam::{ACCOUNT}"
    assert f"kept: 8 10.20.0.0/16 {own}:root {own}:policy/training-guardrails\n" in told, told
    assert "attached: training-job-queue-user training-job-queue-operator and training-job-queue-user\n" in told, told
    assert "left: sagemaker-queue sagemaker-queue-history sagemaker-queue-lines" in told
    assert client("dynamodb", account.url).list_tables()["TableNames"] == []
    endpoints = client("ec2", account.url).describe_vpc_endpoints()["VpcEndpoints"]
    names = ["com.amazonaws.us-east-1.execute-api", "com.amazonaws.us-east-1.s3"]
    endpoint, of_s3 = sorted(endpoints, key=lambda one: str(one["ServiceName"]))
    assert [endpoint["ServiceName"], of_s3["ServiceName"]] == names
    (subnet,) = client("ec2", account.url).describe_subnets(SubnetIds=endpoint["SubnetIds"])["Subnets"]
    assert subnet["AvailabilityZone"] == "us-east-1b", "us-east-1a lacks the service on the local cloud"
    (stack,) = client("cloudformation", account.url).describe_stacks(StackName="training-job-queue")["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"  # the one that was made anew
    roles = client("iam", account.url).list_roles()["Roles"]
    assert "training" in {role["RoleName"] for role in roles}


def test_every_stand_in_stands_for_something() -> None:
    lines = {line for block in blocks(PAGE) for line in block.splitlines()}
    assert set(STAND_INS) <= lines
    assert all(reason for _, reason in STAND_INS.values())


def test_the_costs_are_what_their_formulas_give() -> None:
    rows = re.findall(r"^\| (.+?) \| ([0-9][0-9.]*[× +h][0-9.× +h]*) \| ([0-9.]+) \|$", PAGE, re.M)
    assert len(rows) == 4
    for what, formula, dollars in rows:
        assert cents(formula) == dollars, what
    total = sum(round(float(dollars) * 100) for _, _, dollars in rows)
    assert f"| **in all** | | **{total / 100:.2f}** |" in PAGE


def cents(formula: str) -> str:
    """The sum of products that a formula is."""
    products = []
    for term in formula.replace("h", "").split("+"):
        product = 1.0
        for factor in term.split("×"):
            product *= float(factor)
        products.append(product)
    return f"{sum(products):.2f}"


def test_the_alarms_that_cost_are_those_of_the_template() -> None:
    resources = yaml_parse((ROOT / "template.yaml").read_text())["Resources"].values()
    alarms = [one for one in resources if one["Type"] == "AWS::CloudWatch::Alarm"]
    assert f"| alarms | {len(alarms)} × 0.10 |" in PAGE


def test_each_parameter_that_the_page_names_is_one() -> None:
    parameters = set(yaml_parse((ROOT / "template.yaml").read_text())["Parameters"])
    given = set(re.findall(r"\b([A-Z][A-Za-z]+)=", " ".join(blocks(PAGE)))) - {
        "ParameterKey",
        "ParameterValue",
        "OutputKey",
        "Name",
        "Values",
    }
    named = set(re.findall(r"`([A-Z][A-Za-z]+)(?:=[^`]*)?`", PAGE))
    outputs = {"EndpointUrl", "ApiUrl", "PolicyAdministrators"}
    assert {name for name in given if not name.isupper()} <= parameters
    words = {name for name in named if not name.isupper()}  # those in capitals are for the reader to replace
    assert words - outputs - {"QueueRole", "ReadRole", "SageMaker", "VolumeKmsKeyId"} <= parameters
