"""What runs a command in a container, as real processes: several at once, signals, launchers."""

from __future__ import annotations

import ast
import gzip
import hashlib
import io
import json
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from local_cloud.ports import free_ports
from sagemaker_queue.jobs.packaging.command import entry_point
from sagemaker_queue.jobs.packaging.container import run
from sagemaker_queue.workflows.remote_shell.command_lines import MarkedCommand, MarkedOutput
from tests.waiting import PATIENCE, until

RUN = Path(run.__file__)
PYTHON = os.environ.get("PYTHON_OF_THE_CONTAINER", sys.executable)

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
        self.environment = {
            "PATH": f"{root}/bin:{Path(PYTHON).parent}:/usr/bin:/bin",
            "SM_CHANNEL_CODE": f"{root}/input/data/code",
        }
        for folder in ("input/config", "input/data/code", "output", "bin"):
            (root / folder).mkdir(parents=True)
        self.submitted = RUN.read_text()
        (root / "input/data/code/run.py").write_text(self.submitted)

    def replace(self, old: str, new: str) -> None:
        """Replace a text of the submitted program."""
        assert old in self.submitted
        self.submitted = self.submitted.replace(old, new)
        (self.root / "input/data/code/run.py").write_text(self.submitted)

    def program(self, name: str, text: str) -> None:
        (self.root / "bin" / name).write_text(text)
        (self.root / "bin" / name).chmod(0o755)

    def start(self, *command: str, files: dict[str, str] | None = None, **settings: str) -> subprocess.Popen[str]:
        with tarfile.open(self.root / "input/data/code/source.tar.gz", "w:gz") as archive:
            for name, text in (files or {}).items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
        return self.run(list(command), **settings)

    def source(self) -> str:
        """What the request says of the code."""
        content = gzip.decompress((self.root / "input/data/code/source.tar.gz").read_bytes())
        return f"{hashlib.sha256(content).hexdigest()} {len(content)}"

    def run(self, command: list[str], **settings: str) -> subprocess.Popen[str]:
        if "source" not in settings:
            settings["source"] = self.source()
        config = self.root / "input/config"
        (config / "hyperparameters.json").write_text(json.dumps({"command": json.dumps(command), **settings}))
        (config / "resourceconfig.json").write_text(json.dumps(self._hosts))
        return self.again()

    def again(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            entry_point(hashlib.sha256(self.submitted.encode()).hexdigest()),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        STARTED.append(process)
        return process


STARTED: list[subprocess.Popen[str]] = []  # by the test that runs


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    """End the programs that a test has started and close their pipes, also after a failure."""
    STARTED.clear()
    yield
    for process in STARTED:
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path / "ml", ["algo-1"], "algo-1")


def test_it_needs_no_newer_python_than_it_says() -> None:
    """What else may be missing there: PYTHON_OF_THE_CONTAINER=/.../python3.6 runs all of these tests with another."""
    tree = ast.parse(RUN.read_text(), feature_version=(3, 6))
    assert not any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in ast.walk(tree))
    annotations = [node.annotation for node in ast.walk(tree) if isinstance(node, (ast.arg, ast.AnnAssign))]
    annotations += [node.returns for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    parts = [part for annotation in annotations if annotation for part in ast.walk(annotation)]
    assert not any(isinstance(part, ast.BinOp) for part in parts)
    subscripts = [ast.unparse(part.value) for part in parts if isinstance(part, ast.Subscript)]
    assert set(subscripts) <= {"Dict", "List", "Optional", "Set", "Tuple", "IO"}, subscripts


def test_several_processes_of_a_host_set_up_once(container: Container) -> None:
    files = {"compile.sh": "sleep 0.3; echo once >> ../compiled\n"}
    processes = [container.start("cat", "../compiled", files=files), *(container.again() for _ in range(3))]
    outputs = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert sum("compile.sh" in output for output in outputs) == 1
    assert [output.splitlines()[-1] for output in outputs] == ["once"] * 4


def test_document_004_a_placeholder_becomes_the_path_of_the_data_also_under_a_launcher(container: Container) -> None:
    container.program("mpirun", FAKE_MPIRUN)
    words = ["--data={data:a b}/train", "{{data:a b}}", "${data:0}", "{data:ü}"]
    places = json.dumps({"a b": "a-b", "ü": "u/ü.txt"})
    data = f"{container.root}/input/data"
    output, _ = container.start("printf", r"%s\n", *words, places=places).communicate(timeout=PATIENCE)
    assert output.splitlines()[1:] == [f"--data={data}/a-b/train", "{data:a b}", "${data:0}", f"{data}/u/ü.txt"]
    output, _ = container.start("train", *words, places=places, launcher="mpirun").communicate(timeout=PATIENCE)
    assert output.splitlines()[-1].endswith(f"train --data={data}/a-b/train {{data:a b}} ${{data:0}} {data}/u/ü.txt")
    output, _ = container.start("echo", *words).communicate(timeout=PATIENCE)  # of a request without placeholders
    assert output.splitlines()[-1] == " ".join(words)


def test_document_004_compile_aml_sh_is_run_before_the_command(container: Container) -> None:
    files = {"compile.aml.sh": "echo compiled > built\n"}
    output, _ = (process := container.start("cat", "built", files=files)).communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert output.splitlines() == ["[smq] sh compile.aml.sh", "[smq] cat built", "compiled"]


def test_document_004_a_failure_of_compile_aml_sh_is_the_jobs(container: Container) -> None:
    files = {"compile.aml.sh": "exit 3\n"}
    output, _ = (process := container.start("echo", "never", files=files)).communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert output.splitlines()[-1] == "[smq] sh compile.aml.sh ended with exit code 3: the command is not started"


def test_of_both_scripts_compile_sh_is_run_and_the_log_says_so(container: Container) -> None:
    files = {"compile.aml.sh": "echo wrong\n", "compile.sh": "echo right\n"}
    output, _ = (process := container.start("echo", "done", files=files)).communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert output.splitlines() == [
        "[smq] compile.aml.sh is not run: the folder has compile.sh, which takes its place",
        "[smq] sh compile.sh",
        "right",
        "[smq] echo done",
        "done",
    ]


def test_where_things_are_is_told(container: Container) -> None:
    names = ("SM_MODEL_DIR", "SM_CHECKPOINT_DIR", "SM_HOSTS", "SM_CURRENT_HOST", "MASTER_ADDR", "MASTER_PORT")
    container.environment["MASTER_PORT"] = "1234"
    output, _ = container.start("env").communicate(timeout=PATIENCE)
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
    until((container.root / "up").exists)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 9
    assert output.splitlines()[-2:] == ["saving", "saved"]
    assert "never" not in output


def test_what_the_command_started_may_end_in_peace(container: Container) -> None:
    child = "trap 'sleep 0.5; touch ../saved; exit' TERM; touch ../up; while true; do sleep 0.05; done"
    process = container.start("sh", "-c", f'sh -c "{child}"; true')
    until((container.root / "up").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE) == 128 + signal.SIGTERM
    assert (container.root / "saved").exists()
    process.communicate()


def test_mpirun_is_given_all_hosts_and_the_environment(container: Container) -> None:
    container.program("mpirun", FAKE_MPIRUN)
    process = container.start("train", "--lr", "0.1", launcher="mpirun", processes="4")
    output, _ = process.communicate(timeout=PATIENCE)
    words = output.splitlines()[-1].split()
    assert process.returncode == 6
    assert words[:7] == ["mpirun:", "--allow-run-as-root", "--host", "algo-1:4", "-np", "4", "-wdir"]
    assert words[-3:] == ["train", "--lr", "0.1"]
    assert ("-x", "SM_HOSTS") in zip(words, words[1:]) and "SM_CURRENT_HOST" not in words


def test_mpirun_starts_when_all_hosts_can_be_reached_and_they_end_with_it(tmp_path: Path) -> None:
    port = str(free_ports())
    hosts = ["algo-1", "algo-2", "algo-3"]
    containers = [Container(tmp_path / host, hosts, host) for host in hosts]
    for one in containers:
        one.environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        one.program("mpirun", FAKE_MPIRUN)
        one.program("sshd", f"#!/bin/sh\ntouch {tmp_path}/ssh-$SM_CURRENT_HOST\n")
    first, second, third = (
        one.start("train", launcher="mpirun", processes="8") for one in containers[:2] + [containers[2]]
    )
    outputs = [process.communicate(timeout=PATIENCE)[0] for process in (first, second, third)]
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
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM and "started" not in output


def test_torchrun_is_given_the_place_of_the_host(tmp_path: Path) -> None:
    container = Container(tmp_path / "ml", ["algo-1", "algo-2"], "algo-2")
    container.program("python", '#!/bin/sh\necho "$@"\n')
    output, _ = container.start("python", "train.py", "--lr", "1", launcher="torchrun", processes="8").communicate()
    assert output.splitlines()[-1] == (
        " --nnodes=2 --node-rank=1 --nproc-per-node=8 --master-addr=algo-1 --master-port=29500 "
        "--no-python python train.py --lr 1"
    )


FAKE_TORCHRUN = """
import signal, sys, time
class SignalException(Exception):
    def __init__(self, sigval): self.sigval = sigval
def stop(number, frame): raise SignalException(signal.Signals(number))
def main():
    assert "" not in sys.path  # of the job's folder torch imports nothing
    if "fails" in sys.argv: raise ValueError("no signal")
    if "works" in sys.argv: sys.exit(5)
    signal.signal(signal.SIGTERM, stop)
    print("started", sys.argv[1], flush=True)
    while True: time.sleep(0.1)
"""


def test_a_preemption_under_torchrun_leaves_no_traceback(tmp_path: Path) -> None:
    package = tmp_path / "packages" / "torch" / "distributed"
    package.mkdir(parents=True)
    for module, text in (("../__init__", ""), ("__init__", ""), ("run", FAKE_TORCHRUN)):
        (package / f"{module}.py").write_text(text)
    container = Container(tmp_path / "ml", ["algo-1"], "algo-1")
    container.environment["PYTHONPATH"] = str(tmp_path / "packages")
    for word, code in (("works", 5), ("fails", 1)):
        process = container.start("python", word, launcher="torchrun", processes="1")
        output, _ = process.communicate(timeout=PATIENCE)
        assert (process.returncode, "ValueError: no signal" in output) == (code, word == "fails")
    process = container.start("python", "train.py", launcher="torchrun", processes="1")
    lines = iter(process.stdout or ())
    assert "started --nnodes=1\n" in lines
    os.kill(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM and "Traceback" not in output


def archive_of(*members: tarfile.TarInfo, content: bytes = b"x") -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for member in members:
            member.size = len(content) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(content))
    return target.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, linkname: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode = kind, linkname, 0o755
    return entry


def sparse() -> bytes:
    """A file of 8 TiB without content, as GNU tar writes it."""
    header = bytearray(member("huge").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[124:136] = b"0" * 11 + b"\0"
    header[386:398], header[398:410] = b"00000000000\0", b"00000000000\0"
    header[483:495] = b"\x80" + (1 << 43).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return bytes(header) + b"\0" * 10240


LINK, HARD = tarfile.SYMTYPE, tarfile.LNKTYPE
HOSTILE = {
    "absolute": archive_of(member("/tmp/smq-owned")),
    "above": archive_of(member("../owned")),
    "above, later": archive_of(member("a/../../owned")),
    "nothing between": archive_of(member("a//b")),
    "link out": archive_of(member("l", LINK, "../..")),
    "absolute link": archive_of(member("l", LINK, "/etc")),
    "write through a link": archive_of(member("l", LINK, "inside"), member("l/owned")),
    "write through a link to above": archive_of(member("l", LINK, ".."), member("l/owned")),
    "link by links": archive_of(
        member("a", tarfile.DIRTYPE), member("a/up", LINK, ".."), member("out", LINK, "a/up/../..")
    ),
    "hard link": archive_of(member("h", HARD, "../../etc/passwd")),
    "hard link inside": archive_of(member("a"), member("h", HARD, "a")),
    "device": archive_of(member("d", tarfile.CHRTYPE)),
    "block device": archive_of(member("d", tarfile.BLKTYPE)),
    "pipe": archive_of(member("compile.sh", tarfile.FIFOTYPE)),
    "twice": archive_of(member("a"), member("a")),
    "a folder twice": archive_of(member("a", tarfile.DIRTYPE), member("a", tarfile.DIRTYPE)),
    "a file, then a folder": archive_of(member("a"), member("a/b")),
    "a folder, then a link": archive_of(member("a/b"), member("a", LINK, "..")),
    "sparse": sparse(),
    "no archive": b"\1" * 2000,
}


def test_links_to_the_folder_itself_are_unpacked(container: Container) -> None:
    links = [member("here", LINK, "."), member("a/self", LINK, "./."), member("a/up", LINK, "..")]
    archive = archive_of(member("a", tarfile.DIRTYPE), member("a/train.py"), *links)
    (container.root / "input/data/code/source.tar.gz").write_bytes(gzip.compress(archive))
    process = container.run(["test", "-f", "here/a/self/up/a/train.py"])
    assert "is refused" not in process.communicate(timeout=PATIENCE)[0] and process.returncode == 0


@pytest.mark.attack
class TestForeignCode:
    """Whoever may write to the bucket, or makes the archive, must not choose what runs or where it is written."""

    def start(self, container: Container, archive: bytes, **settings: str) -> subprocess.Popen[str]:
        (container.root / "input/data/code/source.tar.gz").write_bytes(gzip.compress(archive))
        return container.run(["echo", "it", "runs"], **settings)

    @pytest.mark.parametrize("archive", HOSTILE.values(), ids=HOSTILE)
    def test_a_hostile_archive_is_refused_before_anything_is_written(
        self, container: Container, archive: bytes, tmp_path: Path
    ) -> None:
        output, _ = (process := self.start(container, archive)).communicate(timeout=PATIENCE)
        assert process.returncode == run.NOT_AS_SUBMITTED, output
        assert "source.tar.gz is refused" in output and "it runs" not in output and "Traceback" not in output
        left = {path.relative_to(container.root).parts[0] for path in container.root.rglob("*")}
        assert left <= {"input", "output", "bin", "work", "work.lock"} and not list(container.root.glob("work/*"))
        assert {path.name for path in tmp_path.iterdir()} == {"ml"} and not Path("/tmp/smq-owned").exists()

    @pytest.mark.parametrize(
        "content",
        [b"other", b"", b"\x1f\x8b\x08\0", gzip.compress(bytes(50_000_000))],
        ids=["other", "empty", "cut", "zeros"],
    )
    def test_an_overwritten_archive_is_not_unpacked(self, container: Container, content: bytes) -> None:
        good = archive_of(member("train.py"))
        source = f"{hashlib.sha256(good).hexdigest()} {len(good)}"
        (container.root / "input/data/code/source.tar.gz").write_bytes(content)
        output, _ = (process := container.run(["echo", "it", "runs"], source=source)).communicate(timeout=PATIENCE)
        assert process.returncode == run.NOT_AS_SUBMITTED and "it runs" not in output
        assert not (container.root / "work").exists()
        assert (container.root / "output/failure").read_text().startswith("source.tar.gz is refused")

    def test_code_without_a_digest_is_not_unpacked(self, container: Container) -> None:
        output, _ = (process := self.start(container, archive_of(member("a")), source="")).communicate(timeout=PATIENCE)
        assert process.returncode == run.NOT_AS_SUBMITTED and "it runs" not in output

    def test_an_overwritten_program_is_not_run(self, container: Container) -> None:
        (container.root / "input/data/code/run.py").write_text("print('owned')")
        output, _ = (process := self.start(container, archive_of(member("a")))).communicate(timeout=PATIENCE)
        assert process.returncode == 1
        failure = "run.py differs from the submitted file: it was changed in S3, and is not run."
        assert output == f"[smq] {failure}\n"
        assert (container.root / "output/failure").read_text() == failure

    def test_what_else_lies_in_the_channel_is_not_imported(self, container: Container) -> None:
        """SageMaker fetches all that is below the address."""
        for name in ("json", "hashlib", "tarfile", "sitecustomize", "usercustomize"):
            (container.root / f"input/data/code/{name}.py").write_text("print('owned')")
        output, _ = self.start(container, archive_of(member("a"))).communicate(timeout=PATIENCE)
        assert "owned" not in output and output.endswith("it runs\n")

    def test_an_ordinary_archive_is_unpacked(self, container: Container) -> None:
        archive = archive_of(
            *(member("deep", tarfile.DIRTYPE), member("deep/ä\u202e.txt"), member("deep/up", LINK, "../train.py")),
            *(member("train.py"), member("here", LINK, "./deep"), member("implied/folder/file")),
        )
        self.start(container, archive).communicate(timeout=PATIENCE)
        work = container.root / "work"
        assert (work / "deep/up").read_text() == (work / "here/ä\u202e.txt").read_text() == "x"
        assert (work / "train.py").stat().st_mode & 0o7777 == 0o755
        assert (work / "implied/folder/file").is_file()


def test_words_are_passed_on_where_the_locale_knows_ascii_only(container: Container) -> None:
    container.environment |= {"LC_ALL": "C"}
    process = container.start(
        "sh", "-c", 'test "$1" = "$(cat ä.txt)" && echo "same: $1"', "sh", "grüße", files={"ä.txt": ""}
    )
    process.communicate(timeout=PATIENCE)
    (container.root / "work/ä.txt").write_text("grüße")
    output, _ = container.again().communicate(timeout=PATIENCE)
    assert output.splitlines()[-1] == "same: grüße"


@pytest.fixture
def first_host(tmp_path: Path) -> Container:
    """Return the first of three hosts. The test plays the other hosts."""
    port = free_ports(2) + 1
    container = Container(tmp_path / "ml", ["algo-1", "algo-2", "algo-3"], "algo-1")
    container.environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    return container


def connected(first: subprocess.Popen[str], port: int) -> socket.socket:
    """Return a connection that the first host has accepted."""
    connection = until(lambda: connection_to(port) or first.poll() is not None)
    assert isinstance(connection, socket.socket), "the first host has ended"
    own_address = connection.getsockname()
    process = psutil.Process(first.pid)
    until(lambda: first.poll() is not None or own_address in [one.raddr for one in process.net_connections()])
    return connection


def connection_to(port: int) -> socket.socket | None:
    try:
        return socket.create_connection(("127.0.0.1", port))
    except OSError:  # the first host does not listen yet
        return None


def lose(connection: socket.socket) -> None:
    """Reset a connection, as after the loss of a host."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_the_loss_of_a_host_does_not_change_the_exit_code_of_mpirun(first_host: Container) -> None:
    os.mkfifo(go := first_host.root / "go")
    first_host.program("mpirun", f"#!/bin/sh\nread line < {go}\nexit 6\n")
    first = first_host.start("train", launcher="mpirun")
    port = int(first_host.environment["MASTER_PORT"])
    with connected(first, port) as lost, connected(first, port) as other:
        lose(lost)
        go.write_text("go\n")
        assert other.recv(2) == bytes([6])
    output, _ = first.communicate(timeout=PATIENCE)
    assert (first.returncode, "Traceback" in output) == (6, False), output


def test_the_loss_of_a_host_does_not_end_an_interactive_job(first_host: Container) -> None:
    first_host.replace("LOOK_SECONDS = 5.0", "LOOK_SECONDS = 0.1")
    first = first_host.start(idle_end="1000")
    port = int(first_host.environment["MASTER_PORT"]) - 1
    lose(connected(first, port))
    with connected(first, port):  # the lost connection has been noticed before this one is accepted
        first.terminate()
        output, _ = first.communicate(timeout=PATIENCE)
    assert (first.returncode, "Traceback" in output) == (143, False), output


# --- waiting for shells ----------------------------------------------------------------------------------


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts what looks like a process of the SSM agent; its environment says of which job."""
    program = tmp_path / "ssm-session-worker"
    shutil.copy("/bin/sleep", program)
    begun: list[subprocess.Popen[bytes]] = []

    def start(**environment: str) -> subprocess.Popen[bytes]:
        begun.append(subprocess.Popen([str(program), "1000"], env=environment))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.wait()


def test_it_is_kept_while_somebody_has_a_session(
    container: Container, session: Callable[..., subprocess.Popen[bytes]]
) -> None:
    container.environment.update(TRAINING_JOB_NAME="lab", SM_CURRENT_HOST="algo-1")
    session(TRAINING_JOB_NAME="other")
    session(TRAINING_JOB_NAME="lab", SM_CURRENT_HOST="algo-2")
    own = session(TRAINING_JOB_NAME="lab", SM_CURRENT_HOST="algo-1")
    kept = container.start(idle_end="0.4")
    with pytest.raises(subprocess.TimeoutExpired):
        kept.wait(timeout=3)  # more than the idle end, many times
    own.kill()
    own.wait()
    output, _ = kept.communicate(timeout=PATIENCE)
    assert kept.returncode == 0
    assert output.splitlines() == [
        "[smq] waiting for shells; the job ends after 0.4 s without a shell",
        "[smq] no shell for 0.4 s: the job ends",
    ]


@pytest.mark.thorough
@pytest.mark.slow
def test_several_hosts_are_kept_while_one_has_a_session(
    tmp_path: Path, session: Callable[..., subprocess.Popen[bytes]]
) -> None:
    port = free_ports(2) + 1
    hosts = ["algo-1", "algo-2"]
    containers = [Container(tmp_path / host, hosts, host) for host in hosts]
    for one, host in zip(containers, hosts):
        names = {"TRAINING_JOB_NAME": "lab", "SM_CURRENT_HOST": host}
        one.environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), **names)
    own = session(TRAINING_JOB_NAME="lab", SM_CURRENT_HOST="algo-2")
    # The first host has a session as well, until the second one is connected.
    early = session(TRAINING_JOB_NAME="lab", SM_CURRENT_HOST="algo-1")
    second, first = (one.start(idle_end="6") for one in reversed(containers))
    until(lambda: is_connected(first) or first.poll() is not None)
    early.kill()
    early.wait()
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(timeout=9)
    assert second.poll() is None
    own.kill()
    own.wait()
    for kept in (first, second):
        kept.communicate(timeout=PATIENCE)
        assert kept.returncode == 0


def is_connected(process: subprocess.Popen[str]) -> bool:
    """Return whether a program has a connection to another one."""
    with suppress(psutil.NoSuchProcess):
        return any(one.raddr for one in psutil.Process(process.pid).net_connections())
    return False


@pytest.mark.skipif(find_spec("pip") is None, reason="this Python has no pip")
def test_requirements_are_installed_for_a_job_without_a_command(container: Container) -> None:
    output, _ = container.start(idle_end="0.2", files={"requirements.txt": "# none\n"}).communicate(timeout=PATIENCE)
    assert "-m pip install" in output and output.splitlines()[-1].endswith("the job ends"), output


def test_what_is_kept_hears_the_stop(container: Container) -> None:
    kept = container.start(idle_end="1000")
    assert kept.stdout is not None
    assert "waiting for shells" in kept.stdout.readline()
    kept.terminate()
    kept.communicate(timeout=PATIENCE)
    assert kept.returncode == 143


def test_a_shell_finds_the_variables_and_the_folder(container: Container) -> None:
    container.environment["ODD"] = 'it\'s $HOME\n"b"'
    container.environment["not-a-name"] = "x"
    container.start("true", files={"here.txt": "here"}).communicate(timeout=PATIENCE)
    assert (container.root / "shell.env").stat().st_mode & 0o777 == 0o600
    agents = {"PATH": "/usr/bin:/bin", "SM_CHANNEL_CODE": container.environment["SM_CHANNEL_CODE"]}
    command = MarkedCommand(["sh", "-c", 'cat here.txt; printf %s "$ODD"; echo $SM_CURRENT_HOST; exit 3'])
    for arguments in (["sh", "-c", command.line], shlex.split(command.line)):  # as the agent may do
        output = subprocess.run(arguments, env=agents, cwd="/", capture_output=True, check=True).stdout
        marked = MarkedOutput(command)
        assert marked.feed(output) == b"here" + container.environment["ODD"].encode() + b"algo-1\n"
        assert marked.status == 3


# --- GPUs ----------------------------------------------------------------------------------------

UUID = "GPU-5a1f0c6e-8c54-4a57-9c1c-0d4f5e9d8a11"
INFORMATION = "Model: \t\t NVIDIA A10G\nIRQ:   \t\t 10\nGPU UUID: \t {}\nVideo BIOS: \t 94.02\n"


def with_driver(container: Container, uuids: Sequence[str], code: int, command: str = "exit {}") -> str:
    """What the program logs on an instance whose driver has these files."""
    driver = container.root / "driver"
    for number, uuid in enumerate(uuids):
        (driver / f"gpus/0000:00:1{number}.0").mkdir(parents=True)
        (driver / f"gpus/0000:00:1{number}.0/information").write_text(INFORMATION.format(uuid))
    container.replace('Path("/proc/driver/nvidia")', f"Path({str(driver)!r})")
    process = container.start("sh", "-c", command.format(code))
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    return out


def test_a_command_that_fails_has_the_gpus_of_its_instance_in_its_log(container: Container) -> None:
    out = with_driver(container, [UUID.replace("5a1f", "ffff"), UUID, "GPU-????????-????-????-????-????????????"], 3)
    assert out.splitlines()[-1] == f"[smq] The GPUs of this instance: {UUID} {UUID.replace('5a1f', 'ffff')}"


def test_a_gpu_that_is_lost_meanwhile_is_named_as_well(container: Container) -> None:
    lost = "rm -r ../driver/gpus; exit {}"
    assert UUID in with_driver(container, [UUID], 3, lost)


@pytest.mark.parametrize(("uuids", "code"), [([UUID], 0), ([], 3)])
def test_otherwise_nothing_is_said_of_gpus(container: Container, uuids: list[str], code: int) -> None:
    assert "GPUs" not in with_driver(container, uuids, code)


@pytest.mark.parametrize(
    ("shown", "processes"), [(None, 3), ("", 1), ("0", 1), ("1,0", 2), ("-1,0", 1), ("0,1,-1,2", 2), ("GPU-5a1f", 1)]
)
def test_there_is_one_process_for_each_visible_gpu(container: Container, shown: str | None, processes: int) -> None:
    (devices := container.root / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl"):
        (devices / name).touch()
    container.replace('Path("/dev")', f"Path({str(devices)!r})")
    container.program("mpirun", FAKE_MPIRUN)
    if shown is not None:
        container.environment["CUDA_VISIBLE_DEVICES"] = shown
    output, _ = container.start("train", launcher="mpirun").communicate(timeout=PATIENCE)
    assert f" --host algo-1:{processes} -np {processes} " in output
