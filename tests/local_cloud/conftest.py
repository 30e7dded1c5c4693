"""The AWS services and the emulator that the tests of the emulator share."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from local_cloud.aws.ministack import Ministack
from local_cloud.sagemaker.job_processes.process import can_mount
from local_cloud.sagemaker.training_service import TrainingService
from tests.local_cloud.emulator import BUCKET, Emulator, client
from tests.waiting import PATIENCE

MakeEmulator = Callable[..., Emulator]


@pytest.fixture(scope="session")
def aws_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """AWS without SageMaker; one for all tests."""
    server = Ministack(tmp_path_factory.mktemp("ministack"), auth=False, region="us-east-1")
    try:
        server.start({})
        client("s3", server.url).create_bucket(Bucket=BUCKET)
        yield server.url
    finally:
        server.close()


@pytest.fixture(scope="session")
def emulator(aws_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """An emulator without limits and faults; tests that share it name their jobs differently.

    A script that handles SIGTERM has all the time that it needs.
    """
    with TrainingService(
        aws_endpoint=aws_url,
        workdir=tmp_path_factory.mktemp("jobs"),
        deliver=lambda event: None,
        stop_grace=PATIENCE,
    ) as service:
        yield Emulator(service, aws_url)


@pytest.fixture(scope="session")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> bool:
    """Whether this machine's kernel lets a job see /opt/ml."""
    return can_mount(tmp_path_factory.mktemp("mount") / "probe")


@pytest.fixture
def make_emulator(aws_url: str, tmp_path: Path) -> Iterator[MakeEmulator]:
    """Starts an emulator for one test, with options of TrainingService."""
    with ExitStack() as stack:

        def make(**options: Any) -> Emulator:
            options = {"deliver": lambda event: None, "workdir": tmp_path, **options}
            return Emulator(stack.enter_context(TrainingService(aws_endpoint=aws_url, **options)), aws_url)

        yield make
