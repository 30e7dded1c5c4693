"""Break one rule of the scheduler after the other in a private copy, and run its tests: `python -m tests.mutations`.

Printed is what became of each; the exit status is 1 where one survived. It takes some minutes.
"""

import argparse
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutations.rules import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
TESTS = "tests/unit/scheduler"
PROPERTIES = f"{TESTS}/test_properties.py"
ROUNDS = (("--ignore", PROPERTIES, TESTS), (PROPERTIES,))  # the quick ones first


def main() -> int:
    """Try all mutations, or those whose rule contains a word."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("word", nargs="?", default="", help="only rules that contain this word")
    parser.add_argument("--jobs", type=int, default=2, help="how many at the same time")
    options = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if options.word in mutation.rule]
    with TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        survived = 0
        for mutation, noticed_by in zip(chosen, pool.map(partial(_try, Path(folder)), chosen), strict=True):
            print(f"{'noticed' if noticed_by else 'SURVIVED':9} {mutation.rule}  {noticed_by}", flush=True)
            survived += not noticed_by
    print(f"{len(chosen)} mutations, {survived} survived")
    return 1 if survived else 0


def _try(folder: Path, mutation: Mutation) -> str:
    """The test that notices it; nothing where none does."""
    copy = folder / str(MUTATIONS.index(mutation))
    for name in ("job_queue", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    module = copy / "job_queue" / "scheduler" / mutation.module
    source = module.read_text()
    if source.count(mutation.line) != 1:
        raise ValueError(f"{mutation.module} has {mutation.line!r} {source.count(mutation.line)} times, not once")
    module.write_text(source.replace(mutation.line, mutation.broken))
    for arguments in ROUNDS:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", *arguments]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        if done.returncode:
            failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            shutil.rmtree(copy)
            return failed[0].split("::")[-1].split(" - ")[0] if failed else "the tests break off"
    shutil.rmtree(copy)
    return ""


if __name__ == "__main__":
    sys.exit(main())
