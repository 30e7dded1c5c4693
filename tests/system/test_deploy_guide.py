"""start/deploy.md and the pages that go on from it, taken literally: their commands, typed into an empty account.

The person who types them has no administrator rights: only what examples/iam/setup.json and deployer.json allow. The
local cloud checks each call, but not what CloudFormation does in that person's name: tests/test_template.py compares
the policy with the permissions that AWS names for each type of resource.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from ministack.core.iam_evaluator import EvalContext, evaluate, parse_policy_document

from api_contract import VERSION
from local_cloud.aws.ministack import Ministack
from local_cloud.aws.session import AccountKeys
from local_cloud.aws.stack import ACCOUNT, REGION
from tests.documents import read_template
from tests.system.test_guide import ROOT, Person
from tools.markdown import code_blocks

DEPLOY, INSIDE, STRICT, UPGRADE, STACK = (
    (ROOT / "docs" / name).read_text()
    for name in (
        "start/deploy.md",
        "operate/keep-jobs-inside.md",
        "operate/strict-accounts.md",
        "operate/upgrade-backup-restore.md",
        "reference/stack.md",
    )
)
PAGES = (DEPLOY, INSIDE, STRICT, UPGRADE)  # in the order in which they are typed
POLICIES = ("setup", "deployer")  # of the person who types them

# The local cloud evaluates these actions with other resources than AWS does: it allows them here, and the test below
# looks at the policy with the resources of AWS.
OTHER_RESOURCES = {
    "iam:CreatePolicy": "arn:aws:iam::{account}:policy/training-job-queue-user",
    "iam:AttachGroupPolicy": "arn:aws:iam::{account}:group/researchers",
    "iam:AddUserToGroup": "arn:aws:iam::{account}:group/queue-operators",
}

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
    "PUBLISHED=training-queue-111122223333": (":", "the account of this test has another number"),
    **dict.fromkeys(
        (
            "smq doctor",
            "(mkdir -p first-job && cd first-job && smq submit --name first -- python -c 'print(\"it works\")')",
            "smq wait first",
            "smq show first",
            "smq policy apply policy.yaml",
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
MARK = "=== block"
MAKE_THE_BUCKET_OF_SAM = f"""\
python -c "from samcli.lib.bootstrap.bootstrap import manage_stack; manage_stack(profile=None, region='{REGION}')"
"""
TABLES = "echo tables: $(aws dynamodb list-tables --query TableNames --output text)"


class Deployer(Person):
    """Somebody who types the pages with few rights, and an administrator's keys for what only administrators may."""

    as_administrator: str
    as_deployer: str

    def keys(self, access: str, secret: str) -> str:
        return f"export AWS_ACCESS_KEY_ID={access} AWS_SECRET_ACCESS_KEY={secret}"


@pytest.fixture
def root_keys() -> AccountKeys:
    return AccountKeys.random()


@pytest.fixture
def account(tmp_path: Path, root_keys: AccountKeys) -> Iterator[Ministack]:
    """An AWS account that checks signatures and rights."""
    server = Ministack(tmp_path, auth=True, region=REGION, keys=root_keys)
    try:
        server.start({})
        yield server
    finally:
        server.close()


@pytest.fixture
def aws(account: Ministack, root_keys: AccountKeys) -> Any:
    """The account as its administrator sees it: service -> client."""
    session = boto3.Session(root_keys.access, root_keys.secret, region_name=REGION)
    create: Any = session.client
    return lambda service: create(service, endpoint_url=account.url)


@pytest.fixture
def deployer(account: Ministack, aws: Any, root_keys: AccountKeys, tmp_path: Path) -> Deployer:
    """Somebody in a checkout, with tools, in an account in which nothing is, with the rights that the page names.

    An administrator has typed the page's commands that give these rights.
    """
    iam = aws("iam")
    iam.create_user(UserName="dana")
    allowed = {"Effect": "Allow", "Action": list(OTHER_RESOURCES), "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.put_user_policy(UserName="dana", PolicyName="other-resources", PolicyDocument=document)
    key = iam.create_access_key(UserName="dana")["AccessKey"]
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("job_queue", "api_contract", "examples"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("template.yaml", "samconfig.toml", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, checkout)
    person = Deployer(
        tmp_path,
        checkout,
        AWS_ENDPOINT_URL=account.url,
        AWS_ACCESS_KEY_ID=key["AccessKeyId"],
        AWS_SECRET_ACCESS_KEY=key["SecretAccessKey"],
        AWS_DEFAULT_REGION=REGION,
        NO_PROXY="127.0.0.1",
    )
    person.environment["PATH"] = f"{Path(sys.executable).parent}:{person.environment['PATH']}"
    person.environment["SAM_CLI_CHECK_UPDATES"] = "0"
    person.as_administrator = person.keys(root_keys.access, root_keys.secret)
    person.as_deployer = person.keys(key["AccessKeyId"], key["SecretAccessKey"])
    person.types(f"{person.as_administrator}\n{RIGHTS}")
    person.types(MAKE_THE_BUCKET_OF_SAM)
    for bucket in aws("s3").list_buckets()["Buckets"]:  # it refuses http, which is all that the local cloud has
        aws("s3").delete_bucket_policy(Bucket=bucket["Name"])
    return person


def steps(page: str) -> list[tuple[str, str]]:
    """Each block of commands of a page, and the output (```text) that the page shows below it.

    Other outputs (```console) are those of stand-ins, and not compared.
    """
    found: list[tuple[str, str]] = []
    before = None
    for language, text in code_blocks(page):
        if language == "":
            found.append((text, ""))
        elif language == "text" and before == "":
            found[-1] = (found[-1][0], text)
        before = language
    return found


RIGHTS = steps(DEPLOY)[0][0]  # the commands of an administrator, who gives the deployer the rights


def typed(block: str) -> str:
    """What is typed of a block."""
    return "\n".join(STAND_INS[line][0] if line in STAND_INS else line for line in block.splitlines())


def normal(line: str) -> str:
    """A line without what differs from account to account."""
    line = re.sub(r"\b(vpce?|subnet)-[0-9a-f]+", r"\1-ID", line)
    line = re.sub(r"https://[a-z0-9]+-vpce", "https://API-vpce", line)
    return " ".join(re.sub(r"\d+", "N", line).split())


def assert_shown(expected: str, printed: str, block: str) -> None:
    """Each line that the page shows is printed, in the page's order."""
    lines = iter([normal(line) for line in re.split(r"[\r\n]", printed)])
    for line in expected.splitlines():
        assert any(normal(line) in one for one in lines), f"{block}\n does not print: {line}\n but:\n{printed}"


@pytest.mark.thorough
def test_from_an_empty_account_to_none_again(account: Ministack, aws: Any, deployer: Deployer) -> None:
    script: list[str] = []
    expected: dict[int, tuple[str, str]] = {}
    for page in PAGES:
        script.append(deployer.as_administrator if page is INSIDE else deployer.as_deployer)
        for block, output in steps(page):
            if block == RIGHTS:
                continue  # typed by the administrator before
            if block.startswith("sam delete"):
                script.append(LOOK_AT_THE_STACK)
            expected[len(expected)] = (block, output)
            script += [
                f'echo "{MARK} {len(expected) - 1}"',
                typed(block),
                f'echo "{MARK}"',
                f"({deployer.as_administrator}; {TABLES})",
            ]
    told = deployer.types("\n".join(script))
    for number, (block, output) in expected.items():
        assert_shown(output, told.partition(f"{MARK} {number}\n")[2].partition(f"\n{MARK}\n")[0], block)
    own = f"arn:aws:iam::{ACCOUNT}"
    assert f"kept: 8 10.20.0.0/16 {own}:user/dana {own}:policy/training-guardrails\n" in told, told
    assert "attached: training-job-queue-user training-job-queue-operator and training-job-queue-user\n" in told, told
    after = [line.split()[1:] for line in told.splitlines() if line.startswith("tables:")]
    tables = ["sagemaker-queue", "sagemaker-queue-history", "sagemaker-queue-lines"]
    assert [after[0], *after[-3:]] == [[], tables, tables, []]  # at first; deleted, recovered; without its tables
    endpoints = aws("ec2").describe_vpc_endpoints()["VpcEndpoints"]
    names = ["com.amazonaws.us-east-1.execute-api", "com.amazonaws.us-east-1.s3"]
    endpoint, of_s3 = sorted(endpoints, key=lambda one: str(one["ServiceName"]))
    assert [endpoint["ServiceName"], of_s3["ServiceName"]] == names
    (subnet,) = aws("ec2").describe_subnets(SubnetIds=endpoint["SubnetIds"])["Subnets"]
    assert subnet["AvailabilityZone"] == "us-east-1b", "us-east-1a lacks the service on the local cloud"
    (stack,) = aws("cloudformation").describe_stacks(StackName="training-job-queue")["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"  # the one that was made anew
    members = aws("iam").get_group(GroupName="queue-operators")["Users"]
    assert [one["UserName"] for one in members] == ["dana"]


@pytest.mark.thorough
def test_a_guided_deployment_asks_for_the_administrators(deployer: Deployer) -> None:
    parameters = list(read_template()["Parameters"])
    assert parameters[:3] == ["MaxCapacity", "AdminArns", "AllowedRoleArns"], "the first questions"
    answers = {
        "AdminArns": f"arn:aws:iam::{ACCOUNT}:user/dana",
        "AllowedRoleArns": f"arn:aws:iam::{ACCOUNT}:role/training",
        "VpcEndpointIds": "vpce-0123456789abcdef0",
    }
    lines = ["", "", *(answers.get(name, "") for name in parameters), "n", "y", "n", "n"]
    told = deployer.types("sam deploy -g", then="\n".join([*lines, ""]))
    assert f"Parameter AdminArns []: {answers['AdminArns']}" in told or "Parameter AdminArns []:" in told, told
    outputs = re.sub(r"\s+", " ", told)
    assert "Key PolicyAdministrators Description" in outputs and f"Value {answers['AdminArns']} " in outputs, told


@pytest.mark.thorough
@pytest.mark.parametrize("name", POLICIES)
def test_a_deployer_without_one_of_the_policies_gets_no_further(name: str, aws: Any, deployer: Deployer) -> None:
    """Each policy is needed, so the tests above show something."""
    policy = f"arn:aws:iam::{ACCOUNT}:policy/queue-{name}"
    aws("iam").detach_user_policy(UserName="dana", PolicyArn=policy)
    call = {"setup": "aws ec2 create-vpc --cidr-block 10.20.0.0/16", "deployer": "aws cloudformation describe-stacks"}
    with pytest.raises(AssertionError, match=r"AccessDenied|UnauthorizedOperation"):
        deployer.types(f"{call[name]} --stack-name training-job-queue" if name == "deployer" else call[name])


def test_a_person_who_prepares_the_account_may_ask_for_quotas() -> None:
    """The page asks for them in the console, which the local cloud has not."""
    policy = parse_policy_document((ROOT / "examples/iam/setup.json").read_text())
    for action in ("servicequotas:ListServiceQuotas", "servicequotas:RequestServiceQuotaIncrease"):
        request = EvalContext(
            principal_arn=f"arn:aws:iam::{ACCOUNT}:user/dana",
            principal_type="User",
            principal_account=ACCOUNT,
            action=action,
            resource_arn=f"arn:aws:servicequotas:{REGION}:{ACCOUNT}:sagemaker/L-00000000",
            region=REGION,
            service_context={},
        )
        assert evaluate(request, [policy]).decision == "Allow"


@pytest.mark.parametrize("action", OTHER_RESOURCES)
def test_the_policy_allows_what_the_local_cloud_evaluates_with_another_resource(action: str) -> None:
    policy = parse_policy_document((ROOT / "examples/iam/setup.json").read_text())
    attached = {"iam:policyarn": f"arn:aws:iam::{ACCOUNT}:policy/training-job-queue-user"}
    for context, allowed in (
        (attached, True),
        ({"iam:policyarn": "arn:aws:iam::aws:policy/AdministratorAccess"}, False),
    ):
        request = EvalContext(
            principal_arn=f"arn:aws:iam::{ACCOUNT}:user/dana",
            principal_type="User",
            principal_account=ACCOUNT,
            action=action,
            resource_arn=OTHER_RESOURCES[action].format(account=ACCOUNT),
            region=REGION,
            service_context=context,
        )
        decision = evaluate(request, [policy]).decision == "Allow"
        assert decision is (allowed or action != "iam:AttachGroupPolicy")


def test_every_stand_in_stands_for_something() -> None:
    lines = {line for page in PAGES for block, _ in steps(page) for line in block.splitlines()}
    assert set(STAND_INS) <= lines
    assert all(reason for _, reason in STAND_INS.values())


def test_the_costs_are_what_their_formulas_give() -> None:
    rows = re.findall(r"^\| (.+?) \| ([0-9][0-9.]*[× +h][0-9.× +h]*) \| ([0-9.]+) \|$", STACK, re.M)
    assert len(rows) == 4
    for what, formula, dollars in rows:
        assert cents(formula) == dollars, what
    total = sum(round(float(dollars) * 100) for _, _, dollars in rows)
    assert f"| **in all** | | **{total / 100:.2f}** |" in STACK


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
    resources = read_template()["Resources"].values()
    alarms = [one for one in resources if one["Type"] == "AWS::CloudWatch::Alarm" and "Condition" not in one]
    assert f"| alarms | {len(alarms)} × 0.10 |" in STACK


@pytest.mark.parametrize("page", PAGES, ids=["deploy", "inside", "strict", "upgrade"])
def test_each_parameter_that_a_page_names_is_one(page: str) -> None:
    template = read_template()
    known = {*template["Parameters"], *template["Outputs"], *template["Resources"]}
    given = set(re.findall(r"\b([A-Z][A-Za-z]+)=", " ".join(block for block, _ in steps(page)))) - {
        "ParameterKey",
        "ParameterValue",
        "OutputKey",
        "Name",
        "Values",
    }
    named = set(re.findall(r"`([A-Z][A-Za-z]+)(?:=[^`]*)?`", page))
    assert {name for name in given if not name.isupper()} <= set(template["Parameters"])
    words = {name for name in named if not name.isupper()}  # those in capitals are for the reader to replace
    assert words - {"AccessDenied", "VolumeKmsKeyId", "MakeTheRolesOfTheFunctions"} <= known
