"""Test the client on each supported Python, with the oldest and with the newest allowed packages.

    .venv/bin/python tools/matrix.py [PYTHON:oldest|newest ...]

uv makes each environment in build/matrix, from wheels only. The sources are those of pip's configuration. The
environment contains the client as an editable installation, with the lowest versions that pyproject.toml names or the
newest ones. The client's tests run in the environment, and then the client uses a local cloud. If neither pyenv
nor uv has a Python, and uv cannot download it, that Python is left out with a message. `make dist` tries the wheel.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.install import PIP, pinned, pip_settings, uv_environment

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build/matrix"
PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
# Packages of the tests themselves, always in the newest compatible versions.
TEST_TOOLS = ("hypothesis", "moto[events,s3]", "psutil", "pyte", "pytest", "pytest-timeout", "pytest-xdist")
# Leave out the tests with the SDK: the ordinary tests include them, and the SDK has its own lowest version.
OPTIONS = ["--ignore", "tests/client/integrations/test_sdk_v2.py", "-p", "no:cacheprovider", "--timeout", "600"]
PYTEST_INI = f"""\
[pytest]
pythonpath = {ROOT}
addopts = --import-mode=importlib -q
filterwarnings =
    ignore::pytest.PytestUnknownMarkWarning
"""
SMOKE = """\
set -e
cd examples
"$PYTHON" boto3_job.py
"$PYTHON" -m sagemaker_queue submit --name smoke -- echo "from the smoke"
"$PYTHON" -m sagemaker_queue logs -f smoke | grep "from the smoke"
"$PYTHON" -m sagemaker_queue ls --all
"""


def main(wanted: Sequence[str]) -> int:
    """Test each environment; return 1 if one failed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "pytest.ini").write_text(PYTEST_INI)
    uv = uv_settings()
    every = [f"{python}:{age}" for python in PYTHONS for age in RESOLUTIONS]
    results = {}
    for name in wanted or every:
        python, _, age = name.partition(":")
        print(f"\n=== Python {python}, the {age}", flush=True)
        results[name] = tested(python, age, uv)
    print("\n" + "\n".join(f"{name:12} {result}" for name, result in results.items()))
    return int(any(result.startswith("FAILED") for result in results.values()))


def tested(python: str, age: str, uv: Mapping[str, str]) -> str:
    """Make an environment and test in it; return the result in words."""
    home = FOLDER / f"{python}-{age}"
    if run([*UV, "venv", "--quiet", "--clear", "--python", interpreter(python), str(home)], uv):
        return "left out: no such Python"
    if status := install(home, age, uv):
        return f"FAILED: it cannot be installed (status {status})"
    print(versions(home), flush=True)
    bare = bare_environment()
    here = str(home / "bin/python")
    tests = ["-m", "pytest", "-c", str(FOLDER / "pytest.ini"), "--rootdir", str(ROOT), "-n", "2", *OPTIONS]
    if run([here, *tests, "tests/client"], bare):
        return "FAILED: its tests"
    cloud = [sys.executable, "-m", "local_cloud", "exec", "--slots", "2", "--", "sh", "-c", SMOKE]
    if run(cloud, {**bare, "PYTHON": here}):
        return "FAILED: on a local cloud"
    return "passed"


def bare_environment() -> dict[str, str]:
    """Return the variables of this process without those of AWS and of Python environments."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON", "VIRTUAL_ENV"))}


def interpreter(python: str) -> str:
    """Return the path of pyenv's interpreter, which uv would not find; else the version, for which uv searches."""
    versions = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    return str(max(versions.glob(f"{python}.*/bin/python"), default=python))


def install(home: Path, age: str, uv: Mapping[str, str]) -> int:
    """Install the client, then the tests' tools without changing the client's packages; return the exit status."""
    pip = [*UV, "pip", "install", "--quiet", "--python", str(home), "--no-binary", "sagemaker-queue"]
    status = run([*pip, "--only-binary", ":all:", "--resolution", RESOLUTIONS[age], "--editable", "."], uv)
    if status:
        return status
    kept = FOLDER / f"{home.name}.txt"
    lines = [line for line in versions(home).splitlines() if "==" in line]
    kept.write_text("\n".join(lines))
    return run([*pip, "--constraint", str(kept), *TEST_TOOLS], uv)


def versions(home: Path) -> str:
    """Return the installed packages and versions."""
    freeze = [*UV, "pip", "freeze", "--quiet", "--python", str(home)]
    return subprocess.run(freeze, capture_output=True, text=True, check=True).stdout


def uv_settings() -> dict[str, str]:
    """Return the environment for uv; install uv beside this Python if it is missing."""
    if importlib.util.find_spec("uv") is None:
        subprocess.run([*PIP, "install", "--quiet", pinned("uv")], check=True)
    return {**os.environ, **uv_environment(pip_settings(), os.environ)}


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command in the checkout, and return its exit status."""
    return subprocess.run(command, cwd=ROOT, env=dict(environment), check=False).returncode


UV = [sys.executable, "-m", "uv"]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
