"""tools/audit.py: what it makes of pip-audit's answers. The service itself is asked by `make audit`."""

import json
import subprocess
from typing import Any

import pytest

from tools.audit import main

Capsys = pytest.CaptureFixture[str]
SOUND = {"name": "sound", "version": "1.0", "vulns": []}
HOLED = {"name": "holed", "version": "1.0", "vulns": [{"id": "PYSEC-2026-1", "fix_versions": ["1.1"]}]}
UNKNOWN = {"name": "own", "skip_reason": "Dependency not found on PyPI"}


def answer(*libraries: dict[str, Any], stderr: str = "") -> subprocess.CompletedProcess[str]:
    stdout = json.dumps({"dependencies": libraries, "fixes": []}) if libraries else ""
    return subprocess.CompletedProcess(["pip-audit"], 0, stdout, stderr)


def test_a_hole_is_told_with_what_has_it_and_fails(capsys: Capsys) -> None:
    assert main(["constraints.txt"], lambda file: answer(SOUND, HOLED)) == 1
    told = capsys.readouterr().out
    assert "constraints.txt: holed 1.0: PYSEC-2026-1, fixed in 1.1\n" in told
    assert "2 libraries, 1 known holes" in told


def test_none_is_well_and_what_is_not_known_there_is_named(capsys: Capsys) -> None:
    assert main(["constraints.txt"], lambda file: answer(SOUND, UNKNOWN)) == 0
    assert "2 libraries, 0 known holes; not known there: own" in capsys.readouterr().out


def test_each_file_counts(capsys: Capsys) -> None:
    assert main(["a", "b"], lambda file: answer(HOLED if file == "a" else SOUND)) == 1


def test_without_a_way_out_it_says_that_nothing_was_looked_up(capsys: Capsys) -> None:
    failure = "ERROR:pip_audit._cli:Could not connect to PyPI's vulnerability feed"
    assert main(["constraints.txt"], lambda file: answer(stderr=failure)) == 0
    assert "NOT LOOKED UP" in capsys.readouterr().out


def test_a_mirror_that_knows_of_no_holes_is_no_good_news(capsys: Capsys) -> None:
    assert main(["constraints.txt"], lambda file: answer(UNKNOWN, UNKNOWN)) == 0
    assert "NOT LOOKED UP" in capsys.readouterr().out


def test_another_failure_is_one(capsys: Capsys) -> None:
    assert main(["constraints.txt"], lambda file: answer(stderr="invalid requirement: 'x=='")) == 1
    assert "invalid requirement" in capsys.readouterr().err
