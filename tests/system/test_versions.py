"""Client and queue of different versions: this client with an earlier queue, and an earlier client with this queue.

The earlier version is a commit of this repository. Version 1.0 promises to work with it.
"""

import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from local_cloud.sagemaker.job_processes.instance import MEMBER_CHECK
from tests.waiting import PATIENCE

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]
EARLIER = "73a76b5"
SCRIPT = """\
set -e
smq() { "$PYTHON" -m sagemaker_queue "$@"; }
mkdir work && cd work
cat > train.py <<'END'
import os, pathlib, time
folder = pathlib.Path(os.environ.get("SM_CHECKPOINT_DIR", "/opt/ml/checkpoints"))
(folder / f"attempt-{len(list(folder.iterdir()))}").write_text("")
print("attempts:", len(list(folder.iterdir())), flush=True)
while len(list(folder.iterdir())) < 2:
    time.sleep(0.1)
END
smq status
smq submit --name low --checkpoint --priority 1 -- python train.py
until smq logs low | grep "attempts: 1"; do sleep 1; done
smq submit --name high --priority 5 -- echo "a higher priority"
smq why low
smq show high
smq wait low high
smq logs low | grep "attempts: 2"
smq ls --all
smq events low | grep -i preempt
smq hold low && exit 1 || true
smq submit --name later -n 9 -- true && exit 1 || true
smq submit --name blocks -- sleep 1000
smq submit --name waits -- true
smq hold waits
smq release waits
smq set-priority waits 7
smq cancel blocks waits --yes
smq wait blocks waits || true
smq ls --all | grep "stopped"
smq history
smq usage
smq policy show > policy.yaml
smq policy check policy.yaml
echo "all done"
"""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout of the earlier version."""
    archive = subprocess.run(["git", "archive", EARLIER], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the history of this checkout does not reach {EARLIER}")
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder, **MEMBER_CHECK)  # noqa: S202
    return folder


def work_together(queue: Path, client: Path, folder: Path) -> None:
    """Run the script with the client of one checkout on a local cloud of another."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON", "SAGEMAKER_"))}
    script = f'export PYTHONPATH="{client}:{client}/client"\n{SCRIPT}'
    done = subprocess.run(
        [sys.executable, "-m", "local_cloud", "exec", "--slots", "1", "--", "bash", "-c", f"cd '{folder}'\n{script}"],
        cwd=queue,
        env={**bare, "PYTHONPATH": f"{queue}:{queue}/client", "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0 and "all done" in done.stdout, done.stdout + done.stderr


def test_this_client_works_with_an_earlier_queue(earlier: Path, tmp_path: Path) -> None:
    work_together(earlier, ROOT, tmp_path)


def test_an_earlier_client_works_with_this_queue(earlier: Path, tmp_path: Path) -> None:
    work_together(ROOT, earlier, tmp_path)
