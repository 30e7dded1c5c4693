"""The socket of ``smq ui``."""

import socket

import pytest

from sagemaker_queue.cli import main
from sagemaker_queue.errors import ConfigError
from sagemaker_queue.ui.application import listen


def test_a_browser_that_is_faster_than_the_server_waits() -> None:
    with listen(0) as listening, socket.create_connection(listening.getsockname()) as browser:
        assert browser.getpeername() == listening.getsockname()


def test_a_port_that_is_in_use_is_refused_with_a_remedy() -> None:
    with listen(0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Port {port} is not available: .* Without --port, smq ui uses a free"):
            listen(port)


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_number_that_is_no_port_is_wrong_usage(port: str, address: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", "--no-browser", "--port", port]) == 2
    assert f"Invalid value for '--port': {port} is not in the range 0<=x<=65535." in capsys.readouterr().err
