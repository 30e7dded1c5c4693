"""README.md, taken literally: its commands, typed in a fresh checkout in the order of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from itertools import pairwise
from pathlib import Path

import pytest

from tests.system.conftest import System
from tools.tutorials import copy_checkout

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()

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
TRY_IT, USE_IT = part(README, "Try it"), part(README, "Use it on AWS")


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
    return copy_checkout(tmp_path_factory.mktemp("checkout") / "sagemaker-queue")


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
    url = account.pop("SAGEMAKER_QUEUE_URL")
    person = Person(tmp_path, checkout, **account, HERE_URL=url)
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
    (user.folder / "trace.csv").write_text("job_id,submit_s,duration_s,gpus\none,0,60,8\n")
    assert "slowdown" in user.types("smq simulate trace.csv")  # the planner is installed, too


def test_nothing_that_a_page_says_to_type_is_left_out() -> None:
    assert blocks(README) == blocks(TRY_IT) + blocks(USE_IT)
    assert set(STAND_INS) <= {line for block in blocks(README) for line in block.splitlines()}
