"""`python -m job_queue.simulation TRACE`: run a trace through the planner."""

import sys
from collections.abc import Sequence

from job_queue.simulation.command import simulate
from job_queue.simulation.options import parse_options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the simulation that the command line describes, and return the exit status."""
    return simulate(parse_options(arguments, "python -m job_queue.simulation"))


if __name__ == "__main__":
    sys.exit(main())
