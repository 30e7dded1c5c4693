"""Submit a grid sweep: one job for each combination of values, all in one group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sagemaker_queue.errors import InvalidRequest, NameTaken, QueueError, TooLarge
from sagemaker_queue.jobs.packaging.command import stem
from sagemaker_queue.jobs.packaging.sweep import Run, expand, fingerprint

if TYPE_CHECKING:
    from api_contract.models import Submission
    from sagemaker_queue.jobs.packaging.command import CommandJob

MOST = 50  # for more jobs, a confirmation is required
_SINGLE_JOB_ERRORS = (InvalidRequest, NameTaken, TooLarge)  # after these errors the other jobs are still submitted

Grids = Sequence[tuple[str, Sequence[str]]]


def sweep_runs(template: CommandJob, name: str | None, grids: Grids) -> tuple[str, list[Run]]:
    """Return the group's name and a run for each combination.

    The default name depends only on the command, the grid and the request. So a repeated call with the same code gives
    the same names, and can submit the missing jobs of an earlier sweep.
    """
    command = template.command
    identity = fingerprint(command, grids, template.identity())
    group = name or f"{stem(command)}-{identity}"
    return group, expand(group, grids, command, template.env)


def job_for_run(template: CommandJob, group: str, run: Run) -> CommandJob:
    """Return the job of a run, in a group, with a checkpoint folder of its own."""
    return replace(
        template,
        name=run.name,
        command=run.command,
        env=run.env,
        tags={**template.tags, "group": group},
        checkpoints=None,  # an address that the user has given is the parent of each job's folder
        checkpoint_home=template.checkpoints or template.checkpoint_home,
    )


@dataclass(frozen=True)
class SweepSubmission:
    """The result of submitting the jobs of a sweep."""

    jobs: tuple[Submission, ...]
    refused: Mapping[str, QueueError | None]  # by job name; None: the job was not tried


def submit_all(jobs: Iterable[CommandJob], submit: Callable[[CommandJob], Submission]) -> SweepSubmission:
    """Submit the jobs in order, until a job is refused for a reason that also applies to the other jobs."""
    submitted: list[Submission] = []
    refused: dict[str, QueueError | None] = {}
    refuses_all = False
    for job in jobs:
        if refuses_all:
            refused[job.name] = None
            continue
        try:
            submitted.append(submit(job))
        except QueueError as error:
            refused[job.name] = error
            refuses_all = not isinstance(error, _SINGLE_JOB_ERRORS)
    return SweepSubmission(tuple(submitted), refused)
