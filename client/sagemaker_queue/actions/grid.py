"""A grid: one job for each combination of values, which are submitted together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sagemaker_queue.actions.job_settings import stem
from sagemaker_queue.errors import InvalidRequest, NameTaken, QueueError, TooLarge
from sagemaker_queue.packaging.sweep import Run, expand, fingerprint

if TYPE_CHECKING:
    from sagemaker_queue.models import Submission
    from sagemaker_queue.packaging.command import CommandJob

MOST = 50  # jobs that are submitted without being asked for twice
_OF_ONE_JOB = (InvalidRequest, NameTaken, TooLarge)  # the others may fare better

Grids = Sequence[tuple[str, Sequence[str]]]


def expanded(template: CommandJob, name: str | None, grids: Grids) -> tuple[str, list[Run]]:
    """Return the group's name and a run for each combination.

    The same command with the same code is the same sweep, so that what is missing of it can be added.
    """
    command = template.command
    identity = fingerprint(command, grids, replace(template, name=stem(command)).request())
    group = name or f"{stem(command)}-{identity}"
    return group, expand(group, grids, command, template.env)


def job_of(template: CommandJob, group: str, run: Run) -> CommandJob:
    """Return the job of a run."""
    return replace(
        template,
        name=run.name,
        command=run.command,
        env=run.env,
        tags={**template.tags, "group": group},
        checkpoints=None,  # an address that was given is for all of them, each with a folder of its own there
        checkpoint_home=template.checkpoints or template.checkpoint_home,
    )


@dataclass(frozen=True)
class Submitted:
    """What became of the jobs of a sweep."""

    jobs: tuple[Submission, ...]
    refused: Mapping[str, QueueError | None]  # by name; None: it was not tried


def submit_all(jobs: Iterable[CommandJob], submit: Callable[[CommandJob], Submission]) -> Submitted:
    """Submit one after the other, until one is refused for a reason that holds for the others, too."""
    submitted: list[Submission] = []
    refused: dict[str, QueueError | None] = {}
    over = False
    for job in jobs:
        if over:
            refused[job.name] = None
            continue
        try:
            submitted.append(submit(job))
        except QueueError as error:
            refused[job.name] = error
            over = not isinstance(error, _OF_ONE_JOB)
    return Submitted(tuple(submitted), refused)
