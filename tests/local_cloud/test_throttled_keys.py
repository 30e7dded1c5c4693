"""The local cloud's DynamoDB throttles partition keys, as the SDK and the queue see it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from job_queue.adapters.dynamodb import DynamoDBTables, Put
from local_cloud.__main__ import parser
from local_cloud.aws.stack import LocalCloud
from local_cloud.dynamodb.key_throttle import AWS_LIMITS, KeyLimits
from sagemaker_queue import QueueClient
from tests.jobs import a_request
from tests.waiting import until

pytestmark = pytest.mark.thorough

LINES, JOBS = "sagemaker-queue-lines", "sagemaker-queue"
KB = 1024
LARGE = 390 * KB


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    """A cloud whose keys have 40 read and 20 write units a second."""
    with LocalCloud(slots=4, key_limits=KeyLimits(40, 20)) as running:
        yield running


@pytest.fixture(scope="module")
def dynamodb(cloud: LocalCloud) -> Any:
    return cloud.client("dynamodb", config=Config(retries={"total_max_attempts": 1}))


def row(line: str, position: str, size: int = 1) -> dict[str, Any]:
    return {"line": {"S": line}, "position": {"S": position}, "text": {"S": "x" * size}}


def refused(call: Any, **arguments: Any) -> Any:
    with pytest.raises(ClientError) as refusal:
        call(**arguments)
    return refusal.value.response


def test_a_write_beyond_the_limit_of_its_key_is_throttled(dynamodb: Any) -> None:
    dynamodb.put_item(TableName=LINES, Item=row("writes", "1", LARGE))  # the units of 19 seconds
    answer = refused(dynamodb.put_item, TableName=LINES, Item=row("writes", "2"))
    assert answer["Error"]["Code"] == "ThrottlingException"
    (reason,) = answer["throttlingReasons"]
    assert reason["reason"] == "TableWriteKeyRangeThroughputExceeded"
    assert reason["resource"].endswith(f":table/{LINES}")
    dynamodb.put_item(TableName=LINES, Item=row("other", "1"))
    assert "Item" not in dynamodb.get_item(
        TableName=LINES, Key={name: row("writes", "2")[name] for name in ("line", "position")}
    )


def test_a_transaction_is_cancelled_for_the_write_whose_key_is_throttled(dynamodb: Any) -> None:
    dynamodb.put_item(TableName=LINES, Item=row("transactions", "1", LARGE))
    puts = [{"Put": {"TableName": LINES, "Item": row(line, "2")}} for line in ("free", "transactions")]
    answer = refused(dynamodb.transact_write_items, TransactItems=puts)
    assert answer["Error"]["Code"] == "TransactionCanceledException"
    assert [reason["Code"] for reason in answer["CancellationReasons"]] == ["None", "ThrottlingError"]
    assert "Item" not in dynamodb.get_item(TableName=LINES, Key={"line": {"S": "free"}, "position": {"S": "2"}})


def test_a_query_costs_what_it_reads_and_not_what_it_returns(cloud: LocalCloud, dynamodb: Any) -> None:
    patient = cloud.client("dynamodb", config=Config(retries={"mode": "standard", "max_attempts": 10}))
    for number in range(4):
        patient.put_item(TableName=LINES, Item=row("reads0", f"{number}", 19 * KB))
    query = {
        "TableName": LINES,
        "KeyConditionExpression": "#l = :l",
        "ProjectionExpression": "#p",
        "ExpressionAttributeNames": {"#l": "line", "#p": "position"},
        "ConsistentRead": True,
    }
    values = {":l": {"S": "reads0"}}
    for _ in range(2):  # 19 units each, and 40 are there
        assert len(dynamodb.query(**query, ExpressionAttributeValues=values)["Items"]) == 4

    def reason() -> str | None:
        try:
            dynamodb.query(**query, ExpressionAttributeValues=values)
        except ClientError as error:
            return str(error.response["throttlingReasons"][0]["reason"])  # type: ignore[typeddict-item]
        return None

    assert until(reason) == "TableReadKeyRangeThroughputExceeded"


def test_the_index_has_a_key_of_its_own(dynamodb: Any) -> None:
    ended = {"finished": {"S": "yes"}, "stateSince": {"S": "2026"}, "owner": {"S": "x" * LARGE}}
    dynamodb.put_item(TableName=JOBS, Item={"jobName": {"S": "ended1"}, **ended})
    answer = refused(dynamodb.put_item, TableName=JOBS, Item={"jobName": {"S": "ended2"}, **ended})
    assert answer["throttlingReasons"][0]["reason"] == "IndexWriteKeyRangeThroughputExceeded"
    dynamodb.put_item(TableName=JOBS, Item={"jobName": {"S": "live"}})


def test_the_queues_own_tables_wait_until_the_key_has_units_again(cloud: LocalCloud, dynamodb: Any) -> None:
    before = cloud.throttled_calls
    tables = DynamoDBTables(cloud.client("dynamodb"))

    def throttled() -> bool:
        try:
            dynamodb.put_item(TableName=LINES, Item=row("patient", "1", 30 * KB))
        except ClientError:
            return False  # too much was left over from the last time
        tables.transact([Put(LINES, {"line": "patient", "position": "2"})])
        return cloud.throttled_calls > before

    until(throttled)
    assert tables.get(LINES, {"line": "patient", "position": "2"})


@pytest.mark.thorough
def test_many_submissions_pass_and_lose_nothing(cloud: LocalCloud) -> None:
    before = cloud.throttled_calls
    queue = QueueClient(url=cloud.queue_url, boto_session=cloud.boto_session(), tries=20)
    names: list[str] = []

    def throttled() -> bool:
        more = [f"job{len(names) + number}" for number in range(12)]
        names.extend(more)
        bodies = [
            {**a_request(name, RoleArn=cloud.role), "StoppingCondition": {"MaxRuntimeInSeconds": 600}} for name in more
        ]
        with ThreadPoolExecutor(12) as pool:
            list(pool.map(queue.submit, bodies))  # raises the first error
        return cloud.throttled_calls > before

    until(throttled)  # a slow machine sends too few calls a second at first
    assert [queue.job(name).job for name in names] == names
    assert cloud.throttled_calls > before


def test_the_option_has_the_limits_of_aws_and_strict_has_them_too() -> None:
    assert parser().parse_args(["exec", "--throttle-keys"]).throttle_keys == AWS_LIMITS
    assert parser().parse_args(["up", "--throttle-keys", "30/10"]).throttle_keys == KeyLimits(30, 10)
    assert parser().parse_args(["up"]).throttle_keys is None
    with pytest.raises(SystemExit):
        parser().parse_args(["up", "--throttle-keys", "0/10"])
    assert LocalCloud(strict=True)._key_limits == AWS_LIMITS
    assert LocalCloud(strict=False)._key_limits is None
