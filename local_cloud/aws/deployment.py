"""Deployment of the real template to the local cloud, as `sam deploy` would do it."""

import io
import json
import logging
import py_compile
import sys
import time
import uuid
import zipfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from importlib.util import cache_from_source
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from samtranslator.model.exceptions import InvalidDocumentException
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from samtranslator.utils.py27hash_fix import to_py27_compatible_template, undo_mark_unicode_str_in_template
from samtranslator.yaml_helper import yaml_parse

from local_cloud.user_errors import LocalCloudError

STACK = "sagemaker-queue"
BUCKET = "sagemaker-queue-artifacts"
WORK_BUCKET = "sagemaker-queue-work"
ROLE = "sagemaker-training"
FUNCTIONS = ("QueueFunction", "ReadFunction")
# stack output that holds a function's name -> template parameter that holds the function's reserved concurrency
CONCURRENCY = {"FunctionName": "ReservedConcurrency", "ReadFunctionName": "ReadConcurrency"}
CODE = ("api_contract", "job_queue")  # folders
# Optional modules of boto3 that the function in AWS does not have. They are hidden here too, because loading them would
# take a third of a cold start.
ABSENT = ("awscrt", "OpenSSL")
DEPLOYED_WITHIN = 300.0  # seconds; a deployment takes about one second

logging.getLogger("samtranslator").addHandler(logging.NullHandler())  # its warnings are for its developers

ClientFactory = Callable[[str], Any]


def create_training_role(client: ClientFactory) -> str:
    """Make the role of users' training jobs, and return its ARN."""
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
        ],
    }
    # The permissions that the SDK v3 checks before it uses a role, and those of the SSM agent for a shell in a job.
    services = ("cloudwatch", "ec2", "ecr", "kms", "logs", "s3", "sagemaker", "ssmmessages")
    allowed = {"Effect": "Allow", "Action": [f"{service}:*" for service in services], "Resource": "*"}
    iam = client("iam")
    role = iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument=json.dumps(trust))
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.put_role_policy(RoleName=ROLE, PolicyName="training", PolicyDocument=policy)
    return str(role["Role"]["Arn"])


def create_bucket(s3: Any, name: str) -> None:
    """Create a bucket in the region of the S3 client. A LocationConstraint names the region, except us-east-1."""
    region = s3.meta.region_name
    place = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    s3.create_bucket(Bucket=name, **place)


def create_work_bucket(client: ClientFactory) -> str:
    """Create the bucket for jobs that share instances (docs/operate/share-instances.md), and return its name."""
    s3 = client("s3")
    create_bucket(s3, WORK_BUCKET)
    s3.put_bucket_notification_configuration(
        Bucket=WORK_BUCKET, NotificationConfiguration={"EventBridgeConfiguration": {}}
    )
    return WORK_BUCKET


def deploy(client: ClientFactory, project: Path, parameters: Mapping[str, str]) -> dict[str, str]:
    """Deploy `project`'s template.yaml, with the folders of CODE as the functions' code; return the stack's outputs.

    Raise LocalCloudError if CloudFormation refuses the template (the message has the faulty resources), or needs longer
    than DEPLOYED_WITHIN.
    """
    s3 = client("s3")
    create_bucket(s3, BUCKET)
    s3.put_object(Bucket=BUCKET, Key="job_queue.zip", Body=function_code(project))
    template = packaged_template(project)
    # Lambda workers run under the interpreter that runs ministack, whatever the template's default is.
    given = {"Runtime": f"python3.{sys.version_info.minor}", **parameters}
    cloudformation = client("cloudformation")
    body = expanded(json.dumps(template), cloudformation.meta.region_name)
    s3.put_object(Bucket=BUCKET, Key="template.json", Body=body.encode())
    cloudformation.create_stack(
        StackName=STACK,
        TemplateURL=f"https://s3.amazonaws.com/{BUCKET}/template.json",  # too large for TemplateBody, as on AWS
        Parameters=[
            {"ParameterKey": name, "ParameterValue": value}
            for name, value in given.items()
            if name in template.get("Parameters", {})
        ],
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
    )
    deadline = time.monotonic() + DEPLOYED_WITHIN
    while True:
        stack = cloudformation.describe_stacks(StackName=STACK)["Stacks"][0]
        if stack["StackStatus"] == "CREATE_COMPLETE":
            outputs = {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}
            _reserve_concurrency(client, outputs, template, given)
            return outputs
        if stack["StackStatus"] != "CREATE_IN_PROGRESS":
            raise LocalCloudError(_failure(cloudformation, stack))
        if time.monotonic() > deadline:
            raise LocalCloudError(f"template.yaml was not deployed within {DEPLOYED_WITHIN:.0f} s.")
        time.sleep(0.05)


def scheduled_event(client: ClientFactory, function_arn: str) -> dict[str, Any]:
    """Return the event with which the template's schedule calls the function.

    ministack runs the schedule itself. Callers that do not wait for the schedule send this event.
    """
    events = client("events")
    for name in events.list_rule_names_by_target(TargetArn=function_arn)["RuleNames"]:
        rule = events.describe_rule(Name=name)
        if not rule.get("ScheduleExpression"):
            continue
        for target in events.list_targets_by_rule(Rule=name)["Targets"]:
            if "Input" in target:
                return dict(json.loads(target["Input"]))
        account, region = function_arn.split(":")[4], function_arn.split(":")[3]
        return {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "Scheduled Event",
            "source": "aws.events",
            "account": account,
            "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": region,
            "resources": [rule["Arn"]],
            "detail": {},
        }
    raise LocalCloudError("template.yaml has no schedule for the function.")


def packaged_template(project: Path) -> dict[str, Any]:
    """Return the template as `sam package` leaves it: the function's code is an object in S3."""
    path = project / "template.yaml"
    try:
        template: dict[str, Any] = yaml_parse(path.read_text())
        functions = [template["Resources"][name]["Properties"] for name in FUNCTIONS]
    except FileNotFoundError:
        raise LocalCloudError(
            f"There is no {path}: the local cloud deploys the queue from its sources, so run it from a checkout."
        ) from None
    except Exception as error:
        raise LocalCloudError(f"{path} cannot be read as a template with {FUNCTIONS}: {error}") from error
    for properties in functions:
        properties["CodeUri"] = f"s3://{BUCKET}/job_queue.zip"
    return template


@lru_cache
def expanded(template: str, region: str) -> str:
    """Return the template after the SAM transform, or unchanged if SAM refuses it: CloudFormation then reports why.

    The transform runs here, once for each template and region. Otherwise ministack would load and run SAM for each
    stack, which is a third of ministack's work until the queue is up.
    """
    session: Any = SimpleNamespace(region_name=region)  # instead of a session with the user's own settings
    fragment = json.loads(template)
    to_py27_compatible_template(fragment, {})
    try:
        made = Translator(None, Parser(), boto_session=session).translate(fragment, {}, get_managed_policy_map=dict)
    except InvalidDocumentException:
        return template
    return json.dumps(undo_mark_unicode_str_in_template(made))


def function_code(project: Path) -> bytes:
    """Return the functions' code as a zip file.

    Dependencies are not included: the workers inherit those of the running interpreter. The file also contains
    bytecode, because each worker unpacks the file for itself and would otherwise compile all of the sources.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in ABSENT:
            archive.writestr(f"{name}.py", f'raise ModuleNotFoundError("No module named {name}", name="{name}")')
        for path in sorted(path for code in CODE for path in (project / code).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(project))
                _add_bytecode(archive, path, path.relative_to(project))
    return content.getvalue()


def _add_bytecode(archive: zipfile.ZipFile, source: Path, name: Path) -> None:
    """Add the bytecode of a source file. A file that does not compile has no bytecode: its import reports the error."""
    if source.suffix == ".py" and (bytecode := _bytecode(source.read_bytes(), str(name))):
        archive.writestr(cache_from_source(str(name)), bytecode)


@lru_cache(maxsize=1000)
def _bytecode(source: bytes, name: str) -> bytes | None:
    with TemporaryDirectory() as folder:
        file, compiled = Path(folder, "source.py"), Path(folder, "compiled")
        file.write_bytes(source)
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH  # independent of the time of the unpacked file
        done = py_compile.compile(str(file), str(compiled), name, quiet=2, invalidation_mode=unchecked)
        return compiled.read_bytes() if done else None


def _reserve_concurrency(
    client: ClientFactory, outputs: Mapping[str, str], template: Mapping[str, Any], given: Mapping[str, str]
) -> None:
    """Reserve concurrent executions by a call of the API.

    ministack ignores reservations in the template, and enforces only those made by an API call.
    """
    for output, parameter in CONCURRENCY.items():
        executions = int(given.get(parameter, template["Parameters"][parameter]["Default"]))
        if executions:
            client("lambda").put_function_concurrency(
                FunctionName=outputs[output], ReservedConcurrentExecutions=executions
            )


def _failure(cloudformation: Any, stack: Mapping[str, Any]) -> str:
    """Return a message with the reason of each resource that could not be deployed."""
    pages = cloudformation.get_paginator("describe_stack_events").paginate(StackName=STACK)
    events = [event for page in pages for event in page["StackEvents"]]
    reasons = [
        f"  {event['LogicalResourceId']} ({event['ResourceType']}): {event['ResourceStatusReason']}"
        for event in reversed(events)
        if event["ResourceStatus"].endswith("_FAILED") and event.get("ResourceStatusReason")
    ] or [f"  {stack.get('StackStatusReason', 'no reason given')}"]
    return f"template.yaml could not be deployed ({stack['StackStatus']}):\n" + "\n".join(reasons)
