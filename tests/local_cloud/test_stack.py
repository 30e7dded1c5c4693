"""The local cloud as a place: what is in it, who gets in, and that nothing is left of it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import psutil
import pytest
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from local_cloud.aws.stack import PROJECT, LocalCloud
from local_cloud.user_errors import LocalCloudError
from tests.waiting import PATIENCE, has_ended, processes, until

# Tells what a Lambda function of the real template sees and may do. The queue itself has tests of its own.
PROBE = """
import os
import time
import boto3

tables = boto3.client("dynamodb")

def lambda_handler(event, context):
    if "fail" in event:
        raise ValueError(event["fail"])
    print("called")
    if "httpMethod" not in event:  # of these, the function that reads may write nothing
        tables.put_item(TableName=os.environ["JOBS_TABLE"], Item={"jobName": {"S": "probe"}})
    try:
        tables.list_tables()
        refused = None
    except Exception as error:
        refused = str(error)
    seen = {"event": event, "environment": dict(os.environ), "pid": os.getpid(), "refused": refused}
    if "httpMethod" in event:
        import json
        gate = (event["queryStringParameters"] or {}).get("until")
        while gate and not os.path.exists(gate):
            time.sleep(0.02)
        return {"statusCode": 200, "body": json.dumps(seen)}
    return seen
"""


def probe_project(folder: Path) -> Path:
    (folder / "job_queue").mkdir()
    (folder / "job_queue" / "__init__.py").touch()  # a package as the queue's own, which this hides
    (folder / "job_queue" / "lambda_function.py").write_text(PROBE)
    template = (PROJECT / "template.yaml").read_text()
    assert "Timeout: 29 " in template
    (folder / "template.yaml").write_text(template.replace("Timeout: 29 ", f"Timeout: {PATIENCE:.0f} "))
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return probe_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def cloud(project: Path) -> Iterator[LocalCloud]:
    before = dict(os.environ)
    with LocalCloud(3, project=project, parameters={"ReadConcurrency": "2"}) as cloud:
        assert dict(os.environ) == before
        yield cloud


def call(cloud: LocalCloud, method: str, path: str, *, signed: bool = True) -> requests.Response:
    request = AWSRequest(method, cloud.queue_url + path)
    if signed:
        SigV4Auth(Credentials(cloud.keys.access, cloud.keys.secret), "execute-api", "us-east-1").add_auth(request)
    return requests.request(method, request.url or "", headers=dict(request.headers), timeout=PATIENCE)


def processes_of(cloud: LocalCloud) -> list[psutil.Process]:
    return processes(lambda environment: bool(cloud.mark.keys() & environment.keys()))


@pytest.mark.thorough
def test_the_environment_leads_here_and_to_no_account(cloud: LocalCloud) -> None:
    environment = cloud.environment()
    assert environment["AWS_ENDPOINT_URL_SAGEMAKER"] == cloud.training.url
    assert environment["SAGEMAKER_QUEUE_URL"] == cloud.queue_url
    assert cloud.queue_url.startswith(environment["AWS_ENDPOINT_URL"] + "/restapis/")
    assert environment["SAGEMAKER_QUEUE_ROLE"] == "arn:aws:iam::000000000000:role/sagemaker-training"
    assert (environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]) == (
        cloud.keys.access,
        cloud.keys.secret,
    )
    assert environment["AWS_DEFAULT_REGION"] == environment["AWS_REGION"] == "us-east-1"
    assert environment["AWS_EC2_METADATA_DISABLED"] == "true"
    assert not Path(environment["AWS_CONFIG_FILE"]).exists()
    assert not Path(environment["AWS_SHARED_CREDENTIALS_FILE"]).exists()


def test_the_sagemaker_sdk_stays_on_this_machine(cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    from sagemaker import Session  # takes seconds: not each worker need do it

    for name, value in cloud.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # another test of this process may have made one
    session = Session()
    modules = session.sagemaker_config["SageMaker"]["PythonSDK"]["Modules"]
    assert modules["TelemetryOptOut"] is True
    session.account_id = None  # it would ask the real STS
    assert session.default_bucket() in [bucket["Name"] for bucket in cloud.client("s3").list_buckets()["Buckets"]]
    # As the SDK uploads a source folder: encrypted with the key that each account has, without naming it.
    cloud.client("s3").put_object(Bucket=session.default_bucket(), Key="code", Body=b"", ServerSideEncryption="aws:kms")


def test_sessions_of_this_process_reach_it_whatever_the_environment_says(
    cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "a-real-account")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "real")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    session = cloud.boto_session()
    assert session.client("sts").get_caller_identity()["Account"] == "000000000000"
    assert session.client("sagemaker").meta.endpoint_url == cloud.training.url
    assert [table for table in session.resource("dynamodb").tables.all() if table.name == "sagemaker-queue"]


@pytest.mark.thorough
def test_the_function_has_the_parameters_and_the_rights_of_its_role(cloud: LocalCloud) -> None:
    seen = cloud.invoke({"a": 1})
    assert seen["event"] == {"a": 1}
    assert seen["environment"]["MAX_CAPACITY"] == "3"
    assert seen["environment"]["ALLOWED_ROLE_ARNS"] == cloud.environment()["SAGEMAKER_QUEUE_ROLE"]
    assert seen["environment"]["AWS_ENDPOINT_URL_SAGEMAKER"] == cloud.training.url
    assert "not authorized to perform: dynamodb:ListTables" in seen["refused"]


@pytest.mark.thorough
def test_the_template_s_schedule_is_on_and_tick_is_like_it(cloud: LocalCloud) -> None:
    rules = cloud.client("events").list_rules()["Rules"]
    schedules = {rule["ScheduleExpression"]: rule for rule in rules if "ScheduleExpression" in rule}
    assert schedules["rate(1 minute)"]["State"] == "ENABLED"
    event = cloud.tick()["event"]
    assert (event["source"], event["detail-type"]) == ("aws.events", "Scheduled Event")
    assert event["resources"] == [schedules["rate(1 minute)"]["Arn"]]


def test_the_api_serves_signed_requests_only(cloud: LocalCloud) -> None:
    answer = call(cloud, "GET", "/jobs/some%20job?state=all")
    assert answer.status_code == 200
    event = json.loads(answer.text)["event"]
    assert event["requestContext"]["identity"]["userArn"] == "arn:aws:iam::000000000000:root"
    assert event["queryStringParameters"] == {"state": "all"}
    assert call(cloud, "GET", "/jobs", signed=False).status_code == 403


@pytest.mark.attack
def test_any_number_of_requests_that_change_nothing_leave_submissions_and_events_alone(
    cloud: LocalCloud, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    path = f"/jobs?until={quote(str(gate), safe='')}"
    with ThreadPoolExecutor(12) as flood:
        try:
            slow = [flood.submit(call, cloud, "GET", f"{path}&n={number}") for number in range(12)]
            until(lambda: sum(answer.done() for answer in slow) == 10)  # two wait for the gate
            assert call(cloud, "POST", "/add-job").status_code == 200
            assert cloud.tick()["event"]["source"] == "aws.events"
            assert sum(answer.done() for answer in slow) == 10, "while two requests are still being answered"
        finally:
            gate.touch()
        statuses = sorted(answer.result().status_code for answer in slow)
    assert statuses == [200] * 2 + [429] * 10
    assert call(cloud, "GET", "/jobs").status_code == 200, "the share is free again"


def test_a_function_that_fails_is_an_error_with_its_log(cloud: LocalCloud) -> None:
    with pytest.raises(LocalCloudError, match="no luck"):
        cloud.invoke({"fail": "no luck"})
    assert "called" in cloud.function_logs()


def test_its_workers_can_be_found_and_killed(cloud: LocalCloud) -> None:
    worker = cloud.invoke({})["pid"]
    assert worker in cloud.lambda_pids()
    psutil.Process(worker).kill()
    until(lambda: has_ended(worker))
    assert cloud.invoke({})["pid"] != worker


def test_all_it_listens_on_is_127_0_0_1(cloud: LocalCloud) -> None:
    listening = [
        connection.laddr
        for process in [*processes_of(cloud), psutil.Process()]
        for connection in connections_of(process)
        if connection.status == psutil.CONN_LISTEN
    ]
    ports = {address.port for address in listening}
    assert {
        int(url.rsplit(":", 1)[1]) for url in (cloud.training.url, cloud.environment()["AWS_ENDPOINT_URL"])
    } <= ports
    assert {address.ip for address in listening} == {"127.0.0.1"}


def connections_of(process: psutil.Process) -> list[Any]:
    """Return the connections and listening sockets of a process; none if the process has just ended."""
    try:
        return list(process.net_connections("inet"))
    except psutil.NoSuchProcess:
        return []


def test_two_run_side_by_side_and_one_goes_without_a_trace(cloud: LocalCloud, project: Path) -> None:
    with pytest.raises(ZeroDivisionError), LocalCloud(project=project, auth=False) as other:
        other.client("s3").create_bucket(Bucket="mine")
        assert "mine" not in [bucket["Name"] for bucket in cloud.client("s3").list_buckets()["Buckets"]]
        assert other.invoke({})["environment"]["MAX_CAPACITY"] == "2"
        assert other.invoke({})["refused"] is None
        assert processes_of(other)
        raise ZeroDivisionError
    assert not processes_of(other)
    assert not other.folder.exists()
    assert cloud.invoke({"still": "here"})["event"] == {"still": "here"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda project: (project / "template.yaml").unlink(), "run it from a checkout"),
        (lambda project: (project / "template.yaml").write_text("Resources: {}"), "QueueFunction"),
        (
            lambda project: (project / "job_queue" / "lambda_function.py").write_text("import nowhere"),
            "No module named 'nowhere",
        ),
    ],
)
def test_what_cannot_start_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any, complaint: str
) -> None:
    spoil(probe_project(tmp_path))
    cloud = LocalCloud(project=tmp_path)
    with pytest.raises(LocalCloudError, match=complaint), cloud:
        pass
    assert not processes_of(cloud)
    assert not cloud.folder.exists()


def test_the_end_of_the_services_is_noticed(project: Path) -> None:
    with LocalCloud(project=project) as cloud:

        def complaint() -> str:
            try:
                cloud.check()
            except LocalCloudError as error:
                return str(error)
            return ""

        assert not complaint()
        server = psutil.Process(cloud.lambda_pids()[0]).parent()
        assert server
        server.kill()
        said = until(complaint)
        assert "ministack ended with status -9" in said
        assert "Lambda worker spawned" in said


def test_the_server_does_not_outlive_who_started_it(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from local_cloud.aws.ministack import Ministack
server = Ministack(Path(sys.argv[1]), auth=False, region="us-east-1")
server.start({})
print(server.pid, flush=True)
time.sleep(86400)
"""
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], cwd=PROJECT, stdout=subprocess.PIPE) as starter:
        try:
            assert starter.stdout
            server = int(starter.stdout.readline())
            assert not has_ended(server)
        finally:
            starter.kill()
    until(lambda: has_ended(server))


@pytest.mark.attack
def test_a_bucket_of_an_account_that_the_caller_does_not_expect_is_not_used(cloud: LocalCloud) -> None:
    s3 = cloud.client("s3")
    s3.create_bucket(Bucket="squatted")
    s3.put_object(Bucket="squatted", Key="key", Body=b"1", ExpectedBucketOwner="000000000000")
    for operation, options in [("put_object", {"Body": b"2"}), ("get_object", {}), ("head_object", {})]:
        with pytest.raises(ClientError, match="AccessDenied|403"):
            getattr(s3, operation)(Bucket="squatted", Key="key", ExpectedBucketOwner="111111111111", **options)
    assert s3.get_object(Bucket="squatted", Key="key")["Body"].read() == b"1"


@pytest.mark.attack
class TestAPageInABrowser:
    """Somebody who runs the local cloud looks at a web page, which calls it by forms, scripts or another name."""

    def ask(self, url: str, method: str = "GET", **headers: str) -> int:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        body = b"" if method == "GET" else b"{}"  # the signature of a GET is of no body
        return requests.request(method, url, headers=names, timeout=PATIENCE, data=body).status_code

    def ministack(self, cloud: LocalCloud) -> str:
        return cloud.environment()["AWS_ENDPOINT_URL"]

    @pytest.mark.thorough
    def test_the_key_is_another_one_each_time_and_known_ones_open_nothing(self, cloud: LocalCloud) -> None:
        other = LocalCloud()
        assert other.keys != cloud.keys and len(other.keys.secret) >= 32
        for access, secret in [
            *(("test", "test"), (cloud.keys.access, "test"), ("000000000000", "test"), ("test", cloud.keys.access)),
            ("AKIAIOSFODNN7EXAMPLE", "x"),
        ]:
            session = boto3.Session(access, secret, region_name="us-east-1")
            for service, operation in [("lambda", "list_functions"), ("iam", "list_users"), ("s3", "list_buckets")]:
                endpoint = self.ministack(cloud)
                client: Any = session.client(service, endpoint_url=endpoint)  # type: ignore[call-overload]
                with pytest.raises(ClientError):
                    getattr(client, operation)()
            with pytest.raises(ClientError):
                session.client("sagemaker", endpoint_url=cloud.training.url).list_training_jobs()

    def test_what_is_not_signed_is_not_served(self, cloud: LocalCloud) -> None:
        url = self.ministack(cloud)
        for path in ("/", "/2015-03-31/functions/", "/some-bucket/key", "/restapis", "/?Action=ListUsers"):
            assert self.ask(url + path) == 403
            assert self.ask(url + path, "POST") == 403
            for header in (
                "Bearer x",
                "AWS test:x",
                "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/iam/aws4_request",
            ):
                assert self.ask(url + path, Authorization=header) in (400, 403)
                assert self.ask(url + path, "POST", Authorization=header) in (400, 403)
        assert cloud.client("lambda").list_functions()["Functions"]

    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "https://evil.test"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
            {"Sec_Fetch_Site": "cross-site"},
            {"Host": "evil.test"},
            {"Host": "127.0.0.1.evil.test:80"},
            {"Host": "localhost:1"},
        ],
    )
    def test_no_page_is_served_even_with_a_signature(self, cloud: LocalCloud, headers: dict[str, str]) -> None:
        request = AWSRequest("GET", cloud.queue_url + "/jobs")
        SigV4Auth(Credentials(cloud.keys.access, cloud.keys.secret), "execute-api", "us-east-1").add_auth(request)
        signed = {name.replace("-", "_"): value for name, value in request.headers.items()}
        assert self.ask(request.url or "", **signed) == 200
        assert self.ask(request.url or "", **{**signed, **headers}) == 403
        assert self.ask(f"{self.ministack(cloud)}/", "OPTIONS", **headers) == 403
        assert self.ask(cloud.training.url, "POST", X_Amz_Target="SageMaker.ListTrainingJobs", **headers) == 403

    @pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
    @pytest.mark.parametrize(
        "path",
        [
            *("/_ministack/reset", "/_ministack/config", "/_ministack/health", "/_localstack/health", "/health"),
            *(
                "/_local_cloud/authorize",
                "/_ministack/rds/iam-auth",
                "/%5Fministack/reset",
                "/_ministack/lambda-code/x",
            ),
        ],
    )
    def test_nothing_resets_or_reconfigures_it(self, cloud: LocalCloud, method: str, path: str) -> None:
        key = cloud.keys.access  # signed or not: ministack does not look
        assert self.ask(self.ministack(cloud) + path, method) == 403
        assert (
            self.ask(self.ministack(cloud) + path, method, Authorization=f"AWS4-HMAC-SHA256 Credential={key}/x") == 403
        )
        assert cloud.client("lambda").list_functions()["Functions"]

    def test_functions_do_not_learn_what_opens_it(self, cloud: LocalCloud) -> None:
        environment = json.dumps(cloud.invoke({})["environment"])
        assert cloud.keys.secret not in environment and "LOCAL_CLOUD_TOKEN" not in environment


@pytest.mark.attack
class TestPeople:
    """People have users of their own, made with boto3 by whoever runs the local cloud."""

    @pytest.fixture
    def person(self, cloud: LocalCloud) -> Iterator[boto3.Session]:
        iam = cloud.client("iam")
        iam.create_user(UserName="ada")
        statement = {
            "Effect": "Allow",
            "Action": ["s3:ListAllMyBuckets", "sagemaker:ListTrainingJobs"],
            "Resource": "*",
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_user_policy(UserName="ada", PolicyName="some", PolicyDocument=policy)
        key = iam.create_access_key(UserName="ada")["AccessKey"]
        yield boto3.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name="us-east-1")
        iam.delete_access_key(UserName="ada", AccessKeyId=key["AccessKeyId"])
        iam.delete_user_policy(UserName="ada", PolicyName="some")
        iam.delete_user(UserName="ada")

    def clients(self, cloud: LocalCloud, session: boto3.Session) -> tuple[Any, Any, Any]:
        endpoint = cloud.environment()["AWS_ENDPOINT_URL"]
        return (
            session.client("s3", endpoint_url=endpoint),
            session.client("sagemaker", endpoint_url=cloud.training.url),
            session.client("iam", endpoint_url=endpoint),
        )

    def test_they_may_what_they_are_allowed_and_no_more(self, cloud: LocalCloud, person: boto3.Session) -> None:
        s3, sagemaker, iam = self.clients(cloud, person)
        assert s3.list_buckets()["Buckets"]
        assert sagemaker.list_training_jobs()["TrainingJobSummaries"] == []
        with pytest.raises(ClientError, match="not authorized to perform: iam:CreateUser"):
            iam.create_user(UserName="eve")
        with pytest.raises(ClientError, match="not authorized to perform: sagemaker:StopTrainingJob"):
            sagemaker.stop_training_job(TrainingJobName="another")

    def test_nobody_signs_as_them_without_their_secret(self, cloud: LocalCloud, person: boto3.Session) -> None:
        credentials = person.get_credentials()
        assert credentials
        forger = boto3.Session(credentials.access_key, "guessed", region_name="us-east-1")
        s3, sagemaker, _ = self.clients(cloud, forger)
        with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
            s3.list_buckets()
        with pytest.raises(ClientError, match="signature"):
            sagemaker.list_training_jobs()
