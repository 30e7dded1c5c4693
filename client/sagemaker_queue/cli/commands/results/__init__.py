"""The commands ``smq wait`` and ``smq get``."""
