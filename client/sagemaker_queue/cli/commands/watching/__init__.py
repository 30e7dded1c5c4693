"""Commands that poll the queue: ``smq top``, ``smq ui`` and ``smq notify``."""
