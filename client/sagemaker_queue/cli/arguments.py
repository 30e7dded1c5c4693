"""Arguments that several commands of ``smq`` have."""

import argparse


def add_job(parser: argparse.ArgumentParser) -> None:
    """The name of one job."""
    parser.add_argument("job", metavar="JOB", help="the name that the job was submitted under")


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """The names of one job or more."""
    parser.add_argument("jobs", metavar="JOB", nargs="+", help="the name that a job was submitted under")


def add_json(parser: argparse._ActionsContainer, help: str = "the same for programs") -> None:
    """JSON instead of text for people."""
    parser.add_argument("--json", action="store_true", help=help)
