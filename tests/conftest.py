"""Settings that all tests share, their markers, and the order in which several workers begin them."""

import fcntl
import gc
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, Optional
from zlib import crc32

import pytest
from botocore.loaders import Loader
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Importing the SageMaker SDK warns that there is a newer one, and boto3 looks for credentials on the network where it
# finds none.
os.environ["SAGEMAKER_SUPPRESS_V2_WARNING"] = "1"
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

# Who runs the tests in the background of a script, as `make test &`, has them ignore SIGINT, and a process that ignores
# a signal leaves that to its children: those that tests interrupt would not notice.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The ordinary run is the same every time, so that it fails for a change and not by chance; new examples are looked for
# by the long one, for a night: pytest --hypothesis-profile=long
# Neither fails because the machine is slow.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ordinary", patient, derandomize=True)
settings.register_profile("long", patient, max_examples=5000)
settings.load_profile("ordinary")

# Each session of botocore reads the descriptions of services again, for up to 0.3 seconds, and keeps them for its
# clients. Here, all sessions of a worker with the same folders share what they have read.
descriptions: defaultdict[tuple[str, ...], dict[Any, Any]] = defaultdict(dict)
Loader._cache = property(  # type: ignore[attr-defined]
    lambda self: descriptions[tuple(self.search_paths)],
    lambda self, empty: None,
)

HERE = Path(__file__).parent
ELSEWHERE = "repository"  # the marker of tests in no folder
# The tests of one of their modules share what takes seconds to start.
STAY_TOGETHER = {"system", "acceptance", "sdk3", ELSEWHERE}
# What these import takes seconds, too. They import it in their tests, so that only the worker that runs them does.
HEAVY = {"test_sdk_v2.py"}
FIRST_TO_LAST = [
    "system",
    "acceptance",
    ELSEWHERE,
    "torture",
    "local_cloud",
    "carrier_agent",
    "sdk3",
    "client",
    "contract",
    "unit",
]


# What a machine may lack: a part of the reasons for which tests are skipped, and how to install it.
OPTIONAL = {
    "Chromium": "apt-get install chromium",
    "MkDocs": "make site",
    "zsh": "apt-get install zsh",
    "fish": "apt-get install fish",
    "SSH client": "apt-get install openssh-client",
    "torch": "pip install '.[torch]'",
    "lightning": "pip install '.[frameworks]'",
    "transformers": "pip install '.[frameworks]'",
    "Python 3.14": "install python3.14",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options: the database of tests/contract, strict local clouds, and a part of the thorough tests."""
    parser.addoption("--dynamodb-url", metavar="URL", help="the DynamoDB that tests/contract tests instead of our own")
    parser.addoption("--strict-cloud", action="store_true", help="local clouds as `local_cloud exec --strict` has them")
    parser.addoption(
        "--part", type=part, metavar="K/N", default=(0, 1), help="of the thorough tests, only part K of N (K: 0 to N-1)"
    )


def part(text: str) -> tuple[int, int]:
    """Return the numbers in a text such as `0/4`: a part of the thorough tests, and how many parts there are."""
    number, parts = map(int, text.split("/"))
    if not 0 <= number < parts:
        raise ValueError
    return number, parts


def pytest_configure(config: pytest.Config) -> None:
    """Every local cloud is strict, if that is asked for."""
    if config.getoption("--strict-cloud"):
        from local_cloud.aws.stack import LocalCloud  # only where it is asked for: it takes a second

        LocalCloud.always_strict = True


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, None, None]:
    """Let one worker compile a test module, while the others wait and then read the compiled module.

    All workers import all test modules in the same order. In a new clone, each of them would compile each module, which
    takes twice as long as all the rest of the collection.
    """
    if sys.dont_write_bytecode or not isinstance(collector, pytest.Module) or is_compiled(collector.path):
        yield
        return
    with collector.path.open() as module:
        try:
            with suppress(OSError):  # some file systems have no locks
                fcntl.flock(module, fcntl.LOCK_EX)
            yield
        finally:
            with suppress(OSError):
                fcntl.flock(module, fcntl.LOCK_UN)  # otherwise a child process could keep it


def is_compiled(module: Path) -> bool:
    """Return whether this version of pytest has compiled a test module since the module's last change."""
    python = cache_from_source(str(module)).removesuffix(".pyc")
    compiled = Path(f"{python}-pytest-{pytest.__version__}.pyc")
    return compiled.exists() and compiled.stat().st_mtime >= module.stat().st_mtime


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by their folders, leave out other parts of the thorough tests, and begin with what takes longest."""
    chosen, parts = config.getoption("--part")
    left_out = {it for it in items if it.get_closest_marker("thorough") and part_of(it.nodeid, parts) != chosen}
    items[:] = [it for it in items if it not in left_out]
    config.hook.pytest_deselected(items=list(left_out))
    for item in items:
        item.add_marker(marker_of(item.path))
    items.sort(key=lambda item: (not item.get_closest_marker("slow"), FIRST_TO_LAST.index(marker_of(item.path))))


def pytest_collection_finish() -> None:
    """Spare the garbage collector the modules, and also the code of the client that looks through all objects."""
    gc.collect()
    gc.freeze()


def part_of(nodeid: str, parts: int) -> int:
    """Return the part to which a thorough test belongs. The tests of a module that stay together are in one part."""
    module = nodeid.partition("::")[0]
    return crc32((module if is_kept_together(module) else nodeid).encode()) % parts


def is_kept_together(module: str) -> bool:
    """Return whether one worker runs all tests of a module."""
    path = HERE.parent / module
    return marker_of(path) in STAY_TOGETHER or path.name in HEAVY


@cache
def marker_of(path: Path) -> str:
    """Return the folder of a module of tests, or ELSEWHERE."""
    folder, *below = path.relative_to(HERE).parts
    return folder if below else ELSEWHERE


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line with the tests that this machine cannot run, and how to enable them."""
    if line := missing_tools([str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]):
        terminalreporter.write_line(line)


def missing_tools(reasons: Sequence[str]) -> Optional[str]:
    """Return the line for these reasons of skipped tests; None if no reason is about a tool that can be installed."""
    counts = {tool: sum(tool.lower() in reason.lower() for reason in reasons) for tool in OPTIONAL}
    lacking = [f"{count} without {tool} ({OPTIONAL[tool]})" for tool, count in counts.items() if count]
    return f"Skipped tests: {', '.join(lacking)}." if lacking else None


class Workers(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist is not typed
    """Gives a test to the worker that has nothing to do, and modules that stay together as a whole."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return module if is_kept_together(module) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Workers:
    """The scheduler of `pytest -n`, which keeps the order."""
    config.option.loadscopereorder = False
    return Workers(config, log)
