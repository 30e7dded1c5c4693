"""`python -m job_queue.simulation TRACE`: run a trace through the planner."""

import sys
from collections.abc import Sequence

from job_queue.simulation.command import simulate
from job_queue.simulation.options import parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate what the arguments say. Gives the exit status."""
    return simulate(parsed(arguments, "python -m job_queue.simulation"))


if __name__ == "__main__":
    sys.exit(main())
