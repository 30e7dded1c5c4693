"""Throttling of DynamoDB calls: a call for a partition key beyond its limit does not reach ministack's DynamoDB.

The operations that the queue uses are measured: GetItem, Query, PutItem, UpdateItem, DeleteItem, TransactWriteItems.
All other operations pass without a limit.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from typing import Any

from boto3.dynamodb.types import TypeDeserializer

from local_cloud.dynamodb.key_throttle import KeyAccess, KeyThrottle, PartitionKey
from local_cloud.dynamodb.units import Index, Item, query_units, read_units, size_of, write_units

HOT_KEY = (
    "Throughput exceeds the current capacity of your table or index. DynamoDB is automatically scaling your table or "
    "index so please try again shortly. If exceptions persist, check if you have a hot key: "
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html."
)
Wire = Mapping[str, Any]
MEASURED = ("GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems")
Handle = Callable[[str, Wire], tuple[int, dict[str, Any]]]
"""A function that carries out a call. The function takes the operation and the request, and returns HTTP status and
body."""


class Throttled(Exception):
    """A refusal of a throttled call. `body` is the content of the answer."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(body["__type"])
        self.body = body


class MeteredCalls:
    """The measurement of calls, and the refusal of calls that read or write a key without units left.

    :param schema_of: returns the description of a table, with the fields `KeySchema`, `GlobalSecondaryIndexes` and
        `TableArn` of DescribeTable; None: there is no such table.
    :param item_of: returns an item of a table by its key, in DynamoDB's JSON; None: there is no such item.
    """

    def __init__(
        self,
        throttle: KeyThrottle,
        schema_of: Callable[[str], Wire | None],
        item_of: Callable[[str, Wire], Wire | None],
        handle: Handle,
    ) -> None:
        self._throttle = throttle
        self._schema_of = schema_of
        self._item_of = item_of
        self._handle = handle

    def call(self, operation: str, request: Wire) -> tuple[int, dict[str, Any]]:
        """Carry out a call and count its units, or return the error for a throttled call."""
        try:
            if operation in ("GetItem", "Query"):
                return self._read(operation, request)
            if operation in ("PutItem", "UpdateItem", "DeleteItem"):
                return self._write(operation, request, [request])
            if operation == "TransactWriteItems":
                return self._write(operation, request, [one for it in request["TransactItems"] for one in it.values()])
        except Throttled as throttled:
            return 400, throttled.body
        return self._handle(operation, request)

    def _read(self, operation: str, request: Wire) -> tuple[int, dict[str, Any]]:
        schema = self._schema_of(request.get("TableName", ""))
        key = schema and self._key_read(schema, request)
        if not schema or not key:
            return self._handle(operation, request)  # ministack reports the error in the request
        self._admit(KeyAccess.READ, [key], schema)
        status, body = self._handle(operation, request)
        consistent = bool(request.get("ConsistentRead"))
        if status == 200 and operation == "GetItem":  # noqa: PLR2004
            item = self._item_of(request["TableName"], request["Key"])
            units = read_units(size_of(_plain(item or {})), consistent=consistent)
        elif status == 200:  # noqa: PLR2004
            units = query_units(map(size_of, map(_plain, self._evaluated(request))), consistent=consistent)
        else:
            return status, body
        self._throttle.charge(KeyAccess.READ, {key: units})
        return status, body

    def _evaluated(self, request: Wire) -> list[Wire]:
        """Return the whole items that a Query has read, because filters and projections do not reduce the units."""
        plain = {name: value for name, value in request.items() if name not in _REDUCING}
        words = re.findall(r"[#:]\w+", request.get("KeyConditionExpression", ""))
        for names in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
            if used := {name: value for name, value in request.get(names, {}).items() if name in words}:
                plain[names] = used
            else:
                plain.pop(names, None)
        evaluated: list[Wire] = self._handle("Query", plain)[1].get("Items", [])
        return evaluated

    def _key_read(self, schema: Wire, request: Wire) -> PartitionKey | None:
        table, index = request["TableName"], request.get("IndexName")
        if "Key" in request:
            return PartitionKey(table, _value(request["Key"].get(_keys(schema)[0])))
        keys = next((it.keys for it in indexes(schema) if it.name == index), None) if index else _keys(schema)
        names = request.get("ExpressionAttributeNames", {})
        for name, value in re.findall(r"([#\w]+)\s*=\s*(:\w+)", request.get("KeyConditionExpression", "")):
            if keys and names.get(name, name) == keys[0]:
                return PartitionKey(table, _value(request.get("ExpressionAttributeValues", {}).get(value)), index)
        return None

    def _write(self, operation: str, request: Wire, writes: list[Wire]) -> tuple[int, dict[str, Any]]:
        places = [place for write in writes if (place := self._place(write))]
        if len(places) < len(writes):
            return self._handle(operation, request)  # ministack reports the error in the request
        transactional = operation == "TransactWriteItems"
        for number, (table, schema, key) in enumerate(places):
            one = PartitionKey(table, _value(key[_keys(schema)[0]]))
            self._admit(KeyAccess.WRITE, [one], schema, (number, len(places)) if transactional else None)
        before = [self._item(table, key) for table, _, key in places]
        for (table, schema, _), write, old in zip(places, writes, before, strict=True):
            # The attributes that an update adds are not known before the call.
            known = _plain(write["Item"]) if "Item" in write else old or {}
            keys = [PartitionKey(table, str(known[it.keys[0]]), it.name) for it in indexes(schema) if it.entry(known)]
            self._admit(KeyAccess.WRITE, keys, schema, (0, len(places)) if transactional else None)
        status, body = self._handle(operation, request)
        if status == 200 or _is_refused(body):  # noqa: PLR2004  (an unmet condition has costs, too)
            units: Counter[PartitionKey] = Counter()
            for (table, schema, key), old in zip(places, before, strict=True):
                new = self._item(table, key)
                units[PartitionKey(table, _value(key[_keys(schema)[0]]))] += write_units(
                    old, new, transactional=transactional
                )
                for index in indexes(schema):
                    for value, count in index.write_units(old, new).items():
                        units[PartitionKey(table, value, index.name)] += count
            self._throttle.charge(KeyAccess.WRITE, units)
        return status, body

    def _place(self, write: Wire) -> tuple[str, Wire, Wire] | None:
        table = write.get("TableName", "")
        schema = self._schema_of(table)
        key = write.get("Key") or write.get("Item") or {}
        if not schema or not all(name in key for name in _keys(schema)):
            return None
        return table, schema, {name: key[name] for name in _keys(schema)}

    def _item(self, table: str, key: Wire) -> Item | None:
        item = self._item_of(table, key)
        return _plain(item) if item else None

    def _admit(
        self, access: KeyAccess, keys: list[PartitionKey], schema: Wire, position: tuple[int, int] | None = None
    ) -> None:
        """Raise Throttled if one of the keys has no units left.

        :param position: index of the write in its transaction, and number of the writes; None: no transaction.
        """
        key = self._throttle.exhausted(access, keys)
        if key is None:
            return
        if position is None:
            kind = "Index" if key.gsi else "Table"
            reason = {"reason": f"{kind}{access}KeyRangeThroughputExceeded", "resource": schema.get("TableArn", "")}
            raise Throttled({"__type": _THROTTLING, "message": HOT_KEY, "throttlingReasons": [reason]})
        number, count = position
        reasons: list[dict[str, str]] = [{"Code": "None"} for _ in range(count)]
        reasons[number] = {"Code": "ThrottlingError", "Message": HOT_KEY}
        codes = ", ".join(reason["Code"] for reason in reasons)
        message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
        raise Throttled({"__type": _CANCELLED, "message": message, "CancellationReasons": reasons})


_THROTTLING = "com.amazon.coral.availability#ThrottlingException"
_CANCELLED = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException"
_REDUCING = ("FilterExpression", "ProjectionExpression", "Select")


def indexes(schema: Wire) -> Iterator[Index]:
    """Yield the global secondary indexes of a table."""
    for index in schema.get("GlobalSecondaryIndexes") or ():
        keys = _keys(index)
        projection = index.get("Projection", {})
        held = {*keys, *_keys(schema), *projection.get("NonKeyAttributes", ())}
        everything = projection.get("ProjectionType") == "ALL"
        yield Index(index["IndexName"], keys, partial(_holds, held, everything))


def _holds(held: Set[str], everything: bool, name: str) -> bool:  # noqa: FBT001
    return everything or name in held


def _keys(schema: Wire) -> tuple[str, ...]:
    ordered = sorted(schema["KeySchema"], key=lambda key: key["KeyType"] != "HASH")
    return tuple(key["AttributeName"] for key in ordered)


def _is_refused(body: Wire) -> bool:
    return "ConditionalCheckFailed" in json.dumps([body.get("__type"), body.get("CancellationReasons")], default=str)


def _value(attribute: Wire | None) -> str:
    return str(next(iter(attribute.values()))) if attribute else ""


def _plain(item: Wire) -> dict[str, Any]:
    return {name: _deserializer.deserialize(value) for name, value in item.items()}


_deserializer = TypeDeserializer()
