"""The programs of a job's image: Python, and the first programs of SageMaker's own images.

The first process of AWS's deep learning containers is `bash -m start_with_right_hostname.sh train`. Bash starts
sagemaker-training's `train`, which downloads the code and starts the user's script. None of these processes handles
SIGTERM or passes it on (aws/deep-learning-containers issue 632, aws/sagemaker-training-toolkit issue 125). The emulator
has the same three processes, each the parent of the next. As on AWS, the log begins with two lines of bash about job
control.
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
# The script in the real images also sets a host name.
if [[ "$1" = train ]]; then
    train
else
    eval "$@"
fi
"""
_TRAIN_TEXT = f"""\
#!/bin/sh
# Stands in for the command of sagemaker-training: waits for the script, and has no handler for SIGTERM.
training="${MARK}/$SM_CURRENT_HOST-train.sh"
if [ ! -e "$training" ]; then
    echo "train: the hyperparameters sagemaker_program and sagemaker_submit_directory are missing" >&2
    exit 1
fi
sh "$training"
exit $?
"""


def write_train_script(folder: Path, host: str, source: Path, code: str, script: Sequence[str]) -> None:
    """Write the shell script that `train` runs on a host: copy the code to `code`, then run `script` as a process."""
    lines = [
        f"cp -R {shlex.quote(str(source))}/. {shlex.quote(code)} || exit 1",
        f"cd {shlex.quote(code)} || exit 1",
        shlex.join(script),
        "exit $?",
    ]
    (folder / f"{host}-train.sh").write_text("\n".join(lines) + "\n")


def write_programs(folder: Path) -> None:
    """Create a folder with the image's programs, to be first on PATH.

    The Python in this folder is the current interpreter.
    """
    folder.mkdir(parents=True)
    for name, text in ((_START, _START_TEXT), ("train", _TRAIN_TEXT)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for name in ("python", "python3"):
        wrapper = folder / name
        # A link does not work: Python finds its virtual environment by the path with which it is called.
        wrapper.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        wrapper.chmod(0o755)


def create_python(folder: Path) -> None:
    """Create a Python environment for one container. All packages of the current environment are visible in it.

    Packages that the job installs go to this environment only.
    """
    venv.EnvBuilder(symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    below = "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
    (packages / "below.pth").write_text(below)
