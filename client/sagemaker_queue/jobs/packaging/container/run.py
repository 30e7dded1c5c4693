"""Run a command in a training container: unpack the code, link the data, replace {data:NAME}, set up, start.

This file is beside source.tar.gz in an input channel, and runs in the image's Python (3.6 or later). So this file uses
only the standard library, and annotations that 3.6 can evaluate; other annotations are in quotes. The entry point has
compared the digest of this file with the digest in the request. Each host runs the program once. The program forwards
signals to the command, and returns the command's exit code. The program reads the job's hyperparameters; a long value
is split (command, command_2, ...):

- `command`: a JSON list of words.
- `data`: JSON of path in the working folder -> path below /opt/ml/input/data.
- `places`: JSON of name -> path below /opt/ml/input/data, for each {data:NAME} of the command.
- `source`: digest and size of the code.
- `launcher` and `processes`: torchrun or mpirun, and its processes on each instance.
- `idle_end`: set if there is no command. The job waits for shells, and ends after this many seconds without a shell.
"""

import fcntl
import gzip
import hashlib
import io
import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import IO, Dict, List, Optional, Set, Tuple

CHANNEL = Path(__file__).absolute().parent
ML = CHANNEL.parents[2]  # /opt/ml
WORK = ML / "work"
CANNOT_RUN = 127  # exit code, as in a shell
NOT_AS_SUBMITTED = 125  # exit code
BLOCK = 1 << 20  # bytes that are unzipped at once
# After a signal, torchrun ends its workers and raises SignalException. This program catches the exception, so that the
# log of a preempted job does not end with a traceback. Old versions of torchrun have no such exception.
TORCHRUN = """import sys
if sys.path[0] == "":
    del sys.path[0]  # as torchrun does, so that torch imports no types.py of the job
from torch.distributed.run import main
try:
    main()
except Exception as error:
    if type(error).__name__ != "SignalException":
        raise
    sys.exit(128 + int(getattr(error, "sigval", 15)))
"""
PLACEHOLDER = re.compile(r"\{\{data:([^{}]+)\}\}|(?<!\$)\{data:([^{}]+)\}")
COMPILE_SCRIPTS = (
    "compile.sh",
    "compile.aml.sh",
)  # only the first one that exists is run; AML Command Transfer uses the second name
DRIVER = Path("/proc/driver/nvidia")
GPU_UUID = re.compile(r"^GPU UUID:\s*(GPU-[0-9A-Fa-f-]{36})\s*$", re.MULTILINE)
STOP_SECONDS = 100  # time for the command's processes to end; SageMaker kills all after 120 seconds
LOOK_SECONDS = 5.0  # seconds between two checks for shells
SESSION = "ssm-session-worker"[:15]  # Linux's name of the process that the SSM agent starts for each session
SHELL_VARIABLES = {"_", "HOME", "OLDPWD", "PWD", "SHLVL", "TERM"}  # each shell sets its own values


class CodeRefused(Exception):
    """The code is not as submitted, or is not an archive of ``smq submit``; no part of it is run."""


class JobConfiguration:
    """The command to run, its data and the hosts, as read from SageMaker's configuration files."""

    def __init__(self, config: Path) -> None:
        settings = json.loads((config / "hyperparameters.json").read_text(encoding="utf-8"))
        resources = json.loads((config / "resourceconfig.json").read_text(encoding="utf-8"))
        places: Optional[Dict[str, str]] = json.loads(_joined(settings, "places") or "null")
        self.command: List[str] = [
            _native(word if places is None else _placed(word, places))
            for word in json.loads(_joined(settings, "command"))
        ]
        self.data: Dict[str, str] = {
            _native(path): name for path, name in json.loads(_joined(settings, "data") or "{}").items()
        }
        self.source: str = settings.get("source", "")
        self.launcher: Optional[str] = settings.get("launcher")
        self.processes = int(settings.get("processes") or _accelerators() or 1)
        self.idle_end = float(settings.get("idle_end") or 0)
        self.hosts: List[str] = resources["hosts"]
        self.host: str = resources["current_host"]
        self.rank = self.hosts.index(self.host)
        self.network = resources.get("network_interface_name", "eth0")

    @property
    def python(self) -> str:
        """Path of the Python that the command names, else of this Python."""
        program = self.command[0] if self.command else ""  # an interactive job may have no command
        named = shutil.which(program) if Path(program).name.startswith("python") else None
        return named or sys.executable

    @property
    def master(self) -> Tuple[str, int]:
        """Address and port of the first host, for the connections between hosts."""
        return os.environ.get("MASTER_ADDR", self.hosts[0]), int(os.environ.get("MASTER_PORT", "29500"))

    def environment(self) -> Dict[str, str]:
        """Return the variables of the command; a variable that is already set keeps its value."""
        known = {
            "SM_MODEL_DIR": str(ML / "model"),
            "SM_OUTPUT_DATA_DIR": str(ML / "output" / "data"),
            "SM_CHECKPOINT_DIR": str(ML / "checkpoints"),
            "SM_HOSTS": json.dumps(self.hosts),
            "SM_CURRENT_HOST": self.host,
            "MASTER_ADDR": self.master[0],
            "MASTER_PORT": str(self.master[1]),
            "PYTHONUNBUFFERED": "1",
        }
        known.update(os.environ)
        return known


class Steps:
    """A runner of commands in the working folder, which forwards SIGTERM and SIGINT to the running command."""

    def __init__(self, environment: Dict[str, str]) -> None:
        self.stopped = 0  # the number of the received signal; 0: no signal
        self._environment = environment
        self._child = None  # type: Optional[subprocess.Popen[bytes]]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def run(self, command: List[str]) -> int:
        """Run a command and return its exit code, or 128 + the number of the signal that ended it."""
        if self.stopped:
            return 128 + self.stopped
        try:
            # The command gets its own process group, because a signal must reach all processes of "sh -c 'python
            # train.py | tee log'".
            child = subprocess.Popen(command, cwd=str(WORK), env=self._environment, start_new_session=True)
        except OSError as error:
            log(f"{command[0]} cannot be run: {error.strerror}")
            return CANNOT_RUN
        self._child = child
        if self.stopped:  # the signal arrived while the command was being started
            self._stop(self.stopped)
        code = _end_of(child)
        self._child = None
        if self.stopped:
            _wait_for_group(child.pid)
        return code if code >= 0 else 128 - code

    def _stop(self, number: int, frame: object = None) -> None:
        self.stopped = number
        if self._child:
            _signal_group(self._child.pid, number)


def main() -> int:
    """Run the job; return the exit code."""
    job = JobConfiguration(ML / "input" / "config")
    steps = Steps(job.environment())
    with (ML / "work.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = ML / "work.ready"
        if not ready.exists():
            try:
                prepare(job)
            except CodeRefused as error:
                report_failure(f"source.tar.gz is refused, and the command is not started: {error}")
                return NOT_AS_SUBMITTED
            code = set_up(job, steps)
            if code:
                return code
            ready.touch()
    if job.idle_end:
        return keep_for_shells(job, steps)
    log(_typed(job.command))
    gpus = gpu_uuids()
    if job.launcher == "mpirun" and len(job.hosts) > 1:
        code = run_on_all_hosts(job, steps)
    else:
        code = steps.run(launch_command(job))
    if code and not steps.stopped:
        # Combine both lists: before the command, GPUs may not be initialised yet; afterwards, a GPU may be lost.
        gpus |= gpu_uuids()
        if gpus:
            log(f"The GPUs of this instance: {' '.join(sorted(gpus))}")
    return code


def gpu_uuids() -> Set[str]:
    """Return the UUIDs of the instance's NVIDIA GPUs that are initialised, from the files of the driver."""
    found: Set[str] = set()
    for path in sorted(DRIVER.glob("gpus/*/information")):
        try:
            found.update(GPU_UUID.findall(path.read_text(errors="replace")))
        except OSError:
            continue
    return found


def prepare(job: JobConfiguration) -> None:
    """Create the working folder, with links to the data. Raises CodeRefused."""
    with verified_archive(CHANNEL / "source.tar.gz", job.source) as code:
        unpack(code, WORK)
    for path, channel_path in job.data.items():
        link = WORK / path
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink():
            link.unlink()
        link.symlink_to(ML / "input" / "data" / channel_path)
    write_environment(job.environment())


def write_environment(environment: Dict[str, str]) -> None:
    """Store the variables for ``smq shell``, because the SSM agent, which starts shells, lacks these variables."""
    known = sorted((name, value) for name, value in environment.items() if name.isidentifier())
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in known if name not in SHELL_VARIABLES]
    path = ML / "shell.env"
    if path.exists():
        path.unlink()
    _write(path, io.BytesIO(os.fsencode("".join(lines))), 0o600)


@contextmanager
def verified_archive(packed: Path, source: str) -> "Iterator[IO[bytes]]":
    """Unzip an archive, and open it if its SHA-256 and its size in bytes are equal to ``source``.

    The digest is of the unzipped bytes, because the zipped bytes depend on the version of zlib. Raises CodeRefused.
    """
    expected, _, size = source.partition(" ")
    digest, left = hashlib.sha256(), int(size or "0")
    with tempfile.TemporaryFile(dir=str(ML)) as archive:
        try:
            with gzip.open(str(packed), "rb") as unzipped:
                block = unzipped.read(BLOCK)
                while block and left >= 0:
                    digest.update(block)
                    left -= len(block)
                    archive.write(block)
                    block = unzipped.read(BLOCK)
        except (OSError, EOFError, zlib.error) as error:
            raise CodeRefused(f"it cannot be unzipped: {error}") from error
        if left or digest.hexdigest() != expected:
            raise CodeRefused("it differs from the submitted file: it was changed in S3")
        archive.seek(0)
        yield archive


def unpack(archive: "IO[bytes]", target: Path) -> None:
    """Write the files of an archive below a folder, and nowhere else. Raises CodeRefused.

    Old versions of tarfile also write outside the folder, and the protection of new versions had gaps. So an archive
    that ``smq submit`` would not create is refused before anything is written.
    """
    try:
        with tarfile.open(fileobj=archive, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
            members = tar.getmembers()
            names = _checked_names(members)
            target.mkdir(exist_ok=True)
            links = []
            for name, member in zip(names, members):
                path = target / _native(name)
                if member.isdir():
                    _make_folders(target, path)
                    continue
                _make_folders(target, path.parent)
                if path.is_symlink() or path.exists():  # left by an earlier, interrupted unpacking
                    path.unlink()
                if member.issym():
                    # Links are created last, so nothing is written through a link.
                    links.append((path, _native(member.linkname)))
                else:
                    _write(path, tar.extractfile(member), 0o755 if member.mode & 0o100 else 0o644)
            for path, linked in links:
                path.symlink_to(linked)
    except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
        raise CodeRefused(f"it is not an archive: {error}") from error


def _checked_names(members: List[tarfile.TarInfo]) -> List[str]:
    """Return the members' names. Raises CodeRefused if a member is not a file, folder or link below the folder."""
    names = []  # type: List[str]
    folders: Set[str] = set()
    given: Set[str] = set()
    others: Set[str] = set()
    for member in members:
        name = member.name
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\0" in name:
            raise CodeRefused(f"it has a file {name!r}, outside the working folder")
        if not (member.isdir() or member.issym() or member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)):
            raise CodeRefused(f"{name!r} is not a file, folder or symbolic link")
        if getattr(member, "sparse", None):
            raise CodeRefused(f"{name!r} is a sparse file")
        if member.issym() and not _stays_inside(parts, member.linkname):
            raise CodeRefused(f"{name!r} is a link to {member.linkname!r}, outside the working folder")
        above = {"/".join(parts[:length]) for length in range(1, len(parts))}
        folders |= above
        if name in others or name in given or (name in folders and not member.isdir()):
            raise CodeRefused(f"{name!r} is in it twice")
        if above & others:
            raise CodeRefused(f"{name!r} is below something that is no folder")
        (folders if member.isdir() else others).add(name)
        given.add(name)
        names.append(name)
    return names


def _stays_inside(link: List[str], target: str) -> bool:
    """Return whether a link's target is certainly the folder itself or below it.

    The target may begin with one ``..`` for each folder above the link. After the ``..`` parts, only names are allowed:
    a ``..`` after a name could lead anywhere, because the name may itself be a link.
    """
    parts = [part for part in target.split("/") if part != "."]
    up = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    return not target.startswith("/") and "\0" not in target and up < len(link) and ".." not in parts[up:]


def _make_folders(target: Path, folder: Path) -> None:
    """Create a folder and its parents below the target, and remove links that are in the way."""
    above = target
    for name in folder.relative_to(target).parts:
        above = above / name
        if above.is_symlink():
            above.unlink()
        above.mkdir(exist_ok=True)


def _write(path: Path, content: "Optional[IO[bytes]]", mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(str(path), flags, 0o600), "wb") as file:  # noqa: PTH123  # a descriptor, not a path
        if content is not None:
            shutil.copyfileobj(content, file)
        os.fchmod(file.fileno(), mode)


def set_up(job: JobConfiguration, steps: Steps) -> int:
    """Run compile.sh, else compile.aml.sh, and install requirements.txt, if they exist.

    Returns the exit code of the failed command, or 0.
    """
    wanted = []
    scripts = [name for name in COMPILE_SCRIPTS if (WORK / name).exists()]
    for name in scripts[:1]:
        wanted.append(["./" + name] if os.access(str(WORK / name), os.X_OK) else ["sh", name])
    for name in scripts[1:]:
        log(f"{name} is not run: the folder has {scripts[0]}, which takes its place")
    if (WORK / "requirements.txt").exists():
        quiet = ["--disable-pip-version-check", "--no-input"]
        wanted.append([job.python, "-m", "pip", "install", *quiet, "-r", "requirements.txt"])
    for command in wanted:
        log(_typed(command))
        code = steps.run(command)
        if code and not steps.stopped:
            log(f"{_typed(command)} ended with exit code {code}: the command is not started")
        if code:
            return code
    return 0


def launch_command(job: JobConfiguration) -> List[str]:
    """Return the command, wrapped in the launcher if the job has a launcher."""
    if job.launcher == "torchrun":
        where = [
            f"--nnodes={len(job.hosts)}",
            f"--node-rank={job.rank}",
            f"--nproc-per-node={job.processes}",
            f"--master-addr={job.master[0]}",
            f"--master-port={job.master[1]}",
        ]
        return [job.python, "-c", TORCHRUN, *where, "--no-python", *job.command]
    if job.launcher == "mpirun":
        slots = ",".join(f"{host}:{job.processes}" for host in job.hosts)
        own = {"HOSTNAME", "HOME", "PWD", "OLDPWD", "SHLVL", "SM_CURRENT_HOST", "_"}
        exported = [word for name in sorted(job.environment()) if name not in own for word in ("-x", name)]
        return [
            *["mpirun", "--allow-run-as-root", "--host", slots, "-np", str(job.processes * len(job.hosts))],
            *["-wdir", str(WORK), "--mca", "plm_rsh_args", "-o StrictHostKeyChecking=no"],
            *["--mca", "btl_tcp_if_include", job.network, "--mca", "oob_tcp_if_include", job.network],
            *[*exported, *job.command],
        ]
    return job.command


def keep_for_shells(job: JobConfiguration, steps: Steps) -> int:
    """Keep the instances until no instance has had a shell for ``job.idle_end`` seconds; return the exit code.

    The first host decides. While another host has a shell, it sends bytes to the first host. The other hosts end when
    the first host ends.
    """
    log(f"waiting for shells; the job ends after {job.idle_end:g} s without a shell")
    address = job.master[0], job.master[1] - 1  # the master port itself is left to users' programs
    pause = min(LOOK_SECONDS, job.idle_end / 4)
    if job.rank > 0:
        return _keep_with_first_host(address, steps, pause)
    seen = time.monotonic()
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if len(job.hosts) > 1:
            server.bind(("", address[1]))
            server.listen()
        others: List[socket.socket] = []
        while not steps.stopped and time.monotonic() - seen < job.idle_end:
            wait_for = others + ([server] if len(job.hosts) > 1 else [])
            for ready in select.select(wait_for, [], [], pause)[0]:
                if ready is server:
                    others.append(server.accept()[0])
                elif _has_sent(ready):
                    seen = time.monotonic()
                else:
                    others.remove(ready)
            if has_shell():
                seen = time.monotonic()
    if not steps.stopped:
        log(f"no shell for {job.idle_end:g} s: the job ends")
    return 128 + steps.stopped if steps.stopped else 0


def _has_sent(host: socket.socket) -> bool:
    """Return whether a host has sent a byte; False if its connection has ended or is lost."""
    try:
        return bool(host.recv(BLOCK))
    except OSError:
        return False


def _keep_with_first_host(address: Tuple[str, int], steps: Steps, pause: float) -> int:
    while not steps.stopped:
        try:
            with socket.create_connection(address) as first:
                while not steps.stopped:
                    if select.select([first], [], [], pause)[0]:  # the first host has ended
                        return 0
                    if has_shell():
                        first.sendall(b"1")
        except OSError:  # the first host does not listen yet
            time.sleep(pause)
    return 128 + steps.stopped


def has_shell() -> bool:
    """Return whether this instance has, or may have, a session (a shell or a forwarded port)."""
    own = {name: os.environb.get(name) for name in (b"TRAINING_JOB_NAME", b"SM_CURRENT_HOST")}
    if not Path("/proc/self/comm").exists():
        return True
    for process in Path("/proc").iterdir():
        try:
            if not process.name.isdigit() or (process / "comm").read_text().strip() != SESSION:
                continue
            pairs = [entry.partition(b"=") for entry in (process / "environ").read_bytes().split(b"\0")]
        except PermissionError:
            return True
        except OSError:  # the process has ended
            continue
        # On the local cloud, sessions of other jobs and instances are visible here.
        if all(value == own[name] for name, _, value in pairs if name in own):
            return True
    return False


def run_on_all_hosts(job: JobConfiguration, steps: Steps) -> int:
    """Run mpirun on the first host once the others run sshd. The other hosts wait, and return mpirun's exit code."""
    if job.rank > 0:
        return _serve_first_host(job.master, steps)
    others: List[socket.socket] = []
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", job.master[1]))
        server.listen()
        server.settimeout(1)
        while len(others) < len(job.hosts) - 1 and not steps.stopped:
            try:
                others.append(server.accept()[0])
            except OSError:  # no connection within a second
                continue
    code = steps.run(launch_command(job))
    for other in others:
        with suppress(OSError):  # the connection to this host is lost
            other.sendall(bytes([code]))
        other.close()
    return code


def _serve_first_host(address: Tuple[str, int], steps: Steps) -> int:
    ssh_server = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
    if ssh_server is None:
        log("the image has no sshd, which mpirun needs on several instances")
        return CANNOT_RUN
    Path("/run/sshd").mkdir(parents=True, exist_ok=True)  # sshd refuses to start without this folder
    code = steps.run([ssh_server])  # sshd puts itself into the background
    while not (code or steps.stopped):
        try:
            with socket.create_connection(address) as first:
                exit_code = first.recv(1)  # blocks until mpirun has ended
            return exit_code[0] if exit_code else 1
        except OSError:  # the first host does not listen yet
            time.sleep(0.2)
    return code or 128 + steps.stopped


def _joined(settings: Dict[str, str], name: str) -> str:
    text, number = settings.get(name, ""), 2
    while f"{name}_{number}" in settings:
        text, number = text + settings[f"{name}_{number}"], number + 1
    return text


def _placed(word: str, places: Dict[str, str]) -> str:
    """Replace each {data:NAME} by the path of the data; {{data:NAME}} is an escaped {data:NAME}."""

    def path(found: "re.Match[str]") -> str:
        literal, name = found.groups()
        return f"{{data:{literal}}}" if literal else str(ML / "input" / "data" / places[name])

    return PLACEHOLDER.sub(path, word)


def _native(text: str) -> str:
    """Return the text such that Python passes its UTF-8 bytes to the system, even in an ASCII locale (Python 3.6)."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


def _accelerators() -> int:
    """Return the number of visible accelerators; on a shared instance, only the job's own.

    As in CUDA, the entries of CUDA_VISIBLE_DEVICES from the first -1 on are ignored, and an empty text hides all GPUs.
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is not None:
        return len(list(takewhile(lambda entry: entry.strip() not in ("", "-1"), shown.split(","))))
    return sum(device.name[len("nvidia") :].isdigit() for device in Path("/dev").glob("nvidia*"))


def _signal_group(group: int, number: int) -> bool:
    """Signal a process group; return whether any of its processes is left."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def _end_of(child: "subprocess.Popen[bytes]") -> int:
    """Wait for a process. Also reap orphaned processes, because this program may be the container's first process."""
    pid, status = os.wait()
    while pid != child.pid:
        pid, status = os.wait()
    child.returncode = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return child.returncode


def _wait_for_group(group: int) -> None:
    """Wait up to STOP_SECONDS for the command's other processes to end, because they may be writing a checkpoint."""
    deadline = time.monotonic() + STOP_SECONDS
    while _signal_group(group, 0) and time.monotonic() < deadline:
        try:
            while os.waitpid(-group, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.05)


def _typed(command: List[str]) -> str:
    return " ".join(shlex.quote(word) for word in command)


def report_failure(message: str) -> None:
    """Print the message, and store it in the file from which SageMaker reads the FailureReason."""
    log(message)
    (ML / "output").mkdir(exist_ok=True)
    (ML / "output" / "failure").write_bytes(os.fsencode(message))


def log(message: str) -> None:
    """Print a line to the job's log."""
    sys.stdout.flush()
    sys.stdout.buffer.write(os.fsencode(f"[smq] {message}\n"))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
