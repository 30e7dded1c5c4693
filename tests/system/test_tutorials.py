"""The tutorials of docs/start, typed from beginning to end: their commands print the outputs that the pages show."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.page_outputs import difference, steps
from tools.tutorials import ON_A_LAPTOP, ON_AWS, PAGES, STAND_INS, outputs

NAMES = [page.stem for page in PAGES]
PREEMPTION = next(page for page in ON_A_LAPTOP if page.stem == "survive-preemption").read_text()
(SCRIPT,) = [step.text for step in steps(PREEMPTION) if step.file == "train.py"]


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_commands_of_a_tutorial_print_the_outputs_that_it_shows(page: Path, tmp_path: Path) -> None:
    printed = outputs(page, tmp_path)
    different = [
        f"$ {step.text}\n{changes}"
        for step, text in zip(steps(page.read_text()), printed, strict=True)
        if step.shown and (changes := difference(step.shown, text))
    ]
    assert not different, "\n\n".join([*different, f"Is this intended? make outputs PAGES={page}"])
    if page.read_text() == PREEMPTION:
        starts = [line for line in "\n".join(printed).splitlines() if line.startswith("starting at step ")]
        assert starts.count("starting at step 0") == len(starts) - 1 > 1  # both logs begin so; one attempt resumes


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_most_commands_of_a_tutorial_have_an_output(page: Path) -> None:
    typed = [step for step in steps(page.read_text()) if step.commands]
    shown = [step.shown for step in typed if step.shown]
    assert len(shown) > len(typed) / 2
    assert all(output.text.strip() for output in shown)


def test_each_stand_in_stands_for_something() -> None:
    typed = [command for page in ON_A_LAPTOP for step in steps(page.read_text()) for command in step.commands]
    for text, (_, reason) in STAND_INS.items():
        assert reason and any(f"{command} ".startswith(f"{text} ") for command in typed), text


def test_the_first_job_is_the_same_on_a_laptop_and_on_aws() -> None:
    laptop, aws = ([step.text for step in steps(page.read_text()) if step.file] for page in (ON_A_LAPTOP[0], ON_AWS))
    assert laptop == aws


def test_the_script_that_resumes_has_twenty_lines_and_runs_at_home_too(tmp_path: Path) -> None:
    assert len([line for line in SCRIPT.splitlines() if line.strip()]) <= 20
    fast = SCRIPT.replace("time.sleep(0.2)", "pass")
    for begin in ("starting at step 0", "starting at step 300"):
        done = subprocess.run(
            [sys.executable, "-c", fast], cwd=tmp_path, env={}, capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith(begin)
