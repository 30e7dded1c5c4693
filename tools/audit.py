"""Audit the pinned libraries: pip-audit looks up known vulnerabilities, if its service can be reached.

    .venv-audit/bin/python tools/audit.py constraints.txt ...

The exit status is 1 if there is a vulnerability or pip-audit fails, and else 0. The status is also 0 if the service
does not answer, since a machine without internet access must be able to run all checks. A line then says that no
library was looked up.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

# Messages of pip-audit if the service does not answer. Any other message is an error of pip-audit.
UNREACHABLE = (
    "ConnectionError",
    "Could not connect",
    "Connection",
    "timed out",
    "Timeout",
    "Max retries",
    "ServiceError",
)
Run = Callable[[str], "subprocess.CompletedProcess[str]"]


def main(files: Sequence[str], run: Run | None = None) -> int:
    """Audit each file, and return the exit status."""
    return max([audited(file, run or by_pip_audit) for file in files], default=0)


def by_pip_audit(file: str) -> "subprocess.CompletedProcess[str]":
    """Return the answer of pip-audit, which installs no package."""
    program = Path(sys.executable).with_name("pip-audit")
    options = ["--no-deps", "--disable-pip", "--progress-spinner=off", "--timeout=10", "--format=json"]
    return subprocess.run([program, *options, "-r", file], capture_output=True, text=True, check=False)


def audited(file: str, run: Run) -> int:
    """Print the known vulnerabilities of the libraries in one file, and return the exit status."""
    answer = run(file)
    try:
        libraries = json.loads(answer.stdout)["dependencies"]
    except (ValueError, KeyError):
        if any(sign in answer.stderr for sign in UNREACHABLE):
            print(f"{file}: NOT LOOKED UP: the service that lists vulnerabilities cannot be reached.")
            return 0
        print(f"{file}: pip-audit failed: {answer.stderr.strip()[-2000:]}", file=sys.stderr)
        return 1
    holes = [(library, hole) for library in libraries for hole in library.get("vulns", [])]
    skipped = [library["name"] for library in libraries if "skip_reason" in library]
    if len(skipped) == len(libraries):  # a package mirror answers instead of the service
        print(f"{file}: NOT LOOKED UP: the service knows none of the {len(libraries)} libraries.")
        return 0
    for library, hole in holes:
        fixed = ", ".join(hole.get("fix_versions", [])) or "nowhere yet"
        print(f"{file}: {library['name']} {library['version']}: {hole['id']}, fixed in {fixed}")
    unknown = f"; not known there: {', '.join(skipped)}" if skipped else ""
    print(f"{file}: {len(libraries)} libraries, {len(holes)} known holes{unknown}")
    return 1 if holes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
