"""Whoever may write to the bucket of somebody's code can spoil the job, and cannot have it run anything of theirs."""

import io
import tarfile
from pathlib import Path

import pytest

from sagemaker_queue.queue.data_links import S3Address
from tests.system.conftest import System
from tests.system.test_submit import Smq, ended, folder, reason, smq

__all__ = ["folder", "smq"]  # fixtures

pytestmark = pytest.mark.attack

FOREIGN = b"print('foreign code has run')\n"


def archive(script: bytes) -> bytes:
    """A code archive as `smq submit` could have made it, with another script."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        member = tarfile.TarInfo("hello.py")
        member.size = len(script)
        tar.addfile(member, io.BytesIO(script))
    return buffer.getvalue()


def code_of(system: System, name: str) -> S3Address:
    channels = system.job(name).request["InputDataConfig"]
    return S3Address.parse(
        next(c for c in channels if c["ChannelName"] == "code")["DataSource"]["S3DataSource"]["S3Uri"]
    )


def put(system: System, address: S3Address, content: bytes) -> None:
    system.cloud.client("s3").put_object(Bucket=address.bucket, Key=address.key, Body=content)


@pytest.mark.thorough
@pytest.mark.parametrize(("part", "content"), [("source.tar.gz", archive(FOREIGN)), ("run.py", FOREIGN)])
def test_what_was_changed_between_submission_and_start_is_not_run(
    system: System, smq: Smq, folder: Path, part: str, content: bytes
) -> None:
    (folder / "hello.py").write_text(f"print('hello', {part!r})")
    name = f"changed-{part.partition('.')[0]}"
    system.run(f"before-{name}", instances=2)
    assert smq("submit", "-t", "ml.p5.48xlarge", "--name", name, "--", "python", "hello.py").code == 0
    assert system.state(name) == "pending"
    put(system, code_of(system, name) / part, content)
    system.queue.cancel(f"before-{name}")
    lines = ended(system, name, "failed")
    assert not any("foreign" in line or "hello" in line for line in lines)
    assert part in reason(system, name)
    assert "it was changed in S3" in reason(system, name)


@pytest.mark.thorough
@pytest.mark.parametrize(("part", "content"), [("source.tar.gz", archive(FOREIGN)), ("run.py", FOREIGN)])
def test_what_was_changed_before_is_brought_again(
    system: System, smq: Smq, folder: Path, part: str, content: bytes
) -> None:
    (folder / "hello.py").write_text(f"print('hello again', {part!r})")
    names = [f"{kind}-{part.partition('.')[0]}" for kind in ("before", "after", "same")]
    options = ["-t", "ml.p5.48xlarge"]
    first = smq("submit", *options, "--name", names[0], "--", "python", "hello.py")
    assert "uploaded to s3://" in first.err
    put(system, code_of(system, names[0]) / part, content)
    assert "uploaded to s3://" in smq("submit", *options, "--name", names[1], "--", "python", "hello.py").err
    assert "already in s3://" in smq("submit", *options, "--name", names[2], "--", "python", "hello.py").err
    for name in names[1:]:
        assert ended(system, name)[-1] == f"hello again {part}"


def test_files_beside_the_code_take_no_modules_place(system: System, smq: Smq, folder: Path) -> None:
    (folder / "hello.py").write_text("import json; print('hello beside', json.__file__)")
    system.run("before-beside", instances=2)
    assert smq("submit", "-t", "ml.p5.48xlarge", "--name", "beside", "--", "python", "hello.py").code == 0
    for module in ("json", "gzip", "sitecustomize", "usercustomize", "os"):
        put(system, code_of(system, "beside") / f"{module}.py", FOREIGN)
    system.queue.cancel("before-beside")
    lines = ended(system, "beside")
    assert not any("foreign" in line for line in lines)
    assert lines[-1].startswith("hello beside")


def test_a_bucket_that_has_become_somebody_elses_gets_nothing(
    system: System, smq: Smq, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here all buckets are of one account; so it is the person who expects another one."""
    (folder / "hello.py").write_text("print('hello owner')")
    monkeypatch.delenv("SAGEMAKER_QUEUE_URL")  # which has no profile
    assert smq("config", "set", "url", system.cloud.queue_url).code == 0
    assert smq("config", "set", "bucket_owners", "system=111122223333").code == 0
    submit = smq("submit", "-t", "ml.p5.48xlarge", "--bucket", "system", "--name", "owner", "--", "python", "hello.py")
    for refused in (submit, smq("data", "put", "hello.py", "s3://system/hello.py"), smq("data", "ls", "s3://system/")):
        assert refused.code != 0
        assert "the bucket does not belong to the expected account" in refused.err
    assert system.state("owner") is None
    kept = system.cloud.client("s3").list_objects_v2(Bucket="system", Prefix="hello.py")
    assert "Contents" not in kept
