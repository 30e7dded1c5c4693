"""Start and stop of the ministack process, which provides the AWS services of the local cloud."""

import http.client
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from local_cloud.aws.callers import TOKEN_HEADER
from local_cloud.aws.session import KNOWN_KEYS, AccountKeys, RootKey
from local_cloud.dynamodb.key_throttle import KeyLimits
from local_cloud.user_errors import LocalCloudError

TOKEN_VARIABLE = "LOCAL_CLOUD_TOKEN"
ROOT_KEYS_VARIABLE = "LOCAL_CLOUD_ROOT_KEYS"
SERVER = Path(__file__).resolve().with_name("server.py")
READY_WITHIN = 300.0  # seconds; the start takes about one second


class Ministack:
    """A ministack server on a free port of 127.0.0.1.

    The port is bound when the object is made, so `url` is valid before `start`.

    :param crash: the probability, per invocation, that a Lambda function's process is killed, after `begin_crashes`.
    :param seed: makes the decisions about crashes repeatable.
    :param key_limits: units a second of each partition key in DynamoDB; None: keys are not throttled.
    :param root_keys: further keys of root users, also of other accounts.
    """

    def __init__(
        self,
        folder: Path,
        *,
        auth: bool,
        region: str,
        keys: AccountKeys = KNOWN_KEYS,
        crash: float = 0.0,
        seed: int = 0,
        key_limits: KeyLimits | None = None,
        root_keys: Sequence[RootKey] = (),
    ) -> None:
        self.log = folder / "ministack.log"
        self._crashes = folder / "crashes"
        self._throttled = folder / "throttled"
        limits = [f"{key_limits.reads}/{key_limits.writes}", str(self._throttled)] if key_limits else []
        self._options = [str(crash), str(seed), str(self._crashes), *limits]
        self._folder = folder
        self._auth = auth
        self._region = region
        self._keys = keys
        self._root_keys = [(one.keys.access, one.keys.secret, one.account, one.inside) for one in root_keys]
        self.token = secrets.token_urlsafe(30)  # for ministack's own endpoints; see server.AccessControl
        self._process: subprocess.Popen[bytes] | None = None
        # ministack inherits the bound socket, so no other process can take the port in the meantime.
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The server's process id; None before its start."""
        return self._process.pid if self._process else None

    def start(self, environment: Mapping[str, str]) -> None:
        """Start the server and wait until it answers.

        :param environment: variables to add to the server's environment, which the Lambda functions inherit.
        """
        if find_spec("ministack") is None:
            raise ModuleNotFoundError("No module named 'ministack'", name="ministack")
        temporary = self._folder / "tmp"
        temporary.mkdir()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                # -P: this file's folder must not come before the libraries on the import path
                [sys.executable, "-P", str(SERVER), str(self._socket.fileno()), *self._options],
                env={**self._environment(temporary), **environment},
                cwd=temporary,
                stdin=subprocess.PIPE,  # the server exits when this pipe is closed, even by a crash of this process
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[self._socket.fileno()],
                process_group=0,  # Ctrl-C in the terminal does not reach the server, because this process handles it
            )
        self._socket.close()
        deadline = time.monotonic() + READY_WITHIN
        while not self._is_healthy():
            self.check()
            if time.monotonic() > deadline:
                raise LocalCloudError(f"ministack did not answer within {READY_WITHIN:.0f} s. {self._end_of_log()}")
            time.sleep(0.03)

    def begin_crashes(self) -> None:
        """Allow processes of Lambda functions to be killed from now on."""
        self._crashes.touch()

    @property
    def crashes(self) -> int:
        """The number of killed processes."""
        return self._crashes.stat().st_size if self._crashes.exists() else 0

    @property
    def throttled(self) -> int:
        """The number of DynamoDB calls that were throttled because of a partition key's limit."""
        return self._throttled.stat().st_size if self._throttled.exists() else 0

    def check(self) -> None:
        """Raise LocalCloudError, with the end of the server's log, if the server has ended."""
        if self._process is not None and (status := self._process.poll()) is not None:
            raise LocalCloudError(f"ministack ended with status {status}. {self._end_of_log()}")

    def close(self) -> None:
        """End the server, which has nothing to save. The Lambda workers end with the server."""
        self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin
            self._process.stdin.close()

    def _environment(self, temporary: Path) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
        return kept | {
            "GATEWAY_PORT": str(self.port),
            "MINISTACK_HOST": "127.0.0.1",
            "MINISTACK_REGION": self._region,
            "AUTH": "true" if self._auth else "false",
            "AWS_ACCESS_KEY_ID": self._keys.access,
            "AWS_SECRET_ACCESS_KEY": self._keys.secret,
            TOKEN_VARIABLE: self.token,
            ROOT_KEYS_VARIABLE: json.dumps(self._root_keys),
            "LOG_LEVEL": "INFO",
            "TMPDIR": str(temporary),
            "S3_DATA_DIR": str(temporary / "s3"),
            "STATE_DIR": str(temporary / "state"),
            # No service of ministack may listen on a fixed port, or remove another ministack's containers.
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "DOCKER_HOST": f"unix://{temporary / 'no-docker.sock'}",
        }

    def _is_healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)
        try:
            connection.request("GET", "/_ministack/health", headers={TOKEN_HEADER: self.token})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _end_of_log(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-15:]
        return "Its log ends with:\n" + "\n".join(f"  {line}" for line in lines)
