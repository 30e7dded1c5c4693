"""``smq sweep``: run a command with many values, as a grid of jobs or as a search for the best values."""

from sagemaker_queue.cli.commands.sweep.sweep_command import sweep

__all__ = ["sweep"]
