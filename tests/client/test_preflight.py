"""What the caller sees in S3 before a job is queued: each rule stops one request and lets one like it pass."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import boto3
import pytest
from botocore.awsrequest import AWSResponse, HeadersDict
from botocore.exceptions import EndpointConnectionError
from moto import mock_aws

from sagemaker_queue import InvalidRequest
from sagemaker_queue.jobs.preflight import PreflightIssue, check, refuse
from sagemaker_queue.queue.client import QueueClient
from tests.client.conftest import ScriptedServer

REGION: Final = "eu-west-1"
ELSEWHERE: Final = "us-east-1"
PAGE = Path(__file__).parents[2] / "docs/reference/preflight.md"
DATA = "InputDataConfig[0].DataSource.S3DataSource.S3Uri"
CODE = "HyperParameters.sagemaker_submit_directory"
KEPT, OUTPUT = "CheckpointConfig.S3Uri", "OutputDataConfig.S3OutputPath"


@pytest.fixture(scope="module")
def buckets() -> Iterator[None]:
    """A bucket with data and code, and one in another region."""
    with mock_aws():
        s3 = boto3.Session(region_name=REGION).client("s3")
        s3.create_bucket(Bucket="here", CreateBucketConfiguration={"LocationConstraint": REGION})
        for key in ("data/part-0", "list.manifest", "code/sourcedir.tar.gz", "code/sourcedir.tar.gz.old"):
            s3.put_object(Bucket="here", Key=key)
        boto3.Session(region_name=ELSEWHERE).client("s3").create_bucket(Bucket="far")
        yield


def new_session() -> boto3.Session:
    return boto3.Session("AKIDEXAMPLE", "not-a-secret", region_name=REGION)


@pytest.fixture(scope="module")
def session(buckets: None) -> boto3.Session:
    """Its first client takes a second to make."""
    return new_session()


def data(uri: str, kind: str = "S3Prefix") -> dict[str, Any]:
    source = {"S3DataSource": {"S3DataType": kind, "S3Uri": uri}}
    return {"InputDataConfig": [{"ChannelName": "training", "DataSource": source}]}


def code(value: str) -> dict[str, Any]:
    return {"HyperParameters": {"sagemaker_submit_directory": value}}


def kept(uri: str) -> dict[str, Any]:
    return {"CheckpointConfig": {"S3Uri": uri}}


def output(uri: str) -> dict[str, Any]:
    return {"OutputDataConfig": {"S3OutputPath": uri}}


# (stopped, passes, field)
RULES = {
    "data": (data("s3://here/dta/"), data("s3://here/data/"), DATA),
    "data by a part of a name": (data("s3://here/data/part-1"), data("s3://here/data/part"), DATA),
    "data in no bucket": (data("s3://nowhere/data"), data("s3://here/"), DATA),
    "a manifest": (data("s3://here/list", "ManifestFile"), data("s3://here/list.manifest", "ManifestFile"), DATA),
    "code": (code('"s3://here/code/sourcedir"'), code('"s3://here/code/sourcedir.tar.gz"'), CODE),
    "code, not as JSON": (code("s3://here/code/none.tar.gz"), code("s3://here/code/sourcedir.tar.gz"), CODE),
    "code that comes by a channel": (code("s3://nowhere/c"), code("/opt/ml/input/data/code/sourcedir.tar.gz"), CODE),
    "checkpoints in no bucket": (kept("s3://nowhere/kept"), kept("s3://here/new/folder"), KEPT),
    "checkpoints elsewhere": (kept("s3://far/kept"), kept("s3://here/kept"), KEPT),
    "output in no bucket": (output("s3://nowhere"), output("s3://here"), OUTPUT),
    "output elsewhere": (output("s3://far/output"), output("s3://here/output"), OUTPUT),
}


@pytest.mark.parametrize("name", RULES)
def test_a_request_is_stopped_and_one_like_it_passes(name: str, session: boto3.Session) -> None:
    stopped, passes, field = RULES[name]
    (finding,) = check(stopped, session)
    assert finding.field == field
    assert finding.message.startswith(field) and finding.message.endswith(".")
    assert check(passes, session) == []


def test_the_region_is_the_jobs(session: boto3.Session) -> None:
    assert check(output("s3://far/output"), session, region=ELSEWHERE) == []
    assert [finding.field for finding in check(output("s3://here/output"), session, region=ELSEWHERE)] == [OUTPUT]


def test_what_the_caller_is_going_to_upload_need_not_be_there(session: boto3.Session) -> None:
    own = data("s3://nowhere/code/1/") | output("s3://nowhere/output")
    assert [finding.field for finding in check(own, session)] == [DATA, OUTPUT]
    assert check(own, session, upload_folder="s3://nowhere/code/1/") == []
    (other,) = check(data("s3://nowhere/data"), session, upload_folder="s3://nowhere/code/1/")
    assert other.message.startswith(f"{DATA} names s3://nowhere/data, which has no objects")
    (far,) = check(data("s3://far/code/1/") | output("s3://far/output"), session, upload_folder="s3://far/code/1/")
    assert far.field == OUTPUT


def test_all_is_told_at_once_in_the_requests_order(session: boto3.Session) -> None:
    request = data("s3://nowhere/x") | code("s3://here/none") | output("s3://far/o") | kept("s3://nowhere/kept")
    assert [finding.field for finding in check(request, session)] == [DATA, CODE, OUTPUT, KEPT]


@pytest.mark.parametrize(
    "request_",
    [
        {},
        output("https://s3.amazonaws.com/here/output"),
        output("s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/mine/output"),
        data("s3://nowhere") | {"InputDataConfig": None},
        {"InputDataConfig": [None, {"DataSource": {"S3DataSource": []}}], "CheckpointConfig": "s3://nowhere"},
        data("s3://here/data", "S3Prefix") | {"HyperParameters": {"sagemaker_submit_directory": 5}},
        data({"S3Uri": "s3://nowhere"}, []),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_looked_at_is_the_queues_to_judge(request_: dict[str, Any], session: boto3.Session) -> None:
    assert check(request_, session) == []


def denied(**_: Any) -> AWSResponse:
    class Raw:
        def stream(self, **_: Any) -> Iterator[bytes]:
            yield b"<Error><Code>AccessDenied</Code></Error>"

    return AWSResponse("https://s3", 403, HeadersDict(), Raw())  # type: ignore[arg-type]


def unreachable(**_: Any) -> AWSResponse:
    raise EndpointConnectionError(endpoint_url="https://s3")


@pytest.mark.parametrize("answer", [denied, unreachable])
@pytest.mark.usefixtures("buckets")
def test_who_may_not_look_finds_nothing(answer: Any) -> None:
    session = new_session()
    session.events.register_first("before-send.s3.*", answer)
    request = data("s3://here/none") | code("s3://here/none") | kept("s3://nowhere/kept") | output("s3://far")
    assert check(request, session) == []


def test_without_credentials_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert check(data("s3://here/none"), boto3.Session(region_name=REGION)) == []


def test_what_is_found_is_raised_as_one_refusal() -> None:
    refuse([])
    with pytest.raises(InvalidRequest) as error:
        refuse([PreflightIssue("a.b", "a.b is wrong."), PreflightIssue("c", "c is wrong.")])
    assert error.value.field == "a.b"
    assert str(error.value).startswith("a.b is wrong.\nc is wrong.\nTo submit it anyway: ")
    assert "--no-preflight" in str(error.value)


def test_without_preflight_the_queue_is_told_so(queue: QueueClient, server: ScriptedServer) -> None:
    for preflight in (True, False):
        server.answers(202, {"job": "job1", "state": "pending"})
        queue.submit({"TrainingJobName": "job1"}, preflight=preflight)
    assert [it.path for it in server.received] == ["/prod/add-job", "/prod/add-job?preflight=false"]
    assert json.loads(server.received[1].body) == {"TrainingJobName": "job1"}


def test_the_page_has_every_message_and_no_other(session: boto3.Session) -> None:
    _, _, own = PAGE.read_text().partition("\n## Checks of S3 by the client\n")
    rows = [row.replace("`", "") for row in re.findall(r"^- (.+[.])$", own, re.MULTILINE)]
    patterns = {row: re.compile(".+".join(re.escape(part) for part in row.split("…"))) for row in rows}
    said = [finding.message for stopped, _, _ in RULES.values() for finding in check(stopped, session)]
    for message in said:
        assert any(pattern.fullmatch(message) for pattern in patterns.values()), f"{PAGE.name} lacks: {message}"
    for row, pattern in patterns.items():
        assert any(pattern.fullmatch(message) for message in said), f"no rule says: {row}"
