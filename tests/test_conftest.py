"""The line that says which tests a machine cannot run."""

from tests.conftest import missing_tools


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
