"""The KMS permission that callers need to read and write an encrypted DynamoDB table, checked before ministack.

A table with SSEEnabled: true is encrypted with the account's KMS key aws/dynamodb, and callers need permission to use
this key. A table without SSESpecification, or with SSEEnabled: false, is encrypted with a key that AWS owns. Callers
need no permission for that key.

The key policy of aws/dynamodb lets each principal of the account use the key through DynamoDB. The caller's permissions
boundary and a Deny in any policy still take precedence.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ministack.core.iam_evaluator import (
    AuthError,
    EvalContext,
    combine_resource_policy,
    evaluate,
    resolve_principal,
)
from ministack.core.responses import get_account_id, get_region
from ministack.core.router import extract_access_key_id
from ministack.services import dynamodb
from ministack.services.cloudformation import provisioners

ACTION = "kms:Decrypt"  # the permission on the table's key that reads and writes need
DENIED = (
    "KMS key access denied error: com.amazonaws.services.kms.model.AWSKMSException: The ciphertext refers to a "
    "customer master key that does not exist, does not exist in this region, or you are not allowed to access."
)  # aws/aws-cdk issue 10010
# operations that access no item
MANAGEMENT = ("CreateTable", "DeleteTable", "DescribeTable", "ListTables", "UpdateTable")


def install() -> None:
    """Make ministack's DynamoDB refuse reads and writes of a table by callers that may not use the table's key."""
    handle_request, describe = dynamodb.handle_request, dynamodb._sse_description_from_spec
    of_tables = provisioners._RESOURCE_HANDLERS["AWS::DynamoDB::Table"]
    create = of_tables["create"]

    def encryption(spec: Mapping[str, Any] | None) -> Any:
        return describe(spec and {"Enabled": spec.get("SSEEnabled", False), **spec})  # SSEEnabled in CloudFormation

    def created(logical_id: str, properties: Mapping[str, Any], stack: str) -> Any:
        name, attributes = create(logical_id, properties, stack)
        dynamodb._tables[name]["SSEDescription"] = encryption(properties.get("SSESpecification"))
        return name, attributes

    async def checked(method: str, path: str, headers: dict[str, str], body: bytes, query: Any) -> tuple[Any, ...]:
        operation = headers.get("x-amz-target", "").rpartition(".")[2]
        if operation not in MANAGEMENT and any(map(_is_under_the_key, _tables(body))) and not _may_use_the_key(headers):
            refusal = {"__type": "com.amazon.coral.service#AccessDeniedException", "Message": DENIED}
            return 400, {"Content-Type": "application/x-amz-json-1.0"}, json.dumps(refusal).encode()
        return tuple(await handle_request(method, path, headers, body, query))

    of_tables["create"] = created
    dynamodb._sse_description_from_spec = encryption
    dynamodb.handle_request = checked


def _tables(body: bytes) -> Iterator[str]:
    """Yield the names of the tables that a request reads or writes."""
    try:
        request = json.loads(body)
    except ValueError:  # ministack refuses the request
        return
    if isinstance(request, dict):
        yield str(request.get("TableName"))
        yield from request.get("RequestItems") or ()
        for item in request.get("TransactItems") or ():
            yield from (str(one.get("TableName")) for one in item.values())


def _is_under_the_key(table: str) -> bool:
    """Return whether a table is encrypted with the account's KMS key aws/dynamodb."""
    known = dynamodb._tables.get(table.rpartition("/")[2]) or {}
    return (known.get("SSEDescription") or {}).get("Status") == "ENABLED"


def _may_use_the_key(headers: dict[str, str]) -> bool:
    """Return whether the caller may use the account's KMS key aws/dynamodb through DynamoDB."""
    account, region = get_account_id(), get_region()
    principal = resolve_principal(extract_access_key_id(headers, {}), account)
    if isinstance(principal, AuthError) or principal.policies is None:
        return True  # an invalid caller, which ministack refuses, or the root user
    context = EvalContext(
        principal_arn=principal.arn,
        principal_type=principal.type,
        principal_account=principal.account,
        action=ACTION,
        resource_arn=f"arn:aws:kms:{region}:{account}:key/aws-dynamodb",
        region=region,
        service_context={"kms:viaservice": f"dynamodb.{region}.amazonaws.com", "kms:calleraccount": account},
        principal_keys=principal.keys,
    )
    of_the_key = {"Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "kms:*", "Resource": "*"}]}
    own = evaluate(context, principal.policies, *principal.limits)
    found = combine_resource_policy(own, context, of_the_key, account, required=True, limits=principal.limits)
    return bool(found.decision == "Allow")
