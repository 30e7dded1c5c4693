"""The definition of a search, and the names and tags of its trials' jobs; this module does not need Optuna."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.tuning.metric import SearchMetric
from sagemaker_queue.tuning.space import Space, Value, grid_size, space_json

SAMPLERS = ("tpe", "random", "grid")
PRUNERS = ("median", "none")
STUDY_TAG = "study"
LONGEST_NAME = 45  # characters of a study's name; the numbers of trial and attempt are appended
_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*", re.ASCII)


@dataclass(frozen=True)
class StudyPlan:
    """The definition of a search: space, metric, sampler and pruner. Raises InvalidOption."""

    name: str
    space: Space
    metric: SearchMetric
    maximize: bool
    queue: str  # the queue's address
    program_id: str  # identifies the command or the estimator, which must not change
    sampler: str = "tpe"
    pruner: str = "none"
    seed: int | None = None  # None: a random seed, which is stored in the study

    def __post_init__(self) -> None:
        """Raise InvalidOption for an invalid name, an empty space, or a grid of a logarithmic or continuous range."""
        check_study_name(self.name)
        if not self.space:
            raise InvalidOption("No hyperparameter is given: add one, such as lr=log:1e-5..1e-1.")
        if self.sampler == "grid":
            grid_size(self.space)

    def settings(self) -> dict[str, Any]:
        """Return the settings that must not change when a study is continued, as JSON values."""
        return {
            "space": space_json(self.space),
            "metric": [self.metric.name, self.metric.regex, "maximize" if self.maximize else "minimize"],
            "sampler": [self.sampler, self.seed],
            "what": self.program_id,
            "queue": self.queue,
        }


@dataclass(frozen=True)
class TrialRow:
    """The present state of a trial."""

    number: int  # the number of the trial, from 0
    job: str  # the name of its job
    state: str  # not submitted, live, or the job's state; after the trial's end: completed, pruned or failed
    value: float | None  # the value of the metric; None: there is none
    params: Mapping[str, Value]  # the hyperparameters by name
    reason: str | None = None  # why the trial failed; None: it has not failed

    def to_json(self) -> dict[str, Any]:
        """Return the trial as JSON values."""
        return {
            "number": self.number,
            "job": self.job,
            "state": self.state,
            "value": self.value,
            "params": dict(self.params),
            "reason": self.reason,
        }


def check_study_name(name: str) -> None:
    """Raise InvalidOption unless the name can begin the names of jobs, and be the name of the study's file."""
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise InvalidOption(
            f"{name!r} cannot be the name of a study, with which its jobs' names begin. A name has up to "
            f"{LONGEST_NAME} letters, digits and inner hyphens."
        )


def job_name(study: str, number: int) -> str:
    """Return the name of a trial's job."""
    return f"{study}-{number:03}"


def job_tags(study: str, identity: str, number: int) -> dict[str, str]:
    """Return the tags of a trial's job, which identify the study and the trial."""
    return {"group": study, STUDY_TAG: identity, "trial": str(number)}
