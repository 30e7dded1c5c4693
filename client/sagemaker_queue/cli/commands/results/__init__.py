"""The commands ``smq wait``, ``smq get`` and ``smq checkpoints``."""
