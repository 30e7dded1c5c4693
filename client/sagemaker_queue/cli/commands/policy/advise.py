"""``smq policy advise``: simulate the queue's own history under several settings, and print the best of them."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sagemaker_queue.cli.completion import files
from sagemaker_queue.cli.output import DONE, REFUSED, print_json, print_note, raw, width
from sagemaker_queue.cli.parser import checked, command, json_flag, option, with_queue
from sagemaker_queue.errors import InvalidDocument, InvalidOption
from sagemaker_queue.presentation.documents import read_document, with_settings
from sagemaker_queue.workflows.settings_advice import (
    LEAST_MINUTES,
    MOST_MINUTES,
    advise,
    read_history,
    require_python,
)

if TYPE_CHECKING:
    from api_contract.models import PolicyAnswer
    from sagemaker_queue.queue.client import QueueClient

T = TypeVar("T")
LONGEST_WEEKS = 52


def _within(least: float, most: float, kind: Callable[[str], T]) -> Callable[[str], T]:
    """Return a parser of numbers from ``least`` to ``most``; ``kind`` is int or float."""

    def read(text: str) -> T:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:  # type: ignore[operator]
            raise InvalidOption(f"must be a number from {least:g} to {most:g}, not {text!r}")
        return value

    return checked(read)


def _renaming(text: str) -> tuple[str, str]:
    """Parse OLD=NEW, the old and the new name of a project. Raises InvalidOption."""
    old, is_given, new = text.rpartition("=")
    if not (old and is_given and new):
        raise InvalidOption(f"must be OLD=NEW, two names of projects, not {text!r}")
    return old, new


def _file(text: str) -> str:
    """Return the name of a file. Raises InvalidOption for ``-``, which cannot be written."""
    if text == "-":
        raise InvalidOption("must be a file, not the standard input")
    return text


@command(
    "advise",
    help="print settings that would reduce the wait",
    description="Simulate the history of the queue, on this machine, under the policy in force and under several "
    "changes of its settings: one at a time, and then the best ones together. Print the results side by "
    "side, and the lines to put into the policy. Nothing is applied. The exit code is 1 if the history "
    "is too small, or too few jobs waited, for advice. docs/operate/simulate.md has the settings that "
    "are tried, and the definitions.",
    examples=[
        "smq policy advise",
        "smq policy advise --weeks 8 --minutes 20",
        "smq policy advise --apply-to policy.yaml",
        "smq policy advise --exclude-project old",
    ],
)
@option(
    "--weeks",
    metavar="N",
    type=_within(1, LONGEST_WEEKS, int),
    default=4,
    help="the length of the history that is simulated, in weeks (4)",
)
@option(
    "--apply-to",
    metavar="FILE",
    type=checked(_file),
    shell_complete=files,
    help="write the lines into this policy file in YAML or JSON, and print the changes; comments stay",
)
@option(
    "--minutes",
    metavar="N",
    type=_within(LEAST_MINUTES, MOST_MINUTES, float),
    default=5.0,
    help="the time for all simulations, in minutes (5)",
)
@option(
    "--map-project",
    metavar="OLD=NEW",
    type=checked(_renaming),
    multiple=True,
    help="count the jobs of project OLD for project NEW, which the policy has; (none) stands for jobs without a "
    "project; may be repeated",
)
@option(
    "--exclude-project",
    metavar="NAME",
    multiple=True,
    help="leave out the jobs of a project, such as one that the policy no longer has; may be repeated",
)
@json_flag("print JSON, with every setting that was tried")
@with_queue
def policy_advise(  # noqa: PLR0913
    queue: QueueClient,
    weeks: int,
    apply_to: str | None,
    minutes: float,
    map_project: tuple[tuple[str, str], ...],
    exclude_project: tuple[str, ...],
    as_json: bool,
) -> int:
    """Print advice on the settings of the policy in force."""
    require_python("smq policy advise")
    from job_queue.simulation.command import ProgressLine  # noqa: PLC0415
    from job_queue.simulation.experiments.advice_report import advice_as_json, advice_page  # noqa: PLC0415

    if apply_to:
        read_document(apply_to, sys.stdin)  # report an unusable file before the simulations, which take minutes
    applied = queue.policy()
    with ProgressLine(raw(sys.stderr)) as line:
        trace = read_history(queue, weeks, lambda count: line.show(f"Reading the history: {count:,} attempts"))
        show = line.show_advice(minutes * 60)
        advice = advise(applied.policy, trace, minutes, show, renamed=map_project, excluded=exclude_project)
    found = advice_as_json(advice)
    if as_json:
        print_json(found)
    else:
        print(f"Version {applied.version} of the policy is in force.\n\n{advice_page(advice, width())}", flush=True)
    if apply_to and found["settings"]:
        _write(apply_to, found["settings"], applied, screen_is_free=not as_json)
    elif apply_to:
        print_note(f"{apply_to} is not changed.")
    return DONE if advice.insufficient is None else REFUSED


def _write(path: str, settings: dict[str, Any], applied: PolicyAnswer, *, screen_is_free: bool) -> None:
    """Write the settings into a policy file, and print the difference."""
    before = Path(path).read_text(encoding="utf-8")
    after = with_settings(before, settings, path)
    same = read_document(path, sys.stdin) == applied.policy
    try:
        Path(path).write_text(after, encoding="utf-8")
    except OSError as error:
        raise InvalidDocument(f"{path} cannot be written: {error.strerror}.") from error
    screen = sys.stdout if screen_is_free else sys.stderr
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), f"{path} before", path, lineterm="")
    print("", *lines, sep="\n", file=screen)
    print(f"\nNothing was applied to the queue; next: smq policy apply {path}", file=screen)
    if not same:
        print_note(
            f"{path} was not the policy in force (version {applied.version}), to which the advice applies. See smq "
            f"policy diff {path}."
        )
