"""A replacement for SageMaker's HyperparameterTuner: the trials of an SDK v2 estimator are jobs of the queue."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from sagemaker_queue.errors import InvalidOption, NotFound, QueueError
from sagemaker_queue.integrations.boto import sessions
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.queue.config.pace import POLL_SECONDS
from sagemaker_queue.tuning import studies
from sagemaker_queue.tuning.metric import SearchMetric
from sagemaker_queue.tuning.plan import StudyPlan, TrialRow
from sagemaker_queue.tuning.progress import show_search
from sagemaker_queue.tuning.search import Search
from sagemaker_queue.tuning.space import Choice, Interval, Range, Space, Value, text_of
from sagemaker_queue.workflows.job_logs.renderer import JobLogRenderer

if TYPE_CHECKING:
    from sagemaker_queue.tuning.study import StoredStudy, StoredTrial

_SAMPLERS = {"Bayesian": "tpe", "Random": "random", "Grid": "grid"}
_DIRECTIONS = {"Minimize": False, "Maximize": True}
_PRUNERS = {"Off": "none", "Auto": "median"}
_SCALES = {"Auto": False, "Linear": False, "Logarithmic": True}
_STATUSES = {"completed": "Completed", "pruned": "Stopped", "failed": "Failed"}


class QueueTuner:
    """A search for good hyperparameters of an estimator. Each trial is a training job of its own in the queue.

    The arguments are as for ``sagemaker.tuner.HyperparameterTuner``, which has further arguments. Ranges are ranges of
    the SDK (``ContinuousParameter`` and so on) or of ``sagemaker_queue.tuning.space``. ``strategy`` is
    ``Bayesian`` (Optuna's TPE), ``Random`` or ``Grid``.

    ``early_stopping_type="Auto"`` cancels trials that are worse than the median of the others at the same step. A step
    is the match of the group ``step`` in the metric's pattern, or else the number of earlier metric values.

    The study is stored under its name in ``storage`` (an Optuna storage URL; default: a file in the user's home).
    ``queue`` is the client of the queue (default: the queue of the estimator's session, or the queue that
    ``find_config`` finds).
    """

    def __init__(
        self,
        estimator: Any,
        objective_metric_name: str,
        hyperparameter_ranges: Mapping[str, Any],
        metric_definitions: Sequence[Mapping[str, str]] | None = None,
        strategy: str = "Bayesian",
        objective_type: str = "Maximize",
        max_jobs: int | None = None,
        max_parallel_jobs: int = 1,
        *,
        tags: Sequence[Mapping[str, str]] | None = None,
        base_tuning_job_name: str | None = None,
        early_stopping_type: str = "Off",
        random_seed: int | None = None,
        storage: str | None = None,
        queue: QueueClient | None = None,
    ) -> None:
        self.estimator = estimator
        self._ranges: Space = {name: _range(name, one) for name, one in hyperparameter_ranges.items()}
        self._metric = _metric(objective_metric_name, metric_definitions or estimator.metric_definitions)
        self._sampler = _one_of(_SAMPLERS, strategy, "strategy")
        self._maximize = _one_of(_DIRECTIONS, objective_type, "objective_type")
        self._pruner = _one_of(_PRUNERS, early_stopping_type, "early_stopping_type")
        if max_jobs is None:
            raise InvalidOption("Say how many trials there are to be: max_jobs.")
        self._max_jobs = max_jobs
        self._max_parallel_jobs = max_parallel_jobs
        self._tags = [dict(tag) for tag in tags or []]
        self._base_name = base_tuning_job_name
        self._seed = random_seed
        self._storage = storage
        self._queue = queue
        self.study_name: str | None = None

    def fit(
        self, inputs: Any = None, job_name: str | None = None, *, wait: bool = True, poll: float = POLL_SECONDS
    ) -> None:
        """Run the trials until all have ended. Requests are at least ``poll`` seconds apart.

        ``inputs`` is the argument of ``estimator.fit``. ``job_name`` is the name of the study. The names of the study's
        jobs begin with this name. An existing study of that name is continued with its live jobs. Ctrl-C does not stop
        the jobs.

        Raises InvalidOption if the existing study has other settings, and QueueError if the first trials all fail. If
        the queue refuses a job, the queue's error is raised.
        """
        if not wait:
            raise InvalidOption("The trials are chosen by this process, one after another: it must wait for them.")
        queue = self._hooked_queue()
        with self._open(job_name, queue) as study:
            search = Search(
                study,
                queue,
                queue.aws_client("logs"),
                lambda trial: self._start(trial, inputs),
                trials=self._max_jobs,
                parallel=self._max_parallel_jobs,
                poll=poll,
            )
            show_search(search.run(), study.plan, JobLogRenderer(sys.stdout, sys.stderr), live=sys.stderr.isatty())
        if search.gave_up:
            raise QueueError(
                f"All trials of {study.plan.name} failed, and no more are begun; calling fit() again tries on."
            )

    def stop_tuning_job(self) -> None:
        """Cancel the live jobs of the study."""
        queue = self._hooked_queue()
        for row in self.trials():
            if row.state == "live":
                queue.cancel(row.job)

    def trials(self) -> list[TrialRow]:
        """Return the trials of the last ``fit``'s study; before a ``fit``, those of ``base_tuning_job_name``."""
        with studies().read_study(self._name(), self._storage) as (_, rows):
            return list(rows)

    def best_training_job(self) -> str:
        """Return the job name of the best trial. Raises NotFound if no trial has completed."""
        done = [row for row in self.trials() if row.state == "completed" and row.value is not None]
        if not done:
            raise NotFound(f"No trial of {self._name()} has completed.")
        return sorted(done, key=lambda row: (row.value or 0) * (-1 if self._maximize else 1))[0].job

    def best_estimator(self, best_training_job: str | None = None) -> Any:
        """Return an estimator attached to the job ``best_training_job`` (default: the best trial's), for deployment."""
        name = best_training_job or self.best_training_job()
        return self.estimator.attach(name, sagemaker_session=self.estimator.sagemaker_session)

    def analytics(self) -> TrialAnalytics:
        """Return the trials for analysis, as ``HyperparameterTuner.analytics()`` does."""
        return TrialAnalytics(self.trials())

    def _name(self) -> str:
        name = self.study_name or self._base_name
        if not name:
            raise NotFound("There is no study yet: call fit() first, or name it by base_tuning_job_name.")
        return name

    def _hooked_queue(self) -> QueueClient:
        """Make the estimator's session send training jobs to the queue, and return the queue's client."""
        session = self.estimator.sagemaker_session
        hooks = sessions.hooks_of(session.boto_session, self._queue)
        sessions.register(hooks, session.sagemaker_client.meta.events)
        return hooks.jobs.queue

    def _open(self, job_name: str | None, queue: QueueClient) -> AbstractContextManager[StoredStudy]:
        plan = StudyPlan(
            name=job_name or self._base_name or self._default_name(),
            space=self._ranges,
            metric=self._metric,
            maximize=self._maximize,
            queue=queue.config.url,
            program_id=type(self.estimator).__name__,
            sampler=self._sampler,
            pruner=self._pruner,
            seed=self._seed,
        )
        opened: AbstractContextManager[StoredStudy] = studies().open_study(plan, self._storage)
        self.study_name = plan.name
        return opened

    def _default_name(self) -> str:
        if not self.study_name:
            raise InvalidOption(
                "Name the study, by which it is found again: fit(job_name=...), or base_tuning_job_name."
            )
        return self.study_name

    def _start(self, trial: StoredTrial, inputs: Any) -> None:
        estimator = copy.copy(self.estimator)  # shares the sessions; changed attributes are replaced below
        estimator.jobs = []
        if isinstance(getattr(estimator, "_hyperparameters", None), dict):
            estimator._hyperparameters = dict(estimator._hyperparameters)
        if any(each.__name__ == "Framework" for each in type(estimator).__mro__):
            # A Framework's set_hyperparameters encodes values as JSON, and fit would encode them a second time.
            estimator._hyperparameters.update(trial.params)
        else:
            estimator.set_hyperparameters(**trial.params)
        trial_tags = [{"Key": key, "Value": value} for key, value in trial.tags.items()]
        trial_keys = {tag["Key"] for tag in trial_tags}
        others = [tag for tag in [*(estimator.tags or []), *self._tags] if tag["Key"] not in trial_keys]
        estimator.tags = [*others, *trial_tags]
        if estimator.checkpoint_s3_uri:  # shared by all trials, so each trial gets a folder below this address
            estimator.checkpoint_s3_uri = f"{estimator.checkpoint_s3_uri.rstrip('/')}/{trial.job}"
        estimator.fit(inputs, wait=False, job_name=trial.job)


class TrialAnalytics:
    """The trials of a study for analysis, in the form of the SDK's analytics."""

    def __init__(self, trials: Sequence[TrialRow]) -> None:
        self._trials = trials

    def training_job_summaries(self) -> list[dict[str, Any]]:
        """Return the SDK's summaries of the trials, with the members that are known here."""
        return [
            {
                "TrainingJobName": row.job,
                "TrainingJobStatus": _STATUSES.get(row.state, "InProgress"),
                "FinalObjectiveValue": row.value,
                "TunedHyperParameters": {name: text_of(value) for name, value in row.params.items()},
            }
            for row in self._trials
        ]

    def dataframe(self) -> Any:
        """Return a pandas DataFrame: hyperparameters, TrainingJobName, TrainingJobStatus, FinalObjectiveValue."""
        import pandas  # noqa: PLC0415  # pandas is a dependency of the SDK

        rows = self.training_job_summaries()
        values: list[dict[str, Value]] = [dict(row.params) for row in self._trials]
        return pandas.DataFrame(
            [
                {**params, **{key: value for key, value in row.items() if key != "TunedHyperParameters"}}
                for params, row in zip(values, rows)
            ]
        )


def _range(name: str, one: Any) -> Range:
    if isinstance(one, (Interval, Choice)):
        return one
    kind = getattr(one, "__name__", None)  # the SDK's range classes have an attribute __name__
    if kind == "Categorical":
        return Choice(tuple(one.values))
    if kind not in ("Continuous", "Integer"):
        raise InvalidOption(f"{name} is {one!r}: it must be a ContinuousParameter, IntegerParameter or the like.")
    log = _one_of(_SCALES, one.scaling_type, f"scaling_type of {name}")
    integer = kind == "Integer"
    number = int if integer else float
    return Interval(number(one.min_value), number(one.max_value), log=log, integer=integer)


def _metric(name: str, definitions: Sequence[Mapping[str, str]] | None) -> SearchMetric:
    for definition in definitions or []:
        if definition["Name"] == name:
            return SearchMetric(name, definition["Regex"])
    raise InvalidOption(
        f"The pattern of {name} in the log is missing: metric_definitions=[{{'Name': {name!r}, 'Regex': ...}}]."
    )


def _one_of(known: Mapping[str, Any], given: str, what: str) -> Any:
    if given not in known:
        raise InvalidOption(f"{what} is {given!r}: it must be {', '.join(known)}.")
    return known[given]
