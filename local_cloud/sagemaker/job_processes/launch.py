"""Becomes a job's process: run as `python launch.py PLAN COMMAND...`, it makes folders appear where a container has
them, for this process and its children only, and then replaces itself by the command.

PLAN is JSON: {"mounts": [[source, target], ...], "stage": an empty folder for use here, "cwd": where to run}. With no
mounts nothing is mounted. The command has this process's id, so signals reach it and no shell is between.

It is run by path without site packages, to start fast: it imports the standard library only.
"""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CANNOT_RUN = 127  # as in a shell


def main(arguments: list[str]) -> int:
    """Mount, then run the command; comes back only if that is not possible."""
    plan, command = json.loads(arguments[0]), arguments[1:]
    doing = "/opt/ml could not be set up"
    try:
        if sys.platform == "linux":
            _Mounts(Path(plan["stage"])).make([(Path(source), Path(target)) for source, target in plan["mounts"]])
            # The kernel ends this process with the service's thread that started it, however that ends.
            _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            # As in a container, the first process gets the children of those that are gone.
            _call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        os.chdir(plan["cwd"])
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and a command would inherit it
            signal.signal(ignored, signal.SIG_DFL)
        doing = f"{command[0]} could not be run"
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{doing}: {error}", file=sys.stderr)
    return CANNOT_RUN


class _Mounts:
    """Folders made visible elsewhere, in a mount namespace of this process."""

    def __init__(self, stage: Path) -> None:
        self._stage = stage
        self._covers = 0

    def make(self, mounts: list[tuple[Path, Path]]) -> None:
        """Show each source at its target."""
        if not mounts:
            return
        _enter_namespace()
        for source, target in mounts:
            if not target.exists():
                self._make_place(target)
            _mount(str(source), str(target), None, MS_BIND | MS_REC)

    def _make_place(self, target: Path) -> None:
        """Make the folder `target` exist in this namespace, and leave the machine's own file system alone.

        Its nearest existing parent is covered by a memory file system that shows the same entries, and has room.
        """
        parent = next(folder for folder in target.parents if folder.is_dir())
        self._covers += 1
        cover = self._stage / str(self._covers)
        cover.mkdir()
        _mount("tmpfs", str(cover), "tmpfs", 0, f"mode={parent.stat().st_mode & 0o7777:o}")
        for entry in parent.iterdir():
            place = cover / entry.name
            if entry.is_symlink():
                place.symlink_to(entry.readlink())
                continue
            if entry.is_dir():
                place.mkdir()
            else:
                place.touch()
            _mount(str(entry), str(place), None, MS_BIND | MS_REC)
        (cover / target.relative_to(parent)).mkdir(parents=True)
        if parent == Path("/"):  # nothing can be mounted there; the cover becomes the root instead
            os.chroot(cover)
        else:
            _mount(str(cover), str(parent), None, MS_BIND | MS_REC)


def _enter_namespace() -> None:
    try:
        _call("unshare", CLONE_NEWNS)
    except OSError:
        # Anybody may mount in a user namespace of his own; the command keeps its user and gets no right from it.
        user, group = os.getuid(), os.getgid()
        _call("unshare", CLONE_NEWNS | CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount(None, "/", None, MS_REC | MS_PRIVATE)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [text.encode() if text is not None else None for text in (source, target, kind, data)]
    _call("mount", *encoded[:3], ctypes.c_ulong(flags), encoded[3])


def _call(function: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{function}: {os.strerror(error)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
