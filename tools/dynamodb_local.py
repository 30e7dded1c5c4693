"""Run a command beside AWS's own DynamoDB Local; the server's address replaces {url} in the command.

    .venv/bin/python tools/dynamodb_local.py pytest tests/contract --dynamodb-url {url}

`make setup` does not install DynamoDB Local. Maven downloads the server once into build/dynamodb-local, from the
repository in Maven's settings. Java 17 is required. The server keeps its data in memory, listens on a free port of this
machine, and stops when the command has ended.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from local_cloud.ports import free_ports

ROOT = Path(__file__).resolve().parent.parent
PROJECT = Path(__file__).with_suffix(".xml")
JARS = ROOT / "build/dynamodb-local"
SERVER = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"
TIMEOUT_SECONDS = 60


def main(command: Sequence[str]) -> int:
    """Run the command, and return its exit status."""
    for program in ("java", "mvn"):
        if not shutil.which(program):
            print(f"DynamoDB Local needs Java 17 and Maven, and there is no {program} here.", file=sys.stderr)
            return 1
    if not fetched():
        return 1
    with serving() as url:
        return subprocess.run([word.replace("{url}", url) for word in command], check=False).returncode


def fetched() -> bool:
    """Download the jars if they are missing or older than the project file. Return whether they are complete."""
    complete = JARS / ".complete"
    if complete.exists() and complete.stat().st_mtime >= PROJECT.stat().st_mtime:
        return True
    print("Fetching DynamoDB Local, by Maven ...", flush=True)
    shutil.rmtree(JARS, ignore_errors=True)
    copy = ["dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
    done = subprocess.run(["mvn", "-q", "-B", "-f", str(PROJECT), *copy], check=False)
    if not done.returncode:
        complete.touch()
    return not done.returncode


@contextmanager
def serving() -> Iterator[str]:
    """Run DynamoDB Local while the block runs; yield its address."""
    port = free_ports()
    options = ["-disableTelemetry", "-inMemory", "-port", str(port)]
    log = JARS / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            ["java", f"-Djava.library.path={JARS}", "-cp", f"{JARS}/*", SERVER, *options],
            env={**os.environ, "DDB_LOCAL_TELEMETRY": "0"}, stdout=output, stderr=output,
        )  # fmt: skip
        try:
            wait_for(server, port, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def wait_for(server: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    """Wait until the server accepts connections; exit if it does not start."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"DynamoDB Local does not start:\n{log.read_text()}")
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
