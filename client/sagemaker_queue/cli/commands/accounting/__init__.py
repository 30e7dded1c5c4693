"""The commands about finished attempts: ``smq history``, ``smq usage`` and ``smq failures``."""
