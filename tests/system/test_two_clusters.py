"""Data between two clusters (document 004): two identities, of which none may read the one and write the other."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from local_cloud.aws.stack import REGION, LocalCloud
from sagemaker_queue.cli import main
from sagemaker_queue.cli.output import INTERRUPTED
from tests.client.terminal import Terminal
from tests.system.people import grant, session_of
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.thorough

MANY = 150  # files
LARGE = os.urandom(1000) * 20_000  # three parts of an upload
ANN, BOB = "ann", "bob"  # of the clusters A and B
FROM_A, TO_B = "s3://cluster-a/sets/", "s3://cluster-b/sets/"


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with LocalCloud(slots=1) as cloud:
        yield cloud


def rights(bucket: str, *actions: str, below: str = "*") -> list[dict[str, Any]]:
    return [
        {"Effect": "Allow", "Action": list(actions), "Resource": f"arn:aws:s3:::{bucket}/{below}"},
        {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{bucket}"},
    ]


READ, WRITE = ("s3:GetObject",), ("s3:PutObject", "s3:AbortMultipartUpload")


@pytest.fixture(scope="module")
def people(cloud: LocalCloud) -> dict[str, boto3.Session]:
    return {name: session_of(cloud, name, ["s3:ListAllMyBuckets"]) for name in (ANN, BOB)}


@pytest.fixture
def s3(
    cloud: LocalCloud,
    people: dict[str, boto3.Session],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """Two clusters as two profiles, each with its own keys, its own bucket and its own data link; A has data."""
    for name, value in cloud.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SAGEMAKER_QUEUE_URL")
    keys, profiles = "", ""
    for person, profile in ((ANN, "a"), (BOB, "b")):
        credentials = people[person].get_credentials()
        assert credentials is not None
        keys += f"[{person}]\naws_access_key_id = {credentials.access_key}\n"
        keys += f"aws_secret_access_key = {credentials.secret_key}\n"
        profiles += f'[profiles.{profile}]\nurl = "{cloud.queue_url}"\nregion = "{REGION}"\naws_profile = "{person}"\n'
        profiles += f'[profiles.{profile}.data]\n"data" = "s3://cluster-{profile}/sets"\n'
    (tmp_path / "keys").write_text(keys)
    (tmp_path / "profiles.toml").write_text(profiles)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    monkeypatch.setenv("SAGEMAKER_QUEUE_CONFIG", str(tmp_path / "profiles.toml"))
    monkeypatch.chdir(tmp_path)
    s3 = cloud.client("s3")
    for bucket in ("cluster-a", "cluster-b"):
        s3.create_bucket(Bucket=bucket)
        for found in s3.list_objects_v2(Bucket=bucket).get("Contents", []):
            s3.delete_object(Bucket=bucket, Key=found["Key"])
    s3.put_object(Bucket="cluster-a", Key="sets/b.txt", Body=b"of cluster A", ContentType="text/plain")
    s3.put_object(Bucket="cluster-a", Key="sets/deep/c.txt", Body=b"")
    (tmp_path / "large").write_bytes(LARGE)
    s3.upload_file(str(tmp_path / "large"), "cluster-a", "sets/large")
    grant(cloud, ANN, *rights("cluster-a", *READ))
    grant(cloud, BOB, *rights("cluster-b", *WRITE))
    return s3


def kept(s3: Any, bucket: str) -> dict[str, tuple[str, bytes]]:
    found = s3.list_objects_v2(Bucket=bucket).get("Contents", [])
    return {it["Key"]: (it["ETag"], s3.get_object(Bucket=bucket, Key=it["Key"])["Body"].read()) for it in found}


def test_data_go_through_this_machine_where_neither_identity_may_do_both(
    s3: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert main(["-c", "b", "data", "put", "data", "--from", "a"]) == 0
    out, err = capsys.readouterr()
    assert out == f"3 files, 20.0 MB, uploaded to {TO_B.rstrip('/')}\n"
    assert err.count("smq: note: Neither profile's credentials may read") == 1
    assert kept(s3, "cluster-b") == kept(s3, "cluster-a")  # the ETags, too
    assert sorted(tmp_path.rglob("*")) == before
    assert main(["-c", "b", "data", "put", "data", "--from", "a"]) == 0
    assert capsys.readouterr() == (f"0 files, 0 bytes, uploaded to {TO_B.rstrip('/')}; 3 files already there\n", "")


def test_one_file_by_its_path_as_in_the_document(s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-c", "b", "data", "put", "data/b.txt", "--from", "a"]) == 0
    assert capsys.readouterr().out == f"1 file, 12 bytes, uploaded to {TO_B}b.txt\n"
    answer = s3.get_object(Bucket="cluster-b", Key="sets/b.txt")
    assert (answer["Body"].read(), answer["ContentType"]) == (b"of cluster A", "text/plain")
    assert main(["-c", "b", "data", "put", "data/b.txt", "--from", "a"]) == 0
    assert capsys.readouterr().out.endswith("; 1 file already there\n")


@pytest.mark.parametrize("person", [ANN, BOB])
def test_s3_copies_by_itself_where_one_identity_may_do_both(
    s3: Any, cloud: LocalCloud, person: str, capsys: pytest.CaptureFixture[str]
) -> None:
    grant(cloud, person, *rights("cluster-a", *READ), *rights("cluster-b", *WRITE))
    assert main(["-c", "b", "data", "put", "data", "--from", "a"]) == 0
    assert capsys.readouterr() == (f"3 files, 20.0 MB, uploaded to {TO_B.rstrip('/')}\n", "")
    assert kept(s3, "cluster-b") == kept(s3, "cluster-a")


def test_after_an_interruption_only_what_is_missing_is_sent(
    s3: Any, cloud: LocalCloud, capsys: pytest.CaptureFixture[str]
) -> None:
    grant(cloud, BOB, *rights("cluster-b", *WRITE, below="sets/b.txt"))  # the others are refused
    assert main(["-c", "b", "data", "put", "data", "--from", "a"]) == 1
    assert f"{TO_B}deep/c.txt cannot be written" in capsys.readouterr().err
    assert list(kept(s3, "cluster-b")) == ["sets/b.txt"]
    grant(cloud, BOB, *rights("cluster-b", *WRITE))
    assert main(["-c", "b", "data", "put", "data", "--from", "a"]) == 0
    assert capsys.readouterr().out.endswith("2 files, 20.0 MB, uploaded to s3://cluster-b/sets; 1 file already there\n")


ARGUMENTS = ["-c", "b", "data", "put", "data", "--from", "a"]
COPY = [sys.executable, "-m", "sagemaker_queue", *ARGUMENTS]
# The network of this program becomes so slow that the copy is still under way whenever the test interrupts it.
SLOW_NETWORK = """
import runpy, time
from botocore.httpsession import URLLib3Session
send = URLLib3Session.send
def send_slowly(session, request):
    if request.method == "PUT" and "/many/020" in request.url:
        time.sleep(86400)
    return send(session, request)
URLLib3Session.send = send_slowly
runpy.run_module("sagemaker_queue", run_name="__main__", alter_sys=True)
"""


def test_ctrl_c_leaves_what_has_arrived_and_the_same_command_goes_on(
    s3: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(MANY):
        s3.put_object(Bucket="cluster-a", Key=f"sets/many/{number:03}", Body=str(number).encode())
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_NETWORK, *ARGUMENTS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  # a shell may have it ignored
    ) as program:
        try:
            until(lambda: s3.list_objects_v2(Bucket="cluster-b")["KeyCount"] > 5 or program.poll() is not None)
            program.send_signal(signal.SIGINT)
            output, _ = program.communicate(timeout=PATIENCE)
        finally:
            program.kill()
    assert program.returncode == INTERRUPTED, output
    arrived = len(kept(s3, "cluster-b"))
    assert 5 < arrived < MANY
    assert main(["-c", "b", "data", "put", "data", "--from", "a"]) == 0
    assert capsys.readouterr().out.startswith(f"{MANY + 3 - arrived} files, ")
    assert kept(s3, "cluster-b") == kept(s3, "cluster-a")


def test_on_a_terminal_one_sees_how_much_is_copied(s3: Any) -> None:
    with Terminal(COPY) as terminal:
        assert terminal.end() == 0, terminal.text
        assert terminal.has("the data goes through this machine") and terminal.has("3 files, 20.0 MB, uploaded to")
    drawn = terminal.written.decode()
    assert "Copying" in drawn and "20.0/20.0 MB" in drawn


def test_the_source_is_read_with_the_rights_of_its_own_profile(
    s3: Any, cloud: LocalCloud, capsys: pytest.CaptureFixture[str]
) -> None:
    grant(cloud, ANN, *rights("cluster-b", *READ))
    grant(cloud, BOB, *rights("cluster-a", *READ), *rights("cluster-b", *WRITE))
    assert main(["-c", "b", "data", "put", "data", "--from", "a"]) == 1
    assert "s3://cluster-a/sets" in capsys.readouterr().err
    assert kept(s3, "cluster-b") == {}
