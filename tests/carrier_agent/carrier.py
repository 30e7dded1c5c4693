"""A carrier for tests: its folders, its mailbox, its agent."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from job_queue.adapters.carriers import program
from job_queue.carrier_agent import seal
from job_queue.carrier_agent.mailbox import context
from tests.mailboxes import small_key
from tests.waiting import PATIENCE, processes, until

BUCKET = "work"

Json = dict[str, Any]


class Carrier:
    """Eight pretended GPUs, and an agent that looks into its mailbox often."""

    def __init__(self, s3: Any, url: str, folder: Path, python: str = sys.executable) -> None:
        self.s3, self._url, self.base, self._python = s3, url, folder / "ml", python
        self.prefix = f"carriers/{uuid4().hex[:8]}"
        self.name = self.prefix.rpartition("/")[2]
        self.orders, self.private = small_key(), seal.private_number()
        self._assigned: set[str] = set()
        self._agent: subprocess.Popen[bytes] | None = None
        self._log = folder / "log"

    def start(self, **environment: str) -> None:
        """Start the agent, by the entry point of the request that the queue would send."""
        channel, config = self.base / "input" / "data" / "carrier", self.base / "input" / "config"
        channel.mkdir(parents=True, exist_ok=True)
        config.mkdir(parents=True, exist_ok=True)
        (channel / program.ARCHIVE).write_bytes(program.archive())
        settings = {
            "mailbox": f"s3://{BUCKET}/{self.prefix}",
            "order_key": f"{self.orders.modulus:x}",
            "queue_key": f"{seal.public_number(self.private):x}",
            "gpus": "8",
            "poll": "0.1",
        }
        (config / "hyperparameters.json").write_text(json.dumps(settings))
        programs = self.base / "bin"
        programs.mkdir(exist_ok=True)
        if not (programs / "python3").exists():
            (programs / "python3").symlink_to(self._python)
        variables = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SM_CHANNEL_CARRIER": str(channel),
            "AWS_ENDPOINT_URL": self._url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            **environment,
        }
        with self._log.open("ab") as log:
            self._agent = subprocess.Popen(program.entry_point(), env=variables, stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        """SIGKILL, as when an instance is lost."""
        if self._agent is not None:
            self._agent.kill()
            self._agent.wait()

    def close(self) -> None:
        """End the agent, and its members, which outlive it."""
        self.kill()
        for process in processes(lambda env: env.get("SMQ_MEMBER", "").startswith(f"{self.base}/")):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def wait(self) -> int:
        """Wait until the agent ends by itself; give its exit code."""
        assert self._agent is not None
        return self._agent.wait(PATIENCE)

    def terminate(self) -> int:
        """SIGTERM, as when SageMaker stops the job; gives the exit code."""
        assert self._agent is not None
        self._agent.terminate()
        return self._agent.wait(PATIENCE)

    @property
    def pid(self) -> int:
        """The agent's process."""
        assert self._agent is not None
        return self._agent.pid

    @property
    def log_size(self) -> int:
        """Bytes that it has written."""
        return self._log.stat().st_size

    @property
    def log(self) -> list[str]:
        """The lines that it has written."""
        return self._log.read_text(errors="replace").splitlines()

    def lines(self, attempt: str) -> list[str]:
        """What a member has said, without its name."""
        return [line.partition("| ")[2] for line in self.log if line.startswith(f"{attempt}| ")]

    def assign(self, attempt: str, script: str, *, gpus: tuple[int, ...] = (0,), tenths: int = 10, **more: Any) -> None:
        """Send an assignment, of a shell script."""
        request: Json = {
            "AlgorithmSpecification": {"ContainerEntrypoint": ["/bin/sh", "-c"], "ContainerArguments": [script]},
            **more.pop("request", {}),
        }
        self.send(attempt, "assign", {"request": request, **more}, gpus=list(gpus), tenths=tenths)

    def stop(self, attempt: str) -> None:
        """Ask for its end."""
        self.send(attempt, "stop")

    def send(self, attempt: str, message: str, hidden: Json | None = None, **order: Any) -> None:
        """Send an order as the queue does: signed, with an encrypted request, and an assignment only once."""
        call = 1 if message == "assign" else 2
        names = {"do": message, "carrier": self.name, "attempt": attempt, "submission": "s", "call": call}
        if message == "assign" and attempt in self._assigned:
            return
        if message == "assign":
            self._assigned.add(attempt)
        if hidden is not None:
            bound = context(self.name, attempt, call)
            order["sealed"] = seal.sealed(self.key, json.dumps(hidden).encode(), bound)
        self.put(f"in/{attempt}/{message}.json", self.signed(json.dumps({**names, **order})))

    def signed(self, text: str) -> bytes:
        """The message with this order."""
        return json.dumps({"order": text, "signature": self.orders.sign(text).hex()}).encode()

    @property
    def key(self) -> bytes:
        """The key that the agent shares with the queue, once the agent has introduced itself."""
        until(lambda: "agent.json" in self.keys("out/"))
        public = int(json.loads(self.get("out/agent.json"))["key"], 16)
        return seal.shared_key(self.private, public, self.name)

    def report(self, attempt: str, what: str = "ended") -> Json | None:
        """What the agent has reported of it."""
        try:
            found = self.s3.get_object(Bucket=BUCKET, Key=f"{self.prefix}/out/{attempt}/{what}.json")
        except self.s3.exceptions.NoSuchKey:
            return None
        message: Json = json.loads(found["Body"].read())
        assert seal.is_authentic(self.key, message["report"], f"{attempt}/{what}", message["code"])
        content: Json = json.loads(message["report"])
        return content

    def end_of(self, attempt: str) -> Json:
        """Its end, once it is reported."""
        found = until(lambda: self.report(attempt))
        assert found is not None
        return found

    def until_says(self, attempt: str, line: str) -> None:
        """Wait for a line of a member."""
        until(lambda: line in self.lines(attempt))

    def processes(self, attempt: str) -> list[psutil.Process]:
        """Those of a member that run."""
        return processes(lambda env: env.get("SMQ_MEMBER") == str(self.base / "members" / attempt))

    def put(self, key: str, content: bytes) -> str:
        self.s3.put_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}", Body=content)
        return f"s3://{BUCKET}/{self.prefix}/{key}"

    def keys(self, below: str) -> list[str]:
        """Keys below a folder of this carrier's."""
        prefix = f"{self.prefix}/{below}"
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [it["Key"].removeprefix(prefix) for page in pages for it in page.get("Contents", [])]

    def get(self, key: str) -> bytes:
        content: bytes = self.s3.get_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}")["Body"].read()
        return content
