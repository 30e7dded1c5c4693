"""README.md and docs/guide.md, taken literally: their commands, typed in a fresh checkout in the order of the page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from itertools import pairwise
from pathlib import Path

import pytest

from local_cloud.aws.stack import ACCOUNT, REGION
from tests.system.conftest import System

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
GUIDE = (ROOT / "docs/guide.md").read_text()
(SCRIPT,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)

# Not typed as it stands: what is typed instead, and why.
STAND_INS = {
    "make test": ("make --dry-run test", "this test is part of it"),
    "sam deploy --guided": (
        "sam deploy --help > help.txt",
        "it needs an AWS account; the tests in this folder deploy the same template to the local cloud",
    ),
    "smq config set url https://<api-id>-<vpce-id>.execute-api.<region>.amazonaws.com/prod": (
        'smq config set url "$HERE_URL"', "the address stands for the reader's own queue",
    ),
    "smq config set url https://a1b2c3d4e5-vpce-0123456789abcdef0.execute-api.us-east-1.amazonaws.com/prod": (
        'smq config set url "$HERE_URL"', "the address is an example",
    ),
    "smq config set role arn:aws:iam::123456789012:role/training": (
        'smq config set role "$HERE_ROLE"', "the account is an example",
    ),
    "smq config set bucket sagemaker-us-east-1-123456789012": (
        'smq config set bucket "$HERE_BUCKET"', "the account is an example",
    ),
    "smq config set image 123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.8": (
        'smq config set image "$HERE_IMAGE"', "the account is an example",
    ),
}  # fmt: skip


def blocks(page: str) -> list[str]:
    """The blocks of commands of a page, or of a part of one: fenced ones of no language, and indented ones."""
    found: list[list[str]] = []
    fence = None
    for before, line in pairwise(["", *page.splitlines()]):
        if line.startswith("```"):
            fence = line if fence is None else None
            found.append([])
        elif fence == "```":
            found[-1].append(line)
        elif fence is None and line.startswith("    "):
            if not before:
                found.append([])
            found[-1].append(line[4:])
    return [text for lines in found if (text := "\n".join(lines)) and not text.startswith("$ ")]  # what a command shows


def part(page: str, heading: str) -> str:
    """What stands below a heading of the second level."""
    return page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


LAMBDA_LIMIT_BYTES = 250 * 1024**2
INTRODUCTION = GUIDE.partition("\n## ")[0]
TRY_IT, USE_IT, FIRST_JOB = part(README, "Try it"), part(README, "Use it on AWS"), part(GUIDE, "Your first job")


class Person:
    """Somebody with a home and a Python, and nothing else, who types what a page says."""

    def __init__(self, home: Path, folder: Path, **variables: str) -> None:
        self.home = home
        self.folder = folder
        where = [str(Path(sys.base_prefix) / "bin"), "/usr/local/bin", "/usr/bin", "/bin"]
        # The way to the package index and packages that are there already; nothing of an account or an environment.
        network = re.compile(r"PIP_|UV_|SSL_|(https?|no)_proxy", re.IGNORECASE)
        kept = {name: value for name, value in os.environ.items() if network.match(name)}
        caches = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        own = {"PATH": os.pathsep.join(where), "HOME": str(home), "XDG_CACHE_HOME": caches, "LC_ALL": "C.UTF-8"}
        quick = {"PIP_NO_COMPILE": "1", "SAM_CLI_TELEMETRY": "0"}  # pip would compile thousands of modules for nothing
        self.environment = {**kept, **own, **quick, **variables}

    def types(self, block: str, then: str = "") -> str:
        """What the commands write, typed one after the other; `then` is typed into the last one."""
        lines = [STAND_INS[line][0] if line in STAND_INS else line for line in block.splitlines()]
        done = subprocess.run(
            ["bash", "-ec", "\n".join(lines)],
            cwd=self.folder, env=self.environment, input=then, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{block}\n\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert "warning" not in (done.stdout + done.stderr).lower(), f"{block}\n\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as it is, without what was made in it."""
    folder = tmp_path_factory.mktemp("checkout") / "sagemaker-queue"
    made = (".git", ".venv*", ".aws-sam", "build", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*made))
    return folder


@pytest.fixture
def newcomer(checkout: Path, tmp_path: Path) -> Person:
    """Somebody in the checkout."""
    return Person(tmp_path, checkout)


@pytest.fixture
def own_environment(tmp_path: Path) -> Path:
    """A virtual environment of a user, which is empty."""
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=True)
    return folder


@pytest.fixture
def sdk_environment(own_environment: Path) -> Path:
    """A virtual environment of somebody who uses the SageMaker SDK already, so that pip need not bring it."""
    (packages,) = own_environment.glob("lib/python*/site-packages")
    (packages / "theirs.pth").write_text(sysconfig.get_path("purelib"))
    return own_environment


@pytest.fixture
def user(system: System, checkout: Path, own_environment: Path, tmp_path: Path) -> Person:
    """Somebody in the checkout whose AWS account is the local cloud, with an environment for the client."""
    account = system.cloud.environment()
    here = {name: account.pop(f"SAGEMAKER_QUEUE_{name}") for name in ("URL", "ROLE", "IMAGE")}
    account.pop("SAGEMAKER_QUEUE_INSTANCE_TYPE")
    here["BUCKET"] = f"sagemaker-{REGION}-{ACCOUNT}"
    person = Person(tmp_path, checkout, **account, **{f"HERE_{name}": value for name, value in here.items()})
    person.environment["PATH"] = f"{own_environment / 'bin'}:{person.environment['PATH']}"
    return person


def test_try_it(newcomer: Person) -> None:
    demo, tests, own_script = blocks(TRY_IT)
    told = newcomer.types(demo)
    what = "the SageMaker SDK v2 and the local cloud"
    assert re.search(rf"^Installing {what}, by uv \.\.\.\n(  .*\n)+Installed {what} in ", told, re.MULTILINE)
    complaints = told.partition("- The demo has passed")[2].splitlines()[1:]
    assert complaints == [
        "The queue is empty; 4 jobs have finished: add --all to list them."
    ]  # smq's own word, where there is no table
    assert "Each job completed exactly once" in told
    assert "pytest" in newcomer.types(tests)
    (newcomer.folder / "your_script.py").write_text("from sagemaker_queue import *\nprint(list(QueueClient().jobs()))")
    assert "[]\n" in newcomer.types(own_script)


def test_use_it_on_aws(newcomer: Person, user: Person, sdk_environment: Path) -> None:
    deploy, client = blocks(USE_IT)
    assert "Build Succeeded" in newcomer.types(deploy)
    assert "--guided" in (newcomer.folder / "help.txt").read_text()
    built = newcomer.folder / ".aws-sam/build/QueueFunction"
    assert (built / "job_queue/lambda_function.py").is_file()
    # For the template's runtime and architecture, whatever these are here.
    compiled = [path.name for path in built.rglob("*.so")]
    assert compiled
    assert all(name.endswith(".cpython-312-aarch64-linux-gnu.so") for name in compiled)
    assert sum(path.stat().st_size for path in built.rglob("*") if path.is_file()) < LAMBDA_LIMIT_BYTES

    assert "The queue is empty" in user.types(client)
    assert list(sdk_environment.glob("lib/python*/site-packages/sagemaker_queue/__init__.py"))


def test_the_first_job_without_an_account(newcomer: Person) -> None:
    (shell,) = blocks(INTRODUCTION)
    *_, submit, watch = blocks(FIRST_JOB)
    into_folder = "mkdir -p first && cd first && cp ../train.py ."
    (newcomer.folder / "train.py").write_text(SCRIPT)
    told = newcomer.types(shell, "\n".join(["set -e", into_folder, submit, watch]))
    assert "step 60: loss 0.1608" in told.splitlines()
    assert "completed" in told


def test_the_first_job(system: System, user: Person, tmp_path: Path) -> None:
    install, configure, look, submit, watch = blocks(FIRST_JOB)
    user.types(install)
    (user.folder / "trace.csv").write_text("job_id,submit_s,duration_s,gpus\none,0,60,8\n")
    assert "slowdown" in user.types("smq simulate trace.csv")  # the planner is installed, too
    user.types(configure)
    assert "The queue is empty" in user.types(look)
    user.folder = tmp_path / "work"
    user.folder.mkdir()
    (user.folder / "train.py").write_text(SCRIPT)
    user.types(submit)
    with system.frozen("first-qstamp-1", "step 10: loss 0.7374"):
        # Somebody with two instances' worth of urgency comes by.
        system.submit("urgent", "pass", instances=2, priority=1)
        system.wait_state("first", "stopping")

    told = user.types(watch)
    starts = [int(step) for step in re.findall(r"^starting at step (\d+)$", told, re.MULTILINE)]
    assert len(starts) == 2 and starts[0] == 0 and starts[1] >= 10
    assert "step 60: loss 0.1608" in told.splitlines()
    assert "completed" in told


def test_nothing_that_a_page_says_to_type_is_left_out() -> None:
    assert blocks(README) == blocks(TRY_IT) + blocks(USE_IT)
    assert blocks(GUIDE) == blocks(INTRODUCTION) + blocks(FIRST_JOB)
    typed = {line for page in (README, GUIDE) for block in blocks(page) for line in block.splitlines()}
    assert set(STAND_INS) <= typed


def test_the_script_is_of_twenty_lines_and_runs_at_home_too(tmp_path: Path) -> None:
    assert len([line for line in SCRIPT.splitlines() if line.strip()]) <= 20
    fast = SCRIPT.replace("time.sleep(0.1)", "pass")
    for begin in ("starting at step 0", "starting at step 60"):
        done = subprocess.run(
            [sys.executable, "-c", fast], cwd=tmp_path, env={}, capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith(begin)
