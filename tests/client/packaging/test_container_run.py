"""What runs a command in a container, as real processes: several at once, signals, launchers."""

from __future__ import annotations

import ast
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sagemaker_queue.packaging.container import run

RUN = Path(run.__file__)

# Says what it was called with, and that it was.
FAKE_MPIRUN = """#!/bin/sh
echo "mpirun: $@"
exit 6
"""


class Container:
    """A folder that plays /opt/ml."""

    def __init__(self, root: Path, hosts: list[str], host: str) -> None:
        self.root = root
        self._hosts = {"hosts": hosts, "current_host": host, "network_interface_name": "lo"}
        self.environment = {"PATH": f"{root}/bin:{Path(sys.executable).parent}:/usr/bin:/bin"}
        for folder in ("input/config", "input/data/code", "bin"):
            (root / folder).mkdir(parents=True)
        (root / "input/data/code/run.py").write_text(RUN.read_text())

    def program(self, name: str, text: str) -> None:
        (self.root / "bin" / name).write_text(text)
        (self.root / "bin" / name).chmod(0o755)

    def start(self, *command: str, files: dict[str, str] | None = None, **settings: str) -> subprocess.Popen[str]:
        with tarfile.open(self.root / "input/data/code/source.tar.gz", "w:gz") as archive:
            for name, text in (files or {}).items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
        config = self.root / "input/config"
        (config / "hyperparameters.json").write_text(json.dumps({"command": json.dumps(command), **settings}))
        (config / "resourceconfig.json").write_text(json.dumps(self._hosts))
        return self.again()

    def again(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, self.root / "input/data/code/run.py"],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path / "ml", ["algo-1"], "algo-1")


def wait(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_needs_no_newer_python_than_it_says() -> None:
    ast.parse(RUN.read_text(), feature_version=(3, 7))


def test_several_processes_of_a_host_set_up_once(container: Container) -> None:
    files = {"compile.sh": "sleep 0.3; echo once >> ../compiled\n"}
    processes = [container.start("cat", "../compiled", files=files), *(container.again() for _ in range(3))]
    outputs = [process.communicate(timeout=30)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert sum("compile.sh" in output for output in outputs) == 1
    assert [output.splitlines()[-1] for output in outputs] == ["once"] * 4


def test_where_things_are_is_told(container: Container) -> None:
    names = ("SM_MODEL_DIR", "SM_CHECKPOINT_DIR", "SM_HOSTS", "SM_CURRENT_HOST", "MASTER_ADDR", "MASTER_PORT")
    container.environment["MASTER_PORT"] = "1234"
    output, _ = container.start("env").communicate(timeout=30)
    environment = dict(line.partition("=")[::2] for line in output.splitlines())
    root = container.root
    expected = [f"{root}/model", f"{root}/checkpoints", '["algo-1"]', "algo-1", "algo-1", "1234"]
    assert [environment[name] for name in names] == expected


@pytest.mark.parametrize("step", ["command", "compile.sh"])
def test_sigterm_reaches_what_runs(container: Container, step: str) -> None:
    script = "trap 'echo saving; sleep 0.2; echo saved; exit 9' TERM; touch ../up; while true; do sleep 0.05; done"
    if step == "command":
        process = container.start("sh", "-c", script)
    else:
        process = container.start("echo", "never", files={"compile.sh": script})
    wait((container.root / "up").exists)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 9
    assert output.splitlines()[-2:] == ["saving", "saved"]
    assert "never" not in output


def test_what_the_command_started_may_end_in_peace(container: Container) -> None:
    child = "trap 'sleep 0.5; touch ../saved; exit' TERM; touch ../up; while true; do sleep 0.05; done"
    process = container.start("sh", "-c", f'sh -c "{child}"; true')
    wait((container.root / "up").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 128 + signal.SIGTERM
    assert (container.root / "saved").exists()
    process.communicate()


def test_mpirun_is_given_all_hosts_and_the_environment(container: Container) -> None:
    container.program("mpirun", FAKE_MPIRUN)
    process = container.start("train", "--lr", "0.1", launcher="mpirun", processes="4")
    output, _ = process.communicate(timeout=30)
    words = output.splitlines()[-1].split()
    assert process.returncode == 6
    assert words[:7] == ["mpirun:", "--allow-run-as-root", "--host", "algo-1:4", "-np", "4", "-wdir"]
    assert words[-3:] == ["train", "--lr", "0.1"]
    assert ("-x", "SM_HOSTS") in zip(words, words[1:]) and "SM_CURRENT_HOST" not in words


def test_mpirun_starts_when_all_hosts_can_be_reached_and_they_end_with_it(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    hosts = ["algo-1", "algo-2", "algo-3"]
    containers = [Container(tmp_path / host, hosts, host) for host in hosts]
    for one in containers:
        one.environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        one.program("mpirun", FAKE_MPIRUN)
        one.program("sshd", f"#!/bin/sh\ntouch {tmp_path}/ssh-$SM_CURRENT_HOST\n")
    first, second, third = (
        one.start("train", launcher="mpirun", processes="8") for one in containers[:2] + [containers[2]]
    )
    outputs = [process.communicate(timeout=30)[0] for process in (first, second, third)]
    assert [process.returncode for process in (first, second, third)] == [6, 6, 6]
    assert ["mpirun: " in output for output in outputs] == [True, False, False]
    assert "--host algo-1:8,algo-2:8,algo-3:8 -np 24" in outputs[0]
    assert sorted(path.name for path in tmp_path.glob("ssh-*")) == ["ssh-algo-2", "ssh-algo-3"]


def test_a_host_that_waits_for_the_others_can_be_stopped(tmp_path: Path) -> None:
    container = Container(tmp_path / "ml", ["algo-1", "algo-2"], "algo-1")
    container.environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    container.program("mpirun", "#!/bin/sh\necho started\n")
    process = container.start("train", launcher="mpirun")
    assert process.stdout and process.stdout.readline() == "[smq] train\n"
    os.kill(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM and "started" not in output


def test_torchrun_is_given_the_place_of_the_host(tmp_path: Path) -> None:
    container = Container(tmp_path / "ml", ["algo-1", "algo-2"], "algo-2")
    container.program("python", '#!/bin/sh\necho "$@"\n')
    output, _ = container.start("python", "train.py", "--lr", "1", launcher="torchrun", processes="8").communicate()
    assert output.splitlines()[-1] == (
        "-m torch.distributed.run --nnodes=2 --node-rank=1 --nproc-per-node=8 --master-addr=algo-1 --master-port=29500 "
        "--no-python python train.py --lr 1"
    )
