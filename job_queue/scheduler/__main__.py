"""Plan a scenario file: `python -m job_queue.scheduler FILE [--until-stable]`."""

import argparse
import json
import sys
from pathlib import Path

from job_queue.scheduler.carriers.shared_plan import plan
from job_queue.scheduler.documents.policy_document import DocumentError
from job_queue.scheduler.documents.scenario import read_scenario
from job_queue.scheduler.documents.scenario_run import plan_to_document, run_until_stable


def main(arguments: list[str] | None = None) -> int:
    """Print a scenario's plan as JSON. Return the exit status: 2 if the file cannot be read or is not a scenario."""
    parser = argparse.ArgumentParser(prog="python -m job_queue.scheduler", description="Plan a scenario file.")
    parser.add_argument("file", type=Path, help="a scenario, YAML or JSON")
    parser.add_argument("--until-stable", action="store_true", help="apply plans until nothing changes any more")
    options = parser.parse_args(arguments)
    try:
        snapshot = read_scenario(options.file)
    except OSError as error:
        return _refuse(f"cannot read {options.file}: {error.strerror}")
    except DocumentError as error:
        return _refuse(str(error))
    result = run_until_stable(snapshot) if options.until_stable else plan_to_document(plan(snapshot))
    try:
        print(json.dumps(result, indent=2, ensure_ascii=False), flush=True)
    except BrokenPipeError:  # the reader of the pipe, such as `head`, has closed it
        sys.stdout = None  # else the interpreter flushes the output again at exit, and fails again
    return 0


def _refuse(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
