"""Start of a job's process with the mounts of a container: `python launch.py PLAN COMMAND...`.

The program mounts folders at the paths that they have in a container. The mounts are visible to this process and its
children only. Then the program replaces itself by the command. The command keeps the process id, so signals reach it
directly: no shell is in between.

PLAN is JSON: {"mounts": [[source, target], ...], "stage": an empty working folder, "cwd": the command's directory}.
Without mounts, no mount namespace is created.

The module is run by its path and without site packages, to start fast. Therefore the module imports only the standard
library.
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
    """Mount the folders and become the command. Return an exit code only if that fails."""
    plan, command = json.loads(arguments[0]), arguments[1:]
    doing = "/opt/ml could not be set up"
    try:
        if sys.platform == "linux":
            _Mounts(Path(plan["stage"])).make([(Path(source), Path(target)) for source, target in plan["mounts"]])
            # The kernel kills this process when the thread that started it ends, for whatever reason.
            _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            # As in a container, orphaned processes are reparented to the first process.
            _call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        os.chdir(plan["cwd"])
        for ignored in (
            signal.SIGPIPE,
            signal.SIGXFSZ,
        ):  # Python ignores these signals, and the command would inherit that
            signal.signal(ignored, signal.SIG_DFL)
        doing = f"{command[0]} could not be run"
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{doing}: {error}", file=sys.stderr)
    return CANNOT_RUN


class _Mounts:
    """The mounts of folders at other paths, in a new mount namespace of this process."""

    def __init__(self, stage: Path) -> None:
        self._stage = stage
        self._covers = 0

    def make(self, mounts: list[tuple[Path, Path]]) -> None:
        """Mount each source at its target, in a new namespace."""
        if not mounts:
            return
        _enter_namespace()
        for source, target in mounts:
            if not target.exists():
                self._make_place(target)
            _mount(str(source), str(target), None, MS_BIND | MS_REC)

    def _make_place(self, target: Path) -> None:
        """Create the folder `target` in this namespace, without a change of the machine's own file system.

        The nearest existing parent is covered by a tmpfs that shows the same entries and can have new ones.
        """
        parent = next(folder for folder in target.parents if folder.is_dir())
        self._covers += 1
        cover = self._stage / str(self._covers)
        cover.mkdir()
        _mount("tmpfs", str(cover), "tmpfs", 0, f"mode={parent.stat().st_mode & 0o7777:o}")
        for entry in parent.iterdir():
            _show(entry, cover / entry.name)
        (cover / target.relative_to(parent)).mkdir(parents=True)
        if parent == Path("/"):  # a mount over the root has no effect, so the cover becomes the root
            os.chroot(cover)
        else:
            _mount(str(cover), str(parent), None, MS_BIND | MS_REC)


def _show(entry: Path, place: Path) -> None:
    """Show an entry of a folder at another place; no effect if another process has removed or replaced the entry."""
    try:
        if entry.is_symlink():
            place.symlink_to(entry.readlink())
            return
        if entry.is_dir():
            place.mkdir()
        else:
            place.touch()
        _mount(str(entry), str(place), None, MS_BIND | MS_REC)
    except (FileNotFoundError, NotADirectoryError):
        if place.is_dir():
            place.rmdir()
        else:
            place.unlink(missing_ok=True)


def _enter_namespace() -> None:
    try:
        _call("unshare", CLONE_NEWNS)
    except OSError:
        # Any user may mount in a new user namespace. The command keeps its user and gets no rights from the namespace.
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
