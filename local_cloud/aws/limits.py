"""AWS's limits that can make a deployment of the template fail, and that ministack does not check itself.

Each check runs before ministack's own handler of a resource type in CloudFormation, and fails the resource as AWS does.
Sources: the IAM, Lambda and DynamoDB quota pages, and the CloudFormation reference of AWS::DynamoDB::Table.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ministack.core.responses import get_region
from ministack.services import ec2
from ministack.services.cloudformation import provisioners

INLINE_POLICIES = 10_240  # characters of all inline policies of a role together, without white space
ENVIRONMENT = 4096  # bytes of a function's variables, as JSON
ENDPOINT_SERVICE = "execute-api"
ZONE_WITHOUT_IT = "a"  # last letter of the zone that lacks ENDPOINT_SERVICE; on AWS, too, some zones lack services

Properties = Mapping[str, Any]


def install() -> None:
    """Install each check before ministack's handler, and make DescribeVpcEndpointServices leave out a zone.

    The zone is left out only of the service that it lacks.
    """
    _guard("AWS::IAM::Role", lambda old, new: check_inline_policies(new))
    _guard("AWS::Lambda::Function", lambda old, new: check_environment(new))
    _guard("AWS::EC2::VPCEndpoint", lambda old, new: check_zones(new))
    _guard("AWS::DynamoDB::Table", check_indexes)
    describe = ec2._ACTION_MAP["DescribeVpcEndpointServices"]
    ec2._ACTION_MAP["DescribeVpcEndpointServices"] = lambda request: _without_zone(describe(request))


def check_inline_policies(role: Properties) -> None:
    """Raise ValueError if the inline policies of a role are too large together."""
    documents = [policy["PolicyDocument"] for policy in role.get("Policies", ())]
    size = sum(len(re.sub(r"\s", "", json.dumps(document))) for document in documents)
    if size > INLINE_POLICIES:
        raise ValueError(f"Maximum policy size of {INLINE_POLICIES} bytes exceeded for role ({size})")


def check_environment(function: Properties) -> None:
    """Raise ValueError if the variables of a function are too large together."""
    measured = json.dumps(function.get("Environment", {}).get("Variables", {}), separators=(",", ":"))
    if len(measured.encode()) > ENVIRONMENT:
        raise ValueError(
            "Lambda was unable to configure your environment variables because the environment variables you have "
            f"provided exceeded the 4KB limit. String measured: {measured}"
        )


def check_zones(endpoint: Properties) -> None:
    """Raise ValueError if a subnet of an interface endpoint is in a zone that lacks the service."""
    service = str(endpoint.get("ServiceName", ""))
    for subnet in endpoint.get("SubnetIds", ()) if service.endswith(f".{ENDPOINT_SERVICE}") else ():
        if ec2._subnets.get(subnet, {}).get("AvailabilityZone", "").endswith(ZONE_WITHOUT_IT):
            raise ValueError(
                f"The VPC endpoint service {service} does not support the availability zone of the subnet: {subnet}."
            )


def check_indexes(before: Properties | None, table: Properties) -> None:
    """Raise ValueError if an update changes a global secondary index, or creates and deletes more than one in all."""
    if before is None:
        return
    old, new = ({it["IndexName"]: it for it in one.get("GlobalSecondaryIndexes", ())} for one in (before, table))
    changed = [name for name in old.keys() & new.keys() if old[name] != new[name]]
    if changed:
        raise ValueError(
            "Cannot update GSI's properties other than Provisioned Throughput and Contributor Insights Specification. "
            "You can create a new GSI with a different name."
        )
    if len(old.keys() ^ new.keys()) > 1:
        raise ValueError("Cannot perform more than one GSI creation or deletion in a single update")


def _guard(kind: str, check: Callable[[Properties | None, Properties], None]) -> None:
    """Install a check that runs before ministack creates or updates a resource of this type.

    :param check: gets the properties before (None: the resource is new) and after.
    """
    handler = provisioners._RESOURCE_HANDLERS[kind]
    create, update = handler["create"], handler["update"]

    def checked_create(logical_id: str, new: Properties, *others: Any) -> Any:
        check(None, new)
        return create(logical_id, new, *others)

    def checked_update(physical_id: str, old: Properties, new: Properties, *others: Any) -> Any:
        check(old, new)
        return update(physical_id, old, new, *others)

    handler.update(create=checked_create, update=checked_update)


def _without_zone(answer: tuple[int, Any, Any]) -> tuple[int, Any, Any]:
    """Remove the zone that lacks the service from an answer of DescribeVpcEndpointServices."""
    status, headers, body = answer
    text = body.decode() if isinstance(body, bytes) else body
    zone, details = f"<item>{get_region()}{ZONE_WITHOUT_IT}</item>", re.split(r"(?=<serviceName>)", text)
    kept = [it.replace(zone, "") if f".{ENDPOINT_SERVICE}</serviceName>" in it else it for it in details]
    made = "".join(kept)
    return status, headers, made.encode() if isinstance(body, bytes) else made
