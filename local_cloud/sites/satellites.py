"""Satellites: a role that the queue assumes at another site, and a rule that forwards the site's events to the queue.

If the project's folder has satellite.yaml, each of the other sites gets the stack of this template. Otherwise this
module makes the rule, and a role with more rights than the template's, by API calls.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from samtranslator.yaml_helper import yaml_parse

from local_cloud.aws.deployment import DEPLOYED_WITHIN, expanded
from local_cloud.sagemaker.events import DETAIL_TYPE
from local_cloud.sites.emulated_site import EmulatedSite
from local_cloud.user_errors import LocalCloudError

TEMPLATE = "satellite.yaml"
STACK = "sagemaker-queue-satellite"
SHARED_PARAMETERS = ("CheckpointBuckets", "FailureLogs", "TrainingPlanArns")
FORWARDER = "sagemaker-queue-forwarder"
RULE = "sagemaker-queue-forward"
_SERVICES = ("cloudwatch", "logs", "s3", "sagemaker")

ClientFactory = Callable[[str], Any]


def prepare(
    client: ClientFactory,
    project: Path,
    home: EmulatedSite,
    site: EmulatedSite,
    queue_role: str,
    external_id: str,
    job_role: str,
    parameters: Mapping[str, str],
) -> None:
    """Prepare a site. Raise LocalCloudError if satellite.yaml cannot be deployed.

    :param client: makes boto3 clients of the site.
    :param queue_role: the role of the queue's function, which may assume the satellite's role.
    :param external_id: the external id that AssumeRole requires.
    :param job_role: the role of training jobs in the site's account.
    :param parameters: the parameters of the queue's stack. SHARED_PARAMETERS also apply to the satellite's stack.
    """
    if (project / TEMPLATE).exists():
        given = {
            **{name: value for name, value in parameters.items() if name in SHARED_PARAMETERS},
            "QueueRoleArn": queue_role,
            "ExternalId": external_id,
            "AllowedRoleArns": job_role,
            "HomeAccount": home.account,
            "HomeRegion": home.region,
        }
        deploy(client, project / TEMPLATE, site, given)
    else:
        _create_role(client, site, queue_role, external_id, job_role)
        _create_forwarding(client, home, site)


def deploy(client: ClientFactory, template: Path, site: EmulatedSite, parameters: Mapping[str, str]) -> None:
    """Deploy the satellite's template to a site. Ignore parameters that the template does not have.

    Raise LocalCloudError if this fails, or if the stack has no role of the expected name.
    """
    document = yaml_parse(template.read_text())
    cloudformation = client("cloudformation")
    cloudformation.create_stack(
        StackName=f"{STACK}-{site.region}",
        TemplateBody=expanded(json.dumps(document), site.region),
        Parameters=[
            {"ParameterKey": name, "ParameterValue": value}
            for name, value in parameters.items()
            if name in document.get("Parameters", {})
        ],
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
    )
    deadline = time.monotonic() + DEPLOYED_WITHIN
    while True:
        stack = cloudformation.describe_stacks(StackName=f"{STACK}-{site.region}")["Stacks"][0]
        if stack["StackStatus"] == "CREATE_COMPLETE":
            break
        if stack["StackStatus"] != "CREATE_IN_PROGRESS" or time.monotonic() > deadline:
            events = cloudformation.describe_stack_events(StackName=f"{STACK}-{site.region}")["StackEvents"]
            reasons = [event["ResourceStatusReason"] for event in events if event.get("ResourceStatusReason")]
            raise LocalCloudError(f"{template.name} was not deployed to {site}: {'; '.join(reasons) or 'too slow'}")
        time.sleep(0.05)
    roles = client("iam").list_roles()["Roles"]
    if site.role_arn not in [role["Arn"] for role in roles]:
        raise LocalCloudError(f"{template.name} has made no role {site.role_name} in {site}.")


def _create_role(client: ClientFactory, site: EmulatedSite, queue_role: str, external_id: str, job_role: str) -> None:
    trust = {
        "Effect": "Allow",
        "Principal": {"AWS": queue_role},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"sts:ExternalId": external_id}},
    }
    here = {"StringEquals": {"aws:RequestedRegion": site.region}}
    rights = {
        "Effect": "Allow",
        "Action": [f"{service}:*" for service in _SERVICES],
        "Resource": "*",
        "Condition": here,
    }
    passed = {
        "Effect": "Allow",
        "Action": "iam:PassRole",
        "Resource": job_role,
        "Condition": {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
    }
    iam = client("iam")
    iam.create_role(RoleName=site.role_name, AssumeRolePolicyDocument=_policy(trust))
    iam.put_role_policy(RoleName=site.role_name, PolicyName="satellite", PolicyDocument=_policy(rights, passed))


def _create_forwarding(client: ClientFactory, home: EmulatedSite, site: EmulatedSite) -> None:
    """Forward the events of training jobs of this site to the home bus."""
    trust = {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sts:AssumeRole"}
    allowed = {"Effect": "Allow", "Action": "events:PutEvents", "Resource": home.bus_arn}
    iam, events = client("iam"), client("events")
    name = f"{FORWARDER}-{site.region}"
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=_policy(trust))["Role"]["Arn"]
    iam.put_role_policy(RoleName=name, PolicyName="forward", PolicyDocument=_policy(allowed))
    pattern = {
        "source": ["aws.sagemaker"],
        "detail-type": [DETAIL_TYPE],
        "account": [site.account],
        "region": [site.region],
    }
    events.put_rule(Name=RULE, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=RULE, Targets=[{"Id": "home", "Arn": home.bus_arn, "RoleArn": role}])


def _policy(*statements: Mapping[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})
