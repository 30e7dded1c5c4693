"""Hyperparameter searches: Optuna chooses trials, and each trial is a job of the queue.

``space`` defines the hyperparameters and ``metric`` the objective; ``study`` stores the trials, ``search`` runs them.
"""

from __future__ import annotations

from types import ModuleType

from sagemaker_queue.errors import InvalidOption


def studies() -> ModuleType:
    """Return the module ``study``, which needs Optuna. Raises InvalidOption if Optuna is not installed."""
    try:
        from sagemaker_queue.tuning import study  # noqa: PLC0415  # Optuna takes a second to load
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("sagemaker_queue"):
            raise
        raise InvalidOption(
            f"A search needs Optuna, and {error.name} is not installed: pip install optuna, or this package with its "
            "extra [tune]."
        ) from error
    return study
