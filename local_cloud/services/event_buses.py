"""Policies of event buses: AWS::Events::EventBusPolicy, which ministack lacks, and PutPermission for an account."""

from collections.abc import Mapping
from typing import Any

from ministack.services import eventbridge
from ministack.services.cloudformation import provisioners

Properties = Mapping[str, Any]


def install() -> None:
    """Add the resource type. Make PutPermission store an account number as AWS does: as the ARN of its root."""
    put_permission = eventbridge._put_permission

    def put(data: dict[str, Any]) -> Any:
        principal = str(data.get("Principal", "*"))
        account = {"AWS": f"arn:aws:iam::{principal}:root"}
        return put_permission({**data, "Principal": account if principal.isdecimal() else principal})

    eventbridge._put_permission = put
    provisioners._RESOURCE_HANDLERS["AWS::Events::EventBusPolicy"] = {
        "create": _create,
        "update": _update,
        "delete": _delete,
    }


def _create(logical_id: str, properties: Properties, stack: str) -> tuple[str, dict[str, Any]]:
    bus, sid = properties.get("EventBusName", "default"), properties["StatementId"]
    if (given := properties.get("Statement")) is None:
        given = {"Effect": "Allow", **{name: properties[name] for name in ("Action", "Principal")}}
        if condition := properties.get("Condition"):
            given["Condition"] = {condition["Type"]: {condition["Key"]: condition["Value"]}}
    policy = eventbridge._event_bus_policies.setdefault(bus, {"Version": "2012-10-17", "Statement": []})
    policy["Statement"] = [*_others(policy, sid), {**given, "Sid": sid}]
    return f"{bus}|{sid}", {}


def _update(physical_id: str, old: Properties, new: Properties, stack: str) -> tuple[str, dict[str, Any]]:
    created = _create("", new, stack)
    if created[0] != physical_id:
        _delete(physical_id, old)
    return created


def _delete(physical_id: str, properties: Properties) -> None:
    bus, _, sid = physical_id.partition("|")
    if policy := eventbridge._event_bus_policies.get(bus):
        policy["Statement"] = _others(policy, sid)
        if not policy["Statement"]:
            eventbridge._event_bus_policies.pop(bus)


def _others(policy: Mapping[str, Any], sid: str) -> list[dict[str, Any]]:
    return [statement for statement in policy["Statement"] if statement.get("Sid") != sid]
