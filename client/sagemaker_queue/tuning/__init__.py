"""Hyperparameter searches: Optuna chooses trials, and each trial is a job of the queue.

``space`` defines the hyperparameters and ``metric`` the objective; ``study`` stores the trials, ``search`` runs them.
"""
