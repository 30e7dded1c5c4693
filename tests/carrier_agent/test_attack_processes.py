"""Processes and output of a member that are to hold up the agent, hide from it, or speak in another's name."""

import ctypes
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import psutil
import pytest

from job_queue.carrier_agent import processes
from job_queue.carrier_agent.member import Member
from tests.carrier_agent.carrier import Carrier
from tests.carrier_agent.conftest import KEYS
from tests.waiting import PATIENCE, has_ended, until

pytestmark = pytest.mark.attack

JOB = "rogue-qstamp-1"

# Each process forks another, in a session of its own, and ends: its number changes all the time. They end by themselves
# after a while, in case that nothing else ends them.
HOPPERS = """
import os, time
until = time.time() + 60
for _ in range(20):
    if os.fork() == 0:
        while time.time() < until:
            if os.fork():
                os._exit(0)
            os.setsid()
            time.sleep(0.02)
        os._exit(0)
"""
# Processes fork as fast as they can, up to a number that the machine stands.
BOMB = """
import os, time
until = time.time() + 60
for _ in range(12):
    if os.fork() == 0:
        os.setsid()
        while time.time() < until:
            child = os.fork()
            if child == 0:
                time.sleep(0.02); os._exit(0)
            time.sleep(0.01)
        os._exit(0)
"""


def python(code: str, then: str = "echo up; sleep 1000") -> str:
    return f"cat > $TMPDIR/p.py <<'END'\n{code}\nEND\npython3 $TMPDIR/p.py & {then}"


@pytest.mark.parametrize("code", [HOPPERS, BOMB], ids=["hoppers", "bomb"])
def test_processes_that_go_on_forking_are_ended(carrier: Carrier, code: str) -> None:
    carrier.assign(JOB, python(code), grace=0.2)
    carrier.until_says(JOB, "up")
    time.sleep(0.5)
    carrier.stop(JOB)
    ended = carrier.end_of(JOB)
    if ended["status"] == "Failed":  # a busy machine
        assert ended["reason"] == "InternalServerError: processes could not be ended"
    else:
        assert (ended["status"], ended["reason"]) == ("Stopped", "the queue asked for it")
        assert not carrier.processes(JOB)


def test_processes_that_took_the_mark_away_are_ended(carrier: Carrier, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    hide = f"env -i PATH=$PATH setsid sh -c 'echo $$ >> {pids}; exec sleep 1234'"
    # One is seen while the member runs, one is an orphan before that; another member stays as it is.
    carrier.assign("other-qstamp-1", "setsid sh -c 'sleep 4321' & echo up; sleep 4321", gpus=(1,))
    carrier.until_says("other-qstamp-1", "up")
    until(lambda: len(sleeps(carrier, "other-qstamp-1")) == 2)
    both_hide = f"until [ $(wc -l < {pids}) = 2 ]; do sleep 0.05; done"
    carrier.assign(JOB, f"touch {pids}; (({hide} &) &); {hide} & {both_hide}; sleep 2; echo up")
    assert carrier.end_of(JOB)["status"] == "Completed"
    found = [int(it) for it in pids.read_text().split()]
    assert len(found) == 2
    assert all(has_ended(pid) for pid in found)
    assert len(sleeps(carrier, "other-qstamp-1")) == 2


def sleeps(carrier: Carrier, attempt: str) -> list[psutil.Process]:
    """Return the processes of a member that run the program sleep."""
    found = []
    for process in carrier.processes(attempt):
        with suppress(psutil.NoSuchProcess):
            if process.name() == "sleep":
                found.append(process)
    return found


def test_orphans_that_have_ended_are_reaped(carrier: Carrier) -> None:
    carrier.assign(JOB, "for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.1 &); done; echo up; sleep 1000")
    carrier.until_says(JOB, "up")
    agent = psutil.Process(carrier.pid)
    # The agent may reap a child while this test looks at the child.
    until(lambda: not [it for it in agent.children() if it.is_running() and has_ended(it.pid)])
    carrier.stop(JOB)
    carrier.end_of(JOB)


def test_a_fork_bomb_that_wins_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def scan(thorough: bool) -> processes.Scan:
        clock[0] += 0.01
        return processes.Scan({next(numbers)}, complete=True)

    monkeypatch.setattr(processes, "_send", lambda pids, number: None)
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda seconds: None))
    numbers = iter(range(10_000_000))
    assert not processes._end(scan, 0.3, lambda: None)
    assert clock[0] < 5


class Mailbox:
    """Keeps reports."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    def report(self, attempt: str, what: str, report: dict[str, Any]) -> None:
        self.told[what] = report


def test_gpus_are_not_free_while_processes_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.Processes, "end", lambda self: self._reader.close())  # that is, not
    monkeypatch.setattr(processes, "_running", [])  # else the processes stay in the list
    mailbox: Any = Mailbox()
    freed: list[Member] = []
    done: list[Member] = []
    assignment = {"request": {"AlgorithmSpecification": {"ContainerEntrypoint": ["true"]}}}
    nothing: Any = None
    member = Member("a-qstamp-1", assignment, {}, "whole", tmp_path, nothing, mailbox, freed.append, done.append)
    member.start()
    member.join()
    assert mailbox.told["ended"]["status"] == "Failed"
    assert mailbox.told["ended"]["reason"] == "InternalServerError: processes could not be ended"
    assert (member.stuck, freed, done) == (True, [], [member])


# The command, and the bytes that count for its output, or would without limits on lines.
OUTPUTS = {
    "endless": ("head -c 40000000 /dev/zero", 0),  # becomes one character in a line
    "letters": ("head -c 40000000 /dev/zero | tr '\\0' z", 40_000_000),
    "lines": ("yes | head -c 2000000", 1_000_000 * processes.LEAST_LINE),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", OUTPUTS)
def test_output_beyond_a_limit_is_left_out_and_counted(carrier: Carrier, kind: str) -> None:
    command, size = OUTPUTS[kind]
    begun = time.monotonic()
    carrier.assign(JOB, f"{command}; echo; sleep 2; echo last")
    assert carrier.end_of(JOB)["status"] == "Completed"
    most = processes.BURST + processes.BYTES_PER_SECOND * (time.monotonic() - begun)  # a slow machine has more time
    assert carrier.log_size < most + 100_000
    is_counted = any("bytes of its output are left out" in line for line in carrier.lines(JOB))
    assert is_counted or most > size


def test_a_process_that_keeps_the_output_open_does_not_hold_up_the_end(carrier: Carrier, tmp_path: Path) -> None:
    """The keeper of the pipe is no process of the member's: it was handed over."""
    read, write = os.pipe()
    keeper = subprocess.Popen(["sleep", "1000"], stdout=write)
    try:
        reader = processes.Reader("rogue", os.fdopen(read, "rb"))
        reader.close()
        until(lambda: not reader._thread.is_alive())
    finally:
        keeper.kill()
        keeper.wait()
        os.close(write)


BREAKS = [
    "\\n",
    "\\r",
    "\\v",
    "\\f",
    "\\x1c",
    "\\x1d",
    "\\x1e",
    "\\xc2\\x85",
    "\\xe2\\x80\\xa8",
    "\\xe2\\x80\\xa9",
    "\\0",
]


@pytest.mark.parametrize("mark", BREAKS)
@pytest.mark.parametrize("end", ["", "\\x1b[2K\\x1b[1G", "\\b\\b\\b\\b\\b\\b\\b\\b\\b\\b\\b\\b\\b\\b\\b\\b\\b"])
def test_no_line_looks_like_one_of_another(capfdbinary: pytest.CaptureFixture[bytes], mark: str, end: str) -> None:
    raw = f"x{mark}{end}victim| forged".encode().decode("unicode_escape").encode("latin-1")
    processes.log_output("rogue", raw.decode("utf-8", "replace"))
    said = capfdbinary.readouterr().out.decode()
    assert all(line.startswith("rogue| ") for line in said.splitlines())
    assert not {"\b", "\x1b", "\0"} & set(said)


@pytest.mark.parametrize(
    "line", ["[agent] completed", "\x1b[0m[agent] x", "[\x1b[1magent] x", "\r[agent] x", " [agent] x"]
)
def test_no_line_looks_like_the_agents(capfdbinary: pytest.CaptureFixture[bytes], line: str) -> None:
    processes.log_output("rogue", line)
    said = capfdbinary.readouterr().out.decode()
    assert "'[agent]'" in said
    assert not any(it.startswith(("rogue| [agent]", "rogue|  [agent]")) for it in said.splitlines())


def test_a_long_line_is_cut_between_characters(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    read, write = os.pipe()
    reader = processes.Reader("rogue", os.fdopen(read, "rb"))
    with os.fdopen(write, "wb") as out:
        out.write(b"x" + "ä".encode() * 40_000)
    reader._thread.join(PATIENCE)  # `close` would wait for the end of the output only for seconds
    reader.close()
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert len(lines) > 1
    assert all(line.startswith("rogue| ") for line in lines)
    assert "".join(line.removeprefix("rogue| ") for line in lines) == "x" + "ä" * 40_000


CAP_SYS_PTRACE = 19
PR_CAPBSET_DROP = 24
INTRUDER = "open(f'/proc/{os.getppid()}/fd/1', 'w').write('victim| forged\\n')"
AGENT = """
import os, subprocess, sys
from job_queue.carrier_agent.processes import protect
if sys.argv[1] == "protected": assert protect()
command = [sys.executable, "-c", "import os; " + sys.argv[2]]
subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""


@pytest.mark.parametrize("protected", [False, True])
def test_the_agents_own_output_cannot_be_opened(protected: bool) -> None:
    def as_in_a_container() -> None:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE, 0, 0, 0)

    command = [sys.executable, "-c", AGENT, "protected" if protected else "open", INTRUDER]
    root = str(Path(__file__).parents[2])
    ended = subprocess.run(command, stdout=subprocess.PIPE, cwd=root, preexec_fn=as_in_a_container, check=True)  # noqa: PLW1509
    assert (b"forged" in ended.stdout) is not protected


def test_no_member_writes_into_the_agents_own_output(s3_url: str, tmp_path: Path) -> None:
    """Agent and member have no CAP_SYS_PTRACE, as in a container."""
    python3 = tmp_path / "python3"
    drop = f"ctypes.CDLL(None).prctl({PR_CAPBSET_DROP}, {CAP_SYS_PTRACE}, 0, 0, 0)"
    start = "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    python3.write_text(f"#!{sys.executable}\nimport ctypes, os, sys\n{drop}\n{start}\n")
    python3.chmod(0o755)
    carrier = Carrier(boto3.client("s3", endpoint_url=s3_url, **KEYS), s3_url, tmp_path, str(python3))
    try:
        carrier.start()
        carrier.assign(JOB, f"echo 'victim| forged' >> /proc/{carrier.pid}/fd/1; echo tried")
        assert carrier.end_of(JOB)["status"] == "Completed"
        assert "tried" in carrier.lines(JOB)
        assert "victim| forged" not in carrier.log
    finally:
        carrier.close()


def test_an_agent_that_was_stopped_by_a_member_goes_on(carrier: Carrier) -> None:
    carrier.assign(JOB, f"kill -STOP {carrier.pid}; echo up; sleep 0.2; exit 3")
    until(lambda: psutil.Process(carrier.pid).status() == psutil.STATUS_STOPPED)
    time.sleep(1)
    psutil.Process(carrier.pid).resume()
    assert carrier.end_of(JOB)["exit"] == 3
