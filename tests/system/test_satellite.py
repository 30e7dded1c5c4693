"""satellite.yaml and the template with parameters for other sites, deployed to the local cloud.

The role of the satellite is assumed by a role that stands for the queue's. The real parts of the queue use it, and fail
without each of its permissions. The local cloud has one account and one region here, so the satellite names another
home region, and the forwarded events themselves are not delivered.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from local_cloud.aws.stack import ACCOUNT, REGION, LocalCloud
from local_cloud.sagemaker.account.options import Account, parse_plan
from local_cloud.sagemaker.events import DETAIL_TYPE
from tests.system.conftest import System
from tests.system.test_permissions import (
    KEY,
    ROOT,
    USES_IN_A_SITE,
    Assumed,
    Json,
    as_list,
    launches,
    refused,
    without,
)
from tests.waiting import PATIENCE

EXTERNAL_ID = "3f0c9f3e-6a38-4ad6-9d2e-4f3f8f2b1c55"
SATELLITE = f"sagemaker-queue-satellite-{REGION}"
ELSEWHERE, OTHER_ACCOUNT = "us-west-2", "222222222222"
QUEUE_ROLE, STRANGER = "stands-for-the-queue", "stands-for-a-stranger"
SITES = {
    "OtherRegions": "eu-west-1,ap-southeast-1",
    "SatelliteAccounts": OTHER_ACCOUNT,
    "SatelliteRoleArns": f"arn:aws:iam::{ACCOUNT}:role/{SATELLITE}",
    "SatelliteExternalId": EXTERNAL_ID,
}


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[LocalCloud]:
    plans = (parse_plan("reserved=9,-60,+999999"),)
    with LocalCloud(slots=2, parameters=SITES, account=Account(plans=plans)) as cloud:
        yield cloud


def deploy(cloud: LocalCloud, stack: str, parameters: Mapping[str, str]) -> dict[str, str]:
    """Deploy satellite.yaml, and return its outputs."""
    cloudformation = cloud.client("cloudformation")
    cloudformation.create_stack(
        StackName=stack,
        TemplateBody=(ROOT / "satellite.yaml").read_text(),
        Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()],
        Capabilities=["CAPABILITY_NAMED_IAM"],
    )
    cloudformation.get_waiter("stack_create_complete").wait(
        StackName=stack, WaiterConfig={"Delay": 1, "MaxAttempts": int(PATIENCE)}
    )
    (made,) = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    return {one["OutputKey"]: one["OutputValue"] for one in made["Outputs"]}


def a_role(system: System, name: str) -> Assumed:
    """Return a role that may assume the satellite's role as far as its own policy decides."""
    iam = system.cloud.client("iam")
    trust = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "sts:AssumeRole"}
    policy = {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": SITES["SatelliteRoleArns"]}
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=document(trust))
    iam.put_role_policy(RoleName=name, PolicyName="assume", PolicyDocument=document(policy))
    return Assumed(system, name, "assume", system.cloud.client("sts"))


def document(*statements: Json) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


@pytest.fixture(scope="module")
def queue_role(shared_system: System) -> Assumed:
    return a_role(shared_system, QUEUE_ROLE)


@pytest.fixture(scope="module")
def deployed(shared_system: System, queue_role: Assumed) -> dict[str, str]:
    """The satellite's outputs, with all permissions that there can be."""
    parameters = {
        "QueueRoleArn": queue_role.arn,
        "ExternalId": EXTERNAL_ID,
        "HomeAccount": ACCOUNT,
        "HomeRegion": ELSEWHERE,
        "AllowedRoleArns": shared_system.cloud.role,
        "CheckpointBuckets": "system",
        "VolumeKmsKeyArns": KEY,
    }
    return deploy(shared_system.cloud, "satellite", parameters)


@pytest.fixture(scope="module")
def satellite(shared_system: System, deployed: dict[str, str], queue_role: Assumed) -> Assumed:
    """The parts of the queue with the satellite's role, as the queue's role assumes it."""
    assert deployed["RoleArn"] == SITES["SatelliteRoleArns"]
    return Assumed(shared_system, SATELLITE, "satellite", queue_role.client("sts"), ExternalId=EXTERNAL_ID)


@pytest.fixture
def all_rights(satellite: Assumed, system: System) -> Iterator[Assumed]:
    """The satellite with all permissions; nothing is left running."""
    satellite.grant(satellite.document)
    yield satellite
    satellite.grant(satellite.document)
    for job in system.attempts():
        if job["TrainingJobStatus"] == "InProgress":
            system.sagemaker.stop_training_job(TrainingJobName=job["TrainingJobName"])


@pytest.mark.thorough
def test_every_permission_of_the_satellite_has_a_use(satellite: Assumed) -> None:
    granted = [(one["Sid"], action) for one in satellite.document["Statement"] for action in as_list(one["Action"])]
    assert sorted(granted) == sorted(USES_IN_A_SITE)


@pytest.mark.parametrize(("sid", "action"), sorted(USES_IN_A_SITE))
def test_a_permission_of_the_satellite_is_used_and_needed(all_rights: Assumed, sid: str, action: str) -> None:
    assert USES_IN_A_SITE[sid, action](all_rights)
    all_rights.grant(without(all_rights.document, sid, action))
    assert not USES_IN_A_SITE[sid, action](all_rights)


@pytest.mark.attack
@pytest.mark.parametrize("given", [{}, {"ExternalId": EXTERNAL_ID[:-1]}, {"ExternalId": EXTERNAL_ID.upper()}])
def test_the_queue_itself_does_not_get_the_role_without_the_external_id(
    satellite: Assumed, queue_role: Assumed, given: dict[str, str]
) -> None:
    assume = queue_role.client("sts").assume_role
    assert assume(RoleArn=satellite.arn, RoleSessionName="queue", ExternalId=EXTERNAL_ID)["Credentials"]
    refused(assume, RoleArn=satellite.arn, RoleSessionName="queue", **given)


@pytest.mark.attack
def test_no_other_role_gets_the_role_with_the_external_id(satellite: Assumed, system: System) -> None:
    stranger = a_role(system, STRANGER).client("sts")
    refused(stranger.assume_role, RoleArn=satellite.arn, RoleSessionName="queue", ExternalId=EXTERNAL_ID)


@pytest.mark.attack
def test_the_satellite_passes_no_other_role(all_rights: Assumed, system: System) -> None:
    role = system.cloud.client("iam").create_role(RoleName="powerful", AssumeRolePolicyDocument=document())
    assert launches(all_rights)
    assert not launches(all_rights, RoleArn=role["Role"]["Arn"])
    assert not launches(all_rights, RoleArn=all_rights.arn)


@pytest.mark.attack
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"Tags": []}, id="without tags"),
        pytest.param({"Tags": [{"Key": "queue-name", "Value": "another"}]}, id="with another queue's tag"),
        pytest.param({"TrainingJobName": "somebodys"}, id="with another name"),
    ],
)
def test_the_satellite_launches_only_attempts(all_rights: Assumed, changes: Json) -> None:
    assert not launches(all_rights, **changes)


@pytest.mark.attack
def test_the_satellite_stops_and_deletes_no_job_of_others(all_rights: Assumed, system: System) -> None:
    name = "of-others-qstamp-1"
    system.sagemaker.create_training_job(**system.request(name, "import time; time.sleep(600)", Tags=[]))
    training = all_rights.client("sagemaker")
    refused(training.stop_training_job, TrainingJobName=name)
    refused(training.delete_training_job, TrainingJobName=name)
    refused(all_rights.client("iam").list_roles)
    refused(all_rights.client("dynamodb").get_item, TableName="sagemaker-queue", Key={"jobName": {"S": "a"}})
    assert system.sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"] == "InProgress"


# --- events


def state_change(account: str = ACCOUNT, region: str = REGION, **changes: Any) -> str:
    detail = {"TrainingJobName": "a-qstamp-1", "TrainingJobStatus": "Completed"}
    return json.dumps(
        {
            "version": "0",
            "id": "6a7e8feb-b491-4cf7-a9f1-bf3703467718",
            "detail-type": DETAIL_TYPE,
            "source": "aws.sagemaker",
            "account": account,
            "time": "2026-11-27T12:00:00Z",
            "region": region,
            "resources": [],
            "detail": detail,
            **changes,
        }
    )


def forwarding_rules(system: System) -> list[Json]:
    """Return the deployed rules that have an event bus as their target, with their targets."""
    events = system.cloud.client("events")
    rules = [{**one, **events.list_targets_by_rule(Rule=one["Name"])} for one in events.list_rules()["Rules"]]
    return [one for one in rules if any(":event-bus/" in target["Arn"] for target in one["Targets"])]


@pytest.mark.attack
def test_the_satellite_forwards_its_own_events_once_and_no_event_that_another_site_sent(
    system: System, deployed: dict[str, str]
) -> None:
    (rule,) = forwarding_rules(system)
    (target,) = rule["Targets"]
    assert target["Arn"] == f"arn:aws:events:{ELSEWHERE}:{ACCOUNT}:event-bus/default"
    matches = system.cloud.client("events").test_event_pattern

    def forwarded(event: str) -> bool:
        return bool(matches(EventPattern=rule["EventPattern"], Event=event)["Result"])

    assert forwarded(state_change())
    assert not forwarded(state_change(region=ELSEWHERE))
    assert not forwarded(state_change(account=OTHER_ACCOUNT))
    assert not forwarded(state_change(source="sagemaker-queue"))


def test_events_that_cannot_be_forwarded_are_kept(system: System, deployed: dict[str, str]) -> None:
    (rule,) = forwarding_rules(system)
    (target,) = rule["Targets"]
    queues = system.cloud.client("sqs")
    found = queues.get_queue_attributes(QueueUrl=deployed["UndeliveredEventsUrl"], AttributeNames=["All"])["Attributes"]
    assert target["DeadLetterConfig"]["Arn"] == found["QueueArn"]
    assert found["SqsManagedSseEnabled"] == "true"
    (statement,) = json.loads(found["Policy"])["Statement"]
    assert statement["Principal"] == {"Service": "events.amazonaws.com"}
    assert statement["Condition"] == {"ArnEquals": {"aws:SourceArn": rule["Arn"]}}
    alarms = system.cloud.client("cloudwatch").describe_alarms(AlarmNamePrefix="satellite-")["MetricAlarms"]
    watched = {"Name": "QueueName", "Value": found["QueueArn"].rpartition(":")[2]}
    assert [one["Dimensions"] for one in alarms] == [[watched]]


# --- the home stack


def test_the_home_stack_takes_events_of_the_named_accounts_only(system: System) -> None:
    events = system.cloud.client("events")
    (statement,) = json.loads(events.describe_event_bus()["Policy"])["Statement"]
    assert statement["Principal"] == {"AWS": [OTHER_ACCOUNT]}
    (pattern,) = (
        one["EventPattern"] for one in events.list_rules()["Rules"] if "TrainingJobStateChange" in one["Name"]
    )

    def taken(event: str) -> bool:
        return bool(events.test_event_pattern(EventPattern=pattern, Event=event)["Result"])

    assert taken(state_change())
    assert taken(state_change(account=OTHER_ACCOUNT, region=ELSEWHERE))
    assert not taken(state_change(account="333333333333"))
    assert not taken(state_change(account=OTHER_ACCOUNT, source="custom"))


def test_the_function_gets_the_external_id_and_may_assume_the_named_roles(system: System) -> None:
    functions, iam = system.cloud.client("lambda"), system.cloud.client("iam")
    function = functions.get_function_configuration(FunctionName=system.cloud.function_name)
    assert function["Environment"]["Variables"]["SATELLITE_EXTERNAL_ID"] == EXTERNAL_ID
    role = function["Role"].rpartition("/")[2]
    (attached,) = iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
    version = iam.get_policy(PolicyArn=attached["PolicyArn"])["Policy"]["DefaultVersionId"]
    policy = iam.get_policy_version(PolicyArn=attached["PolicyArn"], VersionId=version)["PolicyVersion"]["Document"]
    rights = {one["Sid"]: one for one in policy["Statement"]}
    assert as_list(rights["AssumeSatelliteRoles"]["Resource"]) == [SITES["SatelliteRoleArns"]]


def test_the_queue_works_with_parameters_for_other_sites(system: System) -> None:
    system.submit("at-home")
    system.wait_state("at-home", "completed")
