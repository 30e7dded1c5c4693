"""Policies of event buses on the local cloud: CloudFormation adds, replaces and removes one statement of several."""

import json
from typing import Any

import pytest

from tests.local_cloud.emulator import client
from tests.waiting import PATIENCE

FIRST, SECOND = "222222222222", "333333333333"


def template(account: str) -> str:
    """Return a template that lets an account put events on the default bus."""
    statement = {"Effect": "Allow", "Principal": {"AWS": account}, "Action": "events:PutEvents", "Resource": "*"}
    properties = {"StatementId": "accounts", "Statement": statement}
    return json.dumps({"Resources": {"Policy": {"Type": "AWS::Events::EventBusPolicy", "Properties": properties}}})


def statements(events: Any) -> list[dict[str, Any]]:
    policy = events.describe_event_bus().get("Policy")
    found: list[dict[str, Any]] = json.loads(policy)["Statement"] if policy else []
    return found


@pytest.mark.parametrize("before", [[], ["another"]])
def test_a_stack_has_one_statement_of_the_policy_of_the_bus(aws_url: str, before: list[str]) -> None:
    events, stacks = (client(service, aws_url) for service in ("events", "cloudformation"))
    name = f"bus-{len(before)}"
    for other in before:
        events.put_permission(StatementId=other, Principal=FIRST, Action="events:PutEvents")

    def waits_for(state: str) -> None:
        stacks.get_waiter(state).wait(StackName=name, WaiterConfig={"Delay": 1, "MaxAttempts": int(PATIENCE)})

    stacks.create_stack(StackName=name, TemplateBody=template(FIRST))
    waits_for("stack_create_complete")
    assert [one["Sid"] for one in statements(events)] == [*before, "accounts"]
    assert statements(events)[-1]["Principal"] == {"AWS": FIRST}
    stacks.update_stack(StackName=name, TemplateBody=template(SECOND))
    waits_for("stack_update_complete")
    assert [one["Sid"] for one in statements(events)] == [*before, "accounts"]
    assert statements(events)[-1]["Principal"] == {"AWS": SECOND}
    stacks.delete_stack(StackName=name)
    waits_for("stack_delete_complete")
    assert [one["Sid"] for one in statements(events)] == before
    for other in before:
        events.remove_permission(StatementId=other)
