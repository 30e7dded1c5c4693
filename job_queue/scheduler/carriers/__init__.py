"""Parts of an instance: carriers hold instances, members sit on their GPUs (ADR 0079)."""
