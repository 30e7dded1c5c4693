"""Run the SageMaker SDK's own unit tests with QueueTrainingJobSession in place of the SDK's Session.

    .venv/bin/python -m tools.sdk_tests [SOURCE]

The SDK is the v2 of constraints.txt, in an environment in build/sdk-tests. The SDK's tests for sessions, jobs and
estimators run twice there: with the SDK's session ("theirs"), and with QueueTrainingJobSession ("ours").
sdk_tests_plugin.py replaces the SDK's session by ours. Our session calls a queue without jobs on this machine. A test
that passes with theirs must pass with ours, unless REASONS has a reason for the difference.

SOURCE is a checkout, or an archive, of the SDK's repository at that version. Without SOURCE, the source distribution of
the package index is tried, and then the version's archive is downloaded from GitHub.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import requests

from local_cloud.sagemaker.job_processes.instance import MEMBER_CHECK
from tools.install import PIP, pinned
from tools.matrix import UV, run, uv_settings

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build/sdk-tests"
PLUGIN = ROOT / "tools/sdk_tests_plugin.py"
ARCHIVE = "https://github.com/aws/sagemaker-python-sdk/archive/refs/tags/v{version}.tar.gz"
TESTS = (
    "tests/unit/test_session.py",
    "tests/unit/test_default_bucket.py",
    "tests/unit/test_upload_data.py",
    "tests/unit/test_expected_bucket_owner.py",
    "tests/unit/test_exception_on_bad_status.py",
    "tests/unit/test_job.py",
    "tests/unit/test_estimator.py",
    "tests/unit/test_pytorch.py",
    "tests/unit/test_sklearn.py",
    "tests/unit/test_xgboost.py",
    "tests/unit/sagemaker/tensorflow/test_estimator.py",
    "tests/unit/sagemaker/huggingface/test_estimator.py",
)
# Packages of the tests besides the SDK. The tests apply marks to fixtures, and pytest 9 rejects such marks.
TEST_TOOLS = ("mock", "pytest<9", "pytest-timeout", "six")
OPTIONS = (
    *("-p", PLUGIN.stem, "-p", "no:cacheprovider", "-o", "addopts=", "-q", "--tb=no", "--no-header", "-rN"),
    *("--disable-warnings", "--continue-on-collection-errors", "--timeout", "120"),
)
PASSED = "passed"
SKIPPED = "skipped"
NOT_RUN = "it did not run"

REASONS: Mapping[str, str] = {
    "tests/unit/test_session.py::test_default_session": (
        "ours is a copy, because clients of boto3's default session must not change (docs/developers/adr/0018)"
    ),
    "tests/unit/test_session.py::test_logs_for_job_full_lifecycle": (
        "it counts the calls of time.time(), and asking the queue whether it has the job makes some of its own"
    ),
}
"""Tests that pass with the SDK's session but need not pass with ours, by name without parameters, and the reasons."""


class Failed(Exception):
    """Raised if the tests are not available or cannot be run."""


@dataclass(frozen=True)
class Run:
    """The results of tests (passed, skipped, or a message), and the number of our sessions that the tests created."""

    endings: Mapping[str, str]
    sessions: int

    def passed(self, file: str = "") -> int:
        """Return how many tests passed, in one file or in all."""
        return sum(ending == PASSED for ending in self._of(file))

    def failed(self, file: str = "") -> int:
        """Return how many tests failed, in one file or in all; a file that cannot be imported counts as one."""
        return sum(ending not in (PASSED, SKIPPED) for ending in self._of(file))

    def _of(self, file: str) -> list[str]:
        return [ending for test, ending in self.endings.items() if test.startswith(file)]


def main(arguments: Sequence[str]) -> int:
    """Run the tests; return 1 if they are not available, fail with ours for no known reason, or prove nothing."""
    version = pinned("sagemaker").partition("==")[2]
    try:
        given = Path(arguments[0]).resolve() if arguments else None
        source = source_of(version, given, FOLDER, (source_distribution, archive))
        python = environment(version)
        files = [test for test in TESTS if (source / test).exists()]
        print(f"With the session of the SDK {version}:", flush=True)
        theirs = tested(python, source, files)
        print("With ours:", flush=True)
        with queue_without_jobs() as queue:
            ours = tested(python, source, files, queue.url)
    except Failed as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        return 1
    print(f"\nThe tests of the SageMaker SDK {version}\n\n{table(theirs, ours, TESTS)}")
    if absent := sorted(set(TESTS) - set(files)):
        print(f"Not there: {', '.join(absent)}")
    print(f"Our session was made {ours.sessions} times, and asked the queue {queue.asked} times.")
    text, unexpected = differences(theirs, ours)
    print(text, end="")
    return int(unexpected > 0 or not proves_something(theirs, ours))


def proves_something(theirs: Run, ours: Run) -> bool:
    """Return whether the comparison proves something: a test passed with theirs, and a session of ours was made."""
    return theirs.passed() > 0 and ours.sessions > 0


Fetch = Callable[[str, Path], Path]
"""Downloads an archive of a version to a folder, and returns the archive's path. Raises Failed."""


def source_of(version: str, given: Path | None, folder: Path, ways: Sequence[Fetch]) -> Path:
    """Return a folder with the SDK's tests: from ``given``, else from the first archive of ``ways`` that has tests.

    The functions in ``ways`` are called in order. Files are downloaded and unpacked in ``folder``. Raise Failed, which
    names the places that were tried.
    """
    if given is not None:
        if not given.exists():
            raise Failed(f"there is no {given}")
        found = tests_in(given if given.is_dir() else unpacked(given, folder))
        if found is None:
            raise Failed(f"{given} is no checkout or archive of the SDK's repository: it has no {TESTS[0]}")
        return found
    reasons = []
    for fetch in ways:
        try:
            file = fetch(version, folder)
            found = tests_in(unpacked(file, folder))
        except Failed as failure:
            reasons.append(str(failure))
        else:
            if found is not None:
                return found
            reasons.append(f"{file.name} has no tests")
    raise Failed(
        f"The tests of sagemaker {version} cannot be had: {'; '.join(reasons)}. Say where a checkout or an archive of "
        f'its repository at v{version} is: make sdk-tests SOURCE="..."'
    )


def tests_in(folder: Path) -> Path | None:
    """Return the folder, or its subfolder, that contains the tests; None if there is none."""
    return next((place for place in (folder, *sorted(folder.glob("*/"))) if (place / TESTS[0]).exists()), None)


def unpacked(file: Path, folder: Path) -> Path:
    """Unpack a tar archive into a new folder."""
    own = folder / f"unpacked-{file.name}"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    try:
        with tarfile.open(file) as content:
            content.extractall(own, **MEMBER_CHECK)  # noqa: S202
    except (tarfile.TarError, EOFError) as error:  # EOFError: the compressed data is cut
        raise Failed(f"{file} cannot be unpacked: it is no tar archive, or not all of one") from error
    return own


def source_distribution(version: str, folder: Path) -> Path:
    """Download the package's source from the sources that pip is configured with."""
    command = [*PIP, "download", "--quiet", "--no-deps", "--no-binary", "sagemaker", "--dest", str(folder)]
    if run([*command, f"sagemaker=={version}"], os.environ):
        raise Failed("the source distribution cannot be downloaded")
    return folder / f"sagemaker-{version}.tar.gz"


def archive(version: str, folder: Path) -> Path:
    """Download an archive of the SDK's repository at the version from GitHub."""
    url = ARCHIVE.format(version=version)
    try:
        answer = requests.get(url, timeout=300)
        answer.raise_for_status()
    except requests.RequestException as error:
        raise Failed(f"{url} cannot be fetched ({type(error).__name__})") from error
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"v{version}.tar.gz"
    file.write_bytes(answer.content)
    return file


def environment(version: str) -> Path:
    """Make an environment with the SDK, the client of this checkout and the tests' tools; return its Python."""
    home = FOLDER / "environment"
    python = home / "bin/python"
    uv = uv_settings()
    install = [*UV, "pip", "install", "--quiet", "--python", str(python)]
    client = ["--reinstall-package", "sagemaker-queue", "--constraint", "constraints.txt", "."]
    for command in (
        [*UV, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(home)],
        [*install, f"sagemaker=={version}", *client],
        [*install, *TEST_TOOLS],
    ):
        if run(command, uv):
            raise Failed("the SDK cannot be installed")
    return python


def tested(python: Path, source: Path, tests: Sequence[str], queue_url: str = "") -> Run:
    """Run tests of the folder ``source``, with our session if ``queue_url`` is set, else with theirs. Raise Failed."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(PLUGIN, folder)  # no code of this checkout is imported except the installed client
        notes = Path(folder, "notes.json")
        about = {"HOME": folder, "PYTHONPATH": folder, "SDK_TESTS_NOTES": str(notes), "SDK_TESTS_QUEUE": queue_url}
        command = [str(python), "-m", "pytest", *OPTIONS, "--rootdir", str(source), *tests]
        status = subprocess.run(command, cwd=source, env={**without_account(), **about}, check=False).returncode
        if not notes.exists():
            raise Failed(f"pytest ended with {status}, and said nothing of the tests")
        return Run(**json.loads(notes.read_text()))


def without_account() -> dict[str, str]:
    """Return this environment with an AWS account that does not exist, and without network access.

    A call to AWS that is not a mock fails.
    """
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SAGEMAKER_"))},
        **nowhere,
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1"),
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "not-a-secret",
        "AWS_DEFAULT_REGION": "us-west-2",
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
    }


class QueueWithoutJobs(ThreadingHTTPServer):
    """A server that answers every request with NotFound."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked = 0

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: QueueWithoutJobs

    def _answer(self) -> None:
        self.server.asked += 1
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.dumps({"errors": [{"code": "NotFound", "message": "There is no such job."}]}).encode()
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer  # noqa: N815  # http.server's names

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def queue_without_jobs() -> Iterator[QueueWithoutJobs]:
    """Run a queue without jobs while the block runs."""
    with QueueWithoutJobs() as queue:
        thread = threading.Thread(target=queue.serve_forever)
        thread.start()
        try:
            yield queue
        finally:
            queue.shutdown()
            thread.join()


def differing(theirs: Run, ours: Run) -> dict[str, str]:
    """Return each test that passes with the SDK's session but not with ours, and its result with ours."""
    passed = [test for test, ending in theirs.endings.items() if ending == PASSED]
    endings = {test: ours.endings.get(test, NOT_RUN) for test in passed}
    return {test: ending for test, ending in endings.items() if ending != PASSED}


def reason_of(test: str) -> str | None:
    """Return why a test need not pass with ours; None if the test must pass."""
    return REASONS.get(test.partition("[")[0])


def table(theirs: Run, ours: Run, files: Sequence[str]) -> str:
    """Return a table with a row for each file of tests."""
    known = [test for test in differing(theirs, ours) if reason_of(test)]
    rows = []
    for file in (*files, ""):
        reasons = sum(test.startswith(file) for test in known)
        rows.append((file or "all", theirs.passed(file), theirs.failed(file), ours.passed(file), reasons))
    lines = ["| tests | pass with theirs | fail with theirs | pass with ours | differ for a reason |"]
    lines += ["|---|---|---|---|---|", *("| " + " | ".join(map(str, row)) + " |" for row in rows)]
    return "".join(f"{line}\n" for line in lines)


def differences(theirs: Run, ours: Run) -> tuple[str, int]:
    """Return lines about differences and about unneeded REASONS, and the number of unexpected differences."""
    lines, unexpected = [], 0
    found = differing(theirs, ours)
    for test, ending in found.items():
        reason = reason_of(test)
        unexpected += reason is None
        lines.append(f"UNEXPECTED  {test}: {ending}" if reason is None else f"known       {test}: {reason}")
    idle = set(REASONS) - {test.partition("[")[0] for test in found}
    lines += [f"no longer needed in REASONS: {test}" for test in sorted(idle)]
    return "".join(f"{line}\n" for line in lines), unexpected


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
