"""The pages about policies, scheduling and usage: examples work, and each field, tag, reason and rule is explained."""

import ast
import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_contract.history import PastAttempt
from job_queue.domain.policy_validation import MOST_PATTERNS, parse_policy
from job_queue.scheduler import Rule, WaitReason
from job_queue.scheduler.documents.policy_schema import (
    MOST_FAILURE_RULES,
    MOST_POOLS,
    MOST_PRICES,
    MOST_QUOTA_HOLDERS,
)
from sagemaker_queue.workflows.history_csv import write_history_csv
from sagemaker_queue.workflows.usage.causes import Cause
from sagemaker_queue.workflows.usage.sums import Usage
from tools import history_reference, policy_reference
from tools.field_tables import schemas
from tools.markdown import code_blocks

ROOT = Path(__file__).parent.parent
RECIPES = "docs/operate/policy-recipes.md"
REASONS = "docs/reference/reasons.md"
# Codes of `reason` that are no WaitReason and that waiting jobs have.
OTHER_CODES = {"NOT_PLANNED_YET", "BEYOND_WINDOW", "NOT_LISTED", "STARTING_SOON", "NOT_RECORDED"}


def read(path: str) -> str:
    return (ROOT / path).read_text()


def yaml_blocks(page: str) -> list[str]:
    return [text for language, text in code_blocks(read(page)) if language == "yaml"]


# --- policies


def test_the_fields_of_a_policy_are_as_its_schema_makes_them() -> None:
    page = read("docs/reference/policy.md")
    assert policy_reference.with_fields(page) == page, "run: make docs"
    assert "| `patience:` | number from 0 to 315360000 or null; default 1800 | The seconds of waiting" in page


def test_all_parts_of_a_policy_have_a_table() -> None:
    reached, waiting = set[str](), ["Policy"]
    while waiting:
        if (name := waiting.pop()) not in reached:
            reached.add(name)
            waiting += re.findall(r"#/components/schemas/(\w+)", str(schemas()[name]))
    assert set(policy_reference.PARTS) == reached


def complete_policy() -> str:
    """The example with every field."""
    (document,) = yaml_blocks("docs/reference/policy.md")
    return document


def test_the_complete_policy_can_be_applied() -> None:
    policy = parse_policy(yaml.safe_load(complete_policy()))
    assert len(policy.pools) > 1 and len(policy.departments) > 1 and len(policy.projects) > 2


def test_the_complete_policy_has_every_field() -> None:
    document = complete_policy()
    fields = {field for part in policy_reference.PARTS for field in schemas()[part]["properties"]}
    assert {"priority_ceiling", "instance_type", "patience", "on_demand"} <= fields
    assert not [field for field in fields if not re.search(rf"(^|[ {{]){field}: ", document.replace("\n", " \n"), re.M)]


@pytest.mark.parametrize("part", ["settings", "interactive"])
def test_the_complete_policy_has_the_defaults(part: str) -> None:
    shown = yaml.safe_load(complete_policy())[part]
    defaults = {name: facts.get("default") for name, facts in schemas()[part.capitalize()]["properties"].items()}
    assert shown == {**defaults, **({"min_runtime": 0} if part == "settings" else {})}


def test_the_limits_of_a_policy_are_on_its_page() -> None:
    rules = read("docs/reference/policy.md").partition("## Rules across fields")[2].partition("## ")[0]
    assert f"at most {MOST_POOLS} pools, {MOST_QUOTA_HOLDERS} departments and projects together" in rules
    assert f"{MOST_PRICES} prices" in rules and f"at most {MOST_FAILURE_RULES} rules" in rules
    assert f"at most {MOST_PATTERNS} patterns" in rules


def test_the_policies_of_the_guides_can_be_applied() -> None:
    assert parse_policy(yaml.safe_load(read("examples/two_teams.yaml")))
    applied = 0
    for page in ("write-a-policy", "capacity", "share-instances"):
        for block in yaml_blocks(f"docs/operate/{page}.md"):
            document = yaml.safe_load(block)
            if document.keys() >= {"pools", "projects"}:
                assert parse_policy(document), page
                applied += 1
    assert applied >= 5


def recipes() -> dict[str, dict[str, Any]]:
    """The policy of each recipe, by the anchor of its heading."""
    found = re.findall(r"^## (.*?)\n+```yaml\n(.*?)^```", read(RECIPES), re.DOTALL | re.MULTILINE)
    assert len(found) == len(re.findall(r"^## ", read(RECIPES), re.MULTILINE))
    return {re.sub(r"[^a-z0-9]+", "-", title.lower()): yaml.safe_load(block) for title, block in found}


def test_each_recipe_has_a_scenario_that_shows_its_effect() -> None:
    scenarios = {path.stem: yaml.safe_load(path.read_text()) for path in ROOT.glob("tests/scenarios/recipes/*.yaml")}
    assert scenarios.keys() == recipes().keys()
    for name, policy in recipes().items():
        assert parse_policy(policy)
        assert scenarios[name]["policy"] == policy, name


# --- rules, reasons and tags


def test_the_examples_of_the_rules_are_scenarios_that_the_tests_run() -> None:
    named = re.findall(r"`tests/scenarios/([^`]*)`", read("docs/developers/scheduling-rules.md"))
    assert len(set(named)) >= 60
    for name in named:
        assert (ROOT / "tests/scenarios" / name).is_file(), name


def test_every_rule_of_preemption_is_explained() -> None:
    page = read("docs/background/preemption.md")
    for rule in Rule:
        assert f"| **{rule.value.capitalize()}** |" in page, rule


def test_every_reason_is_explained_in_the_order_in_which_reasons_apply() -> None:
    page = read(REASONS)
    headings = re.findall(r"^##+ ([A-Z_]+)$", page, re.MULTILINE)
    assert headings[: len(WaitReason)] == [reason.value for reason in WaitReason]
    assert set(headings[len(WaitReason) :]) == OTHER_CODES
    for code in headings:
        text = re.split(r"^##+ ", page.partition(f"# {code}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
        assert re.search(r"^\*\*Means:\*\* \S", text, re.M) and re.search(r"^\*\*Do:\*\* \S", text, re.M), code


def test_no_other_code_of_a_waiting_job_is_missing() -> None:
    source = read("job_queue/api/queue_position.py")
    assert set(re.findall(r'Reason\("([A-Z_]+)"', source)) == OTHER_CODES


def read_tags() -> set[str]:
    """The tags that the queue reads: texts that the code looks up in the tags of a request."""
    found = set[str]()
    for path in [*ROOT.glob("job_queue/domain/requests/*.py"), *ROOT.glob("job_queue/domain/carriers/members.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Subscript(value=mapping, slice=ast.Constant(value=str(key))):
                    found |= {key} if _is_tags(mapping) else set()
                case ast.Compare(left=ast.Constant(value=str(key)), ops=[ast.In()], comparators=[mapping]):
                    found |= {key} if _is_tags(mapping) else set()
                case ast.Call(func=ast.Attribute(value=mapping, attr="get"), args=[ast.Constant(value=str(key)), *_]):
                    found |= {key} if _is_tags(mapping) else set()
                case ast.Assign(targets=[ast.Name(id="TAG")], value=ast.Constant(value=str(key))):
                    found.add(key)
    return found


def _is_tags(mapping: ast.expr) -> bool:
    return ast.unparse(mapping).rpartition(".")[2] in ("tags", "tag_values")


def test_every_tag_is_explained() -> None:
    by_hand = read("docs/reference/tags.md").partition("### Dependencies")[0]
    rest = read("docs/reference/tags.md").partition("## After a failure")[2].partition("## Options")[0]
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", by_hand + rest, re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(rows) == read_tags()
    assert {"project", "gpus", "start_by_action", "on_hang"} <= read_tags()


# --- history and usage


def test_the_fields_of_the_history_are_as_its_schema_makes_them() -> None:
    page = read("docs/reference/history.md")
    assert history_reference.with_fields(page) == page, "run: make docs"
    assert "| `waitedSeconds` | number from 0 | The seconds from" in page


def test_every_column_of_the_history_is_explained() -> None:
    stream = io.StringIO()
    write_history_csv([PastAttempt(job="a", attempt=1)], stream)
    columns = next(csv.reader(io.StringIO(stream.getvalue())))
    table = read("docs/reference/history.md").partition("## Columns of")[2].partition("Design notes")[0]
    assert set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", table, re.M)))) == set(columns)


def test_every_figure_of_the_usage_is_explained() -> None:
    page = read("docs/reference/history.md")
    figures = Usage().hours().keys()
    assert len(figures) > 10
    for figure in figures:
        assert re.search(rf"^\|.*`{figure}`.*\|$", page, re.MULTILINE), figure
    for cause in Cause:
        assert re.search(rf"^\| [a-z ]+ \| `{cause.value}` \|", page, re.MULTILINE), cause
