"""AWS::Events::EventBusPolicy for ministack's CloudFormation: a statement in the policy of an event bus.

ministack has PutPermission of EventBridge, but not this resource, and refuses a template that has it.
"""

from typing import Any

from ministack.services import eventbridge
from ministack.services.cloudformation import provisioners

Json = dict[str, Any]
DEFAULT_BUS = "default"


def install() -> None:
    """Make ministack's CloudFormation create, update and delete statements in policies of event buses."""
    provisioners._RESOURCE_HANDLERS["AWS::Events::EventBusPolicy"] = {
        "create": create,
        "update": update,
        "delete": delete,
    }


def create(_logical_id: str, properties: Json, _stack: str) -> tuple[str, Json]:
    """Add the statement to the policy of its bus, and return its physical ID."""
    bus, name = properties.get("EventBusName", DEFAULT_BUS), properties["StatementId"]
    policy = eventbridge._event_bus_policies.get(bus) or {"Version": "2012-10-17", "Statement": []}
    others = [one for one in policy["Statement"] if one.get("Sid") != name]
    statements = [*others, {"Sid": name, **properties["Statement"]}]
    eventbridge._event_bus_policies[bus] = {**policy, "Statement": statements}
    return f"{bus}|{name}", {}


def update(physical_id: str, _old: Json, new: Json, _stack: str) -> tuple[str, Json]:
    """Replace the statement."""
    delete(physical_id, new)
    return create("", new, "")


def delete(physical_id: str, _properties: Json) -> None:
    """Remove the statement from the policy of its bus."""
    bus, _, name = physical_id.partition("|")
    eventbridge._remove_permission({"EventBusName": bus, "StatementId": name})
