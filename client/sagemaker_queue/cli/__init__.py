"""The ``smq`` command: see the queue, its fleet and its jobs, and change what is yours to change."""

from sagemaker_queue.cli.entry import build_parser, main

__all__ = ["build_parser", "main"]
