"""The documentation is part of the product: what it names exists, and what exists is named."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from api_contract.error_codes import ErrorCode
from job_queue.adapters.cloudwatch_metrics import Metric
from job_queue.scheduler import JobState
from sagemaker_queue import QueueClient
from sagemaker_queue.cli import build_parser
from sagemaker_queue.cli import main as smq
from sagemaker_queue.cli.parser import Command, GroupedOption
from sagemaker_queue.cli.reference import GROUPS, INDEX, commands, page_of, pages
from sagemaker_queue.presentation.tables.jobs import COLUMNS
from sagemaker_queue.queue.config.queue_config import check_profiles
from tests.documents import read_template
from tools import (
    configuration_reference,
    failure_matrix,
    http_reference,
    limits_reference,
    module_list,
    python_reference,
    stack_reference,
)
from tools.client_programs import CLIENTS
from tools.clients import TABLE, written

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("events/*.md")])
USER_FOLDERS = ("start", "run", "operate", "reference", "background")


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


def test_the_pages_that_the_code_names_exist() -> None:
    folders = ("api_contract", "benchmarks", "client", "job_queue", "local_cloud", "tests", "tools")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    named = {
        (page, path.relative_to(ROOT))
        for path in (
            *files,
            ROOT / "template.yaml",
            ROOT / "satellite.yaml",
            ROOT / "Makefile",
            ROOT / "pyproject.toml",
            ROOT / "setup.py",
        )
        for page in re.findall(r"\bdocs/[\w/-]{3,}\.(?:md|yaml)\b", path.read_text())
    }
    assert len(named) > 20
    assert not [f"{path} names {page}" for page, path in sorted(named) if not (ROOT / page).exists()]


def test_every_decision_is_listed() -> None:
    index = read("docs/developers/adr/README.md")
    pages = {page.name for page in (ROOT / "docs/developers/adr").glob("0*.md")}
    assert set(re.findall(r"\((\d{4}-[^)]*\.md)\)", index)) == pages


def test_the_words_of_the_glossary_are_in_use() -> None:
    sources = [*ROOT.glob("job_queue/**/*.py"), *ROOT.glob("docs/**/*.md")]
    used = " ".join(plain(page.read_text()) for page in sources if page.name != "glossary.md")
    assert len(glossary_words("developers")) > 50 and 30 < len(glossary_words("reference")) < 50
    for folder in ("developers", "reference"):
        assert not [word for word in glossary_words(folder) if plain(word) not in used]


def test_a_word_has_one_meaning() -> None:
    words = [plain(word) for folder in ("developers", "reference") for word in glossary_words(folder)]
    assert len(words) == len(set(words))


def glossary_words(folder: str) -> list[str]:
    rows = re.findall(r"^\| (\*\*.*)$", read(f"docs/{folder}/glossary.md"), re.MULTILINE)
    return [word for row in rows for word in re.findall(r"\*\*([^*]+)\*\*", row)]


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


def manual() -> dict[str, str]:
    """The pages about smq, by name."""
    return {path.name: path.read_text() for path in (ROOT / "docs/reference/cli").glob("*.md")}


def test_the_pages_about_smq_are_as_its_parser_makes_them() -> None:
    present = manual()
    renewed = pages(present)
    assert renewed.keys() == present.keys(), "run: make docs"
    for name, page in renewed.items():
        assert page == present[name], f"{name}: run: make docs"


def test_an_option_that_only_shares_its_name_with_one_of_a_job_is_listed() -> None:
    present = manual()
    assert "| `--after TIME` | report a start only after a wait" in present["notify.md"]
    assert "| `--after JOB[:any]` | start the new job" in present["resubmit.md"]
    naming_submit = {name for name, page in present.items() if "The options that describe the job are those" in page}
    assert naming_submit == {"plan.md", "sweep.md"}


def test_the_pages_about_smq_keep_what_people_wrote_and_get_what_is_new() -> None:
    present = manual()
    without = {name: page.replace("only jobs of these groups", "all jobs") for name, page in present.items()}
    without["list.md"] = without.pop("why.md")
    without["policy.md"] = without["policy.md"].replace("## `smq policy diff`\n", "## `smq policy compare`\n")
    renewed = pages(without)
    assert renewed.keys() == present.keys()
    assert renewed["ls.md"] == present["ls.md"]
    assert "written by hand -->\n" in renewed["why.md"] and "$ smq why" not in renewed["why.md"]
    assert "smq policy compare" not in renewed["policy.md"] and "## `smq policy diff`\n" in renewed["policy.md"]
    assert section(renewed["policy.md"], "## `smq policy apply`") == section(
        present["policy.md"], "## `smq policy apply`"
    )
    assert pages(renewed) == renewed


def test_the_page_about_python_is_as_its_docstrings_make_it() -> None:
    page = read("docs/reference/python.md")
    assert python_reference.reference(page) == page, "run: make docs"


def test_the_page_about_python_defines_the_types_that_it_names() -> None:
    page = read("docs/reference/python.md")
    fields = re.findall(r"^\| `\w+`: `([^`]*)`", page, re.MULTILINE)
    signatures = re.findall(r"^```python\n(\w[^\n]*\(.*?)```", page, re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"(?<![.'])\b[A-Z][a-z]\w+\b(?!')", " ".join([*fields, *signatures])))
    defined = {"".join(found) for found in re.findall(r"^#+ `(\w+)`|^\| `(\w+)` \|", page, re.MULTILINE)}
    pythons = {"Any", "False", "Iterable", "Mapping", "None", "Optional", "Path", "PathLike", "Sequence", "True"}
    assert {"Ordinal", "Count", "Slots"} <= defined
    assert named - defined - pythons == {"Annotated", "Answer", "JobKeywords", "TrialAnalytics", "Unpack"}


def test_the_page_about_http_is_as_the_api_makes_it() -> None:
    page = read("docs/reference/http-api.md")
    assert http_reference.with_routes(page) == page, "run: make docs"
    assert "## `PATCH /jobs/{name}`" in page and "### JobDetail" in page


def test_the_page_about_rights_names_each_example() -> None:
    named = re.findall(r"\(\.\./\.\./examples/iam/(\w+\.json)\)", read("docs/reference/iam.md"))
    assert sorted(set(named)) == sorted(path.name for path in ROOT.glob("examples/iam/*.json"))


def test_the_page_about_configuration_is_as_the_definitions_make_it() -> None:
    page = read("docs/reference/configuration.md")
    assert configuration_reference.with_tables(page) == page, "run: make docs"
    assert "| `volume` | whole number | The size of the disk of each instance, in GB. | 30 |" in page


def test_the_profile_file_of_the_page_about_configuration_is_valid() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", read("docs/reference/configuration.md"), re.DOTALL)
    document = tomllib.loads(text)
    check_profiles(document, Path("config.toml"))
    assert {"research", "local"} == document["profiles"].keys()


def test_no_environment_variable_of_the_project_is_missing() -> None:
    sources = [*ROOT.glob("client/**/*.py"), *ROOT.glob("job_queue/**/*.py"), *ROOT.glob("api_contract/*.py")]
    used = {name for path in sources for name in configuration_reference.VARIABLE.findall(path.read_text())}
    listed = {one.name for one in configuration_reference.variables()}
    assert used == listed and len(listed) >= 10
    for one in configuration_reference.variables():
        assert f"| `{one.name}` | {one.meaning} | {one.default} |" in read("docs/reference/configuration.md")


def test_no_variable_of_a_job_is_missing() -> None:
    """The programs that set variables name them as texts; SageMaker's toolkit sets one for each channel and value."""
    programs = ["job_queue/carrier_agent", "client/sagemaker_queue/jobs/packaging/container"]
    text = "".join(path.read_text() for folder in programs for path in (ROOT / folder).glob("*.py"))
    set_by_us = set(re.findall(r'"((?:SM|SMQ|MASTER|XLA|TF|CUDA)_[A-Z_]*[A-Z])"', text)) - {"CUDA_MPS_LOG_DIRECTORY"}
    page = read("docs/reference/container.md")
    named = set(re.findall(r"`([A-Z][A-Z_]*[A-Z])`", page))
    assert len(set_by_us) > 15
    assert not set_by_us - named
    emulated = (ROOT / "local_cloud/sagemaker/job_processes/container/toolkit.py").read_text()
    toolkits = {f"SM_{name.upper()}" for name in re.findall(r'^        "(\w+)":', emulated, re.MULTILINE)}
    patterns = {"SM_CHANNEL_NAME", "SM_CHANNEL_TRAIN", "SM_HP_NAME", "SM_HP_LR"}
    assert {name for name in named if name.startswith("SM_")} <= set_by_us | toolkits | patterns


def test_the_list_of_modules_is_as_their_docstrings_make_it() -> None:
    page = read("docs/developers/modules.md")
    assert module_list.with_modules(page) == page, "run: make docs"
    assert "| `state_machine` | The transitions of a job" in page


def test_the_pages_about_failures_are_as_the_classifier_makes_them() -> None:
    page, matrix = failure_matrix.CLASSES_PAGE.read_text(), failure_matrix.MATRIX_PAGE.read_text()
    assert failure_matrix.with_classes(page) == page, "run: make docs"
    assert failure_matrix.with_matrix(matrix) == matrix, "run: make docs"
    assert "| `gpu_memory` | The memory of a GPU is used up. | fail |" in page
    assert "## Confusion matrix" in matrix


def test_every_error_code_is_explained_with_its_status() -> None:
    page = read("docs/reference/errors.md")
    assert re.findall(r"^### (\w+)$\n\nHTTP (\d+)\. ", page, re.MULTILINE) == [
        (code.value, str(code.status)) for code in ErrorCode
    ]
    for code in ErrorCode:
        assert f"| [`{code}`](#{code.lower()}) | {code.status} |" in page


def test_every_state_of_a_job_is_explained_and_in_the_diagram() -> None:
    page, diagram = read("docs/background/life-of-a-job.md"), read("docs/pictures/diagrams/job-states.svg")
    rows = re.findall(r"^\| `(\w+)` \| .* \| (yes|no) \|$", page, re.MULTILINE)
    assert rows == [(state.value, "yes" if state.holds_slots else "no") for state in JobState]
    shown = re.findall(r'<text class="name"[^>]*>(\w+)</text>', diagram)
    assert sorted(shown) == sorted(JobState)


def test_all_that_the_package_offers_is_on_the_page_about_python() -> None:
    page = read("docs/reference/python.md")
    for name in python_reference.public():
        assert re.search(rf"^(#+|\|) `{name}`", page, re.MULTILINE), name
    offered = [f"`QueueClient.{name}`" for name in dir(QueueClient) if not name.startswith("_")]
    assert len(offered) > 20
    assert not [name for name in offered if f"### {name}\n" not in page]
    assert not re.search(r"^\| `[^|]*` \|  \|$", page, re.MULTILINE)  # a field of which nothing is said


def test_every_smq_command_is_documented_with_its_options() -> None:
    written = manual()
    everywhere = section(written[INDEX], "## Which queue")
    assert {"ls", "show", "cancel", "policy", "policy apply", "top", "completion"} <= set(smq_commands())
    for name, command in smq_commands().items():
        page = written[page_of(name)]
        own = section(page, f"## `smq {name}`") if " " in name else page
        if "options that describe the job" in own:
            own += written["submit.md"]
        for parameter in command.params:
            for option in parameter.opts if isinstance(parameter, GroupedOption) else ():
                assert f"`{option}" in own + everywhere, f"smq {name} {option}"


def test_the_options_of_a_job_are_listed_once() -> None:
    listing = [name for name, page in manual().items() if "`--launcher" in page.partition("<!-- the rest")[0]]
    assert listing == ["submit.md"]


def test_every_command_is_in_one_group() -> None:
    grouped = [name for group in GROUPS for name in group.commands]
    assert sorted(grouped) == sorted(name for name in smq_commands() if " " not in name)
    for name in smq_commands():
        assert f"[`smq {name}`]({page_of(name)}" in manual()[INDEX]


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
    table = section(read("docs/reference/cli/ls.md"), "## Columns")
    for column in COLUMNS:
        assert f"| `{column}` |" in table, column


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


# --- docs/operate/runbook.md and reference pages of operators


def test_every_alarm_is_explained_and_every_explanation_has_its_alarm() -> None:
    resources = {**read_template()["Resources"], **read_template("satellite.yaml")["Resources"]}
    alarms = {name for name, one in resources.items() if one["Type"] == "AWS::CloudWatch::Alarm"}
    guide = read("docs/operate/runbook.md")
    assert set(re.findall(r"^### `(\w+Alarm)`$", guide, re.MULTILINE)) == alarms
    for alarm in alarms:
        text = section(guide, f"### `{alarm}`")
        assert "**Means:**" in text and re.search(r"\*\*Do:\*\* \(\d+ minutes", text), alarm


def test_the_card_names_alarms_that_exist_before_all_else() -> None:
    guide = read("docs/operate/runbook.md")
    card = section(guide, "## On-call card")
    woken = re.findall(r"^\| `(\w+Alarm)` \| \*\*yes\*\* \|", card, re.MULTILINE)
    assert set(woken) < set(re.findall(r"^### `(\w+Alarm)`$", guide, re.MULTILINE))
    assert len(woken) == 4 and guide.index("## On-call card") == guide.index("\n## ") + 1
    assert "(#stop-everything)" in card


def test_the_pages_about_stack_and_limits_are_as_template_and_constants_make_them() -> None:
    for path, renewed in (("stack", stack_reference.with_stack), ("limits", limits_reference.with_limits)):
        page = read(f"docs/reference/{path}.md")
        assert renewed(page) == page, "run: make docs"
    page = read("docs/reference/stack.md")
    template = read_template()
    assert sorted(re.findall(r"^#### (\w+)$", page, re.MULTILINE)) == sorted(template["Parameters"])
    assert "| `NoticeSubscription` | `AWS::SNS::Subscription` | with `Notices` and `NoticeEmail` |" in page
    limits = read("docs/reference/limits.md")
    for limit in ("| pools | 100 |", "| tags of a request | 46 |", "| request as JSON | 256 KB |"):
        assert limit in limits


def test_every_metric_is_documented_with_its_unit() -> None:
    page = read("docs/reference/metrics-and-logs.md")
    rows = re.findall(r"^\| `(\w+)` \| (project|pool|queue) \| (\w+) \|", page, re.MULTILINE)
    assert {(name, unit) for name, _, unit in rows} == {(one.value[0], one.value[1].value) for one in Metric}


def test_the_log_lines_that_the_guide_names_exist() -> None:
    source = "".join(path.read_text() for path in (ROOT / "job_queue").rglob("*.py"))
    table = section(read("docs/reference/metrics-and-logs.md"), "## Log messages")
    messages = [
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)
    ]
    assert len(messages) >= 8
    for message in messages:
        assert f'"{message}"' in source, message


def test_every_event_and_each_of_its_fields_is_documented() -> None:
    guide = read("docs/reference/events.md")
    examples = [json.loads(path.read_text()) for path in (ROOT / "events").glob("queue-*.json")]
    named = re.findall(r"^\| `(Training Job [\w ]+)` \|", guide, re.MULTILINE)
    assert set(named) == {example["detail-type"] for example in examples}
    cells = re.findall(r"^\| (`.*?) \| [^|]+ \| [^|]* \|$", guide, re.MULTILINE)
    documented = {field for cell in cells for field in re.findall(r"`([a-z]\w+)`", cell)}
    assert documented == {field for example in examples for field in example["detail"]}


def test_every_user_page_is_at_most_two_clicks_from_the_start_page() -> None:
    start = ROOT / "docs/index.md"
    once = linked_pages(start)
    reached = once.union(*(linked_pages(page) for page in once))
    user_pages = {page for folder in USER_FOLDERS for page in (ROOT / "docs" / folder).rglob("*.md")}
    assert len(user_pages) > 60
    assert not user_pages - reached


def linked_pages(page: Path) -> set[Path]:
    """The pages of the documentation that a page links to."""
    targets = re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text())
    return {(page.parent / target).resolve() for target in targets}
