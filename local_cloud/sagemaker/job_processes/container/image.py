"""What a job finds in its image: Python, and the programs with which SageMaker's own images begin.

The first process of AWS's deep learning containers is `bash -m start_with_right_hostname.sh train`. Bash starts
sagemaker-training's `train`, which fetches the code and starts the user's script. No one of them handles SIGTERM or
passes it on (aws/deep-learning-containers issue 632, aws/sagemaker-training-toolkit issue 125). So it is here: three
processes, one below the other. Two lines of bash about job control begin the log, as they do on AWS.
"""

import shlex
import site
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from local_cloud.sagemaker.job_processes.process import MARK

_START = "start_with_right_hostname.sh"
ENTRYPOINT = ("bash", "-m", _START, "train")
"""The entrypoint of the deep learning containers, with the argument that SageMaker gives it."""

_START_TEXT = """\
#!/usr/bin/env bash
# The one of the real images sets a host name, too.
if [[ "$1" = train ]]; then
    train
else
    eval "$@"
fi
"""
_TRAIN_TEXT = f"""\
#!/bin/sh
# Plays the command of sagemaker-training: a process that waits for the script, and has no handler for SIGTERM.
training="${MARK}/$SM_CURRENT_HOST-train.sh"
if [ ! -e "$training" ]; then
    echo "train: the hyperparameters sagemaker_program and sagemaker_submit_directory are missing" >&2
    exit 1
fi
sh "$training"
exit $?
"""


def write_training(folder: Path, host: str, source: Path, code: str, script: Sequence[str]) -> None:
    """Write what `train` does on a host: put the code in place, and run the script as a process of its own."""
    lines = [
        f"cp -R {shlex.quote(str(source))}/. {shlex.quote(code)} || exit 1",
        f"cd {shlex.quote(code)} || exit 1",
        shlex.join(script),
        "exit $?",
    ]
    (folder / f"{host}-train.sh").write_text("\n".join(lines) + "\n")


def programs(folder: Path) -> None:
    """Make a folder to be first on PATH: the image's programs. Its Python is the one that runs this."""
    folder.mkdir(parents=True)
    for name, text in ((_START, _START_TEXT), ("train", _TRAIN_TEXT)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for name in ("python", "python3"):
        wrapper = folder / name
        # Not a link: a virtual environment is found by the path with which its Python is called.
        wrapper.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        wrapper.chmod(0o755)


def own_python(folder: Path) -> None:
    """Make a Python of a container's own: it has what this one has, and what is installed goes to it alone."""
    venv.EnvBuilder(symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    below = "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
    (packages / "below.pth").write_text(below)
