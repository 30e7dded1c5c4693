"""Permission checks for calls of the SageMaker emulator: the permissions that a call needs, and their evaluation.

Only ministack, which runs beside the emulator, has the access keys and policies of the local cloud and evaluates them.
So the emulator sends each request unchanged to ministack, with the actions, resources and condition keys that AWS would
evaluate.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from local_cloud.sagemaker.wire import EmulatedError, SignedCall
from local_cloud.sites.questions import AUTHORIZE, Questions

Request = Mapping[str, Any]
Tags = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Needed:
    """A permission: an action on a resource, and the keys for conditions."""

    action: str
    resource: str
    context: Mapping[str, Any]


class Permissions:
    """The check that refuses calls which the caller's policies do not allow.

    :param tags_of: returns the tags of a training job by its name; empty if there is no such job.
    """

    def __init__(
        self, endpoint: str, region: str, account: str, tags_of: Callable[[str], Tags], token: str = ""
    ) -> None:
        self._questions = Questions(endpoint, token)
        self._region = region
        self._account = account
        self._prefix = f"arn:aws:sagemaker:{region}:{account}"
        self._tags_of = tags_of

    def check(self, call: SignedCall, operation: str, request: Request) -> None:
        """Raise EmulatedError if the caller may not carry out the operation, or if ministack does not answer."""
        question = {
            "headers": call.headers,
            "body": call.body.decode("latin-1"),
            "region": self._region,
            "needed": [
                {"action": permission.action, "resource": permission.resource, "context": dict(permission.context)}
                for permission in self.needed(operation, request)
            ],
        }
        try:
            refusal = self._questions.ask(AUTHORIZE, question)
        except OSError as error:  # ministack is overloaded, as AWS can be
            message = f"The permissions cannot be checked: {error}"
            raise EmulatedError("ServiceUnavailable", message, HTTPStatus.SERVICE_UNAVAILABLE) from error
        if refusal:
            raise EmulatedError(refusal["code"], refusal["message"])

    def needed(self, operation: str, request: Request) -> Iterator[Needed]:
        """Yield the permissions that AWS requires, as its service authorization reference lists them."""
        name = str(request.get("TrainingJobName", ""))
        resource = str(request.get("ResourceArn") or f"{self._prefix}:training-job/{name}")
        if operation == "CreateTrainingJob":
            yield from self._needed_to_create(resource, request)
        elif operation in ("ListTrainingJobs", "Search"):
            yield Needed(f"sagemaker:{operation}", "*", {})
        elif operation == "DescribeTrainingPlan":
            plan = str(request.get("TrainingPlanName", ""))
            arn = plan if plan.startswith("arn:") else f"{self._prefix}:training-plan/{plan}"
            yield Needed("sagemaker:DescribeTrainingPlan", arn, {})
        elif operation in ("StartSession", "TerminateSession"):
            yield from self._needed_for_session(operation, request)
        else:
            tags = self._tags_of(resource.rpartition("/")[2])
            context = {f"aws:ResourceTag/{key}": value for key, value in tags.items()}
            yield Needed(f"sagemaker:{operation}", resource, context | _request_tags(request))

    def _needed_for_session(self, operation: str, request: Request) -> Iterator[Needed]:
        """Yield SSM's permissions: to start a session, on the training job and the document; to end it, on the session.

        The container of the training job is a condition key.
        """
        target = str(request.get("Target", ""))
        if operation == "TerminateSession":
            arn = f"arn:aws:ssm:{self._region}:{self._account}:session/{request.get('SessionId')}"
            yield Needed("ssm:TerminateSession", arn, {})
            return
        training_job = target.partition(":")[2].rpartition("_")[0]
        context = {"ssm:resourceTag/aws:ssmmessages:target-id": target}
        yield Needed("ssm:StartSession", f"{self._prefix}:training-job/{training_job}", context)
        if document := request.get("DocumentName"):
            yield Needed("ssm:StartSession", f"arn:aws:ssm:{self._region}::document/{document}", {})

    def _needed_to_create(self, resource: str, request: Request) -> Iterator[Needed]:
        tags = _request_tags(request)
        yield Needed("sagemaker:CreateTrainingJob", resource, tags | _condition_keys(request))
        if tags:
            yield Needed("sagemaker:AddTags", resource, {**tags, "sagemaker:TaggingAction": "CreateTrainingJob"})
        for plan in _plans(_part(request, "ResourceConfig")):
            yield Needed("sagemaker:CreateTrainingJob", plan, {})
        if role := request.get("RoleArn"):
            yield Needed("iam:PassRole", str(role), {"iam:PassedToService": "sagemaker.amazonaws.com"})


def _request_tags(request: Request) -> dict[str, Any]:
    listed = request.get("Tags")
    if isinstance(removed := request.get("TagKeys"), list):
        return {"aws:TagKeys": [str(key) for key in removed]}
    tags = [tag for tag in listed if isinstance(tag, dict)] if isinstance(listed, Sequence) else []
    if not tags:
        return {}
    keys = [str(tag.get("Key")) for tag in tags]
    return {f"aws:RequestTag/{tag.get('Key')}": tag.get("Value") for tag in tags} | {"aws:TagKeys": keys}


def _plans(resources: Mapping[str, Any]) -> Iterator[str]:
    """Yield the training plans from which a job may take its instances."""
    if plan := resources.get("TrainingPlanArn"):
        yield str(plan)
    preferences = resources.get("InstancePreferences")
    for preference in preferences if isinstance(preferences, Sequence) else ():
        if isinstance(preference, Mapping):
            yield from map(str, preference.get("TrainingPlanArns") or ())


def _condition_keys(request: Request) -> dict[str, Any]:
    """Return the keys for conditions on CreateTrainingJob; keys without a value in the request are absent."""
    resources, network = _part(request, "ResourceConfig"), _part(request, "VpcConfig")
    groups = resources.get("InstanceGroups") or resources.get("InstancePreferences") or []
    types = [part.get("InstanceType") for part in (resources, *groups) if isinstance(part, Mapping)]
    keys = {
        "sagemaker:InstanceTypes": [name for name in types if name],
        "sagemaker:VolumeKmsKey": resources.get("VolumeKmsKeyId"),
        "sagemaker:VpcSubnets": network.get("Subnets"),
        "sagemaker:VpcSecurityGroupIds": network.get("SecurityGroupIds"),
    }
    return {key: value for key, value in keys.items() if value}


def _part(request: Request, name: str) -> Mapping[str, Any]:
    part = request.get(name)
    return part if isinstance(part, Mapping) else {}
