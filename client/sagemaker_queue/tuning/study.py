"""Studies: the trials of a search, stored by Optuna, so that a later process can continue the search.

A trial's number and hyperparameters are stored before its job is submitted. The job's name consists of the study's name
and that number. So a later process finds the job again, and never submits a job twice, no matter at which point the
earlier process ended.
"""

from __future__ import annotations

import math
import os
import secrets
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import BaseStorage, JournalStorage, get_storage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from sagemaker_queue.errors import Conflict, InvalidOption, NotFound
from sagemaker_queue.tuning.plan import StudyPlan, TrialRow, job_name, job_tags
from sagemaker_queue.tuning.samplers import distributions, pruner_of, sampler_of
from sagemaker_queue.tuning.space import Value

try:
    import fcntl
except ImportError:  # Windows has no fcntl, so two processes can run the same study there
    fcntl = None  # type: ignore[assignment]

_LOCK_OF_JOURNAL = ".lock"  # suffix of Optuna's lock; Optuna would wait 30 seconds for a stale lock
_ATTRIBUTE = "sagemaker_queue"  # the name of the user attribute in which a study's settings are stored
_STATES = {TrialState.COMPLETE: "completed", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}
_SETTING_NAMES = {
    "space": "the space",
    "metric": "the metric, or whether it is to be small or large",
    "sampler": "the sampler or its seed",
    "what": "the command or the estimator",
    "queue": "the queue",
}


def folder() -> Path:
    """Return the default folder of studies."""
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home, "sagemaker-queue", "studies").expanduser()


@contextmanager
def open_study(plan: StudyPlan, storage: str | None = None) -> Iterator[StoredStudy]:
    """Open or create the study, and lock the study against other processes of this machine.

    ``storage`` is the URL of an Optuna storage, whose studies are not locked. Default: an Optuna journal in
    ``folder()``. Raises InvalidOption if a study of that name has other settings, and Conflict if another process has
    the lock.
    """
    with _locked(plan.name, storage), _storage(plan.name, storage) as backend:
        study = optuna.create_study(
            storage=backend,
            study_name=plan.name,
            direction="maximize" if plan.maximize else "minimize",
            pruner=pruner_of(plan.pruner),
            load_if_exists=True,
        )
        settings = _stored_settings(study, plan)
        study.sampler = sampler_of(plan.sampler, settings["sampler"][1], plan.space)
        yield StoredStudy(study, plan, settings["id"])


@contextmanager
def read_study(name: str, storage: str | None = None) -> Iterator[tuple[Mapping[str, Any], list[TrialRow]]]:
    """Yield the settings of a study and its trials; the study may be running. Raises NotFound."""
    if storage is None and not _file(name).exists():
        raise NotFound(f"There is no study {name} in {folder()}.")
    with _storage(name, storage) as backend:
        try:
            study = optuna.load_study(study_name=name, storage=backend)
        except KeyError as error:
            raise NotFound(f"There is no study {name}.") from error
        settings = study.user_attrs.get(_ATTRIBUTE)
        if settings is None:
            raise NotFound(f"The study {name} was not created by smq sweep.")
        yield settings, _rows(study)


class StoredStudy:
    """The stored trials of a search."""

    def __init__(self, study: optuna.Study, plan: StudyPlan, identity: str) -> None:
        self._study = study
        self._distributions = distributions(plan.space)
        self.plan = plan
        self.identity = identity

    def count(self) -> int:
        """Return the number of trials so far, in any state."""
        return len(self._study.get_trials(deepcopy=False))

    def running(self) -> list[StoredTrial]:
        """Return the trials of an earlier process that have not ended."""
        left = self._study.get_trials(deepcopy=False, states=[TrialState.RUNNING])
        return [self._trial(optuna.Trial(self._study, frozen._trial_id)) for frozen in left]

    def ask(self) -> StoredTrial:
        """Return a new trial, whose hyperparameters the sampler chooses."""
        return self._trial(self._study.ask())

    def best(self) -> TrialRow | None:
        """Return the best completed trial; None if no trial has completed."""
        try:
            return _row(self._study.best_trial, self.plan.name)
        except ValueError:  # no trial has completed
            return None

    def rows(self) -> list[TrialRow]:
        """Return all trials by number."""
        return _rows(self._study)

    def _trial(self, trial: optuna.Trial) -> StoredTrial:
        # An earlier process may have ended before it chose all hyperparameters; this line chooses only the missing
        # ones.
        params = {name: _suggested(trial, name, one) for name, one in self._distributions.items()}
        return StoredTrial(self._study, trial, params, self.plan, self.identity)


class StoredTrial:
    """A stored trial that has not ended."""

    def __init__(
        self, study: optuna.Study, trial: optuna.Trial, params: Mapping[str, Value], plan: StudyPlan, identity: str
    ) -> None:
        self.number = trial.number
        self.params = params
        self.job = job_name(plan.name, trial.number)
        self.tags = job_tags(plan.name, identity, trial.number)
        self._study = study
        self._trial = trial
        self._prunes = plan.pruner != "none"
        self._known = dict(trial.user_attrs)
        self._steps = set(study.get_trials(deepcopy=False)[trial.number].intermediate_values)

    @property
    def submitted(self) -> bool:
        """True once the queue has accepted the trial's job."""
        return bool(self._known.get("submitted"))

    @property
    def pruning(self) -> bool:
        """True once the pruner has given up the trial, whose job is then cancelled."""
        return bool(self._known.get("pruning"))

    def note_submitted(self) -> None:
        """Store that the queue has accepted the trial's job."""
        self._note("submitted", True)

    def note_pruning(self) -> None:
        """Store that the trial is pruned.

        Call this method before the trial's job is cancelled: otherwise a later process would record a failed trial.
        """
        self._note("pruning", True)

    def is_hopeless(self, figures: Iterable[tuple[int, float]]) -> bool:
        """Report new intermediate values to the pruner; return whether the pruner gives up the trial.

        The pruner is called after each value, because a pruner compares the values of all trials at the same step. Only
        the first value of each step counts: a resumed attempt repeats steps.
        """
        hopeless = False
        for step, value in figures if self._prunes else ():
            if step >= 0 and step not in self._steps:
                self._steps.add(step)
                self._trial.report(value, step)
                hopeless = hopeless or self._trial.should_prune()
        return hopeless

    def complete(self, value: float) -> None:
        """End the trial with its value."""
        self._study.tell(self._trial, value, skip_if_finished=True)

    def prune(self) -> None:
        """End the trial as pruned."""
        self._study.tell(self._trial, state=TrialState.PRUNED, skip_if_finished=True)

    def fail(self, reason: str) -> None:
        """End the trial as failed, without a value."""
        self._note("reason", reason)
        self._study.tell(self._trial, state=TrialState.FAIL, skip_if_finished=True)

    def _note(self, name: str, value: object) -> None:
        self._trial.set_user_attr(name, value)
        self._known[name] = value


def _suggested(trial: optuna.Trial, name: str, one: BaseDistribution) -> Value:
    if isinstance(one, FloatDistribution):
        return trial.suggest_float(name, one.low, one.high, step=one.step, log=one.log)
    if isinstance(one, IntDistribution):
        return trial.suggest_int(name, one.low, one.high, step=one.step, log=one.log)
    assert isinstance(one, CategoricalDistribution)
    chosen = trial.suggest_categorical(name, one.choices)
    assert chosen is not None  # None is not a value of a space
    return chosen


def names() -> list[str]:
    """Return the names of the studies in files of this machine, the one that changed last first."""
    files = sorted(folder().glob("*.log"), key=lambda file: file.stat().st_mtime, reverse=True)
    return [file.stem for file in files]


def _file(name: str) -> Path:
    return folder() / f"{name}.log"


@contextmanager
def _storage(name: str, storage: str | None) -> Iterator[BaseStorage]:
    if storage is None:
        path = str(_file(name))
        yield JournalStorage(JournalFileBackend(path, lock_obj=JournalFileOpenLock(path)))
        return
    try:
        backend = get_storage(storage)
    except Exception as error:  # an error of any database; not quoted, because the URL may contain a password
        why = type(error).__name__
        raise InvalidOption(
            f"The storage of the study cannot be used ({why}): does it exist, and is the address right?"
        ) from error
    try:
        yield backend
    finally:
        backend.remove_session()


@contextmanager
def _locked(name: str, storage: str | None) -> Iterator[None]:
    """Without ``storage``, hold a lock against other processes of this machine.

    The system releases the lock even if the process is killed.
    """
    if storage is not None:
        yield
        return
    folder().mkdir(parents=True, exist_ok=True)
    with (folder() / f"{name}.lock").open("a") as lock:
        _lock(lock, name)
        _repair(_file(name))
        yield


def _lock(lock: IO[str], name: str) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise Conflict(f"The study {name} is being run by another process of this machine.") from error


def _repair(path: Path) -> None:
    """Remove Optuna's lock on the journal, and a partial line at the journal's end.

    A process leaves them behind if the process is killed, or if the machine loses power, during a write.
    """
    Path(f"{path}{_LOCK_OF_JOURNAL}").unlink(missing_ok=True)
    if not path.exists():
        return
    with path.open("r+b") as journal:
        content = journal.read()
        journal.truncate(content.rfind(b"\n") + 1)  # Optuna would append to a partial line


def _stored_settings(study: optuna.Study, plan: StudyPlan) -> dict[str, Any]:
    """Return the stored settings of the study; in a new study, store the plan's settings.

    Raises InvalidOption if the plan's settings differ from the stored settings, or if the study is another program's.
    """
    settings = plan.settings()
    stored = study.user_attrs.get(_ATTRIBUTE)
    if stored is None:
        if study.get_trials(deepcopy=False):
            raise InvalidOption(f"The study {plan.name} has trials of another program: give another --study.")
        seed = secrets.randbelow(2**31) if plan.seed is None else plan.seed
        stored = {**settings, "sampler": [plan.sampler, seed], "id": uuid.uuid4().hex[:12]}
        study.set_user_attr(_ATTRIBUTE, stored)
    agreed: dict[str, Any] = stored
    if plan.seed is None:
        settings["sampler"] = [plan.sampler, agreed["sampler"][1]]
    changed = [words for key, words in _SETTING_NAMES.items() if settings[key] != agreed[key]]
    if changed:
        raise InvalidOption(
            f"There is a study {plan.name} already, with other settings: {' and '.join(changed)} differed. Give "
            "this study another name, or repeat the settings of that study."
        )
    return agreed


def _rows(study: optuna.Study) -> list[TrialRow]:
    return [_row(trial, study.study_name) for trial in study.get_trials(deepcopy=False)]


def _row(trial: FrozenTrial, study: str) -> TrialRow:
    value = None
    with suppress(ValueError):
        value = trial.value
    return TrialRow(
        number=trial.number,
        job=job_name(study, trial.number),
        state=_STATES.get(trial.state, "live" if trial.user_attrs.get("submitted") else "not submitted"),
        value=value if value is not None and math.isfinite(value) else None,
        params=trial.params,
        reason=trial.user_attrs.get("reason"),
    )


def first_trials(plan: StudyPlan, count: int) -> list[Mapping[str, Value]]:
    """Return the hyperparameters of a new study's first trials. Without a seed, the result is only an example."""
    seed = secrets.randbelow(2**31) if plan.seed is None else plan.seed
    study = optuna.create_study(sampler=sampler_of(plan.sampler, seed, plan.space))
    return [study.ask(distributions(plan.space)).params for _ in range(count)]


def silence_optuna() -> None:
    """Limit Optuna's log to warnings and errors, because the commands of ``smq`` print the trials."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
