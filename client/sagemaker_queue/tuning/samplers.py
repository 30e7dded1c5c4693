"""Optuna's samplers, seeded so that a trial depends only on the seed, the trial's number and the earlier trials.

So a restart of the process does not change the trials. After a restart, Optuna's own samplers would propose their first
trials again.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from sagemaker_queue.tuning.space import Choice, Space, grid_point


def pruner_of(name: str) -> BasePruner:
    """Return Optuna's pruner of that name: ``median`` or ``none``."""
    return MedianPruner() if name == "median" else NopPruner()


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return the space as distributions of Optuna."""
    found: dict[str, BaseDistribution] = {}
    for name, one in space.items():
        if isinstance(one, Choice):
            found[name] = CategoricalDistribution(one.options)
        elif one.integer:
            found[name] = IntDistribution(int(one.low), int(one.high), log=one.log, step=int(one.step or 1))
        else:
            found[name] = FloatDistribution(one.low, one.high, log=one.log, step=one.step)
    return found


def sampler_of(name: str, seed: int, space: Space) -> BaseSampler:
    """Return the sampler of that name: ``tpe``, ``random`` or ``grid``."""
    return GridByNumber(space) if name == "grid" else SeededByNumber(name, seed)


class SeededByNumber(BaseSampler):
    """Optuna's TPE or random sampler, with a new seed for each trial."""

    def __init__(self, name: str, seed: int) -> None:
        self._name = name
        self._seed = seed
        self._number: int | None = None
        self._trial_sampler: BaseSampler = RandomSampler(seed)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Create the trial's sampler. The sampler's seed is a hash of the study's seed and the trial's number."""
        self._number = trial.number
        digest = hashlib.sha256(f"{self._seed}/{trial.number}".encode()).digest()
        seed = int.from_bytes(digest[:4], "big")
        if self._name == "random":
            self._trial_sampler = RandomSampler(seed)
            return
        with warnings.catch_warnings():  # Optuna 4 warns that constant_liar is experimental
            warnings.simplefilter("ignore")
            # With constant_liar, the sampler avoids values near those of running trials.
            self._trial_sampler = TPESampler(seed=seed, constant_liar=True)
        self._trial_sampler.before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the result of the trial's sampler."""
        return self._sampler(study, trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the result of the trial's sampler."""
        return self._sampler(study, trial).sample_relative(study, trial, search_space)

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: Any) -> Any:
        """Return the result of the trial's sampler."""
        return self._sampler(study, trial).sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Pass the end of the trial to its sampler."""
        self._sampler(study, trial).after_trial(study, trial, state, values)

    def _sampler(self, study: Study, trial: FrozenTrial) -> BaseSampler:
        if trial.number != self._number:
            self.before_trial(study, trial)
        return self._trial_sampler


class GridByNumber(BaseSampler):
    """A sampler that gives each trial the combination with the trial's number, in the order of the grid.

    Optuna's own grid sampler cannot end a study that uses ask and tell.
    """

    def __init__(self, space: Space) -> None:
        self._space = space

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return an empty space, so that each value comes from ``sample_independent``."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return no values; see ``infer_relative_search_space``."""
        return {}

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: Any) -> Any:
        """Return the hyperparameter's value in the combination with the trial's number."""
        return grid_point(self._space, trial.number)[param_name]
