"""The two databases that keep the store's promises: DynamoDB as ministack has it, and the tests' own in memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config

from job_queue.adapters.dynamodb import DynamoDBTables, Tables
from job_queue.adapters.job_repository import JobRepository
from local_cloud.aws.ministack import Ministack
from local_cloud.aws.session import local_session
from tests.memory_tables import KEYS, MemoryTables

HISTORY_SECONDS = 1000


@pytest.fixture(scope="session")
def dynamodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = Path(tmp_path_factory.mktemp("ministack"))
    server = Ministack(folder, auth=False, region="us-east-1")
    try:
        server.start({})
        session = local_session(endpoint=server.url, services={}, nowhere=folder / "none", region="us-east-1")
        yield session.client("dynamodb", config=Config(max_pool_connections=32))
    finally:
        server.close()


@pytest.fixture(params=["memory", "dynamodb"])
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    if request.param == "memory":
        yield MemoryTables()
        return
    client = request.getfixturevalue("dynamodb")
    for table, key in KEYS.items():
        _create(client, table, key)
    yield DynamoDBTables(client)
    for table in KEYS:
        client.delete_table(TableName=table)


@pytest.fixture
def repository(tables: Tables) -> JobRepository:
    return JobRepository(tables, "sagemaker-queue", "sagemaker-queue-lines", HISTORY_SECONDS)


def _create(client: Any, table: str, key: tuple[str, ...]) -> None:
    index: dict[str, Any] = {}
    attributes = list(key)
    if table == "sagemaker-queue":  # as in template.yaml
        attributes += ["finished", "stateSince"]
        index["GlobalSecondaryIndexes"] = [
            {
                "IndexName": "finished",
                "KeySchema": _schema(("finished", "stateSince")),
                "Projection": {"ProjectionType": "ALL"},
            }
        ]
    client.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in attributes],
        KeySchema=_schema(key),
        **index,
    )


def _schema(key: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": kind} for name, kind in zip(key, ("HASH", "RANGE"), strict=False)]
