"""satellite.yaml, and the parts of template.yaml for other regions and accounts: who may do what, and who may not."""

import copy
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ministack.core.iam_evaluator import (
    EvalContext,
    evaluate,
    evaluate_resource_policy,
    evaluate_trust_policy,
    parse_policy_document,
)

from local_cloud.sagemaker.events import DETAIL_TYPE
from tests.documents import read_template
from tests.filled_template import ACCOUNT, Filling, size

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
HOME: Json = read_template()
SATELLITE: Json = read_template("satellite.yaml")
REGION, ELSEWHERE, FURTHER = "us-east-1", "us-east-2", "eu-west-1"
OTHER_ACCOUNT, STRANGER = "222222222222", "333333333333"
EXTERNAL_ID = "3f0c9f3e-6a38-4ad6-9d2e-4f3f8f2b1c55"
QUEUE_ROLE = f"arn:aws:iam::{ACCOUNT}:role/training-job-queue-QueueRole-1A2B3C"
SATELLITE_ROLE = f"arn:aws:iam::{OTHER_ACCOUNT}:role/sagemaker-queue-satellite-{ELSEWHERE}"
KEYS = f"arn:aws:kms:{ELSEWHERE}:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
NEEDED = {
    "QueueRoleArn": QUEUE_ROLE,
    "ExternalId": EXTERNAL_ID,
    "HomeAccount": OTHER_ACCOUNT,
    "HomeRegion": REGION,
    "AllowedRoleArns": f"arn:aws:iam::{ACCOUNT}:role/training",
}
SITES = {
    "OtherRegions": f"{ELSEWHERE},{FURTHER}",
    "SatelliteAccounts": OTHER_ACCOUNT,
    "SatelliteRoleArns": SATELLITE_ROLE,
    "SatelliteExternalId": EXTERNAL_ID,
}
OF_OTHER_SITES = {"OtherSitesPolicy", "SatelliteEvents", "SilentSiteAlarm"}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def satellite(region: str = ELSEWHERE, partition: str = "aws", **parameters: str) -> Filling:
    return Filling(SATELLITE, NEEDED | parameters, partition, region, "sagemaker-queue-satellite")


def home(**parameters: str) -> Filling:
    return Filling(HOME, {"AllowedRoleArns": NEEDED["AllowedRoleArns"], **parameters}, "aws", REGION, "queue")


def properties(template: Json, name: str) -> Json:
    found: Json = template["Resources"][name]["Properties"]
    return found


def statements(policy: Json) -> dict[str, Json]:
    """Sid -> statement, without the conditions of CloudFormation around it."""
    plain = []
    for one in policy["Statement"]:
        statement = one
        while "Fn::If" in statement:
            statement = statement["Fn::If"][1]
        plain.append(statement)
    return {one["Sid"]: one for one in plain}


def policy_of(template: Json, role: str) -> Json:
    (policy,) = properties(template, role)["Policies"]
    found: Json = policy["PolicyDocument"]
    return found


# --- parameters


def test_what_the_satellite_asks_for() -> None:
    parameters = SATELLITE["Parameters"]
    assert {name for name, one in parameters.items() if "Default" not in one} == set(NEEDED)
    assert {one["Type"] for one in parameters.values()} == {"String"}
    groups = SATELLITE["Metadata"]["AWS::CloudFormation::Interface"]
    assert sorted(name for group in groups["ParameterGroups"] for name in group["Parameters"]) == sorted(parameters)
    assert set(groups["ParameterLabels"]) == set(parameters)
    for name, value in NEEDED.items():
        assert re.fullmatch(parameters[name]["AllowedPattern"], value), name
        assert not re.fullmatch(parameters[name]["AllowedPattern"], "*"), name
        assert not re.fullmatch(parameters[name]["AllowedPattern"], ""), name


@pytest.mark.parametrize("name", ["CheckpointBuckets", "TrainingPlanArns", "VolumeKmsKeyArns", "AllowedRoleArns"])
def test_a_parameter_has_the_form_that_the_home_stack_has(name: str) -> None:
    for field in ("AllowedPattern", "MaxLength"):
        assert SATELLITE["Parameters"][name][field] == HOME["Parameters"][name][field]


def test_the_external_id_has_one_form() -> None:
    asked, given = SATELLITE["Parameters"]["ExternalId"], HOME["Parameters"]["SatelliteExternalId"]
    assert given["AllowedPattern"] == f"^$|{asked['AllowedPattern']}"


def test_roles_in_other_sites_are_assumed_with_an_external_id_or_not_at_all() -> None:
    rule = HOME["Rules"]["ANamedSatellite"]
    assert rule["RuleCondition"] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "SatelliteRoleArns"}, ""]}]}
    (assertion,) = rule["Assertions"]
    assert assertion["Assert"] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "SatelliteExternalId"}, ""]}]}


def test_samconfig_deploys_the_satellite_under_a_name_of_its_own() -> None:
    settings = tomllib.loads((ROOT / "samconfig.toml").read_text())
    own = settings["satellite"]["deploy"]["parameters"]
    assert own["template_file"] == "satellite.yaml"
    assert own["capabilities"] == "CAPABILITY_NAMED_IAM"
    names = {settings[one]["global"]["parameters"]["stack_name"] for one in ("default", "satellite")}
    assert len(names) == 2
    assert not set(own) & {"parameter_overrides", "region"}


# --- the role of a satellite


def test_the_rights_are_those_of_the_queue_that_concern_training_jobs() -> None:
    at_home, there = (statements(policy_of(*it)) for it in ((HOME, "QueueRole"), (SATELLITE, "SatelliteRole")))
    assert {sid: at_home[sid] for sid in there} == there
    services = ("sagemaker:", "iam:", "kms:", "cloudwatch:", "logs:FilterLogEvents")
    concerned = {sid for sid, one in at_home.items() if as_list(one["Action"])[0].startswith(services)}
    assert set(there) == concerned | {"ListCheckpoints"}


@pytest.mark.attack
def test_only_the_queue_assumes_the_role_and_only_with_the_external_id() -> None:
    trust = satellite().fill(properties(SATELLITE, "SatelliteRole")["AssumeRolePolicyDocument"])

    def assumed(role: str, external_id: str | None, account: str = ACCOUNT) -> bool:
        arn = f"arn:aws:sts::{account}:assumed-role/{role}/queue"
        context = EvalContext(
            principal_arn=arn,
            principal_type="AssumedRole",
            principal_account=account,
            action="sts:AssumeRole",
            resource_arn=SATELLITE_ROLE,
            region=ELSEWHERE,
            service_context={"sts:externalid": external_id},
        )
        return bool(evaluate_trust_policy(trust, arn, context))

    role = QUEUE_ROLE.rpartition("/")[2]
    assert assumed(role, EXTERNAL_ID)
    assert not assumed(role, None)
    assert not assumed(role, EXTERNAL_ID[:-1])
    assert not assumed("administrator", EXTERNAL_ID)
    assert not assumed(role, EXTERNAL_ID, STRANGER)


@pytest.mark.attack
def test_the_satellite_passes_only_the_named_roles_and_only_to_sagemaker() -> None:
    passing = statements(policy_of(SATELLITE, "SatelliteRole"))["PassAllowedRoles"]
    assert passing["Resource"] == {"Fn::Split": [",", {"Ref": "AllowedRoleArns"}]}
    assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
    every = [one for one in statements(policy_of(SATELLITE, "SatelliteRole")).values() if one["Resource"] == "*"]
    assert {action for one in every for action in as_list(one["Action"])} == {
        "cloudwatch:GetMetricData",
        "sagemaker:ListTrainingJobs",
    }


@pytest.mark.parametrize(("parameter", "sid"), [("FailureLogs", "ReadTheLogs"), ("GpuMetrics", "LookWhatGpusDo")])
def test_a_right_that_the_operator_does_not_want_is_not_given(parameter: str, sid: str) -> None:
    policy = policy_of(SATELLITE, "SatelliteRole")
    given, refused = (str(satellite(**{parameter: value}).fill(policy)) for value in ("true", "false"))
    assert sid in given and sid not in refused
    for name in ("ListCheckpoints", "LetVolumesBeEncrypted"):
        assert name not in given, "without buckets and keys"


@pytest.mark.parametrize(("partition", "region"), [("aws", "ap-southeast-1"), ("aws-us-gov", "us-gov-west-1")])
def test_at_the_maximum_of_all_parameters_the_policy_fits_into_a_role(partition: str, region: str) -> None:
    longest = {name: "x" * one["MaxLength"] for name, one in SATELLITE["Parameters"].items() if "MaxLength" in one}
    lists = {name: ",".join(["a" * 49] * (len(value) // 50)) for name, value in longest.items() if len(value) >= 400}
    policy = satellite(region, partition, **lists).fill(policy_of(SATELLITE, "SatelliteRole"))
    assert size(policy) <= 10_240


def test_boundaries_guardrails_and_names_are_those_of_the_account() -> None:
    roles = {name: one["Properties"] for name, one in SATELLITE["Resources"].items() if one["Type"] == "AWS::IAM::Role"}
    assert set(roles) == {"SatelliteRole", "ForwardingRole"}
    boundary = {"Fn::If": ["WithBoundary", {"Ref": "PermissionsBoundaryArn"}, {"Ref": "AWS::NoValue"}]}
    assert all(role["PermissionsBoundary"] == boundary for role in roles.values())
    assert satellite().fill(roles["SatelliteRole"]["RoleName"]) == f"sagemaker-queue-satellite-{ELSEWHERE}"
    assert satellite(RoleName="mine").fill(roles["SatelliteRole"]["RoleName"]) == "mine"
    assert roles["SatelliteRole"]["MaxSessionDuration"] == 3600


# --- events


@pytest.mark.attack
def test_no_event_is_forwarded_twice() -> None:
    rule = SATELLITE["Resources"]["ForwardingRule"]
    pattern = satellite().fill(rule["Properties"]["EventPattern"])
    assert (pattern["account"], pattern["region"]) == ([ACCOUNT], [ELSEWHERE])
    assert (pattern["source"], pattern["detail-type"]) == (["aws.sagemaker"], [DETAIL_TYPE])
    at_home = {"HomeAccount": ACCOUNT, "HomeRegion": ELSEWHERE}
    away = [{}, {"HomeAccount": ACCOUNT}, {"HomeRegion": ELSEWHERE}]
    assert all(satellite(**parameters).fill({"Condition": rule["Condition"]}) for parameters in away)
    assert not satellite(**at_home).fill({"Condition": rule["Condition"]})
    others = {"ForwardingRole", "UndeliveredEvents", "UndeliveredEventsPolicy", "UndeliveredEventAlarm"}
    assert {SATELLITE["Resources"][name]["Condition"] for name in others} == {rule["Condition"]}
    at_the_end = properties(HOME, "QueueFunction")["Events"]["TrainingJobStateChange"]["Properties"]
    assert "Target" not in at_the_end, "the home rule calls the function, and no bus"


def test_the_same_events_are_forwarded_as_the_home_rule_takes() -> None:
    taken = properties(HOME, "QueueFunction")["Events"]["TrainingJobStateChange"]["Properties"]["Pattern"]
    forwarded = properties(SATELLITE, "ForwardingRule")["EventPattern"]
    assert {**forwarded, "account": 0} == {**taken, "account": 0, "region": forwarded["region"]}


def test_events_are_put_on_the_home_bus_by_a_role_with_no_other_right() -> None:
    (target,) = satellite().fill(properties(SATELLITE, "ForwardingRule")["Targets"])
    (statement,) = satellite().fill(policy_of(SATELLITE, "ForwardingRole"))["Statement"]
    assert target["Arn"] == statement["Resource"] == f"arn:aws:events:{REGION}:{OTHER_ACCOUNT}:event-bus/default"
    assert statement["Action"] == "events:PutEvents"
    (trust,) = satellite().fill(properties(SATELLITE, "ForwardingRole")["AssumeRolePolicyDocument"])["Statement"]
    assert trust["Principal"] == {"Service": "events.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}
    assert target["RetryPolicy"]["MaximumEventAgeInSeconds"] == 3600


def test_an_undelivered_event_is_kept_and_raises_an_alarm() -> None:
    kept = {"Fn::GetAtt": ["UndeliveredEvents", "Arn"]}
    (target,) = properties(SATELLITE, "ForwardingRule")["Targets"]
    assert target["DeadLetterConfig"] == {"Arn": kept}
    assert properties(SATELLITE, "UndeliveredEvents")["SqsManagedSseEnabled"] is True
    (statement,) = properties(SATELLITE, "UndeliveredEventsPolicy")["PolicyDocument"]["Statement"]
    assert (statement["Principal"], statement["Action"]) == ({"Service": "events.amazonaws.com"}, "sqs:SendMessage")
    assert statement["Condition"] == {"ArnEquals": {"aws:SourceArn": {"Fn::GetAtt": ["ForwardingRule", "Arn"]}}}
    alarm = properties(SATELLITE, "UndeliveredEventAlarm")
    assert (alarm["MetricName"], alarm["TreatMissingData"]) == ("ApproximateNumberOfMessagesVisible", "notBreaching")
    topic = {"Fn::If": ["WithAlarmTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
    assert alarm["AlarmActions"] == alarm["OKActions"] == topic


@pytest.mark.attack
@pytest.mark.parametrize(
    ("account", "changes", "allowed"),
    [
        (OTHER_ACCOUNT, {}, True),
        (STRANGER, {}, False),
        (OTHER_ACCOUNT, {"events:source": ["sagemaker-queue"]}, False),
        (OTHER_ACCOUNT, {"events:source": ["aws.sagemaker", "sagemaker-queue"]}, False),
        (OTHER_ACCOUNT, {"events:detail-type": "Wake Up"}, False),
        (OTHER_ACCOUNT, {"events:detail-type": None}, False),
    ],
)
def test_only_named_accounts_put_events_and_only_those_of_training_jobs(
    account: str, changes: Json, allowed: bool
) -> None:
    statement = home(**SITES).fill(properties(HOME, "SatelliteEvents")["Statement"])
    assert statement["Action"] == "events:PutEvents", "and no rule can be made or changed"
    event = {"events:source": ["aws.sagemaker"], "events:detail-type": DETAIL_TYPE}
    context = EvalContext(
        principal_arn=f"arn:aws:sts::{account}:assumed-role/forwarding/rule",
        principal_type="AssumedRole",
        principal_account=account,
        action="events:PutEvents",
        resource_arn=f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/default",
        region=REGION,
        service_context=event | changes,
    )
    found = evaluate_resource_policy({"Version": "2012-10-17", "Statement": [statement]}, context)
    assert (found.decision == "Allow") is allowed


# --- the home stack


def test_without_other_sites_nothing_is_added_to_the_stack() -> None:
    conditions = {name: HOME["Resources"][name]["Condition"] for name in OF_OTHER_SITES}
    assert not [name for name, condition in conditions.items() if home().fill({"Condition": condition})]
    assert all(home(**SITES).fill({"Condition": condition}) for condition in conditions.values())
    event = properties(HOME, "QueueFunction")["Events"]["TrainingJobStateChange"]["Properties"]
    assert home().fill(event["Pattern"]["account"]) == [ACCOUNT]
    assert home(**SITES).fill(event["Pattern"]["account"]) == [ACCOUNT, OTHER_ACCOUNT]
    words = (*SITES, "WithSatellite", "WithOther", "WithRightsElsewhere")
    named = {name for name, one in HOME["Resources"].items() if any(word in str(one) for word in words)}
    assert named == OF_OTHER_SITES | {"QueueFunction", "Dashboard"}, "the rule and the list of alarms, tested here"
    assert "${MoreAlarms}" in properties(HOME, "Dashboard")["DashboardBody"]["Fn::Sub"][0]


@pytest.mark.parametrize(
    ("parameter", "made"),
    [
        ("OtherRegions", {"OtherSitesPolicy", "SilentSiteAlarm"}),
        ("SatelliteRoleArns", {"OtherSitesPolicy", "SilentSiteAlarm"}),
        ("SatelliteAccounts", {"SatelliteEvents", "SilentSiteAlarm"}),
        ("SatelliteExternalId", set()),
    ],
)
def test_a_parameter_adds_only_its_own_resources(parameter: str, made: set[str]) -> None:
    filling = home(**{parameter: SITES[parameter]})
    there = {name for name in OF_OTHER_SITES if filling.fill({"Condition": HOME["Resources"][name]["Condition"]})}
    assert there == made


def elsewhere(**parameters: str) -> Json:
    """Return the policy for other sites."""
    found: Json = home(**parameters).fill(properties(HOME, "OtherSitesPolicy")["PolicyDocument"])
    return found


def test_the_queue_assumes_exactly_the_named_roles() -> None:
    (statement,) = elsewhere(SatelliteRoleArns=f"{SATELLITE_ROLE},{SATELLITE_ROLE}-2")["Statement"]
    assert statement["Action"] == "sts:AssumeRole"
    assert statement["Resource"] == [SATELLITE_ROLE, f"{SATELLITE_ROLE}-2"]
    assert not [one for one in elsewhere(OtherRegions=ELSEWHERE)["Statement"] if one["Action"] == "sts:AssumeRole"]


def arn(service: str, resource: str, region: str = ELSEWHERE) -> str:
    return f"arn:aws:{service}:{region}:{ACCOUNT}:{resource}"


ATTEMPT, OWN = "training-job/job1-qstamp-1", {"aws:ResourceTag/queue-name": "sagemaker-queue"}
AT_LAUNCH = {"aws:RequestTag/queue-name": "sagemaker-queue"}
GRANT = {"kms:GrantIsForAWSResource": "true", "kms:ViaService": f"sagemaker.{ELSEWHERE}.amazonaws.com"}
# (Sid, action) -> the resource in another region, the condition keys, and the statement of QueueRole in the home region
RIGHTS_ELSEWHERE: dict[tuple[str, str], tuple[str, str, Json, str]] = {
    ("LaunchAttemptsElsewhere", "sagemaker:CreateTrainingJob"): ("sagemaker", ATTEMPT, AT_LAUNCH, "LaunchAttempts"),
    ("TagAttemptsAtLaunchElsewhere", "sagemaker:AddTags"): (
        "sagemaker",
        ATTEMPT,
        {**AT_LAUNCH, "sagemaker:TaggingAction": "CreateTrainingJob"},
        "TagAttemptsAtLaunch",
    ),
    ("LaunchOnTrainingPlansElsewhere", "sagemaker:CreateTrainingJob"): (
        "sagemaker",
        "training-plan/winter",
        {},
        "LaunchOnTrainingPlans",
    ),
    ("LetVolumesBeEncryptedElsewhere", "kms:CreateGrant"): (
        "kms",
        KEYS.rpartition(":")[2],
        GRANT,
        "LetVolumesBeEncrypted",
    ),
    ("ChangeOwnAttemptsElsewhere", "sagemaker:StopTrainingJob"): ("sagemaker", ATTEMPT, OWN, "StopOwnAttempts"),
    ("ChangeOwnAttemptsElsewhere", "sagemaker:UpdateTrainingJob"): ("sagemaker", ATTEMPT, OWN, "ReleaseOwnWarmPools"),
    ("LookElsewhere", "sagemaker:DescribeTrainingJob"): ("sagemaker", ATTEMPT, {}, "LookAtTrainingJobs"),
    ("LookElsewhere", "sagemaker:ListTags"): ("sagemaker", ATTEMPT, {}, "LookAtTrainingJobs"),
    ("LookElsewhere", "sagemaker:DescribeTrainingPlan"): (
        "sagemaker",
        "training-plan/winter",
        {},
        "LookAtTrainingPlans",
    ),
    ("ReadTheLogsOfTrainingJobsElsewhere", "logs:FilterLogEvents"): (
        "logs",
        "log-group:/aws/sagemaker/TrainingJobs",
        {},
        "ReadTheLogsOfTrainingJobs",
    ),
}
ALL_REGIONS = {"OtherRegions": SITES["OtherRegions"], "VolumeKmsKeyArns": KEYS}


def allowed(policy: Json, action: str, resource: str, keys: Json, region: str) -> bool:
    context = EvalContext(
        principal_arn=QUEUE_ROLE,
        principal_type="AssumedRole",
        principal_account=ACCOUNT,
        action=action,
        resource_arn=resource,
        region=region,
        service_context={key.lower(): value for key, value in keys.items()},
        request_tags={key.rpartition("/")[2]: value for key, value in keys.items() if "RequestTag/" in key},
    )
    return bool(evaluate(context, [parse_policy_document(policy)]).decision == "Allow")


def test_the_rights_elsewhere_are_all_those_that_name_the_home_region() -> None:
    granted = [
        (one["Sid"], action) for one in elsewhere(**ALL_REGIONS)["Statement"] for action in as_list(one["Action"])
    ]
    assert sorted(granted) == sorted(RIGHTS_ELSEWHERE)
    at_home = statements(policy_of(HOME, "QueueRole"))
    of_home_region = {
        sid
        for sid, one in at_home.items()
        if re.search(r":(sagemaker|logs):\$\{AWS::Region\}|sagemaker\.\$\{AWS::Region\}", str(one))
    }
    assert {one[3] for one in RIGHTS_ELSEWHERE.values()} == of_home_region


@pytest.mark.parametrize(("sid", "action"), sorted(RIGHTS_ELSEWHERE))
def test_a_right_elsewhere_is_needed_holds_in_named_regions_and_is_that_of_the_home_region(
    sid: str, action: str
) -> None:
    service, resource, keys, at_home = RIGHTS_ELSEWHERE[sid, action]
    policy = elsewhere(**ALL_REGIONS)
    assert allowed(policy, action, arn(service, resource), keys, ELSEWHERE)
    assert not allowed(policy, action, arn(service, resource, "ap-south-1"), keys, "ap-south-1")
    assert not allowed(policy, action, arn(service, resource).replace(ACCOUNT, STRANGER), keys, ELSEWHERE)
    for key in keys:
        assert not allowed(policy, action, arn(service, resource), {**keys, key: "another"}, ELSEWHERE), key
    less = copy.deepcopy(policy)
    for one in less["Statement"]:
        if one["Sid"] == sid:
            one["Action"] = [other for other in as_list(one["Action"]) if other != action] or ["sts:GetCallerIdentity"]
    assert not allowed(less, action, arn(service, resource), keys, ELSEWHERE)
    queue = home(VolumeKmsKeyArns=KEYS.replace(ELSEWHERE, REGION)).fill(policy_of(HOME, "QueueRole"))
    local = {key: value.replace(ELSEWHERE, REGION) for key, value in keys.items()}
    assert action in as_list(statements(queue)[at_home]["Action"])
    assert allowed(queue, action, arn(service, resource, REGION), local, REGION)
    assert not allowed(queue, action, arn(service, resource), keys, ELSEWHERE), "without this policy"


def test_each_exception_for_checkov_has_its_reason() -> None:
    for name, resource in SATELLITE["Resources"].items():
        for exception in resource.get("Metadata", {}).get("checkov", {}).get("skip", []):
            assert len(exception["comment"]) > 40, (name, exception["id"])
