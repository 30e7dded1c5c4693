"""The ``smq`` command: show the queue, its fleet and its jobs, submit jobs, and change them."""

from sagemaker_queue.cli.entry import build_parser, main

__all__ = ["build_parser", "main"]
