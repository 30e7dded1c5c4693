"""The line that says which tests a machine cannot run, the parts of the thorough tests, and compiled test modules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import is_compiled, missing_tools, part, part_of
from tests.waiting import PATIENCE


def test_missing_tools_are_counted_with_how_to_install_them() -> None:
    reasons = [
        "('tests/browser.py', 37, 'Skipped: there is no Chromium here (Debian: apt-get install chromium)')",
        "('tests/browser.py', 37, 'Skipped: there is no Chromium here (Debian: apt-get install chromium)')",
        "('test_completion.py', 124, 'Skipped: zsh is not installed')",
        "('test_submit.py', 278, \"Skipped: could not import 'torch': No module named 'torch'\")",
        "('test_attempt_history.py', 145, 'Skipped: the tests' own tables are always there')",
    ]
    assert missing_tools(reasons) == (
        "Skipped tests: 2 without Chromium (apt-get install chromium), 1 without zsh (apt-get install zsh), "
        "1 without torch (pip install '.[torch]')."
    )


def test_without_missing_tools_there_is_no_line() -> None:
    assert missing_tools(["Skipped: the tests' own tables are always there"]) is None


def test_the_parts_have_each_thorough_test_once_and_keep_modules_together() -> None:
    tests = [f"tests/torture/test_torture.py::test_bug[{number}]" for number in range(40)]
    assert {part_of(it, 4) for it in tests} == {0, 1, 2, 3}
    together = [f"tests/system/test_ui.py::test_{number}" for number in range(40)]
    assert len({part_of(it, 4) for it in together}) == 1
    assert part("3/4") == (3, 4)


@pytest.mark.parametrize("wrong", ["4/4", "-1/4", "1", "a/b"])
def test_what_is_no_part_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError):  # pytest then says that it is an invalid value
        part(wrong)


def test_a_module_is_compiled_until_it_is_changed(tmp_path: Path) -> None:
    module = tmp_path / "test_one.py"
    module.write_text("def test_it():\n    assert True\n")
    assert not is_compiled(module)
    unwanted = {"PYTHONDONTWRITEBYTECODE", "PYTEST_ADDOPTS"}
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    collect = [sys.executable, "-m", "pytest", "--collect-only", "--rootdir", str(tmp_path), str(module)]
    subprocess.run(collect, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=PATIENCE)
    assert is_compiled(module)
    later = module.stat().st_mtime + 60
    os.utime(module, (later, later))
    assert not is_compiled(module)
