"""A search for good hyperparameters: trials that Optuna chooses, each a job of the queue.

``space`` and ``metric`` say what is varied and what is looked at, ``study`` keeps the trials, ``search`` runs them.
"""
