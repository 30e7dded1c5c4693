"""Renews constraints-sdk3.txt: python -m tests.sdk3.constraints REPORT FILE

REPORT is what pip would install of the SDK and all its requirements (`pip install --dry-run --report`); of that, FILE
names what the tests need, and keeps doing so, in other versions.
"""

import json
import re
import sys
from pathlib import Path


def main(report: Path, file: Path) -> None:
    """Rewrite the versions in `file`."""
    found = [installed["metadata"] for installed in json.loads(report.read_text())["install"]]
    versions = {_plain(package["name"]): package["version"] for package in found}
    pinned = re.compile(r"(?P<name>[^#=]+)==.*")
    lines = []
    for line in file.read_text().splitlines():
        match = pinned.fullmatch(line)
        lines.append(f"{match['name']}=={versions[_plain(match['name'])]}" if match else line)
    file.write_text("\n".join(lines) + "\n")


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
