"""Check before a submission that the script of a job's command is in its packed code."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sagemaker_queue.jobs.formatting import did_you_mean, one_line
from sagemaker_queue.jobs.hyperparameters import command_of, json_in

if TYPE_CHECKING:
    from sagemaker_queue.jobs.packaging.packing import Archive

_INTERPRETER = re.compile(r"python[0-9.]*|bash|sh")
_FLAGS = re.compile(r"-[BEIOsSuex]+")  # options without a value, after which the script follows
_SCRIPT = re.compile(r".+\.(?:py|sh)")
_MAKES_FILES = ("compile.sh", "compile.aml.sh")  # programs of the folder that run first, and may create the script


def missing_script(request: Mapping[str, Any], archive: Archive) -> str | None:
    """Return a sentence if the command of a request runs a script that the archive does not contain, else None.

    Only commands such as ``python train.py`` and ``./train.sh`` are checked. Scripts outside the folder, in data of the
    job, or in a folder whose compile.sh may create them, are not checked.
    """
    script = script_of(command_of(request) or [])
    if script is None or any(archive.has(name) for name in _MAKES_FILES):
        return None
    if archive.has(script) or any(_is_within(script, path) for path in _data_paths(request)):
        return None
    files = [name for name, size in archive.names if size is not None]
    suggestion = did_you_mean(script, files) or did_you_mean(
        script, [name for name in files if _SCRIPT.fullmatch(name)]
    )
    return (
        f"The command runs {one_line(script)}, which is not in the packed folder (smq submit --list-files).{suggestion}"
    )


def script_of(command: Sequence[str]) -> str | None:
    """Return the path of the script that a command runs, below the working folder; None without such a script."""
    words = list(command)
    if words and _INTERPRETER.fullmatch(posixpath.basename(words[0])):
        words = words[1:]
        while words and _FLAGS.fullmatch(words[0]):
            words = words[1:]
    if not words or not _SCRIPT.fullmatch(words[0]) or "{" in words[0]:
        return None
    if "/" not in words[0] and words == list(command) and words[0].endswith(".sh"):
        return None  # found in the PATH of the image, not in the folder
    path = posixpath.normpath(words[0])
    return None if path.startswith(("/", "../")) else path


def _data_paths(request: Mapping[str, Any]) -> list[str]:
    paths = json_in(request, "data")
    return [str(path) for path in paths] if isinstance(paths, dict) else []


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
