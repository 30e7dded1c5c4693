"""Time until a member starts: `python benchmarks/sharing.py [--jobs N] [--provisioning SECONDS]`.

Jobs are submitted one after the other to a local cloud, whose training jobs are real processes. Some jobs have a whole
instance. The others have one GPU of an instance on which a carrier runs. The time is measured from the request until
the job's process writes its first line. The local cloud provides instances at once, so SageMaker's time for that is
added to the result (`--provisioning`).
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from local_cloud.aws.stack import LocalCloud  # noqa: E402
from tests.system.conftest import System  # noqa: E402

MOST_SECONDS = 10.0  # limit from submission to the first line of a member on a running carrier
POLICY = {
    "pools": [{"name": "p5", "instance_type": "ml.p5.48xlarge", "capacity": 1, "shared": True, "keep_warm": 600}],
    "projects": [{"name": "nlp", "quota": {"p5": 1}}],
}


class Measured:
    """A submitter of jobs that write a file when they begin."""

    def __init__(self, system: System, folder: Path) -> None:
        self._system, self._folder = system, folder

    def first_line(self, name: str, gpus: str | None) -> float:
        """Run a job to its end; return the seconds from its submission until its process writes.

        :param gpus: the value of the tag `gpus`; None: the job has a whole instance.
        """
        marker = self._folder / name
        tags = [{"Key": "gpus", "Value": gpus}] if gpus else []
        request = self._system.request(name, f"open({str(marker)!r}, 'w').write('line')", Tags=tags)
        began = time.monotonic()
        self._system.queue.submit(request)
        self._until(marker.exists)
        taken = time.monotonic() - began
        self._until(lambda: self._system.state(name) == "completed")
        return taken

    def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            time.sleep(0.01)


def main() -> int:
    """Print the times of both kinds of jobs. Return 1 if the median member takes longer than MOST_SECONDS, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10, help="of each kind (default 10)")
    parser.add_argument("--provisioning", type=float, default=180, help="of an instance, in seconds (default 180)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, LocalCloud(slots=1, policy=POLICY) as cloud:
        measured = Measured(System(cloud), Path(folder))
        whole = [measured.first_line(f"whole{number}", None) for number in range(options.jobs)]
        first = measured.first_line("first", "1")  # with the launch of its carrier
        members = [measured.first_line(f"member{number}", "1") for number in range(options.jobs)]
    wait = options.provisioning
    print("| from submission to the first line, in seconds | median | slowest |\n|---|---|---|")
    for words, times, more in (
        (f"a job with a whole instance, {wait:.0f} s of provisioning included", whole, wait),
        (f"the first member, whose carrier is launched, {wait:.0f} s of provisioning included", [first], wait),
        ("a member on a carrier that runs", members, 0.0),
    ):
        print(f"| {words} | {statistics.median(times) + more:.1f} | {max(times) + more:.1f} |")
    return int(statistics.median(members) > MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
