"""Try the built wheel: the client in new environments, without the checkout, on a local cloud.

    .venv/bin/python -m tools.wheel_trial FOLDER

uv makes two environments: with the oldest and with the newest supported Python that can be found or downloaded. The
wheel in FOLDER is installed in both. The oldest Python that the wheel supports gets the lowest versions of the wheel's
dependencies, and every other Python the highest. Each environment submits a job to a local cloud. The job is submitted
from a user's folder, in which packages have the names of the queue's own packages.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.matrix import PYTHONS, UV, bare_environment, interpreter, run, uv_settings

# Packages of the user. A script or `python -m` in the user's folder finds these before installed packages.
USERS_PACKAGES = ("api_contract", "job_queue")
SCRIPT = """\
set -e
"$PYTHON" -c 'import sagemaker_queue; sagemaker_queue.QueueClient().submit("echo from the wheel", name="a")'
"$SMQ" wait a
"$SMQ" logs a | grep "from the wheel"
"$PYTHON" -m sagemaker_queue ls --all
"$SMQ" policy show > policy.yaml
"$SMQ" history --csv > trace.csv
"""


def main(folder: Path) -> int:
    """Try the wheel with both Pythons; return 1 if one trial failed."""
    (wheel,) = folder.glob("*.whl")
    uv = uv_settings()
    with tempfile.TemporaryDirectory() as work:
        oldest = first_found(PYTHONS, Path(work, "oldest"), uv)
        newest = first_found(PYTHONS[::-1], Path(work, "newest"), uv)
        results = {python: trial(wheel.resolve(), python, home, uv) for python, home in (oldest, newest)}
    print("\n".join(f"Python {python}: {result}" for python, result in results.items()))
    return int(any(result.startswith("FAILED") for result in results.values()))


def first_found(pythons: Sequence[str], work: Path, uv: Mapping[str, str]) -> tuple[str, Path]:
    """Return the first of these Pythons that is installed or that uv can download, with its new environment."""
    environments = ((python, environment(python, work, uv)) for python in pythons)
    return next((python, home) for python, home in environments if home)


def environment(python: str, work: Path, uv: Mapping[str, str]) -> Path | None:
    """Make an environment with this Python; None if there is no such Python."""
    home = work / python / "environment"
    made = run([*UV, "venv", "--quiet", "--python", interpreter(python), str(home)], uv) == 0
    return home if made else None


def trial(wheel: Path, python: str, home: Path, uv: Mapping[str, str]) -> str:
    """Install the wheel into the environment, and use the queue; return the result in words."""
    user = home.parent / "user"
    for package in USERS_PACKAGES:
        (user / package).mkdir(parents=True)
        (user / package / "__init__.py").write_text("raise ImportError('this is a package of the user')\n")
    pip = [*UV, "pip", "install", "--quiet", "--python", str(home), "--resolution"]
    if status := run([*pip, "lowest-direct" if python == PYTHONS[0] else "highest", str(wheel)], uv):
        return f"FAILED: the wheel cannot be installed (status {status})"
    cloud = [sys.executable, "-m", "local_cloud", "exec", "--slots", "2", "--", "sh", "-c", f"cd '{user}'\n{SCRIPT}"]
    programs = {"PYTHON": str(home / "bin/python"), "SMQ": str(home / "bin/smq")}
    return "FAILED: on a local cloud" if run(cloud, {**bare_environment(), **programs}) else "works"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
