"""tools/sdk_tests.py: with a few tests in place of the SDK's own, which its source distribution does not have."""

import sys
import tarfile
from pathlib import Path

import pytest

from tools import sdk_tests
from tools.sdk_tests import (
    REASONS,
    Failed,
    Run,
    differences,
    differing,
    proves_something,
    queue_without_jobs,
    source_of,
    table,
)

SESSIONS = """
import sys
from unittest.mock import MagicMock, call

import pytest
import sagemaker
from sagemaker import Session
from sagemaker.estimator import Session as SessionOfEstimators


def test_it_asks_sagemaker_for_jobs_that_no_queue_has():
    client = MagicMock()
    client.describe_training_job.return_value = {"TrainingJobStatus": "Completed"}
    session = Session(MagicMock(region_name="us-west-2"), client)
    session.wait_for_job("job1", poll=0)
    assert client.method_calls[0] == call.describe_training_job(TrainingJobName="job1")


@pytest.mark.parametrize("module", ["sagemaker", "sagemaker.session", "sagemaker.estimator"])
def test_it_is_the_sdks(module):
    assert sys.modules[module].Session is Session is SessionOfEstimators
    assert Session.__module__ == "sagemaker.session", "it is another one"


def test_nothing_passes_here():
    raise ValueError("never")


@pytest.mark.skip
def test_nothing_runs_here():
    pass


@pytest.fixture
def breaking():
    yield
    raise ValueError("too late")


def test_what_breaks_afterwards_has_not_passed(breaking):
    pass
"""
FILE = "tests/unit/test_session.py"
BROKEN = "tests/unit/test_broken.py"
ASKS = f"{FILE}::test_it_asks_sagemaker_for_jobs_that_no_queue_has"
MODULES = ("sagemaker", "sagemaker.session", "sagemaker.estimator")
IS_THEIRS = tuple(f"{FILE}::test_it_is_the_sdks[{module}]" for module in MODULES)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdk") / "sagemaker-python-sdk-1"
    tests = folder / "tests/unit"
    tests.mkdir(parents=True)
    (folder / FILE).write_text(SESSIONS)
    (folder / BROKEN).write_text("import nothing_of_that_name")
    return folder


class TestRuns:
    @pytest.mark.thorough
    def test_with_theirs(self, repository: Path) -> None:
        theirs = sdk_tests.tested(Path(sys.executable), repository, [FILE, BROKEN])
        assert theirs.sessions == 0
        assert theirs.endings == {
            ASKS: "passed",
            **dict.fromkeys(IS_THEIRS, "passed"),
            f"{FILE}::test_nothing_passes_here": "ValueError: never",
            f"{FILE}::test_nothing_runs_here": "skipped",
            f"{FILE}::test_what_breaks_afterwards_has_not_passed": "ValueError: too late",
            BROKEN: "E   ModuleNotFoundError: No module named 'nothing_of_that_name'",
        }

    @pytest.mark.thorough
    def test_with_ours_which_asks_the_queue(self, repository: Path) -> None:
        with queue_without_jobs() as queue:
            ours = sdk_tests.tested(Path(sys.executable), repository, [FILE], queue.url)
        assert (ours.sessions, queue.asked) == (1, 1)
        assert ours.endings[ASKS] == "passed"
        assert [ours.endings[test] for test in IS_THEIRS] == 3 * ["AssertionError: it is another one"]

    def test_a_python_without_pytest(self, repository: Path, tmp_path: Path) -> None:
        silent = tmp_path / "python"
        silent.write_text("#!/bin/sh\nexit 7\n")
        silent.chmod(0o700)
        with pytest.raises(Failed, match="pytest ended with 7, and said nothing of the tests"):
            sdk_tests.tested(silent, repository, [FILE])


class TestSource:
    def test_a_checkout(self, repository: Path, tmp_path: Path) -> None:
        assert source_of("1", repository, tmp_path, ()) == repository

    def test_the_first_archive_that_has_tests(self, repository: Path, tmp_path: Path) -> None:
        without = tmp_path / "without"
        without.mkdir()

        def packed(content: Path, name: str) -> Path:
            with tarfile.open(tmp_path / name, "w:gz") as archive:
                archive.add(content, "sagemaker-1")
            return tmp_path / name

        ways = (
            lambda version, folder: packed(without, f"{version}-source.tar.gz"),
            lambda version, folder: packed(repository, f"{version}-repository.tar.gz"),
        )
        found = source_of("1", None, tmp_path, ways)
        assert (found / FILE).read_text() == SESSIONS
        assert found == tmp_path / "unpacked-1-repository.tar.gz/sagemaker-1"
        with pytest.raises(Failed, match=r"cannot be had: 1-source.tar.gz has no tests\. Say where"):
            source_of("1", None, tmp_path, ways[:1])

    def test_each_way_that_failed_is_told(self, tmp_path: Path) -> None:
        def unreachable(version: str, folder: Path) -> Path:
            raise Failed(f"there is no way to {version}")

        def broken(version: str, folder: Path) -> Path:
            (folder / "broken").write_text("no archive")
            return folder / "broken"

        with pytest.raises(
            Failed,
            match=r"there is no way to 1; .*broken cannot be unpacked: it is no tar archive.*make sdk-tests SOURCE=",
        ):
            source_of("1", None, tmp_path, (unreachable, broken))

    def test_a_truncated_archive(self, repository: Path, tmp_path: Path) -> None:
        file = tmp_path / "cut.tar.gz"
        with tarfile.open(file, "w:gz") as archive:
            archive.add(repository, "sagemaker-1")
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])
        with pytest.raises(Failed, match="cut.tar.gz cannot be unpacked: it is no tar archive, or not all of one"):
            source_of("1", file, tmp_path, ())

    def test_what_is_named_must_have_them(self, tmp_path: Path) -> None:
        with pytest.raises(Failed, match="it has no tests/unit/test_session.py"):
            source_of("1", tmp_path, tmp_path, ())
        with pytest.raises(Failed, match="there is no .*nowhere"):
            source_of("1", tmp_path / "nowhere", tmp_path, ())
        assert sdk_tests.tests_in(tmp_path) is None


class TestDifferences:
    known = min(REASONS)
    theirs = Run({"a::one": "passed", "a::two": "passed", known: "passed", "b::three": "wrong", "b::four": "passed"}, 0)

    def test_what_passes_with_both_or_with_neither_is_none(self) -> None:
        ours = Run({**self.theirs.endings, "b::three": "passed"}, 1)
        assert differing(self.theirs, ours) == {}

    def test_what_nobody_knows_of_is_unexpected(self) -> None:
        ours = Run({"a::one": "skipped", "a::two": "passed", self.known: "wrong"}, 1)
        text, unexpected = differences(self.theirs, ours)
        assert unexpected == 2
        assert "UNEXPECTED  a::one: skipped\n" in text
        assert "UNEXPECTED  b::four: it did not run\n" in text
        assert f"known       {self.known}: {REASONS[self.known]}\n" in text
        idle = set(REASONS) - {self.known}
        assert all(f"no longer needed in REASONS: {test}\n" in text for test in idle)

    def test_a_reason_is_that_of_all_parameters(self) -> None:
        theirs, ours = Run({f"{self.known}[1]": "passed"}, 0), Run({f"{self.known}[1]": "wrong"}, 1)
        assert differences(theirs, ours)[1] == 0

    def test_the_table(self) -> None:
        ours = Run({**self.theirs.endings, self.known: "wrong", "a::one": "wrong"}, 1)
        rows = table(self.theirs, ours, ["a", "b", self.known.partition("::")[0]]).splitlines()[2:]
        assert rows == [
            "| a | 2 | 0 | 1 | 0 |",
            "| b | 1 | 1 | 1 | 0 |",
            "| tests/unit/test_session.py | 1 | 0 | 0 | 1 |",
            "| all | 4 | 1 | 2 | 1 |",
        ]

    def test_runs_without_our_session_or_without_success_prove_nothing(self) -> None:
        assert proves_something(self.theirs, Run({}, 1))
        assert not proves_something(self.theirs, Run(self.theirs.endings, 0))
        assert not proves_something(Run({"a::one": "wrong", "a::two": "skipped"}, 0), Run({}, 1))
