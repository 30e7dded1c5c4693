"""A proxy on a real socket; it takes a second to make."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from sagemaker_queue.integrations.proxy import gateway
from sagemaker_queue.queue.config.queue_config import QueueConfig
from tests.client.conftest import serving, set_environment
from tests.client.integrations.proxy.proxied import Proxied


@pytest.fixture(scope="module")
def lasting_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    with pytest.MonkeyPatch.context() as patch, serving() as queue, serving() as sagemaker:
        set_environment(patch, tmp_path_factory.mktemp("home"))
        patch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", sagemaker.url)
        with gateway.proxy(QueueConfig(queue.url, region="eu-west-1"), 0, preflight=False) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            once = Config(retries={"total_max_attempts": 1})
            session: Any = boto3.Session()
            client = session.client("sagemaker", endpoint_url=f"http://{server.address}", config=once)
            proxied = Proxied(queue, sagemaker, server, client)
            sagemaker.answers(200, {})
            try:
                assert proxied.send(proxied.signed()).status_code == 200  # now it knows where SageMaker is
                yield proxied
            finally:
                server.shutdown()
                thread.join()


@pytest.fixture
def proxied(lasting_proxy: Proxied) -> Iterator[Proxied]:
    for side in (lasting_proxy.queue, lasting_proxy.sagemaker):
        side.received.clear()
        side.script.clear()
        side.always_answers(418, {"message": "script is over"})
    yield lasting_proxy
    assert not lasting_proxy.queue.script and not lasting_proxy.sagemaker.script, "not all answers were asked for"
