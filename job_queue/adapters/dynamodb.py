"""DynamoDB in five operations: get, query, page, update, transact. This module has none of the queue's rules.

`Tables` is the interface of the repository; `DynamoDBTables` implements it in DynamoDB. The tests have an
implementation in memory that passes the same contract suite.
"""

import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import BotoCoreError, ClientError

from job_queue.domain.errors import Refused, Unavailable, Unwritable

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient

Item = dict[str, Any]
Key = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Put:
    """A write of a whole row, such as a new job, a live job's row of the lines table, or a row of the history."""

    table: str
    item: Item
    when: ConditionBase | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """A change of the named attributes of a row; other attributes stay."""

    table: str
    key: Key
    set: Mapping[str, Any] = field(default_factory=dict)
    add: Mapping[str, int] = field(default_factory=dict)  # attribute -> number to add
    append: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # attribute -> items to append to a list
    remove: Sequence[str] = ()
    when: ConditionBase | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """The removal of a row. A missing row is not an error."""

    table: str
    key: Key
    when: ConditionBase | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """A condition without a write. The transaction is refused if the condition is not met."""

    table: str
    key: Key
    when: ConditionBase


Write = Put | Update | Delete | Check


class Tables(Protocol):
    """The operations of a database that the repository needs.

    Reads are strongly consistent, except `page`, which reads an index, and all reads of an object that was made with
    `consistent=False`.
    """

    def get(self, table: str, key: Key) -> Item | None:
        """Return one row; None if there is none."""

    def query(self, table: str, line: str, limit: int | None = None, after: str | None = None) -> list[Item]:
        """Return the rows of the partition `line`, ordered by position.

        :param limit: the largest number of rows; None: all.
        :param after: only rows with a larger position are returned; None: all.
        """

    def page(self, table: str, index: str, limit: int, after: Item | None) -> tuple[list[Item], Item | None]:
        """Return one page of a sparse index, latest first, and the key after which the next page begins (or None)."""

    def update(self, update: Update) -> Item:
        """Make one update outside a transaction; return the new row.

        :raises Refused: the row does not meet the condition, or another transaction holds the row. The error has the
            row only in the first case.
        """

    def transact(self, writes: Sequence[Write]) -> None:
        """Make all writes or none. Raise Refused with the rows that do not meet their condition."""


class DynamoDBTables:
    """Tables in DynamoDB.

    :param client: a boto3 DynamoDB client. Retries of this client are safe, because conditions and request tokens make
        each repeated write harmless.
    :param consistent: whether reads are strongly consistent. Reads that are not strongly consistent cost half, and may
        miss the latest changes. Such reads show the queue to users; no decision may depend on them.
    """

    def __init__(
        self, client: "DynamoDBClient", sleep: Callable[[float], None] = time.sleep, *, consistent: bool = True
    ) -> None:
        self._client = client
        self._sleep = sleep
        self._consistent = consistent

    def get(self, table: str, key: Key) -> Item | None:
        """Return one row (see `Tables`)."""
        answer = self._call("get_item", TableName=table, Key=_packed(key), ConsistentRead=self._consistent)
        return _unpacked(answer["Item"]) if "Item" in answer else None

    def query(self, table: str, line: str, limit: int | None = None, after: str | None = None) -> list[Item]:
        """Return the rows of a partition (see `Tables`)."""
        items: list[Item] = []
        start: Mapping[str, Any] = {}
        while True:
            answer = self._call(
                "query",
                TableName=table,
                KeyConditionExpression="#line = :line" + (" AND #position > :after" if after else ""),
                ExpressionAttributeNames={"#line": "line", **({"#position": "position"} if after else {})},
                ExpressionAttributeValues={":line": {"S": line}, **({":after": {"S": after}} if after else {})},
                ConsistentRead=self._consistent,
                **({"ExclusiveStartKey": start} if start else {}),
                **({"Limit": limit - len(items)} if limit else {}),
            )
            items += map(_unpacked, answer["Items"])
            start = answer.get("LastEvaluatedKey", {})
            if not start or (limit and len(items) >= limit):
                return items

    def page(self, table: str, index: str, limit: int, after: Item | None) -> tuple[list[Item], Item | None]:
        """Return one page of an index (see `Tables`)."""
        answer = self._call(
            "query",
            TableName=table,
            IndexName=index,
            KeyConditionExpression="#listed = :yes",
            # A sparse index is named after the attribute that it lists. The index that replaces the index `<name>` is
            # named `<name>-2`.
            ExpressionAttributeNames={"#listed": index.partition("-")[0]},
            ExpressionAttributeValues={":yes": {"S": "yes"}},
            ScanIndexForward=False,
            Limit=limit,
            **({"ExclusiveStartKey": _packed(after)} if after else {}),
        )
        last = answer.get("LastEvaluatedKey")
        return [_unpacked(item) for item in answer["Items"]], _unpacked(last) if last else None

    def update(self, update: Update) -> Item:
        """Make one update (see `Tables`)."""
        answer = self._call("update_item", **_rendered_update(update), ReturnValues="ALL_NEW")
        return _unpacked(answer["Attributes"])

    def transact(self, writes: Sequence[Write]) -> None:
        """Make all writes or none (see `Tables`)."""
        token = str(uuid.uuid4())
        items = [_rendered(write) for write in writes]
        try_again(
            lambda: self._call("transact_write_items", TransactItems=items, ClientRequestToken=token), self._sleep
        )

    def _call(self, operation: str, **arguments: Any) -> Any:
        """Call DynamoDB. Convert its errors to Refused, Unwritable, Unavailable or Postponed."""
        try:
            return getattr(self._client, operation)(**arguments)
        except ClientError as error:
            answer: Mapping[str, Any] = error.response
            code = answer["Error"]["Code"]
            if code == "ConditionalCheckFailedException":
                raise Refused({0: _unpacked(answer.get("Item", {}))}) from error
            if code == "TransactionConflictException":
                raise Refused({0: {}}) from error
            if code in {"TransactionCanceledException", "TransactionInProgressException"}:
                reasons = answer.get("CancellationReasons", [])
                if "ValidationError" in (errors := {reason.get("Code") for reason in reasons} - _EXPECTED_REASONS):
                    raise Unwritable("DynamoDB does not store a row as large as this job's has become.") from error
                if errors:
                    raise Unavailable(f"DynamoDB refused a transaction: {', '.join(map(str, errors))}.") from error
                refused = {
                    index: _unpacked(reason.get("Item") or {})
                    for index, reason in enumerate(reasons)
                    if reason.get("Code") == "ConditionalCheckFailed"
                }
                raise (Refused(refused) if refused else Postponed(code)) from error
            raise Unavailable(f"DynamoDB answered {code}; send the same request again.") from error
        except BotoCoreError as error:
            raise Unavailable("DynamoDB did not answer; send the same request again.") from error


_EXPECTED_REASONS = frozenset(
    {
        None,
        "None",
        "ConditionalCheckFailed",
        "TransactionConflict",
        "ThrottlingError",
        "ProvisionedThroughputExceeded",
    }
)  # expected cancellation reasons; any other reason is a fault of the transaction itself


class Postponed(Exception):
    """A transaction that failed only because of another transaction or a throttled key. The SDK does not repeat it."""


TRANSACTION_TRIES = 8
FIRST_PAUSE_SECONDS = 0.04


def try_again(transaction: Callable[[], object], sleep: Callable[[float], None]) -> None:
    """Make a transaction. While it is postponed, repeat it after random pauses whose maximum doubles each time.

    :raises Unavailable: all tries were postponed.
    """
    for number in range(1, TRANSACTION_TRIES + 1):
        try:
            transaction()
        except Postponed as postponed:
            if number == TRANSACTION_TRIES:
                raise Unavailable("The queue is busy; send the same request again.") from postponed
            sleep(random.uniform(0, FIRST_PAUSE_SECONDS * 2 ** (number - 1)))  # noqa: S311  (spreads retries)
        else:
            return


def _rendered(write: Write) -> dict[str, Any]:
    match write:
        case Put():
            return {"Put": {"TableName": write.table, "Item": _packed(write.item), **_condition(write.when)}}
        case Update():
            return {"Update": _rendered_update(write)}
        case Delete():
            return {"Delete": {"TableName": write.table, "Key": _packed(write.key), **_condition(write.when)}}
        case Check():
            return {"ConditionCheck": {"TableName": write.table, "Key": _packed(write.key), **_condition(write.when)}}


def _rendered_update(update: Update) -> dict[str, Any]:
    names: dict[str, str] = {}
    values: dict[str, Any] = {}

    def name(attribute: str) -> str:
        placeholder = f"#u{len(names)}"
        names[placeholder] = attribute
        return placeholder

    def value(content: Any) -> str:
        placeholder = f":u{len(values)}"
        values[placeholder] = _serializer.serialize(content)
        return placeholder

    sets = [f"{name(attribute)} = {value(content)}" for attribute, content in update.set.items()]
    for attribute, more in update.append.items():
        placeholder = name(attribute)
        sets.append(f"{placeholder} = list_append({placeholder}, {value(list(more))})")
    clauses = {
        "SET": sets,
        "ADD": [f"{name(attribute)} {value(number)}" for attribute, number in update.add.items()],
        "REMOVE": [name(attribute) for attribute in update.remove],
    }
    condition = _condition(update.when)
    return {
        "TableName": update.table,
        "Key": _packed(update.key),
        "UpdateExpression": " ".join(f"{word} {', '.join(parts)}" for word, parts in clauses.items() if parts),
        **condition,
        "ExpressionAttributeNames": {**condition.get("ExpressionAttributeNames", {}), **names},
        **(
            {"ExpressionAttributeValues": {**condition.get("ExpressionAttributeValues", {}), **values}}
            if values or "ExpressionAttributeValues" in condition
            else {}
        ),
    }


def _condition(when: ConditionBase | None) -> dict[str, Any]:
    if when is None:
        return {}
    built = ConditionExpressionBuilder().build_expression(when)
    values = {name: _serializer.serialize(content) for name, content in built.attribute_value_placeholders.items()}
    return {
        "ConditionExpression": built.condition_expression,
        "ExpressionAttributeNames": built.attribute_name_placeholders,
        **({"ExpressionAttributeValues": values} if values else {}),
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


_serializer = TypeSerializer()
_deserializer = TypeDeserializer()


def _packed(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _serializer.serialize(content) for name, content in item.items()}


def _unpacked(item: Mapping[str, Any]) -> Item:
    return {name: _plain(_deserializer.deserialize(content)) for name, content in item.items()}


def _plain(content: Any) -> Any:
    """Return DynamoDB's numbers as Python's integers: the queue stores only whole numbers."""
    match content:
        case Decimal():
            return int(content)
        case list():
            return [_plain(part) for part in content]
        case dict():
            return {name: _plain(part) for name, part in content.items()}
    return content
