"""Several accounts and regions in one local cloud: what each has for itself, roles across accounts, events, outages."""

import json
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from local_cloud.aws.deployment import create_bucket
from local_cloud.aws.stack import PROJECT, LocalCloud
from local_cloud.commands.up_and_exec import fault_lines, pool_lines, usage
from local_cloud.faults.injection import Faults
from local_cloud.sagemaker.job_processes.log_streams import written_lines
from local_cloud.sites.emulated_site import EmulatedSite
from local_cloud.sites.questions import FORWARD, Questions
from tests.local_cloud.emulator import ENDED, request
from tests.waiting import PATIENCE, until

HOME = EmulatedSite("000000000000", "us-east-1")
OHIO = EmulatedSite("000000000000", "us-east-2")
OTHER = EmulatedSite("111111111111", "us-east-1")
FAR = EmulatedSite("111111111111", "us-east-2")
SITES = (HOME, OHIO, OTHER, FAR)
BUS = HOME.bus_arn
ONCE: Any = {"total_max_attempts": 1}

# A function in the queue's place, which works in a site with its own rights, or with those of a role.
WORKER = """
import boto3

def lambda_handler(event, context):
    if "external_id" not in event:
        return None
    keys = {}
    if event["role"]:
        given = {"RoleArn": event["role"], "RoleSessionName": "queue", "ExternalId": event["external_id"]}
        made = boto3.client("sts").assume_role(**given)["Credentials"]
        keys = {"aws_access_key_id": made["AccessKeyId"], "aws_secret_access_key": made["SecretAccessKey"]}
        keys["aws_session_token"] = made["SessionToken"]
    sagemaker = boto3.client("sagemaker", region_name=event["region"], **keys)
    return [job["TrainingJobArn"] for job in sagemaker.list_training_jobs()["TrainingJobSummaries"]]
"""


class Meeting:
    """A call of an operation that a test waits for, and that waits for the test."""

    def __init__(self) -> None:
        self.act: Callable[[str, str], None] = lambda phase, job: None

    def __call__(self, phase: str, operation: str, asked: dict[str, Any]) -> None:
        if operation == "CreateTrainingJob":
            self.act(phase, asked["TrainingJobName"])


MEETING = Meeting()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    project = tmp_path_factory.mktemp("project")
    (project / "job_queue").mkdir()
    (project / "job_queue" / "__init__.py").touch()
    (project / "job_queue" / "lambda_function.py").write_text(WORKER)
    for template in (PROJECT / "template.yaml", *PROJECT.glob("satellite.yaml")):
        shutil.copy(template, project)
    options: dict[str, Any] = {"regions": ("us-east-1", "us-east-2"), "accounts": 2, "instances": {"ml.m5.large": 1}}
    with LocalCloud(2, project=project, intercept=MEETING, **options) as cloud:
        for site in SITES:
            create_bucket(root(cloud, site, "s3"), bucket_of(site))
        yield cloud


def bucket_of(site: EmulatedSite) -> str:
    return f"data-{site.account}-{site.region}"


@cache
def root(cloud: LocalCloud, site: EmulatedSite, service: str, **options: Any) -> Any:
    """A client of the root user of a site, which does not try again."""
    create: Any = cloud.site_session(site).client
    return create(service, config=Config(retries=ONCE, **options))


def launch(cloud: LocalCloud, site: EmulatedSite, name: str, *command: str, **changes: Any) -> str:
    changes = {
        "RoleArn": f"arn:aws:iam::{site.account}:role/sagemaker-training",
        "OutputDataConfig": {"S3OutputPath": f"s3://{bucket_of(site)}/models"},
        **changes,
    }
    made = root(cloud, site, "sagemaker").create_training_job(**request(name, *command, **changes))
    return str(made["TrainingJobArn"])


def ended(cloud: LocalCloud, site: EmulatedSite, name: str) -> dict[str, Any]:
    sagemaker = root(cloud, site, "sagemaker")
    until(lambda: sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"] in ENDED)
    return dict(sagemaker.describe_training_job(TrainingJobName=name))


def names(cloud: LocalCloud, site: EmulatedSite) -> list[str]:
    listed = root(cloud, site, "sagemaker").list_training_jobs(MaxResults=100)["TrainingJobSummaries"]
    return [job["TrainingJobName"] for job in listed]


# --- what each site has for itself ------------------------------------------------------------------


@pytest.mark.thorough
def test_each_site_has_its_own_jobs_names_quotas_and_logs(cloud: LocalCloud) -> None:
    finish = cloud.folder / "finish-same"
    command = ("bash", "-c", f"echo $AWS_REGION; until [ -e {finish} ]; do sleep 0.1; done")
    for site in SITES:
        arn = launch(cloud, site, "same", *command)
        assert arn == f"arn:aws:sagemaker:{site.region}:{site.account}:training-job/same"
        with pytest.raises(ClientError, match="ResourceLimitExceeded"):  # one instance in each site
            launch(cloud, site, "second", *command)
    finish.touch()
    for site in SITES:
        assert ended(cloud, site, "same")["TrainingJobArn"].split(":")[3:5] == [site.region, site.account]
        lines = written_lines(root(cloud, site, "logs"), "same")
        assert [line for line in lines if line.startswith("us-")] == [site.region]
        assert cloud.training_of(site).most_in_use == {"ml.m5.large": 1}
    launch(cloud, FAR, "alone")
    assert [site for site in SITES if "alone" in names(cloud, site)] == [FAR]
    ended(cloud, FAR, "alone")


@pytest.mark.thorough
def test_the_environment_names_the_sites(cloud: LocalCloud) -> None:
    assert json.loads(cloud.environment()["SAGEMAKER_QUEUE_SITES"]) == [
        {"account": "000000000000", "region": "us-east-1", "role": None},
        *({"account": site.account, "region": site.region, "role": site.role_arn} for site in SITES[1:]),
    ]
    assert FAR.role_arn == "arn:aws:iam::111111111111:role/sagemaker-queue-satellite-us-east-2"


def test_jobs_may_have_the_role_of_each_account(cloud: LocalCloud) -> None:
    (stack,) = cloud.client("cloudformation").describe_stacks(StackName="sagemaker-queue")["Stacks"]
    given = {one["ParameterKey"]: one["ParameterValue"] for one in stack["Parameters"]}
    roles = [f"arn:aws:iam::{account}:role/sagemaker-training" for account in (HOME.account, OTHER.account)]
    assert given["AllowedRoleArns"].split(",") == roles
    assert [
        root(cloud, site, "iam").get_role(RoleName="sagemaker-training")["Role"]["Arn"] for site in (HOME, FAR)
    ] == roles


@pytest.mark.thorough
def test_lines_for_a_policy_and_about_faults_name_the_sites(cloud: LocalCloud) -> None:
    lines = pool_lines(cloud)
    place = f"region: us-east-2, role: {FAR.role_arn}"
    far = f"{{name: us-east-2-111111111111, instance_type: ml.m5.large, capacity: 2, {place}}}"
    assert lines[1:3] == ["pools:", "  - {name: home, instance_type: ml.m5.large, capacity: 2}"]
    assert lines[-1] == f"  - {far}"
    assert len(lines) == 2 + len(SITES)
    assert "\n".join(lines) in usage(cloud, None)
    assert fault_lines(cloud) == []


def test_a_region_that_the_cloud_does_not_have_refuses_calls(cloud: LocalCloud) -> None:
    abroad = cloud.client("sagemaker", region_name="eu-west-1")
    with pytest.raises(ClientError, match="UnrecognizedClientException"):
        abroad.list_training_jobs()


def test_a_debug_session_finds_the_job_of_its_site(cloud: LocalCloud) -> None:
    launch(cloud, FAR, "debugged", "sleep", "600", RemoteDebugConfig={"EnableRemoteDebug": True})
    far, target = root(cloud, FAR, "ssm"), "sagemaker-training-job:debugged_algo-1"
    until(lambda: cloud.training_of(FAR).instance("debugged", "algo-1"))
    with pytest.raises(ClientError, match="TargetNotConnected"):
        root(cloud, HOME, "ssm").start_session(Target=target)
    far.terminate_session(SessionId=far.start_session(Target=target)["SessionId"])
    root(cloud, FAR, "sagemaker").stop_training_job(TrainingJobName="debugged")
    ended(cloud, FAR, "debugged")


# --- S3 and images ----------------------------------------------------------------------------------


def test_a_client_of_another_region_is_redirected_to_a_bucket(cloud: LocalCloud) -> None:
    root(cloud, OHIO, "s3").put_object(Bucket=bucket_of(OHIO), Key="found", Body=b"here")
    s3 = cloud.boto_session().client("s3")
    assert s3.get_object(Bucket=bucket_of(OHIO), Key="found")["Body"].read() == b"here"
    s3.put_object(Bucket=bucket_of(OHIO), Key="written", Body=b"from home")
    assert (
        s3.head_bucket(Bucket=bucket_of(OHIO))["ResponseMetadata"]["HTTPHeaders"]["x-amz-bucket-region"] == OHIO.region
    )


def test_a_bucket_of_another_account_needs_a_bucket_policy(cloud: LocalCloud) -> None:
    theirs, ours = root(cloud, OTHER, "s3"), cloud.client("s3")
    theirs.put_object(Bucket=bucket_of(OTHER), Key="shared", Body=b"data")
    with pytest.raises(ClientError, match="AccessDenied"):
        ours.get_object(Bucket=bucket_of(OTHER), Key="shared")
    allowed = {
        "Effect": "Allow",
        "Principal": {"AWS": "arn:aws:iam::000000000000:root"},
        "Action": "s3:GetObject",
        "Resource": f"arn:aws:s3:::{bucket_of(OTHER)}/*",
    }
    theirs.put_bucket_policy(Bucket=bucket_of(OTHER), Policy=policy(allowed))
    found = ours.get_object(Bucket=bucket_of(OTHER), Key="shared", ExpectedBucketOwner=OTHER.account)
    assert found["Body"].read() == b"data"
    with pytest.raises(ClientError, match="AccessDenied"):
        ours.get_object(Bucket=bucket_of(OTHER), Key="shared", ExpectedBucketOwner=HOME.account)


def test_input_and_image_must_be_in_the_region_of_the_job(cloud: LocalCloud) -> None:
    root(cloud, HOME, "s3").put_object(Bucket=bucket_of(HOME), Key="train/data", Body=b"data")
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket_of(HOME)}/train"}
    channel = {"ChannelName": "train", "DataSource": {"S3DataSource": source}}
    with pytest.raises(ClientError, match=r"ensure that the bucket exists in the selected region \(us-east-2\)"):
        launch(cloud, OHIO, "abroad", InputDataConfig=[channel])
    algorithm = {"TrainingInputMode": "File", "TrainingImage": "000000000000.dkr.ecr.us-east-1.amazonaws.com/none:1"}
    with pytest.raises(ClientError, match="valid <region>.<dns-suffix>: 'us-east-2.amazonaws.com'"):
        launch(cloud, OHIO, "abroad", AlgorithmSpecification={**algorithm, "ContainerEntrypoint": ["true"]})
    launch(cloud, HOME, "inside", InputDataConfig=[channel], AlgorithmSpecification=algorithm)
    ended(cloud, HOME, "inside")


@pytest.mark.thorough
def test_output_to_a_bucket_of_another_region_fails(cloud: LocalCloud) -> None:
    output = {"S3OutputPath": f"s3://{bucket_of(HOME)}/models"}
    launch(cloud, OHIO, "exported", "sh", "-c", "echo x > $SM_MODEL_DIR/model", OutputDataConfig=output)
    described = ended(cloud, OHIO, "exported")
    assert described["TrainingJobStatus"] == "Failed"
    assert "BucketRegionError: bucket must be in the same region as the job" in described["FailureReason"]


# --- roles ------------------------------------------------------------------------------------------


def policy(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def queue_role(cloud: LocalCloud) -> str:
    function = cloud.client("lambda").get_function_configuration(FunctionName=cloud.function_name)
    return str(function["Role"])


@pytest.fixture(scope="module")
def may_assume(cloud: LocalCloud) -> None:
    """The role of the function may assume the roles of satellites, and may work in Ohio itself."""
    allowed = {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": [site.role_arn for site in SITES[1:]]}
    lists = {"Effect": "Allow", "Action": "sagemaker:ListTrainingJobs", "Resource": "*"}
    cloud.client("iam").put_role_policy(
        RoleName=queue_role(cloud).rpartition("/")[2], PolicyName="sites", PolicyDocument=policy(allowed, lists)
    )


def client_of(cloud: LocalCloud, keys: dict[str, Any], service: str, region: str = "us-east-1") -> Any:
    return cloud.client(
        service,
        region_name=region,
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
        config=Config(retries=ONCE),
    )


@pytest.fixture(scope="module")
def as_queue(cloud: LocalCloud, may_assume: None) -> Any:
    """A client of STS with the rights of the function's role."""
    iam, arn = cloud.client("iam"), queue_role(cloud)
    name = arn.rpartition("/")[2]
    trust = iam.get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"]
    me = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::000000000000:root"}, "Action": "sts:AssumeRole"}
    iam.update_assume_role_policy(RoleName=name, PolicyDocument=policy(*trust["Statement"], me))
    keys = cloud.client("sts").assume_role(RoleArn=arn, RoleSessionName="queue")["Credentials"]
    return client_of(cloud, keys, "sts")


@pytest.mark.thorough
@pytest.mark.parametrize("site", SITES[1:], ids=str)
def test_the_function_works_in_each_site_with_the_satellites_role(
    cloud: LocalCloud, may_assume: None, site: EmulatedSite
) -> None:
    arn = launch(cloud, site, "listed")
    ended(cloud, site, "listed")
    given = {"region": site.region, "role": site.role_arn, "external_id": cloud.external_id}
    assert arn in cloud.invoke(given)
    root(cloud, site, "sagemaker").delete_training_job(TrainingJobName="listed")


@pytest.mark.thorough
def test_the_function_works_in_another_region_of_its_account_by_itself(cloud: LocalCloud, may_assume: None) -> None:
    arn = launch(cloud, OHIO, "own-rights")
    ended(cloud, OHIO, "own-rights")
    own = {"role": None, "external_id": None}
    assert arn in cloud.invoke(own | {"region": "us-east-2"})
    assert arn not in cloud.invoke(own | {"region": "us-east-1"})


@pytest.mark.attack
def test_a_role_needs_the_right_external_id(cloud: LocalCloud, as_queue: Any) -> None:
    def assume(**given: Any) -> dict[str, Any]:
        return dict(as_queue.assume_role(RoleArn=FAR.role_arn, RoleSessionName="queue", **given)["Credentials"])

    for given in ({}, {"ExternalId": "guessed"}, {"ExternalId": cloud.external_id.upper()}):
        with pytest.raises(ClientError, match="AccessDenied"):
            assume(**given)
    keys = assume(ExternalId=cloud.external_id)
    who = client_of(cloud, keys, "sts").get_caller_identity()
    assert who["Arn"] == "arn:aws:sts::111111111111:assumed-role/sagemaker-queue-satellite-us-east-2/queue"


@pytest.mark.attack
def test_a_role_needs_the_right_principal_with_the_right(cloud: LocalCloud, as_queue: Any) -> None:
    given = {"RoleArn": FAR.role_arn, "RoleSessionName": "queue", "ExternalId": cloud.external_id}
    with pytest.raises(ClientError, match="Roles may not be assumed by root accounts"):
        cloud.client("sts").assume_role(**given)
    iam = cloud.client("iam")
    me = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::000000000000:root"}, "Action": "sts:AssumeRole"}
    other = iam.create_role(RoleName="other", AssumeRolePolicyDocument=policy(me))["Role"]["Arn"]
    everything = {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"}
    iam.put_role_policy(RoleName="other", PolicyName="all", PolicyDocument=policy(everything))
    keys = cloud.client("sts").assume_role(RoleArn=other, RoleSessionName="other")["Credentials"]
    with pytest.raises(ClientError, match="AccessDenied"):  # the trust policy names another role
        client_of(cloud, keys, "sts").assume_role(**given)
    unnamed = {**given, "RoleArn": "arn:aws:iam::111111111111:role/sagemaker-training"}
    with pytest.raises(ClientError, match="AccessDenied"):  # the identity policy names other roles
        as_queue.assume_role(**unnamed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"DurationSeconds": 3601}, "1 hour session limit for roles assumed by role chaining"),
        ({"DurationSeconds": 43201}, "DurationSeconds must be from 900 to 43200"),
        ({"RoleSessionName": "a b"}, "RoleSessionName must have"),
        ({"ExternalId": "two words"}, "ExternalId must have"),
    ],
)
def test_arguments_of_assume_role_are_checked(
    cloud: LocalCloud, as_queue: Any, change: dict[str, Any], message: str
) -> None:
    given = {"RoleArn": FAR.role_arn, "RoleSessionName": "queue", "ExternalId": cloud.external_id}
    with pytest.raises(ClientError, match=message):
        as_queue.assume_role(**(given | change))


def test_a_session_passes_no_role_of_another_account_and_expires(cloud: LocalCloud, as_queue: Any) -> None:
    given = {"RoleArn": FAR.role_arn, "RoleSessionName": "queue", "ExternalId": cloud.external_id}
    keys = as_queue.assume_role(**given)["Credentials"]
    far = client_of(cloud, keys, "sagemaker", FAR.region)
    far.list_training_jobs()
    tags = [{"Key": "queue-name", "Value": "sagemaker-queue"}]
    with pytest.raises(ClientError, match="iam:PassRole"):  # a role of the home account
        far.create_training_job(**request("foreign-qstamp-1", RoleArn=cloud.role, Tags=tags))
    cloud.expire_sessions()
    with pytest.raises(ClientError, match="ExpiredToken"):
        far.list_training_jobs()
    with pytest.raises(ClientError, match="ExpiredToken"):
        client_of(cloud, keys, "logs", FAR.region).describe_log_groups()


# --- events -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inbox(cloud: LocalCloud) -> str:
    """An SQS queue with the events that reach the home bus; the bus takes the other account's events."""
    sqs, events = cloud.client("sqs"), cloud.client("events")
    address = str(sqs.create_queue(QueueName="inbox")["QueueUrl"])
    arn = sqs.get_queue_attributes(QueueUrl=address, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    accounts = sorted({site.account for site in SITES})
    events.put_rule(Name="inbox", EventPattern=json.dumps({"source": ["aws.sagemaker"], "account": accounts}))
    events.put_targets(Rule="inbox", Targets=[{"Id": "inbox", "Arn": arn}])
    events.put_permission(StatementId="other", Action="events:PutEvents", Principal=OTHER.account)
    # The emulator reads the rules again after two seconds: wait until an event arrives.
    number = 0

    def arrives() -> bool:
        nonlocal number
        number += 1
        launch(cloud, HOME, f"rules-are-read-{number}")
        ended(cloud, HOME, f"rules-are-read-{number}")
        return bool(received(cloud, address))

    until(arrives)
    return address


def received(cloud: LocalCloud, address: str) -> list[dict[str, Any]]:
    sqs = cloud.client("sqs")
    found = sqs.receive_message(QueueUrl=address, MaxNumberOfMessages=10, WaitTimeSeconds=0).get("Messages", [])
    for message in found:
        sqs.delete_message(QueueUrl=address, ReceiptHandle=message["ReceiptHandle"])
    return [json.loads(message["Body"]) for message in found]


def events_until(cloud: LocalCloud, address: str, name: str, status: str) -> list[dict[str, Any]]:
    """The events that arrive, up to the one with this name and status."""
    found: list[dict[str, Any]] = []

    def arrived() -> bool:
        found.extend(received(cloud, address))
        return any(
            (event["detail"]["TrainingJobName"], event["detail"]["TrainingJobStatus"]) == (name, status)
            for event in found
        )

    until(arrived)
    return found


@pytest.mark.parametrize("site", SITES[1:], ids=str)
def test_events_of_a_site_reach_the_home_bus(cloud: LocalCloud, inbox: str, site: EmulatedSite) -> None:
    arn = launch(cloud, site, "told")
    found = [event for event in events_until(cloud, inbox, "told", "Completed") if event["resources"] == [arn]]
    assert {(event["account"], event["region"]) for event in found} == {(site.account, site.region)}
    assert found[-1]["detail"]["TrainingJobArn"] == arn
    assert len({event["id"] for event in found}) == len(found)
    ended(cloud, site, "told")


def test_the_home_bus_takes_only_events_of_accounts_that_its_policy_names(cloud: LocalCloud, inbox: str) -> None:
    questions = Questions(cloud._ministack.url, cloud._ministack.token)
    rule = {"source": "aws.sagemaker", "detail-type": "SageMaker Training Job State Change", "bus": BUS}

    def refused(site: EmulatedSite) -> str:
        (target,) = [
            target
            for name in root(cloud, site, "events").list_rule_names_by_target(TargetArn=BUS)["RuleNames"]
            for target in root(cloud, site, "events").list_targets_by_rule(Rule=name)["Targets"]
        ]
        return str(questions.ask(FORWARD, {**rule, "role": target["RoleArn"]}).get("refused", ""))

    events = cloud.client("events")
    assert [refused(site) for site in SITES[1:]] == ["", "", ""]
    assert questions.ask(FORWARD, {**rule, "role": queue_role(cloud)})["refused"].endswith(f"PutEvents on {BUS}")
    assert questions.ask(FORWARD, {**rule, "role": ""})["refused"] == "the rule's target has no role"
    before = json.loads(events.describe_event_bus(Name="default")["Policy"])["Statement"]
    events.remove_permission(RemoveAllPermissions=True)
    try:
        assert refused(OHIO) == ""  # within the account, the role's permission is enough
        assert refused(FAR).endswith("does not allow it to account 111111111111")
    finally:
        for statement in before:
            events.put_permission(StatementId=statement["Sid"], Action="events:PutEvents", Principal=OTHER.account)


def test_the_policy_of_a_bus_can_be_in_a_template(cloud: LocalCloud) -> None:
    cloudformation, events = root(cloud, FAR, "cloudformation"), root(cloud, FAR, "events")
    statement = {"Effect": "Allow", "Principal": {"AWS": HOME.account}, "Action": "events:PutEvents", "Resource": "*"}
    properties = {"StatementId": "home", "Statement": statement}
    template = {"Resources": {"Policy": {"Type": "AWS::Events::EventBusPolicy", "Properties": properties}}}

    def status() -> str:
        return str(cloudformation.describe_stacks(StackName=made)["Stacks"][0]["StackStatus"])

    made = cloudformation.create_stack(StackName="bus", TemplateBody=json.dumps(template))["StackId"]
    until(lambda: status() == "CREATE_COMPLETE")
    stored = json.loads(events.describe_event_bus(Name="default")["Policy"])["Statement"]
    assert stored == [{**statement, "Sid": "home"}]
    properties["Statement"] = {**statement, "Principal": "*"}
    cloudformation.update_stack(StackName="bus", TemplateBody=json.dumps(template))
    until(lambda: status() == "UPDATE_COMPLETE")
    stored = json.loads(events.describe_event_bus(Name="default")["Policy"])["Statement"]
    assert stored == [{**statement, "Principal": "*", "Sid": "home"}]
    cloudformation.delete_stack(StackName="bus")
    until(lambda: status() == "DELETE_COMPLETE")
    assert "Policy" not in events.describe_event_bus(Name="default")


# --- outages ----------------------------------------------------------------------------------------


@pytest.fixture
def outage(cloud: LocalCloud) -> Iterator[Callable[..., None]]:
    """Begins an outage, which ends with the test."""
    begun: list[EmulatedSite] = []

    def begin(site: EmulatedSite, *, silent: bool = False) -> None:
        begun.append(site)
        cloud.begin_outage(site, silent=silent)

    yield begin
    for site in begun:
        cloud.end_outage(site)


@pytest.mark.thorough
def test_in_an_outage_jobs_continue_and_events_come_later(
    cloud: LocalCloud, inbox: str, outage: Callable[..., None]
) -> None:
    finish, finished = cloud.folder / "finish-lonely", cloud.folder / "finished-lonely"
    launch(cloud, FAR, "lonely", "bash", "-c", f"until [ -e {finish} ]; do sleep 0.1; done; touch {finished}")
    events_until(cloud, inbox, "lonely", "InProgress")
    outage(FAR)
    for service, call in (("sagemaker", "list_training_jobs"), ("logs", "describe_log_groups"), ("s3", "list_buckets")):
        with pytest.raises(ConnectionClosedError):
            getattr(root(cloud, FAR, service), call)()
    with pytest.raises(ConnectionClosedError):
        launch(cloud, FAR, "never")
    finish.touch()
    until(finished.exists)
    until(lambda: cloud.training_of(FAR)._registry.get("lonely").status == "Completed")
    launch(cloud, OTHER, "neighbour")  # the same account in another region
    events = events_until(cloud, inbox, "neighbour", "Completed")
    assert "Completed" not in [
        event["detail"]["TrainingJobStatus"] for event in events if event["detail"]["TrainingJobName"] == "lonely"
    ]
    cloud.end_outage(FAR)
    events_until(cloud, inbox, "lonely", "Completed")
    assert "lonely" in names(cloud, FAR)
    assert "never" not in names(cloud, FAR)
    ended(cloud, OTHER, "neighbour")


@pytest.mark.thorough
def test_in_a_silent_outage_calls_wait_and_do_not_arrive(cloud: LocalCloud, outage: Callable[..., None]) -> None:
    outage(FAR, silent=True)
    impatient = root(cloud, FAR, "sagemaker", read_timeout=1), root(cloud, FAR, "logs", read_timeout=1)
    with pytest.raises(ReadTimeoutError):
        impatient[0].create_training_job(**request("unheard"))
    with pytest.raises(ReadTimeoutError):
        impatient[1].create_log_group(logGroupName="unheard")
    for site in (HOME, OHIO, OTHER):  # sites that share its account, its region, or neither
        root(cloud, site, "sagemaker").list_training_jobs()
        root(cloud, site, "logs").describe_log_groups()
    cloud.end_outage(FAR)
    launch(cloud, FAR, "heard")
    ended(cloud, FAR, "heard")
    root(cloud, FAR, "logs").create_log_group(logGroupName="heard")
    groups = root(cloud, FAR, "logs").describe_log_groups()["logGroups"]
    assert "unheard" not in [*names(cloud, FAR), *(group["logGroupName"] for group in groups)]


def test_an_outage_may_begin_between_a_launch_and_its_answer(
    cloud: LocalCloud, outage: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(phase: str, job: str) -> None:
        if (phase, job) == ("after", "halfway"):
            outage(OHIO)

    monkeypatch.setattr(MEETING, "act", act)
    with pytest.raises(ConnectionClosedError):
        launch(cloud, OHIO, "halfway")
    cloud.end_outage(OHIO)
    assert "halfway" in names(cloud, OHIO)
    ended(cloud, OHIO, "halfway")


def test_the_home_site_has_no_outage(cloud: LocalCloud) -> None:
    with pytest.raises(ValueError, match="is not one of the other sites"):
        cloud.begin_outage(HOME)


# --- satellites -------------------------------------------------------------------------------------

SATELLITE = """
Parameters:
  QueueRoleArn: {Type: String}
  ExternalId: {Type: String, AllowedPattern: "^[A-Za-z0-9+=.@:/_-]{16,40}$"}
  HomeRegion: {Type: String}
Resources:
  Role:
    Type: AWS::IAM::Role
    Properties:
      RoleName: !Sub "NAME-${AWS::Region}"
      AssumeRolePolicyDocument:
        Statement:
          Effect: Allow
          Principal: {AWS: !Ref QueueRoleArn}
          Action: sts:AssumeRole
          Condition: {StringEquals: {"sts:ExternalId": !Ref ExternalId}}
"""


@pytest.mark.thorough
def test_other_sites_get_the_stack_of_the_project(tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "api_contract", tmp_path / "api_contract")
    shutil.copytree(PROJECT / "job_queue", tmp_path / "job_queue")
    shutil.copy(PROJECT / "template.yaml", tmp_path)
    (tmp_path / "satellite.yaml").write_text(SATELLITE.replace("NAME", "sagemaker-queue-satellite"))
    with LocalCloud(project=tmp_path, regions=("eu-west-1", "us-east-2")) as cloud:
        ohio = cloud.sites[1]
        assert cloud.home == EmulatedSite("000000000000", "eu-west-1")
        assert cloud.training.permissions is not None
        role = cloud.client("iam").get_role(RoleName=ohio.role_name)["Role"]
        (statement,) = [role["AssumeRolePolicyDocument"]["Statement"]]
        assert statement["Principal"] == {"AWS": queue_role(cloud)}
        assert statement["Condition"] == {"StringEquals": {"sts:ExternalId": cloud.external_id}}
        assert cloud.client("sqs").meta.region_name == cloud.environment()["AWS_REGION"] == "eu-west-1"
        assert ".eu-west-1." in cloud.environment()["SAGEMAKER_QUEUE_IMAGE"]


@pytest.mark.thorough
def test_random_outages_come_and_go_and_one_site_is_throttled() -> None:
    faults = Faults({"partition": 0.5}, seed=1)
    regions = ("us-east-1", "us-east-2", "us-west-2")
    west = EmulatedSite("000000000000", "us-west-2")
    with LocalCloud(regions=regions, faults=faults, site_faults={west: Faults({"throttle": 1.0})}) as cloud:

        def outcome(site: EmulatedSite) -> str:
            try:
                root(cloud, site, "sagemaker", read_timeout=PATIENCE).list_training_jobs()
            except ConnectionClosedError:  # in a silent outage: at its end
                return "none"
            except ClientError as error:
                return str(error.response["Error"]["Code"])
            return "answered"

        until(lambda: outcome(OHIO) == "none")
        until(lambda: outcome(OHIO) == "answered")
        until(lambda: outcome(OHIO) == "none")
        assert cloud.fault_counts()["partition"] >= 2
        assert outcome(HOME) == "answered"
        faults.end()
        until(lambda: outcome(OHIO) == "answered")
        until(lambda: outcome(west) == "ThrottlingException")


def test_one_site_makes_no_difference() -> None:
    cloud = LocalCloud()
    assert cloud.sites == (HOME,)
    assert cloud._parameters_of_sites() == cloud._sites_variable() == {}
    assert cloud._root_keys({}) == []
    assert pool_lines(cloud) == []
