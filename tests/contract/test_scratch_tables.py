"""`--dynamodb-url` with ministack as the DynamoDB: what it makes has names of its own, and goes whatever happens."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import scratch_tables

ROOT = Path(__file__).parents[2]


def test_scratch_tables_go_whatever_happens(ministack: Any) -> None:
    with pytest.raises(KeyboardInterrupt), scratch_tables(ministack, "one"):
        assert {"one-jobs", "one-lines"} <= set(ministack.list_tables()["TableNames"])
        raise KeyboardInterrupt
    assert not {"one-jobs", "one-lines"} & set(ministack.list_tables()["TableNames"])


def test_what_was_made_goes_when_the_rest_cannot_be_made(ministack: Any) -> None:
    before = ministack.list_tables()["TableNames"]
    with scratch_tables(ministack, "taken"):
        with pytest.raises(ministack.exceptions.ResourceInUseException), scratch_tables(ministack, "taken"):
            pytest.fail("the names are taken")
        assert {"taken-jobs", "taken-lines"} <= set(ministack.list_tables()["TableNames"])
    assert ministack.list_tables()["TableNames"] == before


def test_another_database_is_tested_alone_and_left_as_it_was(ministack: Any) -> None:
    before = ministack.list_tables()["TableNames"]
    url = ministack.meta.endpoint_url
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTEST_"))}
    command = ["-m", "pytest", "tests/contract", "--dynamodb-url", url, "-k", "sixteen and name", "-q"]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT, env=settings, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout  # of the two databases of ours, none
    assert ministack.list_tables()["TableNames"] == before
