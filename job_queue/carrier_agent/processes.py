"""The start of a member's command, the copy of its output to the log, and the end of all its processes.

A process that left the member's process group is found in three ways: by an inherited variable (the mark), by its
ancestors and its session, and as an orphan. Ancestors and sessions are noted while the member runs. Orphans become
children of the agent. Children of the agent that belong to no running member are ended together with the next member
that ends.
"""

import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import MappingProxyType
from typing import IO, Callable, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

MARK = "SMQ_MEMBER"
LONGEST_LINE = 32_768  # bytes; CloudWatch takes 256 KB
BYTES_PER_SECOND = 1 << 20  # of a member's output, written to the log on average
LEAST_LINE = 128  # a shorter line counts as this many bytes, since each line has a cost of its own
BURST = 8 << 20  # bytes that may go to the log at once
MOST_READ_PER_SECOND = 64 << 20  # bytes of output; a member that writes more waits
ENDING_SECONDS = 20.0  # limit for ending all processes of a member
LAST_OUTPUT_SECONDS = 2.0  # limit for reading a member's output after its processes have ended
INCOMPLETE_SCANS = 10  # one scan can miss a process; after this many empty scans in a row, no process is left
TABLE_SECONDS = 1.0  # between two readings of all processes
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36

_AGENT_PREFIX = "[agent]"
# Characters that readers of logs may take for the end of a line, except \r, which progress bars need.
_BREAKS = re.compile("[\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_COLOURS = re.compile("\x1b\\[[0-9;]*m")
# Control characters, except \t and \r, and characters that change the order of the displayed text.
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]+")

_out_lock = threading.Lock()
# Held while a process starts and while all processes are listed, so that no list contains an unknown process.
_lock = threading.RLock()
_own: Set[int] = set()  # children of the agent that belong to no member
_running: "List[Processes]" = []
_adopting = False


def adopt_orphans() -> None:
    """Become the subreaper (prctl), so that orphaned processes become children of the agent.

    No effect if the system has no subreapers.
    """
    global _adopting  # noqa: PLW0603
    try:
        failed = ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        return
    if not failed:
        with _lock:
            _own.update(it.pid for it in _table().values() if it.parent == os.getpid())
            _adopting = True


def protect() -> bool:
    """Deny processes of the same user access to the agent (prctl): its memory, its variables, its open files.

    Without this protection, a member can write to /proc/<agent>/fd/1, which is the log, under any name. Return whether
    the call succeeded. Call this function once, at the start.

    Limits: a process with CAP_SYS_PTRACE keeps its access, but containers have that capability only on request. Signals
    are still possible, SIGSTOP and SIGKILL included. If the agent is not the container's first process, /proc/1/fd/1 is
    not protected by this call.
    """
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def log(name: str, line: str) -> None:
    """Write a line of the agent to the log. The name is that of the member concerned, or `CARRIER` for no member."""
    _write(name, _COLOURS.sub("", line))


def log_output(name: str, line: str) -> int:
    """Write a line of a member's output to the log. Return the number of bytes written.

    The agent's prefix is quoted in the output, so that the output cannot pass for a line of the agent.
    """
    return _write(name, _COLOURS.sub("", line).replace(_AGENT_PREFIX, f"'{_AGENT_PREFIX}'"))


def _write(name: str, line: str) -> int:
    """Write a line with the prefix `name`. Repeat the prefix wherever a reader of logs could see a new line.

    Control characters, which a terminal would obey, are replaced: several in a row by one character.
    """
    parts = (it.rstrip("\r") for it in _BREAKS.split(line.rstrip("\r\n")))
    lines = (_CONTROLS.sub("\ufffd", it).replace("\r", f"\r{name}| ") for it in parts)
    text = "".join(f"{name}| {it}\n" for it in lines).encode("utf-8", "replace")
    with _out_lock:
        sys.stdout.flush()
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
    return len(text)


def start_own(command: List[str], **options: object) -> "subprocess.Popen[bytes]":
    """Start a process of the agent itself. The process continues when a member ends."""
    with _lock:
        started: subprocess.Popen[bytes] = subprocess.Popen(command, **options)  # type: ignore[call-overload]
        _own.add(started.pid)
        return started


def ended_own(pid: int) -> None:
    """Forget a process of the agent itself that has ended and was waited for."""
    with _lock:
        _own.discard(pid)


class Processes:
    """The processes of one attempt. The mark is the path of the attempt's folder, which is unique on this machine."""

    def __init__(self, attempt: str, command: List[str], folder: Path, environment: Dict[str, str]) -> None:
        self.folder = folder
        self._seen: Set[Tuple[int, int]] = set()
        self._table: Dict[int, Process] = {}
        with _lock:
            self._first = subprocess.Popen(
                command,
                cwd=str(folder),
                env={**environment, MARK: str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.pid = self._first.pid
            _running.append(self)
        assert self._first.stdout is not None
        self._reader = Reader(attempt, self._first.stdout)

    def wait(self, seconds: float) -> Optional[int]:
        """Return the exit code of the first process; 128 + n if signal n ended it; None if it still runs."""
        _note()
        try:
            code = self._first.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return code if code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        """Send a signal to the process group."""
        try:
            if self._first.returncode is None:  # until the first process is reaped, no other group has its number
                os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def end(self, seconds: float = ENDING_SECONDS) -> bool:
        """End all processes, and log the rest of their output. Return False if processes remain after `seconds`."""
        self.signal(signal.SIGKILL)
        ended = _end(self._scan, seconds, self._first.poll)
        with _lock:
            _running.remove(self)
        self._reader.close()
        return ended

    def note(self, table: "Dict[int, Process]") -> None:
        """Remember the processes of a table that are the member's.

        These are the first process, the ones remembered before, all processes of their sessions, and all descendants.
        """
        alive = {it for it in self._seen if it[0] in table and table[it[0]].started == it[1]}
        if self.pid in table and self._first.returncode is None:
            alive.add((self.pid, table[self.pid].started))
        pids = {pid for pid, _ in alive}
        sessions = {table[pid].session for pid in pids} - {os.getsid(0)}
        pids |= {it.pid for it in table.values() if it.session in sessions}
        self._seen = {(pid, table[pid].started) for pid in _with_descendants(pids, table)}

    def _scan(self, thorough: bool) -> "Scan":
        """Find processes that must be ended.

        With `thorough`, also find processes by their mark and as orphans, and read the states of known processes again.
        A scan without `thorough` is fast enough to find processes that live for only some milliseconds.
        """
        with _lock:
            over = self._first.returncode is not None
            table = self._table = _table({} if thorough else self._table)
            zombies = _reap(table)
            self.note(table)
            found = {pid for pid, _ in self._seen}
            others = [it for it in _running if it is not self]
            for other in others:
                other.note(table)
            taken = {pid for other in others for pid, _ in other._seen}
            if thorough:
                orphans = {it.pid for it in table.values() if _adopting and it.parent == os.getpid()} - taken - _own
                marks = {pid: _mark(pid) for pid in table if pid not in taken and table[pid].state not in "ZX"}
                found |= {pid for pid, mark in marks.items() if mark == os.fsencode(self.folder)}
                theirs = {os.fsencode(it.folder) for it in others}
                found |= {pid for pid in orphans if marks.get(pid) not in theirs}
            left = {
                pid
                for pid in _with_descendants(found - taken, table) - taken - _own - {os.getpid()}
                if table[pid].state not in "ZX"
            }
            # A scan misses a process only if that process forks and ends during the scan. Then the process leaves a
            # zombie, which only the agent can reap. So a scan without such a zombie has missed no process.
            complete = _adopting and over and not left
            if complete:
                sessions = {table[pid].session for other in others for pid, _ in other._seen if pid in table}
                ended = {it.session for it in (*zombies, *_reap(_table()))} - sessions
                complete = not ended
            return Scan(left, complete=complete)


class Scan(NamedTuple):
    """The result of a scan: the processes found (left), and whether no process can have been missed (complete)."""

    left: Set[int]
    complete: bool


class Process(NamedTuple):
    """A process, with values of /proc/<pid>/stat, which any user can read."""

    pid: int
    state: str
    parent: int
    session: int
    started: int  # clock ticks since the boot; distinguishes processes that have had the same pid


def end_marked(folder: Path, seconds: float = ENDING_SECONDS) -> bool:
    """End all processes with the mark of a folder, which an earlier agent has left.

    Return False if some processes remain after `seconds`.
    """

    def scan(thorough: bool) -> Scan:
        with _lock:
            table = _table()
            found = {pid for pid in table if _mark(pid) == os.fsencode(folder)}
            left = {pid for pid in _with_descendants(found, table) if table[pid].state not in "ZX"} - {os.getpid()}
            return Scan(left, complete=False)

    return _end(scan, seconds, lambda: None)


def _end(scan: Callable[[bool], Scan], seconds: float, poll: Callable[[], object]) -> bool:
    """Stop all processes (SIGSTOP), so that they cannot start others, then kill them; repeat until none is left.

    No process is left if one complete scan, or `INCOMPLETE_SCANS` other scans in a row, found none. When the time is
    over, two empty scans in a row are enough, since other members can make scans incomplete and slow.

    Return False if processes are left then: they fork faster than they are stopped, or hang in the kernel.
    """
    until = time.monotonic() + seconds
    empty = 0  # scans in a row that found no process
    while True:
        stopped: Set[int] = set()
        for number in range(100):
            found = scan(number == 0)
            fresh = found.left - stopped
            _send(fresh, signal.SIGSTOP)
            stopped |= fresh
            if not fresh or time.monotonic() > until:
                break
        _send(stopped, signal.SIGKILL)
        poll()
        empty = 0 if stopped else empty + 1
        if empty and (found.complete or empty >= INCOMPLETE_SCANS):
            return True
        if time.monotonic() > until:
            return empty > 1
        time.sleep(0.01)


def _send(pids: Set[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


_last_note = 0.0


def _note() -> None:
    """Update the known processes of all members, and reap orphans that have ended; at most once per TABLE_SECONDS."""
    global _last_note  # noqa: PLW0603
    with _lock:
        if time.monotonic() - _last_note < TABLE_SECONDS:
            return
        table = _table()
        _reap(table)
        for it in _running:
            it.note(table)
        _last_note = time.monotonic()


def _reap(table: Dict[int, Process]) -> List[Process]:
    """Wait for ended children that no other code waits for, and return them."""
    if not _adopting:
        return []
    reaped = []
    firsts = {it.pid for it in _running}
    for it in table.values():
        if it.state == "Z" and it.parent == os.getpid() and it.pid not in firsts and it.pid not in _own:
            try:
                os.waitpid(it.pid, os.WNOHANG)
            except OSError:
                pass
            reaped.append(it)
    return reaped


def _table(known: "Mapping[int, Process]" = MappingProxyType({})) -> Dict[int, Process]:
    """Return all processes by pid. Processes in `known` are not read from /proc again."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and int(name) in known:
            found[int(name)] = known[int(name)]
        elif name.isdigit():
            content = _read(f"/proc/{name}/stat")
            fields = content[content.rfind(b")") + 2 :].split()
            if len(fields) > 19:
                pid = int(name)
                found[pid] = Process(pid, fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))
    return found


def _with_descendants(pids: Set[int], table: Dict[int, Process]) -> Set[int]:
    children: Dict[int, List[int]] = {}
    for it in table.values():
        children.setdefault(it.parent, []).append(it.pid)
    found, waiting = set(), [pid for pid in pids if pid in table]
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting.extend(children.get(pid, ()))
    return found


def _mark(pid: int) -> Optional[bytes]:
    """Return the mark of a process; None if the process has no mark or its variables cannot be read."""
    for it in _read(f"/proc/{pid}/environ").split(b"\0"):
        if it.startswith(MARK.encode() + b"="):
            return it[len(MARK) + 1 :]
    return None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", 0) as file:  # noqa: PTH123
            return file.read(1 << 20)
    except OSError:
        return b""


class Reader:
    """A thread that copies a member's output to the log, line by line, within limits.

    Output beyond `BYTES_PER_SECOND` on average (8,192 short lines a second) is left out, and the log says how many
    bytes are missing. The thread reads at most `MOST_READ_PER_SECOND`. The thread ends with the member, even if a
    process that was not found keeps the pipe open.
    """

    def __init__(self, attempt: str, source: "IO[bytes]") -> None:
        self._attempt, self._source = attempt, source
        self._until = float("inf")
        self._left_out = 0
        self._room, self._filled_at = float(BURST), time.monotonic()
        self._rest = b""
        os.set_blocking(source.fileno(), False)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Read the remaining output, and end."""
        self._until = time.monotonic() + LAST_OUTPUT_SECONDS
        self._thread.join(LAST_OUTPUT_SECONDS * 2)

    def _run(self) -> None:
        fd = self._source.fileno()
        ready = select.poll()
        ready.register(fd, select.POLLIN)
        while time.monotonic() < self._until:
            closing = self._until < float("inf")
            if not ready.poll(100):
                if closing:
                    break
                continue
            begun = time.monotonic()
            try:
                block = os.read(fd, 1 << 18)
            except OSError:
                continue
            if not block:
                break
            self._add_block(block)
            time.sleep(max(0.0, begun + len(block) / MOST_READ_PER_SECOND - time.monotonic()))
        self._add_block(b"", last=True)
        self._source.close()

    def _add_block(self, block: bytes, *, last: bool = False) -> None:
        """Log the complete lines of a block of output, and keep the rest for the next block."""
        if self._left_out and not last and self._available() < BYTES_PER_SECOND:  # no room: drop the block at once
            self._left_out += len(self._rest) + len(block)
            self._rest = b""
            return
        *lines, self._rest = (self._rest + block).split(b"\n")
        while len(self._rest) > LONGEST_LINE or (last and self._rest):
            cut = _boundary(self._rest)
            lines.append(self._rest[:cut])
            self._rest = self._rest[cut:]
        for line in lines:
            while len(line) > LONGEST_LINE:
                cut = _boundary(line)
                self._log_line(line[:cut])
                line = line[cut:]  # noqa: PLW2901
            self._log_line(line)
        if last:
            self._log_left_out()

    def _log_line(self, line: bytes) -> None:
        """Log a line, or count it as left out if there is no room."""
        size = max(LEAST_LINE, len(line))
        # After output was left out, wait until there is room for the lines of a second.
        if self._available() < (BYTES_PER_SECOND if self._left_out else size):
            self._left_out += len(line) + 1
            return
        self._log_left_out()
        self._room -= max(LEAST_LINE, log_output(self._attempt, line.decode("utf-8", "replace")))

    def _available(self) -> float:
        """Return the bytes that may go to the log now."""
        now = time.monotonic()
        self._room = min(float(BURST), self._room + (now - self._filled_at) * BYTES_PER_SECOND)
        self._filled_at = now
        return self._room

    def _log_left_out(self) -> None:
        if self._left_out:
            count, self._left_out = self._left_out, 0
            log(self._attempt, f"{_AGENT_PREFIX} {count} bytes of its output are left out: more than 1 MiB/s")


def _boundary(line: bytes) -> int:
    """Return where to cut a line that is too long: not within a character of UTF-8."""
    if len(line) <= LONGEST_LINE:
        return len(line)
    cut = LONGEST_LINE
    while cut > LONGEST_LINE - 4 and line[cut] & 0xC0 == 0x80:
        cut -= 1
    return cut
