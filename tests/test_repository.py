"""The files of the repository for GitHub, for citations and for releases."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.release_notes import ReleaseError, check_tag, main, notes, versions

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = [path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
CHANGELOG = """# Changelog

## [Unreleased]

Later.

## [1.1.0] - 2026-12-24

- Second.

## 1.0.0

First release.

### Added

- First.
"""


def steps_of(path: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_only_targets_of_the_makefile(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [step["run"] for step in steps_of(path) if "run" in step]
    named = {command.split()[1] for command in commands if command.startswith("make ")}
    assert {"lint", "audit"} <= named <= targets
    assert all(command.startswith(("make ", "gh release create ")) for command in commands)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_pin_their_actions_and_have_few_rights(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    actions = [step["uses"] for step in steps_of(path) if "uses" in step]
    assert actions
    assert all(re.fullmatch(r"actions/[a-z-]+@(v\d+|[0-9a-f]{40})", action) for action in actions)
    assert document["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in document["jobs"].values())
    texts = [step["run"] for step in steps_of(path) if "run" in step]
    assert not [text for text in texts if "${{" in text]  # an expression in a command can be an injection


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_issue_forms_ask_for_something(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert form["name"] and form["description"]
    questions = [part for part in form["body"] if part["type"] != "markdown"]
    assert any(part.get("validations", {}).get("required") for part in questions)
    assert len({part["id"] for part in questions}) == len(questions)


def test_all_files_have_the_same_version() -> None:
    assert len(versions()) == 3 and len(set(versions().values())) == 1


def test_a_tag_of_another_version_makes_no_release(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"pyproject.toml": "1.0.0", "template.yaml": "0.9.0"}
    assert check_tag("v1.0.0", {"pyproject.toml": "1.0.0"}) == "1.0.0"
    with pytest.raises(ReleaseError, match=r"v1\.0\.0 is not .*: template\.yaml has 0\.9\.0\."):
        check_tag("v1.0.0", known)
    with pytest.raises(ReleaseError):
        check_tag("1.0.0", {"pyproject.toml": "1.0.0"})
    assert main(["v0.0.0", "unused"]) == 1
    assert "v0.0.0 is not the version of this checkout" in capsys.readouterr().err


def test_the_notes_of_a_release_are_its_section() -> None:
    assert notes(CHANGELOG, "1.0.0") == "First release.\n\n### Added\n\n- First.\n"
    assert notes(CHANGELOG, "1.1.0") == "- Second.\n"
    with pytest.raises(ReleaseError, match=r'says nothing about 2\.0\.0\. Add a section "## 2\.0\.0"'):
        notes(CHANGELOG, "2.0.0")
    with pytest.raises(ReleaseError):
        notes(CHANGELOG, "1.0")
