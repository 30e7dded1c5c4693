"""Who may import whom, and who may do what, checked from the syntax tree of every module.

Each rule takes a module and gives its offences. The rules are those of the design; a comment says why.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {"job_queue": ROOT, "sagemaker_queue": ROOT / "client", "local_cloud": ROOT}

# What the functional core may use: nothing that reads a clock, a file or the environment, draws lots, or logs.
CORE_LIBRARY = {
    "abc", "bisect", "collections", "dataclasses", "datetime", "enum", "fractions", "functools", "heapq", "itertools",
    "math", "operator", "typing",
}  # fmt: skip
FILE_LIBRARY = CORE_LIBRARY | {"argparse", "json", "pathlib", "sys", "yaml"}
FILE_READERS = {"job_queue.scheduler.scenario", "job_queue.scheduler.__main__"}

AWS = {"boto3", "botocore"}
AWS_MODULES = {"job_queue.conditions", "job_queue.tables", "job_queue.training"}
ADAPTERS = AWS_MODULES | {"job_queue.control", "job_queue.store"}
COMPOSITION_ROOT = "job_queue.index"
# Those that decide: the modules that talk to AWS know nothing of them.
ABOVE_AWS = {
    f"job_queue.{name}"
    for name in ("api", "cycle", "index", "intake", "launching", "listing", "reconcile", "scheduler.planner", "world")
}
CLOCKS = {"time"}
NOWS = {"now", "utcnow", "today"}
CLOCK_READERS = {COMPOSITION_ROOT, "job_queue.tables"}  # tables waits between tries
HTTP = "aws_lambda_powertools.event_handler"


@dataclass(frozen=True)
class Module:
    name: str
    source: str
    is_package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def imports(self) -> frozenset[str]:
        """Dotted names: what is imported, and what it is imported from; also inside functions and for types alone."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                origin = self._origin(node)
                found.add(origin)
                found.update(f"{origin}.{alias.name}" for alias in node.names)
        return frozenset(found)

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parents = self.name.split(".")
        parents = parents[: len(parents) - node.level + self.is_package]
        return ".".join([*parents, *([node.module] if node.module else [])])

    @cached_property
    def calls(self) -> frozenset[str]:
        """What is called, as written: `print`, `datetime.now`."""
        return frozenset(ast.unparse(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call))

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Every `a.b` that is mentioned."""
        return frozenset(ast.unparse(node) for node in ast.walk(self.tree) if isinstance(node, ast.Attribute))

    def is_in(self, *packages: str) -> bool:
        return any(within(self.name, package) for package in packages)

    def imported_from(self, *packages: str) -> list[str]:
        return sorted(name for name in self.imports if any(within(name, package) for package in packages))


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


# --- the rules ----------------------------------------------------------------------------------------


def the_core_is_pure(module: Module) -> Iterator[str]:
    """1. The scheduler imports only the standard library's pure part and itself; two modules may read files."""
    if not module.is_in("job_queue.scheduler"):
        return
    allowed = FILE_LIBRARY if module.name in FILE_READERS else CORE_LIBRARY
    for name in module.imports:
        if name.split(".")[0] not in allowed and not within(name, "job_queue.scheduler") and name != "job_queue":
            yield f"imports {name}"
    yield from reads_a_clock(module)
    if "open" in module.calls and module.name not in FILE_READERS:
        yield "opens a file"


def only_the_adapters_know_aws(module: Module) -> Iterator[str]:
    """2. In the Lambda, AWS is known to a few modules, and the adapters know nothing of who uses them."""
    if not module.is_in("job_queue"):
        return
    if module.name not in AWS_MODULES | {COMPOSITION_ROOT}:
        yield from (f"imports {name}" for name in module.imported_from(*AWS))
    if module.name in ADAPTERS:
        yield from (f"imports {name}" for name in module.imported_from(*ABOVE_AWS))


def parts_are_handed_in(module: Module) -> Iterator[str]:
    """3. Nobody but the composition root builds the store or the training service, or reads the clock."""
    if not module.is_in("job_queue"):
        return
    if module.name != COMPOSITION_ROOT:
        yield from (f"builds a {part}" for part in sorted(module.calls & built_by_the_composition_root()))
    if module.name not in CLOCK_READERS:
        yield from reads_a_clock(module)


def one_place_for_http_and_one_for_putting_together(module: Module) -> Iterator[str]:
    """4. Nobody imports the composition root, and only api speaks HTTP."""
    if not module.is_in("job_queue"):
        return
    yield from (f"imports {name}" for name in module.imported_from(COMPOSITION_ROOT))
    if module.name != "job_queue.api":
        yield from (f"imports {name}" for name in module.imported_from(HTTP))
        if any(isinstance(node, ast.Constant) and node.value == "statusCode" for node in ast.walk(module.tree)):
            yield "makes an HTTP answer"


def client_and_queue_are_strangers(module: Module) -> Iterator[str]:
    """5. The HTTP API is all that client and queue have in common."""
    for one, other in (("job_queue", "sagemaker_queue"), ("sagemaker_queue", "job_queue")):
        if module.is_in(one):
            yield from (f"imports {name}" for name in module.imported_from(other))


def the_client_is_light_and_quiet(module: Module) -> Iterator[str]:
    """6. In the client only session imports the SageMaker SDK, which takes seconds; only cli and container print."""
    if not module.is_in("sagemaker_queue"):
        return
    if module.name != "sagemaker_queue.session":
        yield from (f"imports {name}" for name in module.imported_from("sagemaker"))
    if not module.is_in("sagemaker_queue.cli", "sagemaker_queue.submission.container"):
        yield from (
            f"calls {call}" for call in sorted(module.calls & {"print", "sys.stdout.write", "sys.stderr.write"})
        )


def nothing_needs_the_local_cloud(module: Module) -> Iterator[str]:
    """7. The local cloud may import both others; neither imports it."""
    if module.is_in("job_queue", "sagemaker_queue"):
        yield from (f"imports {name}" for name in module.imported_from("local_cloud"))


def only_settings_reads_the_environment(module: Module) -> Iterator[str]:
    """What the Lambda can be told is listed in one place."""
    if module.is_in("job_queue") and module.name != "job_queue.settings":
        known = {"os.environ", "os.environb", "os.getenv"}
        yield from (f"reads {name}" for name in sorted((module.attributes | module.imports) & known))


def reads_a_clock(module: Module) -> Iterator[str]:
    yield from (f"imports {name}" for name in module.imported_from(*CLOCKS))
    for call in sorted(module.calls):
        owner, _, method = call.rpartition(".")
        if method in NOWS and owner.split(".")[-1] in {"datetime", "date"}:
            yield f"calls {call}"


RULES: list[Callable[[Module], Iterator[str]]] = [
    the_core_is_pure,
    only_the_adapters_know_aws,
    parts_are_handed_in,
    one_place_for_http_and_one_for_putting_together,
    client_and_queue_are_strangers,
    the_client_is_light_and_quiet,
    nothing_needs_the_local_cloud,
    only_settings_reads_the_environment,
]


# --- the modules --------------------------------------------------------------------------------------


def modules() -> Iterator[Module]:
    for package, folder in PACKAGES.items():
        for path in sorted((folder / package).rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            yield Module(name, path.read_text(encoding="utf-8"), is_package)


def built_by_the_composition_root() -> frozenset[str]:
    """The classes of the adapters that index.py calls by name."""
    index = Module(COMPOSITION_ROOT, (ROOT / "job_queue" / "index.py").read_text(encoding="utf-8"))
    adapters = {name.rsplit(".", 1)[-1] for name in index.imported_from(*ADAPTERS)}
    return index.calls & adapters


def test_all_packages_are_looked_at() -> None:
    names = {module.name for module in modules()}
    assert {
        "job_queue",
        "job_queue.scheduler.planner",
        "sagemaker_queue.cli",
        "local_cloud.sagemaker.training_service",
    } <= names
    assert names >= AWS_MODULES | FILE_READERS | ABOVE_AWS | CLOCK_READERS
    assert built_by_the_composition_root() == {"Store", "DynamoTables", "TrainingService"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(rule: Callable[[Module], Iterator[str]]) -> None:
    offences = [f"{module.name} {offence}" for module in modules() for offence in rule(module)]
    assert not offences, f"{rule.__doc__}\n" + "\n".join(offences)


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (the_core_is_pure, "job_queue.scheduler.planner", "import boto3"),
        (the_core_is_pure, "job_queue.scheduler.planner", "from os import environ"),
        (the_core_is_pure, "job_queue.scheduler.planner", "def f():\n    import random"),
        (the_core_is_pure, "job_queue.scheduler.planner", "from job_queue.errors import QueueError"),
        (the_core_is_pure, "job_queue.scheduler.planner", "from job_queue import errors"),
        (the_core_is_pure, "job_queue.scheduler.planner", "from ..errors import QueueError"),
        (the_core_is_pure, "job_queue.scheduler.planner", "import logging"),
        (the_core_is_pure, "job_queue.scheduler.planner", "import yaml"),
        (the_core_is_pure, "job_queue.scheduler.planner", "open('x')"),
        (the_core_is_pure, "job_queue.scheduler.planner", "from datetime import datetime\ndatetime.now()"),
        (the_core_is_pure, "job_queue.scheduler.scenario", "import time"),
        (only_the_adapters_know_aws, "job_queue.cycle", "from botocore.exceptions import ClientError"),
        (only_the_adapters_know_aws, "job_queue.validation.model", "import boto3.session"),
        (only_the_adapters_know_aws, "job_queue.store", "import boto3"),
        (only_the_adapters_know_aws, "job_queue.store", "from job_queue.cycle import Scheduler"),
        (only_the_adapters_know_aws, "job_queue.training", "from job_queue import intake"),
        (parts_are_handed_in, "job_queue.intake", "Store(1)"),
        (parts_are_handed_in, "job_queue.reconcile", "import time"),
        (parts_are_handed_in, "job_queue.cycle", "import datetime\ndatetime.datetime.now()"),
        (one_place_for_http_and_one_for_putting_together, "job_queue.api", "from job_queue.index import Queue"),
        (one_place_for_http_and_one_for_putting_together, "job_queue.intake", "x = {'statusCode': 400}"),
        (one_place_for_http_and_one_for_putting_together, "job_queue.cycle", f"from {HTTP} import Response"),
        (client_and_queue_are_strangers, "job_queue.api", "import sagemaker_queue"),
        (client_and_queue_are_strangers, "sagemaker_queue.api", "from job_queue.names import apply_qstamp"),
        (the_client_is_light_and_quiet, "sagemaker_queue.cli", "from sagemaker.session import Session"),
        (the_client_is_light_and_quiet, "sagemaker_queue.session", "print('hello')"),
        (the_client_is_light_and_quiet, "sagemaker_queue.cli.jobs", "import sagemaker"),
        (nothing_needs_the_local_cloud, "sagemaker_queue.config", "from local_cloud import stack"),
        (nothing_needs_the_local_cloud, "job_queue.index", "import local_cloud"),
        (only_settings_reads_the_environment, "job_queue.index", "import os\nos.environ['X']"),
        (only_settings_reads_the_environment, "job_queue.index", "from os import environ"),
        (only_settings_reads_the_environment, "job_queue.telemetry", "import os\nos.getenv('X')"),
    ],
)
def test_an_offence_is_noticed(rule: Callable[[Module], Iterator[str]], name: str, source: str) -> None:
    assert list(rule(Module(name, source)))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("job_queue.scheduler.planner", "from job_queue.scheduler.model import Job\nfrom collections import deque"),
        ("job_queue.scheduler.scenario", "import yaml\nopen('x')"),
        ("job_queue.conditions", "import boto3\nfrom job_queue.scheduler.model import JobState"),
        ("job_queue.index", "import boto3, time\nStore(1)\ntime.time()"),
        ("job_queue.settings", "import os\nos.environ['X']"),
        ("sagemaker_queue.session", "import sagemaker"),
        ("sagemaker_queue.cli", "print(1)"),
        ("sagemaker_queue.cli.jobs", "print(1)"),
        ("sagemaker_queue.submission.container.run", "print(1)"),
        ("local_cloud.commands.demo", "import os, boto3, sagemaker_queue, job_queue, sagemaker\nprint(os.environ)"),
    ],
)
def test_what_is_allowed_passes(name: str, source: str) -> None:
    assert not [offence for rule in RULES for offence in rule(Module(name, source))]
