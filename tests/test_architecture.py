"""Who may import whom, and who may do what.

Imports between the folders are held by import-linter, whose contracts are in pyproject.toml. The rules here are about
what else a module may use, checked from its syntax tree.

Each rule takes a module and gives its offences. The rules are those of the design; a comment says why.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from job_queue.adapters import items

ROOT = Path(__file__).parent.parent
MODULES_IN_A_FOLDER = 12
CLIENT = ROOT / "client"
PACKAGES = {
    "api_contract": ROOT,
    "job_queue": ROOT,
    "sagemaker_queue": CLIENT,
    "sagemaker_queue_startup": CLIENT,
    "local_cloud": ROOT,
}

# What the functional core may use: nothing that reads a clock, a file or the environment, draws lots, or logs.
CORE_LIBRARY = {
    "abc", "bisect", "collections", "dataclasses", "datetime", "enum", "fractions", "functools", "heapq", "itertools",
    "math", "operator", "typing",
}  # fmt: skip
DOMAIN_LIBRARY = CORE_LIBRARY | {"difflib", "fnmatch", "hashlib", "hmac", "msgspec", "re"}  # typed requests: ADR 0096
SERIALISERS = ("msgspec.json", "msgspec.msgpack", "msgspec.toml", "msgspec.yaml")
PURE = ("domain", "simulation", "prediction", "scheduler")
FILE_LIBRARY = CORE_LIBRARY | {"argparse", "json", "pathlib", "sys", "yaml"}
SCHEMA_READERS = {"job_queue.scheduler.documents.policy_schema", "job_queue.scheduler.documents.policy_document"}
FILE_READERS = {"job_queue.scheduler.documents.scenario", "job_queue.scheduler.__main__"}

CONVERTERS = {
    "api_contract.shape", "job_queue.adapters.items", "job_queue.adapters.records.attempt_history",
    "job_queue.adapters.records.outlook_record", "job_queue.adapters.sagemaker",
    "job_queue.domain.requests.training_request",
}  # fmt: skip

AWS = {"boto3", "botocore"}
AWS_MODULES = {
    "job_queue.adapters.carriers.agent_log", "job_queue.adapters.carriers.mailbox",
    "job_queue.adapters.carriers.order_key", "job_queue.adapters.condition_expressions",
    "job_queue.adapters.dynamodb", "job_queue.adapters.lookups", "job_queue.adapters.sagemaker",
    "job_queue.adapters.sites.clients",
}  # fmt: skip
ADAPTERS = AWS_MODULES | {
    "job_queue.adapters.carriers.training",
    "job_queue.adapters.metadata",
    "job_queue.adapters.job_repository",
}
ITEMS = "job_queue.adapters.items"
COMPOSITION_ROOT = "job_queue.app"
HANDLER = "job_queue.lambda_function"
AGENT = "job_queue.carrier_agent"  # runs in containers, and is no part of the function but a file of it
CLOCKS = {"time"}
NOWS = {"now", "utcnow", "today"}
# dynamodb waits between tries; the command of a simulation tells now and then how far it is
CLOCK_READERS = {COMPOSITION_ROOT, "job_queue.adapters.dynamodb", "job_queue.simulation.command"}
HTTP = "aws_lambda_powertools.event_handler"


@dataclass(frozen=True)
class Module:
    name: str
    source: str
    is_package: bool = False
    path: Path = ROOT

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def imports(self) -> frozenset[str]:
        """Dotted names: what is imported, and what it is imported from; also inside functions and for types alone."""
        return frozenset({name for names in self._imports for name in names})

    def imported_modules(self, known: Container[str]) -> set[str]:
        """Return the names of the modules that this one imports: of a package only if something in it is imported."""
        nearest = (next((name for name in names if name in known), self.name) for names in self._imports)
        return {name for name in nearest if name != self.name}

    @cached_property
    def _imports(self) -> list[tuple[str, ...]]:
        """For each imported name its dotted name, followed by that of its origin in `from origin import name`."""
        found: list[tuple[str, ...]] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found += [(alias.name,) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                origin = self._origin(node)
                found += [(f"{origin}.{alias.name}", origin) for alias in node.names]
        return found

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

    @cached_property
    def texts(self) -> frozenset[str]:
        """Every text, as it stands in the source."""
        constants = (node.value for node in ast.walk(self.tree) if isinstance(node, ast.Constant))
        return frozenset(value for value in constants if isinstance(value, str))

    def is_in(self, *packages: str) -> bool:
        return any(within(self.name, package) for package in packages)

    def imported_from(self, *packages: str) -> list[str]:
        return sorted(name for name in self.imports if any(within(name, package) for package in packages))


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


# --- the rules ----------------------------------------------------------------------------------------


def the_core_is_pure(module: Module) -> Iterator[str]:
    """1. Scheduler and prediction import the standard library's pure part and themselves.

    Two modules may read files, and two have the schema of the policy, which is msgspec's.

    The function loads both with each cold start.
    """
    if module.is_in("job_queue.prediction"):
        for name in module.imports:
            if name.split(".")[0] not in DOMAIN_LIBRARY and not within(name, "job_queue.prediction"):
                yield f"imports {name}"
        yield from reads_a_clock(module)
    if not module.is_in("job_queue.scheduler"):
        return
    allowed = FILE_LIBRARY if module.name in FILE_READERS else CORE_LIBRARY
    if module.name in SCHEMA_READERS:
        allowed = CORE_LIBRARY | {"msgspec", "re"}
    for name in module.imports:
        if name.split(".")[0] not in allowed and not within(name, "job_queue.scheduler") and name != "job_queue":
            yield f"imports {name}"
    yield from reads_a_clock(module)
    if "open" in module.calls and module.name not in FILE_READERS:
        yield "opens a file"


def the_domain_knows_no_storage(module: Module) -> Iterator[str]:
    """2. The domain is pure as well, and knows neither JSON nor how the tables name the attributes of its records."""
    if not module.is_in("job_queue.domain"):
        return
    for name in module.imports:
        own = name == "job_queue" or any(within(name, f"job_queue.{part}") for part in PURE)
        if name.split(".")[0] not in DOMAIN_LIBRARY and not own:
            yield f"imports {name}"
    yield from (f"imports {name}" for name in module.imported_from(*SERIALISERS))
    yield from (f"names the attribute {name}" for name in sorted(module.texts & attributes_of_the_tables()))


def only_the_adapters_know_aws(module: Module) -> Iterator[str]:
    """3. In the Lambda, AWS is known to a few modules."""
    if not module.is_in("job_queue"):
        return
    if not module.is_in(*AWS_MODULES, COMPOSITION_ROOT):
        yield from (f"imports {name}" for name in module.imported_from(*AWS))


def parts_are_handed_in(module: Module) -> Iterator[str]:
    """4. Nobody but the composition root builds the store or the training service, or reads the clock."""
    if not module.is_in("job_queue") or module.is_in(AGENT):
        return
    if module.name != COMPOSITION_ROOT:
        yield from (f"builds a {part}" for part in sorted(module.calls & built_by_the_composition_root()))
    if module.name not in CLOCK_READERS:
        yield from reads_a_clock(module)


def one_place_for_http_and_one_for_putting_together(module: Module) -> Iterator[str]:
    """5. Nobody but the handler imports the composition root, and only the routes speak HTTP."""
    if not module.is_in("job_queue"):
        return
    if module.name != HANDLER:
        yield from (f"imports {name}" for name in module.imported_from(COMPOSITION_ROOT))
    if module.name != "job_queue.api.routes":
        yield from (f"imports {name}" for name in module.imported_from(HTTP))
        if any(isinstance(node, ast.Constant) and node.value == "statusCode" for node in ast.walk(module.tree)):
            yield "makes an HTTP answer"


def the_client_is_light_and_quiet(module: Module) -> Iterator[str]:
    """6. In the client only session imports the SageMaker SDK, which takes seconds; only cli and container print."""
    if not module.is_in("sagemaker_queue"):
        return
    if module.name != "sagemaker_queue.integrations.sdk_v2":
        yield from (f"imports {name}" for name in module.imported_from("sagemaker"))
    if not module.is_in("sagemaker_queue.cli", "sagemaker_queue.jobs.packaging.container"):
        yield from (
            f"calls {call}" for call in sorted(module.calls & {"print", "sys.stdout.write", "sys.stderr.write"})
        )


def only_settings_reads_the_environment(module: Module) -> Iterator[str]:
    """7. What the Lambda can be told is listed in one place."""
    if module.is_in("job_queue") and not module.is_in(AGENT) and module.name != "job_queue.adapters.settings":
        known = {"os.environ", "os.environb", "os.getenv"}
        yield from (f"reads {name}" for name in sorted((module.attributes | module.imports) & known))


def the_scheduler_has_one_entrance(module: Module) -> Iterator[str]:
    """8. Other packages import the scheduler's public names from the package, not from its modules."""
    if module.is_in("job_queue.scheduler"):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("job_queue.scheduler."):
            yield f"imports from {node.module}"


def reads_a_clock(module: Module) -> Iterator[str]:
    yield from (f"imports {name}" for name in module.imported_from(*CLOCKS))
    for call in sorted(module.calls):
        owner, _, method = call.rpartition(".")
        if method in NOWS and owner.split(".")[-1] in {"datetime", "date"}:
            yield f"calls {call}"


def the_contract_is_light(module: Module) -> Iterator[str]:
    """9. The API's definition needs msgspec and the standard library, and nothing else."""
    if not module.is_in("api_contract"):
        return
    for name in module.imports:
        if name.split(".")[0] not in sys.stdlib_module_names | {"msgspec", "api_contract"}:
            yield f"imports {name}"


def the_client_runs_on_older_pythons(module: Module) -> Iterator[str]:
    """10. The client and the contract need no arguments of the standard library that Python 3.9 does not know."""
    if not (module.is_in("sagemaker_queue") or module.is_in("api_contract")):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            newer = {"dataclass": {"slots", "kw_only"}, "zip": {"strict"}}.get(node.func.id, set())
            yield from (f"calls {node.func.id} with {it.arg}" for it in node.keywords if it.arg in newer)


def types_are_prepared(module: Module) -> Iterator[str]:
    """11. Only modules that have let msgspec read the types' fields convert to types, because threads convert, too."""
    if module.name not in CONVERTERS and "msgspec.convert" in module.attributes | module.imports:
        yield "calls msgspec.convert"


RULES: list[Callable[[Module], Iterator[str]]] = [
    the_core_is_pure,
    the_domain_knows_no_storage,
    only_the_adapters_know_aws,
    parts_are_handed_in,
    one_place_for_http_and_one_for_putting_together,
    the_client_is_light_and_quiet,
    only_settings_reads_the_environment,
    the_scheduler_has_one_entrance,
    the_contract_is_light,
    the_client_runs_on_older_pythons,
    types_are_prepared,
]


# --- the modules --------------------------------------------------------------------------------------


@cache
def modules() -> tuple[Module, ...]:
    return tuple(read_modules())


def read_modules() -> Iterator[Module]:
    for package, folder in PACKAGES.items():
        for path in sorted((folder / package).rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            yield Module(name, path.read_text(encoding="utf-8"), is_package, path)


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter over the packages in a folder, by the contracts in its pyproject.toml."""
    path = os.pathsep.join([str(folder), str(folder / "client")])
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def built_by_the_composition_root() -> frozenset[str]:
    """The classes of the adapters that app.py calls by name."""
    app = Module(COMPOSITION_ROOT, (ROOT / "job_queue" / "app.py").read_text(encoding="utf-8"))
    adapters = {name.rsplit(".", 1)[-1] for name in app.imported_from(*ADAPTERS)}
    return app.calls & adapters


@cache
def attributes_of_the_tables() -> frozenset[str]:
    """The attributes that the adapters write, where their names are not those of the domain, too: `jobName`."""
    module = Module(ITEMS, (ROOT / "job_queue" / "adapters" / "items.py").read_text(encoding="utf-8"))
    forms = [form for form in vars(items).values() if isinstance(form, items.Form)]
    names = module.texts.union(*(form.row.__struct_encode_fields__ for form in forms))
    return frozenset(name for name in names if re.fullmatch(r"[a-z]+[A-Z][A-Za-z]*", name))


def test_imports_go_in_one_direction() -> None:
    linted = lint_imports(ROOT)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_imports_in_the_other_direction_are_noticed(tmp_path: Path) -> None:
    told = with_lines(
        tmp_path,
        ("job_queue/adapters/job_repository.py", "from job_queue.controller.cycle import Controller"),
        ("job_queue/services/advice.py", "from job_queue.controller import cycle"),
        ("job_queue/domain/names.py", "import boto3"),
        ("job_queue/domain/names.py", "import json"),
        ("job_queue/api/routes.py", "import sagemaker_queue"),
        ("job_queue/new_folder/__init__.py", ""),
        ("client/sagemaker_queue/errors.py", "import job_queue.domain.names"),
        ("job_queue/services/submission.py", "import api_contract.models"),
    )
    assert "6 broken" in told, "the first two and the new folder break the same contract"
    found = {line.lstrip("- ").partition(" (l.")[0] for line in told.splitlines() if line.startswith("- ")}
    assert found == {
        "job_queue.adapters.job_repository -> job_queue.controller.cycle",
        "job_queue.services.advice -> job_queue.controller.cycle",
        "job_queue.domain.names -> boto3",
        "job_queue.domain.names -> json",
        "job_queue.api.routes -> sagemaker_queue",
        "job_queue.new_folder",
        "sagemaker_queue.errors -> job_queue.domain.names",
        "job_queue.services.submission -> api_contract.models",
    }


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("import job_queue.domain.names", 2),
        ("import sagemaker_queue.jobs.formatting", 3),
    ],  # the latter goes up in the client, too
)
def test_an_import_by_what_both_sides_import_is_noticed_on_both(line: str, broken: int, tmp_path: Path) -> None:
    assert f"{broken} broken" in with_lines(tmp_path, ("api_contract/models.py", line))


def with_lines(folder: Path, *added: tuple[str, str]) -> str:
    """What import-linter says of the packages with more lines in some modules."""
    for name in ("api_contract", "job_queue", "client", "local_cloud"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for module, line in added:
        path = folder / module
        path.parent.mkdir(exist_ok=True)
        path.write_text((path.read_text() if path.exists() else "") + f"\n{line}\n")
    linted = lint_imports(folder)
    assert linted.returncode == 1
    return linted.stdout


def test_no_folder_has_more_than_a_dozen_modules() -> None:
    folders = Counter(module.path.parent for module in modules() if not module.is_package)
    assert not {folder: count for folder, count in folders.items() if count > MODULES_IN_A_FOLDER}


def test_no_imports_form_a_cycle() -> None:
    """Imports for types alone, and imports inside functions, count as well."""
    assert cycle_of(list(modules())) == []


def test_a_cycle_is_noticed() -> None:
    lazy = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from api_contract.b import B"
    known = [
        Module("api_contract", "", is_package=True),
        Module("api_contract.a", lazy),
        Module("api_contract.b", "def f() -> None:\n    from . import c"),
        Module("api_contract.c", "import api_contract.a"),
        Module("api_contract.d", "from api_contract.a import A"),
    ]
    assert set(cycle_of(known)) == {"api_contract.a", "api_contract.b", "api_contract.c"}
    assert cycle_of(known[:3]) == []


def cycle_of(known: list[Module]) -> list[str]:
    """Return modules that import each other in a circle, as far as there are any."""
    names = {module.name for module in known}
    try:
        TopologicalSorter({module.name: module.imported_modules(names) for module in known}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


# The client raises the function's errors again under their names, and the notebook's client is the exported one.
SHARED_CLASS_NAMES = {
    "Conflict", "Forbidden", "InUse", "InvalidRequest", "NameTaken", "NotFound", "QueueClient", "QueueError",
    "StalePolicy", "TakesTooLong", "TooLarge", "TooMany", "Unavailable",
}  # fmt: skip


def test_a_public_class_name_is_that_of_one_class() -> None:
    counts = Counter(
        node.name
        for module in modules()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in counts.items() if count > 1} == SHARED_CLASS_NAMES


def test_at_most_two_modules_have_the_same_file_name() -> None:
    counts = Counter(module.path.name for module in modules() if not module.name.endswith("__main__"))
    assert {name for name, count in counts.items() if count > 2} == {"__init__.py"}


def test_all_packages_are_looked_at() -> None:
    names = {module.name for module in modules()}
    assert {
        "job_queue",
        "job_queue.scheduler.planner",
        "sagemaker_queue.cli",
        "local_cloud.sagemaker.training_service",
    } <= names
    assert "api_contract.models" in names
    assert names >= ADAPTERS | FILE_READERS | SCHEMA_READERS | CLOCK_READERS | {COMPOSITION_ROOT, HANDLER}
    stores = {"DynamoDBTables", "JobRepository", "KmsOrderKey", "Mailboxes", "Policies"}
    assert built_by_the_composition_root() == stores | {
        "AgentLog",
        "FailureLog",
        "GpuUtilization",
        "InstanceMetrics",
        "LogActivity",
        "NewestObject",
        "SiteClients",
        "Training",
    }


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(rule: Callable[[Module], Iterator[str]]) -> None:
    offences = [f"{module.name} {offence}" for module in modules() for offence in rule(module)]
    assert not offences, f"{rule.__doc__}\n" + "\n".join(offences)


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (the_core_is_pure, "job_queue.scheduler.planner", "import boto3"),
        (the_core_is_pure, "job_queue.prediction.runtimes", "import numpy"),
        (the_core_is_pure, "job_queue.prediction.runtimes", "from job_queue.domain.job import Job"),
        (the_core_is_pure, "job_queue.scheduler.planner", "from os import environ"),
        (the_core_is_pure, "job_queue.scheduler.planner", "def f():\n    import random"),
        (the_core_is_pure, "job_queue.scheduler.planner", "from job_queue.domain.errors import QueueError"),
        (the_core_is_pure, "job_queue.scheduler.planner", "from job_queue import errors"),
        (the_core_is_pure, "job_queue.scheduler.planner", "from ..errors import QueueError"),
        (the_core_is_pure, "job_queue.scheduler.planner", "import logging"),
        (the_core_is_pure, "job_queue.scheduler.planner", "import yaml"),
        (the_core_is_pure, "job_queue.scheduler.planner", "open('x')"),
        (the_core_is_pure, "job_queue.scheduler.planner", "from datetime import datetime\ndatetime.now()"),
        (the_core_is_pure, "job_queue.scheduler.documents.scenario", "import time"),
        (the_core_is_pure, "job_queue.scheduler.planner", "import msgspec"),
        (the_domain_knows_no_storage, "job_queue.domain.policy", "import json"),
        (the_domain_knows_no_storage, "job_queue.domain.policy", "import boto3"),
        (the_domain_knows_no_storage, "job_queue.domain.job", "from job_queue.adapters.dynamodb import Item"),
        (the_domain_knows_no_storage, "job_queue.domain.job", "def item(job): return {'jobName': job.name}"),
        (only_the_adapters_know_aws, "job_queue.controller.cycle", "from botocore.exceptions import ClientError"),
        (only_the_adapters_know_aws, "job_queue.validation.service_model", "import boto3.session"),
        (only_the_adapters_know_aws, "job_queue.adapters.job_repository", "import boto3"),
        (parts_are_handed_in, "job_queue.services.submission", "JobRepository(1)"),
        (parts_are_handed_in, "job_queue.controller.reconciler", "import time"),
        (parts_are_handed_in, "job_queue.controller.cycle", "import datetime\ndatetime.datetime.now()"),
        (one_place_for_http_and_one_for_putting_together, "job_queue.api.routes", "from job_queue.app import App"),
        (one_place_for_http_and_one_for_putting_together, "job_queue.services.submission", "x = {'statusCode': 400}"),
        (one_place_for_http_and_one_for_putting_together, "job_queue.controller.cycle", f"from {HTTP} import Response"),
        (the_client_is_light_and_quiet, "sagemaker_queue.cli", "from sagemaker.session import Session"),
        (the_client_is_light_and_quiet, "sagemaker_queue.integrations.sdk_v2", "print('hello')"),
        (the_client_is_light_and_quiet, "sagemaker_queue.cli.commands.jobs", "import sagemaker"),
        (only_settings_reads_the_environment, "job_queue.app", "import os\nos.environ['X']"),
        (only_settings_reads_the_environment, "job_queue.app", "from os import environ"),
        (only_settings_reads_the_environment, "job_queue.adapters.telemetry", "import os\nos.getenv('X')"),
        (the_scheduler_has_one_entrance, "job_queue.controller.cycle", "from job_queue.scheduler.model import Plan"),
        (the_contract_is_light, "api_contract.models", "import yaml"),
        (the_contract_is_light, "api_contract.models", "from pydantic import BaseModel"),
        (the_client_runs_on_older_pythons, "sagemaker_queue.cli", "@dataclass(slots=True)\nclass A: ..."),
        (the_client_runs_on_older_pythons, "api_contract.models", "zip(a, b, strict=True)"),
        (types_are_prepared, "job_queue.api.requests", "msgspec.convert({}, int)"),
        (types_are_prepared, "sagemaker_queue.api.client", "from msgspec import convert"),
    ],
)
def test_an_offence_is_noticed(rule: Callable[[Module], Iterator[str]], name: str, source: str) -> None:
    assert list(rule(Module(name, source)))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("job_queue.scheduler.planner", "from job_queue.scheduler.model import Job\nfrom collections import deque"),
        ("job_queue.scheduler.documents.scenario", "import yaml\nopen('x')"),
        ("job_queue.adapters.condition_expressions", "import boto3\nfrom job_queue.scheduler import JobState"),
        ("job_queue.app", "import boto3, time\nStore(1)\ntime.time()"),
        ("job_queue.adapters.settings", "import os\nos.environ['X']"),
        ("sagemaker_queue.integrations.sdk_v2", "import sagemaker"),
        ("sagemaker_queue.cli", "print(1)"),
        ("sagemaker_queue.cli.commands.jobs", "print(1)"),
        ("sagemaker_queue.jobs.packaging.container.run", "print(1)"),
        ("local_cloud.commands.demo", "import os, boto3, sagemaker_queue, job_queue, sagemaker\nprint(os.environ)"),
    ],
)
def test_what_is_allowed_passes(name: str, source: str) -> None:
    assert not [offence for rule in RULES for offence in rule(Module(name, source))]
