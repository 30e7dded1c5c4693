"""The databases that keep the store's promises.

By themselves: DynamoDB as ministack has it, and the tests' own in memory. With `--dynamodb-url URL` the DynamoDB that
answers there instead: AWS's DynamoDB Local (`make contract`), or AWS itself.
"""

import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config

from job_queue.adapters.dynamodb import DynamoDBTables, Tables
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.records.attempt_history import AttemptHistory
from local_cloud.aws.ministack import Ministack
from local_cloud.aws.session import local_session
from tests.memory_tables import KEYS, MemoryTables

HISTORY_SECONDS = 1000
USAGE_SECONDS = 400 * 86_400
JOBS, LINES, HISTORY = KEYS
REGION = "us-east-1"
CONNECTIONS = Config(max_pool_connections=32)


@dataclass(frozen=True)
class Database:
    """Tables, and what the three that the repository uses are named there."""

    tables: Tables
    jobs: str = JOBS
    lines: str = LINES
    history: str = HISTORY


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Another database than our own two is alone: what it does is asked, not what they do."""
    if "database" in metafunc.fixturenames:
        url = metafunc.config.getoption("--dynamodb-url")
        metafunc.parametrize("database", ["dynamodb-url"] if url else ["memory", "dynamodb"], indirect=True)


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = Path(tmp_path_factory.mktemp("ministack"))
    server = Ministack(folder, auth=False, region=REGION)
    try:
        server.start({})
        session = local_session(endpoint=server.url, services={}, nowhere=folder / "none", region=REGION)
        yield session.client("dynamodb", config=CONNECTIONS)
    finally:
        server.close()


@pytest.fixture(scope="session")
def scratch(request: pytest.FixtureRequest) -> Iterator[Callable[[], Database]]:
    """Makes the tables at `--dynamodb-url` empty. On AWS it takes seconds to make one: all tests use the same three."""
    client = _client(request.config.getoption("--dynamodb-url"))
    with scratch_tables(client, f"sagemaker-queue-contract-{uuid.uuid4().hex[:12]}") as names:

        def emptied() -> Database:
            for table, key in zip(names, KEYS.values(), strict=True):
                empty(client, table, key)
            return Database(DynamoDBTables(client), *names)

        yield emptied


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    if request.param == "memory":
        yield Database(MemoryTables())
    elif request.param == "dynamodb-url":
        yield request.getfixturevalue("scratch")()
    else:
        client = request.getfixturevalue("ministack")
        for table, key in KEYS.items():
            create(client, table, key)
        yield Database(DynamoDBTables(client))
        for table in KEYS:
            client.delete_table(TableName=table)


@pytest.fixture
def tables(database: Database) -> Tables:
    return database.tables


@pytest.fixture
def repository(database: Database) -> JobRepository:
    attempts = AttemptHistory(database.tables, database.history, USAGE_SECONDS)
    return JobRepository(database.tables, database.jobs, database.lines, HISTORY_SECONDS, attempts)


@contextmanager
def scratch_tables(client: Any, prefix: str) -> Iterator[tuple[str, str, str]]:
    """The three tables under names that nobody else has. Whatever happens, they are deleted."""
    names = (f"{prefix}-jobs", f"{prefix}-lines", f"{prefix}-history")
    made = []
    try:
        for table, (kind, key) in zip(names, KEYS.items(), strict=True):
            create(client, table, key, indexed=kind == JOBS)
            made.append(table)
        for table in names:
            client.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
        yield names
    finally:
        for table in made:
            client.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
            client.delete_table(TableName=table)


def create(client: Any, table: str, key: tuple[str, ...], *, indexed: bool | None = None) -> None:
    """Make a table as template.yaml does; the one for jobs has an index."""
    index: dict[str, Any] = {}
    attributes = list(key)
    if table == JOBS if indexed is None else indexed:
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


def empty(client: Any, table: str, key: tuple[str, ...]) -> None:
    """Delete every row."""
    names = {f"#{part}": part for part in key}
    scan = client.get_paginator("scan").paginate(
        TableName=table, ProjectionExpression=", ".join(names), ExpressionAttributeNames=names, ConsistentRead=True
    )
    for page in scan:
        for row in page["Items"]:
            client.delete_item(TableName=table, Key=row)


def _schema(key: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": kind} for name, kind in zip(key, ("HASH", "RANGE"), strict=False)]


def _client(url: str) -> Any:
    """A client for the address, with the environment's credentials and region, and any where the address is local."""
    host = urlsplit(url).hostname or ""
    named = re.search(r"(?:^|\.)dynamodb\.([a-z0-9-]+)\.", host)
    region = named[1] if named else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or REGION
    session = boto3.Session(region_name=region)
    made_up = {}
    if host in ("localhost", "127.0.0.1", "::1") and session.get_credentials() is None:
        made_up = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    client: Any = session.client
    return client("dynamodb", endpoint_url=url, config=CONNECTIONS, **made_up)
