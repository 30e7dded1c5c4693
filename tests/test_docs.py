"""The documentation is part of the product: what it names exists, and what exists is named."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from samtranslator.yaml_helper import yaml_parse

from job_queue.adapters.cloudwatch_metrics import Metric
from job_queue.domain.policy_validation import parse_policy
from job_queue.scheduler import Rule, WaitReason
from sagemaker_queue import QueueClient
from sagemaker_queue.cli import build_parser
from sagemaker_queue.cli import main as smq
from sagemaker_queue.cli.parser import Command, GroupedOption
from sagemaker_queue.cli.reference import commands, heading_of, reference
from sagemaker_queue.presentation.tables.jobs import COLUMNS
from tools import failure_matrix, module_list, policy_reference, python_reference
from tools.client_programs import CLIENTS
from tools.clients import TABLE, written

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("events/*.md")])


def read(path: str) -> str:
    return (ROOT / path).read_text()


def smq_commands() -> dict[str, Command]:
    """Every command and every command of a command, as one types it."""
    return {one.name: one.command for one in commands(build_parser())}


def section(page: str, heading: str) -> str:
    """What stands below a heading, up to the next one."""
    return re.split(r"^#+ ", page.partition(f"{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_decision_is_listed() -> None:
    index = read("docs/developers/adr/README.md")
    pages = {page.name for page in (ROOT / "docs/developers/adr").glob("0*.md")}
    assert set(re.findall(r"\((\d{4}-[^)]*\.md)\)", index)) == pages


def test_the_words_of_the_glossary_are_in_use() -> None:
    sources = [*ROOT.glob("job_queue/**/*.py"), *ROOT.glob("docs/*.md")]
    used = " ".join(plain(page.read_text()) for page in sources if page.name != "glossary.md")
    words = re.findall(r"\*\*([^*]+)\*\*", read("docs/glossary.md"))
    assert len(words) > 60
    assert not [word for word in words if plain(word) not in used]


def plain(text: str) -> str:
    """Text in which fencing_token, fencing-token and FencingToken are the same two words."""
    return re.sub(r"[\W_]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)).lower()


def test_the_readme_is_a_page() -> None:
    assert len(read("README.md").splitlines()) <= 100


def test_the_make_targets_that_documents_name_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))
    for page in PAGES:
        for named in re.findall(r"^make ([a-z]+)|`make ([a-z]+)`", page.read_text(), re.MULTILINE):
            assert "".join(named) in targets, f"{page.name} names make {''.join(named)}"
    assert {"setup", "demo", "test", "lint", "build", "clean"} <= targets


def test_the_manual_of_smq_is_as_its_parser_makes_it() -> None:
    manual = read("docs/cli.md")
    assert reference(manual) == manual, "run: make docs"


def test_the_manual_keeps_what_people_wrote_and_gets_what_is_new() -> None:
    manual = read("docs/cli.md")
    without = manual.replace("## `smq ls`\n", "## `smq list`\n").replace("only jobs of these groups", "all jobs")
    renewed = reference(without)
    assert "## `smq list`" not in renewed
    assert "only jobs of these groups" in section(renewed, "## `smq ls`")
    assert section(renewed, "## `smq why`") == section(manual, "## `smq why`")
    assert reference(renewed) == renewed


def test_the_page_about_python_is_as_its_docstrings_make_it() -> None:
    page = read("docs/python.md")
    assert python_reference.reference(page) == page, "run: make docs"


def test_the_list_of_modules_is_as_their_docstrings_make_it() -> None:
    page = read("docs/design.md")
    assert module_list.with_modules(page) == page, "run: make docs"
    assert "| `state_machine` | All transitions of a job" in page


def test_the_fields_of_a_policy_are_as_its_schema_makes_them() -> None:
    page = read("docs/scheduling.md")
    assert policy_reference.with_fields(page) == page, "run: make docs"
    assert "| `patience:` | number from 0 to 315360000 or null; default 1800 | The seconds of waiting" in page


def test_the_page_about_failures_is_as_the_classifier_makes_it() -> None:
    page = read("docs/failures.md")
    assert failure_matrix.with_matrix(page) == page, "run: make docs"
    assert "| `gpu_memory` | The memory of a GPU is used up. | fail |" in page


def test_all_that_the_package_offers_is_on_the_page_about_python() -> None:
    page = read("docs/python.md")
    for name in python_reference.public():
        assert re.search(rf"^(#+|\|) `{name}`", page, re.MULTILINE), name
    offered = [f"`QueueClient.{name}`" for name in dir(QueueClient) if not name.startswith("_")]
    assert len(offered) > 20
    assert not [name for name in offered if f"### {name}\n" not in page]
    assert not re.search(r"^\| `[^|]*` \|  \|$", page, re.MULTILINE)  # a field of which nothing is said


def test_every_smq_command_is_documented_with_its_options() -> None:
    manual = read("docs/cli.md")
    everywhere = section(manual, "## Which queue")
    assert {"ls", "show", "cancel", "policy", "policy apply", "top", "completion"} <= set(smq_commands())
    for name, command in smq_commands().items():
        assert heading_of(name) in manual
        own = section(manual, heading_of(name))
        for parameter in command.params:
            for option in parameter.opts if isinstance(parameter, GroupedOption) else ():
                assert option in own + everywhere, f"smq {name} {option}"


@pytest.mark.parametrize("command", smq_commands())
def test_the_help_of_every_smq_command_helps(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert smq([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert f"usage: smq {command}" in text
    assert f"smq {command}" in text.partition("examples:\n")[2]


def test_every_smq_command_that_documents_name_exists() -> None:
    commands = smq_commands()
    for page in PAGES:
        named = re.findall(r"(?:^ *|\$ |`)smq ([a-z][a-z-]*)(?: ([a-z]+))?", page.read_text(), re.MULTILINE)
        for command, word in named:
            assert command in commands, f"{page.name} names smq {command}"
            if command == "policy" and word:
                assert f"policy {word}" in commands, f"{page.name} names smq policy {word}"


def test_every_program_of_make_clients_has_a_row() -> None:
    document = TABLE.read_text()
    rows = [line.strip("| ").split(" | ") for line in re.findall(r"^\| .* \|$", table_of(document), re.MULTILINE)]
    assert [(program, way) for program, _, way, _ in rows[1:]] == [(one.program, one.way) for one in CLIENTS.values()]
    assert all(re.fullmatch(r"works(: .+)?|FAILED: .+", result) for *_, result in rows[1:])


def test_a_row_of_make_clients_is_replaced_and_the_others_stay() -> None:
    document = TABLE.read_text()
    first, *_, last = CLIENTS.values()
    before = table_of(document).splitlines()
    for row in before:
        if row.startswith(f"| {last.program} |"):
            document = document.replace(f"{row}\n", "")
    after = written(
        document,
        {
            "first": (first.program, "first 2", first.way, "FAILED: a | b"),
            "last": (last.program, "last 2", last.way, "works"),
        },
    )
    rows = table_of(after).splitlines()
    assert rows[2] == f"| {first.program} | first 2 | {first.way} | FAILED: a | b |"
    assert rows[3:-1] == before[3:-1]
    assert rows[-1] == f"| {last.program} | last 2 | {last.way} | works |"
    assert written(after, {}) == after


def table_of(document: str) -> str:
    return document.partition("<!-- made by make clients -->\n")[2].partition("<!-- end of the table -->")[0]


def test_every_column_is_documented() -> None:
    manual = read("docs/cli.md")
    for column in COLUMNS:
        assert f"`{column}`" in manual, column


# --- docs/scheduling.md


def test_the_examples_of_the_rules_are_scenarios_that_the_tests_run() -> None:
    named = re.findall(r"`tests/scenarios/([^`]*)`", read("docs/scheduling.md"))
    assert len(set(named)) >= 15
    for name in named:
        assert (ROOT / "tests/scenarios" / name).is_file(), name


def test_the_policy_in_the_guide_can_be_applied() -> None:
    (document,) = re.findall(r"```yaml\n(pools:.*?)```", read("docs/scheduling.md"), re.DOTALL)
    policy = parse_policy(yaml.safe_load(document))
    assert len(policy.pools) > 1 and len(policy.departments) > 1 and len(policy.projects) > 2


def test_the_policy_for_two_teams_is_one() -> None:
    assert parse_policy(yaml.safe_load(read("examples/two_teams.yaml")))


def test_nothing_installs_a_package_by_a_name_that_others_could_register() -> None:
    """The project publishes nothing on PyPI, so a stranger could own the name there."""
    texts = [*PAGES, *ROOT.glob("client/**/*.py"), *ROOT.glob("examples/**/*"), *ROOT.glob("local_cloud/**/*.py")]
    by_name = re.compile(r"pip install[^\n`]*[ '\"]sagemaker[-_]queue(?![-_]\S*\.whl)")
    for path in texts:
        if path.is_file():
            assert not by_name.search(path.read_text(errors="replace")), path


def test_the_packages_of_smq_ui_are_those_of_its_extra() -> None:
    extra = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]["ui"]
    told = read("client/sagemaker_queue/cli/commands/watching/ui.py")
    assert all(f"'{requirement.partition(';')[0]}'" in told for requirement in extra)


def test_the_guide_shows_every_field_of_a_policy() -> None:
    guide = read("docs/scheduling.md")
    schemas = yaml.safe_load(read("docs/openapi.yaml"))["components"]["schemas"]
    parts = schemas["Policy"]["properties"]
    fields = set(parts)
    for named in re.findall(r"#/components/schemas/(\w+)", json.dumps(parts)):
        fields |= set(schemas[named]["properties"])
    assert {"priority_ceiling", "instance_type", "patience", "on_demand"} <= fields
    for field in fields:
        assert f"{field}:" in guide, field


def test_every_reason_and_rule_is_explained() -> None:
    guide = read("docs/scheduling.md")
    for reason in WaitReason:
        assert re.search(rf"^\| `{reason.value}` \| [^|]+ \| [^|]+ \|$", guide, re.MULTILINE), reason
    for rule in Rule:
        assert f"**{rule.value.capitalize()}" in guide, rule


@pytest.mark.parametrize(
    "arguments", [["local_cloud", "--help"], ["sagemaker_queue", "--help"], ["job_queue.scheduler", "--help"]]
)
def test_help_helps(arguments: list[str]) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'client'}", "PATH": "/usr/bin:/bin"},
    )
    assert answer.returncode == 0, answer.stderr
    assert "usage:" in answer.stdout


# --- docs/operations.md and docs/events.md


def test_every_alarm_is_explained_and_every_explanation_has_its_alarm() -> None:
    resources = yaml_parse(read("template.yaml"))["Resources"]
    alarms = {name for name, one in resources.items() if one["Type"] == "AWS::CloudWatch::Alarm"}
    guide = read("docs/operations.md")
    assert set(re.findall(r"^### `(\w+Alarm)`$", guide, re.MULTILINE)) == alarms
    for alarm in alarms:
        text = section(guide, f"### `{alarm}`")
        assert "**Means:**" in text and "**Do:**" in text, alarm


def test_every_metric_is_documented_with_its_unit() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (project|pool|queue) \| (\w+) \|", read("docs/operations.md"), re.MULTILINE)
    assert {(name, unit) for name, _, unit in rows} == {(one.value[0], one.value[1].value) for one in Metric}


def test_the_log_lines_that_the_guide_names_exist() -> None:
    source = "".join(path.read_text() for path in (ROOT / "job_queue").rglob("*.py"))
    table = section(read("docs/operations.md"), "## Logs")
    messages = [
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)
    ]
    assert len(messages) >= 8
    for message in messages:
        assert f'"{message}"' in source, message


def test_every_event_and_each_of_its_fields_is_documented() -> None:
    guide = read("docs/events.md")
    examples = [json.loads(path.read_text()) for path in (ROOT / "events").glob("queue-*.json")]
    named = re.findall(r"^\| `(Training Job [\w ]+)` \|", guide, re.MULTILINE)
    assert set(named) == {example["detail-type"] for example in examples}
    cells = re.findall(r"^\| (`.*?) \| [^|]+ \| [^|]* \|$", guide, re.MULTILINE)
    documented = {field for cell in cells for field in re.findall(r"`([a-z]\w+)`", cell)}
    assert documented == {field for example in examples for field in example["detail"]}
