"""What the function's role may do, and what it may not, as ministack evaluates the deployed policy.

The real parts of the queue run here under a twin of that role: another role with the very same policy, which tests may
assume. Each permission is used; then it alone is taken away, and the same use must fail. Otherwise it is not needed.
"""

import copy
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from ministack.core.iam_evaluator import EvalContext, evaluate, parse_policy_document

from job_queue.adapters.carriers.agent_log import AgentLog
from job_queue.adapters.carriers.mailbox import Mailboxes
from job_queue.adapters.carriers.order_key import KmsOrderKey
from job_queue.adapters.dynamodb import DynamoDBTables
from job_queue.adapters.eventbridge import Notifier
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.lookups.utilization import GpuUtilization
from job_queue.adapters.metadata import Lease, Policies
from job_queue.adapters.records.attempt_history import AttemptHistory
from job_queue.adapters.records.heavy_requests import HEAVY
from job_queue.adapters.sagemaker import LaunchResult, SageMakerTraining, StopResult
from job_queue.carrier_agent import seal
from job_queue.controller.launcher import attempt_request
from job_queue.domain import state_machine
from job_queue.domain.accounting.attempts import AttemptRecord, MeasuredUtilization
from job_queue.domain.accounting.ending import Ending
from job_queue.domain.domain_events import JobQueued
from job_queue.domain.errors import QueueError, Refused
from job_queue.domain.job import Job, JobRecord, iso
from job_queue.scheduler import GpuAllocation, JobState
from local_cloud.aws.deployment import WORK_BUCKET
from local_cloud.aws.stack import ACCOUNT, IMAGE, INSTANCE_TYPE, REGION, LocalCloud
from local_cloud.faults.time_warp import TimeWarp
from local_cloud.sagemaker.account.options import Account, parse_plan
from sagemaker_queue import QueueClient
from tests.documents import read_template
from tests.jobs import P5, a_job
from tests.system.conftest import FOREVER, System, send

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
TEMPLATE = read_template()
TWIN = "twin-of-the-queue"
PLAN = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-plan/reserved"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
# With every permission that there can be.
PARAMETERS = {"CheckpointBuckets": "system,more.checkpoints", "VolumeKmsKeyArns": KEY}
DEFAULT_BUCKET, PUBLISHED = f"sagemaker-{REGION}-{ACCOUNT}", f"training-queue-{ACCOUNT}"
EXAMPLES = ROOT / "examples/iam"
THROUGH_SAGEMAKER = {"kms_ViaService": f"sagemaker.{REGION}.amazonaws.com"}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def granted(role: str = "QueueRole") -> list[tuple[str, str]]:
    """Every (Sid, action) of one of the template's roles."""
    (policy,) = TEMPLATE["Resources"][role]["Properties"]["Policies"]
    statements = policy["PolicyDocument"]["Statement"]
    used = [one["Fn::If"][1] if "Fn::If" in one else one for one in statements]
    return [(one["Sid"], action) for one in used for action in as_list(one["Action"])]


def without(document: Json, sid: str, action: str) -> Json:
    """The policy without one permission."""
    document = copy.deepcopy(document)
    for statement in document["Statement"]:
        if statement["Sid"] == sid:
            statement["Action"] = [one for one in as_list(statement["Action"]) if one != action]
    document["Statement"] = [one for one in document["Statement"] if one["Action"]]
    return document


class Assumed:
    """The queue's parts that call SageMaker, with the rights of a role that a test may change.

    :param policy: name of the role's inline policy.
    :param by: the client of STS that assumes the role.
    :param options: further arguments of AssumeRole.
    """

    def __init__(self, system: System, role: str, policy: str, by: Any, **options: str) -> None:
        self.system = system
        self.iam = system.cloud.client("iam")
        self.name, self._policy = role, policy
        self.arn: str = self.iam.get_role(RoleName=role)["Role"]["Arn"]
        self.document: Json = self.iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"]
        assumed = by.assume_role(RoleArn=self.arn, RoleSessionName="test", **options)["Credentials"]
        self._session = boto3.Session(
            assumed["AccessKeyId"], assumed["SecretAccessKey"], assumed["SessionToken"], region_name=REGION
        )
        self._names = (f"{role[:4]}{number}" for number in range(10_000))
        self.training = SageMakerTraining(self.client("sagemaker"), self.client("sagemaker"))

    def grant(self, document: Json) -> None:
        """Give the role this policy and no other."""
        self.iam.put_role_policy(RoleName=self.name, PolicyName=self._policy, PolicyDocument=json.dumps(document))

    def granted(self) -> Json:
        """Return the present policy of the role."""
        found: Json = self.iam.get_role_policy(RoleName=self.name, PolicyName=self._policy)["PolicyDocument"]
        return found

    def client(self, service: str) -> Any:
        environment = self.system.cloud.environment()
        endpoint = environment["AWS_ENDPOINT_URL_SAGEMAKER" if service == "sagemaker" else "AWS_ENDPOINT_URL"]
        create: Any = self._session.client
        return create(service, endpoint_url=endpoint, config=Config(retries={"total_max_attempts": 1}))

    def new_job(self) -> Job:
        """A job that nobody has seen."""
        name = f"permitted-{next(self._names)}"
        return a_job(name, state=JobState.STARTING, launched=f"{name}-qstamp-1", submission="0" * 32, demand=({P5: 1},))

    def request(self) -> Json:
        """An attempt of a new job, as the queue asks for it."""
        job = self.new_job()
        details = self.system.request(job.name, "import time; time.sleep(600)")
        return attempt_request(job, json.dumps(details), Policies(1).of(None).policy)


class Twin(Assumed):
    """The queue's parts, with the rights of the function's role."""

    def __init__(self, system: System) -> None:
        iam, functions = system.cloud.client("iam"), system.cloud.client("lambda")
        function = functions.get_function_configuration(FunctionName=system.cloud.function_name)
        self.role = function["Role"].rpartition("/")[2]
        rights = iam.get_role_policy(RoleName=self.role, PolicyName="queue")["PolicyDocument"]
        trust = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "sts:AssumeRole"}
        iam.create_role(
            RoleName=TWIN, AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        )
        iam.put_role_policy(RoleName=TWIN, PolicyName="queue", PolicyDocument=json.dumps(rights))
        super().__init__(system, TWIN, "queue", system.cloud.client("sts"))
        reader = functions.get_function_configuration(FunctionName=system.cloud.read_function_name)
        self.read_log_group = str(reader["LoggingConfig"]["LogGroup"])
        self.read_document: Json = self.iam.get_role_policy(
            RoleName=reader["Role"].rpartition("/")[2], PolicyName="read"
        )["PolicyDocument"]
        tables = DynamoDBTables(self.client("dynamodb"))
        attempts = AttemptHistory(tables, "sagemaker-queue-history", 1000)
        self.store = JobRepository(tables, "sagemaker-queue", "sagemaker-queue-lines", 1000, attempts)
        # The key's own policy names the function's role, so an administrator signs for the twin.
        orders = KmsOrderKey(system.cloud.client("kms"), self.resource("OrderKey"))
        number = f"{seal.public_number(seal.private_number()):x}"
        self.carrier = a_job("carrier", launched="carrier-qstamp-1", carries=8, secret="s", agent_key=number)
        self.mailboxes = Mailboxes(self.client("s3"), WORK_BUCKET, orders, lambda _: (), {"carrier": self.carrier}.get)

    def new_member(self) -> Job:
        """Return a member that is recorded on the carrier."""
        return replace(
            self.new_job(), carrier_attempt=self.carrier.launched, allocation=GpuAllocation(self.carrier.name, (0,))
        )

    def resource(self, logical: str) -> str:
        """The physical ID of one of the stack's resources."""
        stack = self.system.cloud.client("cloudformation").describe_stack_resource(
            StackName="sagemaker-queue", LogicalResourceId=logical
        )
        return str(stack["StackResourceDetail"]["PhysicalResourceId"])


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[LocalCloud]:
    plans = (parse_plan("reserved=9,-60,+999999"),)
    with LocalCloud(slots=2, parameters=PARAMETERS, account=Account(plans=plans)) as cloud:
        yield cloud


@pytest.fixture(scope="module")
def twin(shared_system: System) -> Twin:
    return Twin(shared_system)


@pytest.fixture(autouse=True)
def tidy(twin: Twin, system: System) -> Iterator[None]:
    """Each test begins with all permissions, and leaves nothing running."""
    twin.grant(twin.document)
    yield
    for job in system.attempts():
        if job["TrainingJobStatus"] == "InProgress":
            system.sagemaker.stop_training_job(TrainingJobName=job["TrainingJobName"])


# --- every permission is needed ----------------------------------------------------------------------


def succeeds(use: Callable[[], Any]) -> bool:
    """Whether it is allowed. A refused condition is no refused permission."""
    try:
        use()
    except Refused:
        return True
    except (QueueError, ClientError):
        return False
    return True


def commits(twin: Twin) -> bool:
    leases: list[Lease] = []

    def acquired() -> bool:  # the schedule may have it for a moment
        lease = twin.store.acquire("the twin", time.time())
        leases.extend([lease] if isinstance(lease, Lease) else [])
        return bool(leases)

    twin.system.wait("the lease", acquired)
    try:
        return succeeds(lambda: twin.store.commit(leases[0], [], time.time(), policy_version=0))
    finally:
        twin.store.release(leases[0])


def adds_a_job(twin: Twin) -> bool:
    job = a_job(twin.new_job().name, held=True, owner=f"arn:aws:iam::{ACCOUNT}:root")
    return succeeds(lambda: twin.store.add(job, "{}", time.time()))


def ends_an_attempt(twin: Twin) -> bool:
    job = replace(twin.new_job(), state=JobState.RUNNING, launched="nobody-qstamp-1", slots={"default": 1})
    end = state_machine.end(JobRecord(job, "{}"), Ending("Completed"), time.time())
    return succeeds(lambda: twin.store.apply(end, time.time()))  # refused, as the queue has no such job


def launches(twin: Assumed, **changes: Any) -> bool:
    answer, words = twin.training.create(twin.request() | changes)
    if answer is not LaunchResult.LAUNCHED:
        assert (answer, words.partition(":")[0]) == (LaunchResult.NOT_NOW, "AccessDeniedException"), words
    return answer is LaunchResult.LAUNCHED


def launches_on_a_plan(twin: Assumed) -> bool:
    resources = {"InstanceType": P5, "InstanceCount": 1, "VolumeSizeInGB": 30, "TrainingPlanArn": PLAN}
    return launches(twin, ResourceConfig=resources)


def stops(twin: Assumed) -> bool:
    return twin.training.stop(an_attempt(twin)) is StopResult.ASKED


def reads_logs(twin: Assumed) -> bool:
    return succeeds(lambda: AgentLog(twin.client("logs")).key_lines("carrier--nobody-qstamp-1"))


def releases_a_warm_pool(twin: Assumed) -> bool:
    name = an_attempt(twin)
    update = {"TrainingJobName": name, "ResourceConfig": {"KeepAlivePeriodInSeconds": 0}}
    return succeeds(lambda: twin.client("sagemaker").update_training_job(**update))


def lists_training_jobs(twin: Assumed) -> bool:
    an_attempt(twin)  # a list without jobs would end at once
    return succeeds(lambda: next(twin.training.training_jobs().newest_first()))


def an_attempt(twin: Assumed) -> str:
    """An attempt of the queue, started by somebody who may."""
    request = twin.request()
    twin.system.sagemaker.create_training_job(**request)
    return str(request["TrainingJobName"])


def notifies(twin: Twin) -> bool:
    lost: list[int] = []
    with ThreadPoolExecutor(1) as background:
        Notifier(twin.client("events"), background, lost.append).notify(JobQueued(twin.new_job()))
    return not lost


def keeps_a_failed_event(twin: Twin) -> bool:
    return succeeds(
        lambda: twin.client("sqs").send_message(QueueUrl=twin.resource("DeadLetterQueue"), MessageBody="an event")
    )


def assigns_a_member(twin: Twin) -> bool:
    member = twin.new_member()
    answer, words = twin.mailboxes.assign(member, {"TrainingJobName": member.launched})
    assert answer in (LaunchResult.LAUNCHED, LaunchResult.NOT_NOW), words
    return answer is LaunchResult.LAUNCHED


def hears_of_a_member(twin: Twin) -> bool:
    member = twin.new_member()
    key = f"carriers/{member.carrier_attempt}/in/{member.launched}/assign.json"
    twin.system.cloud.client("s3").put_object(Bucket=WORK_BUCKET, Key=key, Body=b"{}")
    return succeeds(lambda: twin.mailboxes.describe(member))


def removes_orders(twin: Twin) -> bool:
    member = twin.new_member()
    key = f"carriers/{member.carrier_attempt}/in/{member.launched}/assign.json"
    s3 = twin.system.cloud.client("s3")
    s3.put_object(Bucket=WORK_BUCKET, Key=key, Body=b"{}")
    twin.mailboxes.forget(member)
    return "Contents" not in s3.list_objects_v2(Bucket=WORK_BUCKET, Prefix=key)


def receives_reports(twin: Twin, action: str) -> bool:
    return evaluates(f"sqs:{action}", queue_arn)(twin)


def queue_arn(twin: Twin) -> str:
    found = twin.system.cloud.client("sqs").get_queue_attributes(
        QueueUrl=twin.resource("ReportQueue"), AttributeNames=["QueueArn"]
    )
    return str(found["Attributes"]["QueueArn"])


def evaluates(action: str, resource: Callable[[Any], str] = lambda _: "*", **context: str) -> Callable[[Any], bool]:
    """What IAM says of the policy, for what the local cloud does not check as AWS does.

    It has no X-Ray and no training plans, and it names a log group where AWS names the stream in it.
    :param context: condition keys, with _ for the colon.
    """

    def use(twin: Assumed) -> bool:
        policy = twin.granted()
        request = EvalContext(
            principal_arn=twin.arn,
            principal_type="AssumedRole",
            principal_account=ACCOUNT,
            action=action,
            resource_arn=resource(twin),
            region=REGION,
            service_context={key.replace("_", ":").lower(): value for key, value in context.items()},
        )
        return bool(evaluate(request, [parse_policy_document(policy)]).decision == "Allow")

    return use


def an_ended_attempt() -> AttemptRecord:
    """Return the record of an attempt that has no row."""
    now = iso(time.time())
    return AttemptRecord("gone", "s", 1, "gone-qstamp-1", "default", "a", "completed", 0, {}, {}, now, now, now, now)


def a_log_stream(twin: Twin) -> str:
    return f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{twin.system.cloud.log_group}:log-stream:today"


# The rights that concern training jobs. The roles of other sites have exactly these (tests/system/test_satellite.py).
USES_IN_A_SITE: dict[tuple[str, str], Callable[[Assumed], bool]] = {
    ("LaunchAttempts", "sagemaker:CreateTrainingJob"): launches,
    ("TagAttemptsAtLaunch", "sagemaker:AddTags"): launches,
    ("LaunchOnTrainingPlans", "sagemaker:CreateTrainingJob"): launches_on_a_plan,
    ("PassAllowedRoles", "iam:PassRole"): launches,
    ("StopOwnAttempts", "sagemaker:StopTrainingJob"): stops,
    ("LookAtTrainingJobs", "sagemaker:DescribeTrainingJob"): lambda twin: succeeds(
        lambda: twin.training.describe(an_attempt(twin))
    ),
    ("LookAtTrainingJobs", "sagemaker:ListTags"): lambda twin: succeeds(
        lambda: twin.training.describe(an_attempt(twin))
    ),
    ("ReleaseOwnWarmPools", "sagemaker:UpdateTrainingJob"): releases_a_warm_pool,
    ("LookAtTrainingPlans", "sagemaker:DescribeTrainingPlan"): evaluates(
        "sagemaker:DescribeTrainingPlan", lambda _: PLAN
    ),
    ("LetVolumesBeEncrypted", "kms:CreateGrant"): evaluates(
        "kms:CreateGrant", lambda _: KEY, kms_GrantIsForAWSResource="true", **THROUGH_SAGEMAKER
    ),
    ("ReadTheLogsOfTrainingJobs", "logs:FilterLogEvents"): reads_logs,
    ("ListCheckpoints", "s3:ListBucket"): lambda twin: succeeds(
        lambda: twin.client("s3").list_objects_v2(Bucket="system")
    ),
    ("ListTrainingJobs", "sagemaker:ListTrainingJobs"): lists_training_jobs,
    ("LookWhatGpusDo", "cloudwatch:GetMetricData"): lambda twin: succeeds(
        lambda: GpuUtilization(twin.client("cloudwatch"))(["a/algo-1"], time.time() - 60, time.time(), 60, lambda: True)
    ),
}
USES: dict[tuple[str, str], Callable[[Twin], bool]] = {
    **USES_IN_A_SITE,
    ("KeepTheQueue", "dynamodb:ConditionCheckItem"): commits,
    ("KeepTheQueue", "dynamodb:DeleteItem"): lambda twin: succeeds(lambda: twin.store.drop_external("nobody")),
    ("KeepTheQueue", "dynamodb:GetItem"): lambda twin: succeeds(lambda: twin.store.record("nobody")),
    ("KeepTheQueue", "dynamodb:PutItem"): adds_a_job,
    ("KeepTheQueue", "dynamodb:Query"): lambda twin: succeeds(twin.store.active),
    ("KeepTheQueue", "dynamodb:UpdateItem"): lambda twin: succeeds(twin.store.raise_generation),
    ("KeepTheHistory", "dynamodb:PutItem"): ends_an_attempt,
    ("KeepTheHistory", "dynamodb:Query"): lambda twin: succeeds(
        lambda: twin.store.attempts.page(time.time() - 60, time.time(), 1, time.time())
    ),
    ("AddUtilizationToTheHistory", "dynamodb:UpdateItem"): lambda twin: succeeds(
        lambda: twin.store.attempts.note_utilization(an_ended_attempt(), MeasuredUtilization())
    ),
    ("AssignMembers", "s3:PutObject"): assigns_a_member,
    ("HearOfMembers", "s3:GetObject"): hears_of_a_member,
    ("RemoveOrders", "s3:DeleteObject"): removes_orders,
    ("ReceiveReports", "sqs:ReceiveMessage"): lambda twin: receives_reports(twin, "ReceiveMessage"),
    ("ReceiveReports", "sqs:DeleteMessage"): lambda twin: receives_reports(twin, "DeleteMessage"),
    ("ReceiveReports", "sqs:GetQueueAttributes"): lambda twin: receives_reports(twin, "GetQueueAttributes"),
    # The local cloud's S3 says that an object is missing without this permission, too.
    ("SeeThatObjectsAreMissing", "s3:ListBucket"): evaluates("s3:ListBucket", lambda _: f"arn:aws:s3:::{WORK_BUCKET}"),
    ("Notify", "events:PutEvents"): notifies,
    ("KeepFailedEvents", "sqs:SendMessage"): keeps_a_failed_event,
    ("WriteLogs", "logs:CreateLogStream"): evaluates("logs:CreateLogStream", a_log_stream),
    ("WriteLogs", "logs:PutLogEvents"): evaluates("logs:PutLogEvents", a_log_stream),
    ("WriteTraces", "xray:PutTelemetryRecords"): evaluates("xray:PutTelemetryRecords"),
    ("WriteTraces", "xray:PutTraceSegments"): evaluates("xray:PutTraceSegments"),
}


def takes_a_slot(twin: Twin) -> bool:
    def take() -> None:
        with twin.store.heavy_requests.permit(twin.arn, time.time(), ("0",)):
            pass

    return succeeds(take)


def frees_a_slot(twin: Twin) -> bool:
    key = {"line": {"S": HEAVY}, "position": {"S": "of nobody"}}
    return succeeds(lambda: twin.client("dynamodb").delete_item(TableName="sagemaker-queue-lines", Key=key))


def a_read_log_stream(twin: Twin) -> str:
    return f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{twin.read_log_group}:log-stream:today"


READ_USES: dict[tuple[str, str], Callable[[Twin], bool]] = {
    ("ReadTheQueue", "dynamodb:GetItem"): USES["KeepTheQueue", "dynamodb:GetItem"],
    ("ReadTheQueue", "dynamodb:Query"): USES["KeepTheQueue", "dynamodb:Query"],
    ("ReadFinishedJobs", "dynamodb:Query"): lambda twin: succeeds(lambda: twin.store.finished(1, None)),
    ("ReadTheHistory", "dynamodb:Query"): USES["KeepTheHistory", "dynamodb:Query"],
    ("TakeSlots", "dynamodb:ConditionCheckItem"): takes_a_slot,
    ("TakeSlots", "dynamodb:DeleteItem"): frees_a_slot,
    ("TakeSlots", "dynamodb:PutItem"): takes_a_slot,
    ("WriteReadLogs", "logs:CreateLogStream"): evaluates("logs:CreateLogStream", a_read_log_stream),
    ("WriteReadLogs", "logs:PutLogEvents"): evaluates("logs:PutLogEvents", a_read_log_stream),
}


@pytest.mark.thorough
def test_every_permission_of_the_roles_has_a_use() -> None:
    assert sorted(USES) == sorted(granted())
    assert sorted(READ_USES) == sorted(granted("ReadRole"))


@pytest.mark.parametrize(("sid", "action"), sorted(READ_USES))
def test_a_permission_of_the_function_that_reads_is_used_and_needed(twin: Twin, sid: str, action: str) -> None:
    twin.grant(twin.read_document)
    assert READ_USES[sid, action](twin)
    twin.grant(without(twin.read_document, sid, action))
    assert not READ_USES[sid, action](twin)


@pytest.mark.attack
@pytest.mark.parametrize("line", ["control", "active", "waiting#default#p5", "owners", "outlook"])
def test_the_function_that_reads_writes_no_other_row(twin: Twin, line: str) -> None:
    twin.grant(twin.read_document)
    table = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/sagemaker-queue-lines"
    for action in ("dynamodb:PutItem", "dynamodb:DeleteItem"):
        assert evaluates(action, lambda _: table, dynamodb_LeadingKeys=HEAVY)(twin)
        assert not evaluates(action, lambda _: table, dynamodb_LeadingKeys=line)(twin)
    assert not evaluates("dynamodb:UpdateItem", lambda _: table, dynamodb_LeadingKeys=HEAVY)(twin)


@pytest.mark.attack
def test_the_function_that_reads_changes_no_job_and_starts_and_stops_none(twin: Twin) -> None:
    twin.grant(twin.read_document)
    assert not adds_a_job(twin)
    assert not ends_an_attempt(twin)
    assert not launches(twin)
    assert not stops(twin)
    assert not notifies(twin)
    assert not succeeds(twin.store.raise_generation)


@pytest.mark.parametrize(("sid", "action"), sorted(USES))
def test_a_permission_is_used_and_needed(twin: Twin, sid: str, action: str) -> None:
    assert USES[sid, action](twin)
    twin.grant(without(twin.document, sid, action))
    assert not USES[sid, action](twin)


def test_the_function_itself_is_bound_by_its_role(twin: Twin, system: System) -> None:
    """Not the twin: the deployed function may not pass the role for a while, and its job waits until it may."""

    def grant(document: Json) -> None:
        twin.iam.put_role_policy(RoleName=twin.role, PolicyName="queue", PolicyDocument=json.dumps(document))

    alive = {"InProgress", "Stopping"}
    system.wait("an empty fleet", lambda: not [job for job in system.attempts() if job["TrainingJobStatus"] in alive])
    grant(without(twin.document, "PassAllowedRoles", "iam:PassRole"))
    try:
        system.submit("not-yet", FOREVER)
        system.wait("the reason to name the permission", lambda: "iam:PassRole" in str(system.job("not-yet").reason))
        system.wait_state("not-yet", "pending")
    finally:
        grant(twin.document)
    later = TimeWarp(system.cloud)
    system.wait("its next try", lambda: system.state("not-yet") == "running", later)


# --- and what it has not -----------------------------------------------------------------------------


def refused(use: Callable[..., Any], **arguments: Any) -> None:
    with pytest.raises(ClientError) as caught:
        use(**arguments)
    code = caught.value.response["Error"]["Code"]
    assert "AccessDenied" in code, code


@pytest.mark.parametrize("table", ["sagemaker-queue", "sagemaker-queue-lines", "sagemaker-queue-history"])
def test_tables_are_not_deleted_scanned_or_changed(twin: Twin, table: str) -> None:
    tables = twin.client("dynamodb")
    refused(tables.delete_table, TableName=table)
    refused(tables.scan, TableName=table)
    refused(tables.update_table, TableName=table, BillingMode="PAY_PER_REQUEST")


def test_what_has_been_is_not_deleted_and_only_the_measurement_of_attempts_changes_it(twin: Twin) -> None:
    key = {"line": {"S": "2026-11-22"}, "position": {"S": "2026-11-22T10:00:00.000000Z#job1-qstamp-1"}}
    tables = twin.client("dynamodb")
    refused(tables.delete_item, TableName="sagemaker-queue-history", Key=key)
    twin.grant(without(twin.document, "AddUtilizationToTheHistory", "dynamodb:UpdateItem"))
    changes = {"UpdateExpression": "SET lost = :none", "ExpressionAttributeValues": {":none": {"N": "0"}}}
    refused(tables.update_item, TableName="sagemaker-queue-history", Key=key, **changes)


def test_tables_of_others_are_not_touched(twin: Twin) -> None:
    twin.system.cloud.client("dynamodb").create_table(
        TableName="payroll",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    tables = twin.client("dynamodb")
    refused(tables.get_item, TableName="payroll", Key={"id": {"S": "1"}})
    refused(tables.put_item, TableName="payroll", Item={"id": {"S": "1"}})
    refused(tables.transact_write_items, TransactItems=[{"Put": {"TableName": "payroll", "Item": {"id": {"S": "1"}}}}])


def test_no_other_role_is_passed(twin: Twin) -> None:
    trust = {"Version": "2012-10-17", "Statement": []}
    iam = twin.system.cloud.client("iam")
    role = iam.create_role(RoleName="administrator", AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
    assert not launches(twin, RoleArn=role)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"Tags": []}, id="without tags"),
        pytest.param({"Tags": [{"Key": "queue-name", "Value": "another"}]}, id="with another queue's tag"),
        pytest.param({"TrainingJobName": "somebodys"}, id="with a name that is no attempt's"),
    ],
)
def test_nothing_but_its_own_attempts_is_launched(twin: Twin, changes: Json) -> None:
    assert not launches(twin, **changes)


@pytest.mark.parametrize("tags", [[], [{"Key": "queue-name", "Value": "another"}]])
def test_jobs_of_others_are_not_stopped_changed_or_taken_over(twin: Twin, tags: list[Json]) -> None:
    name = f"{twin.new_job().name}-qstamp-1"
    request = twin.system.request(name, "import time; time.sleep(600)", Tags=tags)
    arn = twin.system.sagemaker.create_training_job(**request)["TrainingJobArn"]
    assert twin.training.stop(name) is StopResult.DENIED
    refused(
        twin.client("sagemaker").update_training_job,
        TrainingJobName=name,
        ResourceConfig={"KeepAlivePeriodInSeconds": 0},
    )
    refused(
        twin.client("sagemaker").add_tags,
        ResourceArn=arn,
        Tags=[{"Key": "queue-name", "Value": "sagemaker-queue"}],
    )
    assert twin.system.sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"] == "InProgress"


def test_no_training_job_is_deleted(twin: Twin) -> None:
    refused(twin.client("sagemaker").delete_training_job, TrainingJobName=an_attempt(twin))


def test_checkpoints_are_listed_where_they_are_and_are_not_read(twin: Twin) -> None:
    everything = twin.system.cloud.client("s3")
    everything.create_bucket(Bucket="payroll")
    everything.put_object(Bucket="system", Key="checkpoints/one", Body=b"weights")
    files = twin.client("s3")
    refused(files.list_objects_v2, Bucket="payroll")
    refused(files.get_object, Bucket="system", Key="checkpoints/one")


def test_the_role_does_not_help_itself_to_more(twin: Twin) -> None:
    refused(
        twin.client("iam").put_role_policy,
        RoleName=TWIN,
        PolicyName="more",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": []}),
    )
    refused(twin.client("sqs").receive_message, QueueUrl=twin.resource("DeadLetterQueue"))
    refused(twin.client("lambda").invoke, FunctionName=twin.system.cloud.function_name)


@pytest.mark.parametrize(
    ("key", "context"),
    [
        (KEY, THROUGH_SAGEMAKER),
        (KEY, {"kms_GrantIsForAWSResource": "false", **THROUGH_SAGEMAKER}),
        (KEY, {"kms_GrantIsForAWSResource": "true", "kms_ViaService": f"ec2.{REGION}.amazonaws.com"}),
        (KEY[:-1] + "c", {"kms_GrantIsForAWSResource": "true", **THROUGH_SAGEMAKER}),
    ],
)
def test_no_other_grants_are_made(twin: Twin, key: str, context: dict[str, str]) -> None:
    assert not evaluates("kms:CreateGrant", lambda _: key, **context)(twin)


def test_events_go_to_the_default_bus_only(twin: Twin) -> None:
    twin.system.cloud.client("events").create_event_bus(Name="others")
    event = {"Source": "sagemaker-queue", "DetailType": "x", "Detail": "{}", "EventBusName": "others"}
    refused(twin.client("events").put_events, Entries=[event])


# --- callers of the API ------------------------------------------------------------------------------


def test_a_caller_may_be_allowed_to_look_and_not_to_submit(system: System) -> None:
    iam = system.cloud.client("iam")
    iam.create_user(UserName="watcher")
    key = iam.create_access_key(UserName="watcher")["AccessKey"]
    session = boto3.Session(key["AccessKeyId"], key["SecretAccessKey"])
    body = json.dumps(system.request("watched", "pass"))
    assert send(system, "GET", "/queue", session=session).status_code == 403
    look = {"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": "arn:aws:execute-api:*:*:*/prod/GET/*"}
    iam.put_user_policy(
        UserName="watcher",
        PolicyName="look",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [look]}),
    )
    assert send(system, "GET", "/queue", session=session).status_code == 200
    assert send(system, "POST", "/add-job", body, session=session).status_code == 403
    assert send(system, "DELETE", "/jobs/watched", session=session).status_code == 403
    assert system.state("watched") is None


# --- the policies that docs/start/deploy.md hands out ------------------------------------------------------


def example(name: str, **put_in: str) -> str:
    """One of them, with what its reader puts into it."""
    text = (EXAMPLES / name).read_text()
    for word, value in put_in.items():
        assert word in text
        text = text.replace(word, value)
    return json.dumps(json.loads(text))


def a_user(system: System, name: str, *policies: str) -> boto3.Session:
    """A user who has these policies and nothing else."""
    iam = system.cloud.client("iam")
    iam.create_user(UserName=name)
    for number, policy in enumerate(policies):
        iam.put_user_policy(UserName=name, PolicyName=f"policy{number}", PolicyDocument=policy)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return boto3.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name=REGION)


def client_of(system: System, session: boto3.Session, service: str) -> Any:
    environment = system.cloud.environment()
    endpoint = environment["AWS_ENDPOINT_URL_SAGEMAKER" if service == "sagemaker" else "AWS_ENDPOINT_URL"]
    create: Any = session.client
    return create(service, endpoint_url=endpoint)


def test_what_users_are_given_is_enough_for_a_job_and_for_nothing_past_the_queue(system: System) -> None:
    api = system.cloud.queue_url.split("/restapis/")[1].partition("/")[0]
    session = a_user(system, "ann", example("user.json", API_ID=api, BUCKET="system"))
    queue = QueueClient(url=system.cloud.queue_url, boto_session=session)
    files, logs, training = (client_of(system, session, name) for name in ("s3", "logs", "sagemaker"))
    files.put_object(Bucket="system", Key="data/one", Body=b"1")
    assert files.list_objects_v2(Bucket="system", Prefix="data/")["KeyCount"] == 1
    queue.submit(system.request("anns-job", "print('hello')"))
    system.wait_state("anns-job", "completed")
    attempt = queue.job("anns-job").training_job_name
    assert training.describe_training_job(TrainingJobName=attempt)["TrainingJobStatus"] == "Completed"
    group = {"logGroupName": "/aws/sagemaker/TrainingJobs"}
    (stream,) = logs.describe_log_streams(**group, logStreamNamePrefix=f"{attempt}/")["logStreams"]
    said = logs.get_log_events(**group, logStreamName=stream["logStreamName"])["events"]
    assert "hello" in [event["message"] for event in said]
    refused(training.create_training_job, **system.request("past-the-queue", "pass"))
    refused(training.stop_training_job, TrainingJobName=attempt)
    refused(client_of(system, session, "dynamodb").scan, TableName="sagemaker-queue")


@pytest.fixture
def training_role(system: System) -> Iterator[str]:
    """The jobs' role with the rights of examples/iam/training.json only."""
    iam, name = system.cloud.client("iam"), system.cloud.role.rpartition("/")[2]
    before = iam.get_role_policy(RoleName=name, PolicyName="training")["PolicyDocument"]
    few = example("training.json", BUCKET=DEFAULT_BUCKET)
    iam.put_role_policy(RoleName=name, PolicyName="training", PolicyDocument=few)
    yield system.cloud.role
    iam.put_role_policy(RoleName=name, PolicyName="training", PolicyDocument=json.dumps(before))


@pytest.mark.thorough
def test_a_user_with_these_rights_only_gets_from_published_settings_to_the_first_job(
    system: System, training_role: str, tmp_path: Path
) -> None:
    api = system.cloud.queue_url.split("/restapis/")[1].partition("/")[0]
    rights = example("user.json", API_ID=api, BUCKET=DEFAULT_BUCKET, PUBLISHED=PUBLISHED)
    key = a_user(system, "newcomer", rights).get_credentials()
    assert key
    files = system.cloud.client("s3")
    for bucket in (DEFAULT_BUCKET, PUBLISHED):
        files.create_bucket(Bucket=bucket)
    kept = {name: value for name, value in system.cloud.environment().items() if not name.startswith("SAGEMAKER_QUEUE")}

    def smq(*arguments: str, home: Path, **variables: str) -> str:
        home.mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-P", "-m", "sagemaker_queue", *arguments],
            cwd=home, env={**kept, "PATH": os.environ["PATH"], "HOME": str(home), **variables},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"smq {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    operator, user = tmp_path / "operator", tmp_path / "user"
    settings = {"url": system.cloud.queue_url, "account": ACCOUNT, "role": training_role, "image": IMAGE}
    for name, value in {**settings, "instance_type": INSTANCE_TYPE, "bucket": DEFAULT_BUCKET}.items():
        smq("config", "set", name, value, home=operator)
    files.put_object(Bucket=PUBLISHED, Key="queue.toml", Body=smq("config", "export", home=operator).encode())

    own = {"AWS_ACCESS_KEY_ID": key.access_key, "AWS_SECRET_ACCESS_KEY": key.secret_key}
    smq("config", "import", f"s3://{PUBLISHED}/queue.toml", home=user, **own)
    found = smq("doctor", home=user, **own)
    assert "✗" not in found and "✓ access" in found, found
    (user / "train.py").write_text("print('it works')\n")
    smq("submit", "--name", "first-of-newcomer", "--checkpoint", "--", "python", "train.py", home=user, **own)
    system.wait_state("first-of-newcomer", "completed")
    assert "it works" in smq("logs", "first-of-newcomer", home=user, **own)
    uploaded = files.list_objects_v2(Bucket=DEFAULT_BUCKET)["Contents"]
    assert any("code" in each["Key"] for each in uploaded), uploaded
    session = boto3.Session(key.access_key, key.secret_key, region_name=REGION)
    mine = client_of(system, session, "s3")
    refused(mine.put_object, Bucket=PUBLISHED, Key="queue.toml", Body=b"")
    refused(mine.list_objects_v2, Bucket="system")


def test_whoever_may_do_anything_goes_through_the_queue_where_that_is_asked(system: System) -> None:
    anything = {"Effect": "Allow", "Action": ["sagemaker:*", "iam:PassRole", "execute-api:Invoke"], "Resource": "*"}
    everything = json.dumps({"Version": "2012-10-17", "Statement": [anything]})
    free = a_user(system, "free", everything)
    bound = a_user(system, "bound", everything, example("only_the_queue.json"))
    own_tag = [{"Key": "queue-name", "Value": "sagemaker-queue"}]
    job = client_of(system, free, "sagemaker").create_training_job(**system.request("a-free-one", FOREVER))
    training = client_of(system, bound, "sagemaker")
    refused(training.create_training_job, **system.request("past-the-queue", "pass"))
    refused(training.add_tags, ResourceArn=job["TrainingJobArn"], Tags=own_tag)
    training.add_tags(ResourceArn=job["TrainingJobArn"], Tags=[{"Key": "team", "Value": "vision"}])
    training.stop_training_job(TrainingJobName="a-free-one")
    QueueClient(url=system.cloud.queue_url, boto_session=bound).submit(system.request("through-the-queue", "pass"))
    system.wait_state("through-the-queue", "completed")


def statements_of(name: str) -> list[Json]:
    return list(json.loads(example(name))["Statement"])


def test_the_stricter_policies_have_what_the_first_one_has() -> None:
    for name in ("only_the_queue.json", "boundary.json"):
        assert all(one in statements_of(name) for one in statements_of("keep_for_the_queue.json"))
        assert len((EXAMPLES / name).read_text()) <= 5_120  # of a service control policy, with its white space


@pytest.fixture(params=["keep_for_the_queue.json", "boundary.json"])
def kept_out(request: pytest.FixtureRequest, system: System) -> Iterator[boto3.Session]:
    """Somebody who may do anything, but for the policy: as one of their own, or as a boundary."""
    iam = system.cloud.client("iam")
    everything = json.dumps(
        {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    )
    name = request.param.partition(".")[0]
    if name != "boundary":
        yield a_user(system, name, everything, example(request.param))
        return
    session = a_user(system, name, everything)
    policy = iam.create_policy(PolicyName="queue-boundary", PolicyDocument=example(request.param))["Policy"]["Arn"]
    iam.put_user_permissions_boundary(UserName=name, PermissionsBoundary=policy)
    yield session


@pytest.mark.attack
def test_names_and_tags_of_attempts_are_kept_for_the_queue(system: System, kept_out: boto3.Session) -> None:
    training = client_of(system, kept_out, "sagemaker")
    name = "victim-of-" + client_of(system, kept_out, "sts").get_caller_identity()["Arn"].rpartition("/")[2].replace(
        "_", "-"
    )
    system.run(name)
    attempt = system.job(name).training_job_name
    assert attempt
    described = system.sagemaker.describe_training_job(TrainingJobName=attempt)
    tags = system.sagemaker.list_tags(ResourceArn=described["TrainingJobArn"])["Tags"]
    # The name of a next attempt, taken beforehand; the tags of one that runs, on a job of one's own.
    refused(training.create_training_job, **{**system.request(f"{name}-qstamp-2", "pass"), "Tags": []})
    refused(training.create_training_job, **{**system.request(f"own-{name}", "pass"), "Tags": tags})
    for tag in tags:
        if tag["Key"].startswith("queue-"):
            refused(training.create_training_job, **{**system.request(f"own-{name}", "pass"), "Tags": [tag]})
    job = training.create_training_job(**{**system.request(f"own-{name}", FOREVER), "Tags": []})["TrainingJobArn"]
    refused(training.add_tags, ResourceArn=job, Tags=tags)
    # The tags by which the queue may stop its attempt.
    arn = described["TrainingJobArn"]
    refused(training.add_tags, ResourceArn=arn, Tags=[{"Key": "queue-name", "Value": "another"}])
    refused(training.add_tags, ResourceArn=arn, Tags=[{"Key": "team", "Value": "x"}])
    refused(training.delete_tags, ResourceArn=arn, TagKeys=["queue-name"])
    refused(training.delete_tags, ResourceArn=arn, TagKeys=[tag["Key"] for tag in tags])
    # Its instances and its shell, and its name, which a deletion would make free.
    refused(training.update_training_job, TrainingJobName=attempt, RemoteDebugConfig={"EnableRemoteDebug": True})
    refused(training.delete_training_job, TrainingJobName=attempt)
    training.add_tags(ResourceArn=job, Tags=[{"Key": "team", "Value": "vision"}])
    training.delete_tags(ResourceArn=job, TagKeys=["team"])
    training.stop_training_job(TrainingJobName=f"own-{name}")
    own = {"TrainingJobName": f"own-{name}"}
    system.wait("its end", lambda: training.describe_training_job(**own)["TrainingJobStatus"] == "Stopped")
    training.delete_training_job(**own)
    assert system.sagemaker.list_tags(ResourceArn=arn)["Tags"] == tags
    assert system.state(name) == "running"


@pytest.mark.attack
def test_nobody_takes_the_boundary_off(system: System) -> None:
    everything = json.dumps(
        {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    )
    session = a_user(system, "climber", everything)
    iam = system.cloud.client("iam")
    policy = iam.create_policy(PolicyName="queue-boundary-2", PolicyDocument=example("boundary.json"))["Policy"]["Arn"]
    iam.put_user_permissions_boundary(UserName="climber", PermissionsBoundary=policy)
    climber = client_of(system, session, "iam")
    refused(climber.delete_user_permissions_boundary, UserName="climber")
    refused(climber.put_user_permissions_boundary, UserName="climber", PermissionsBoundary="arn:aws:iam::aws:policy/A")
    refused(climber.create_user, UserName="unbound")
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    role = "training-job-queue-QueueRole-EVIL"
    refused(climber.create_role, RoleName=role, AssumeRolePolicyDocument=trust)
    refused(climber.update_assume_role_policy, RoleName=role, PolicyDocument=trust)
    refused(
        climber.create_policy_version, PolicyArn=f"arn:aws:iam::{ACCOUNT}:policy/queue-boundary", PolicyDocument=trust
    )
    refused(
        client_of(system, session, "sts").assume_role,
        RoleArn=f"arn:aws:iam::{ACCOUNT}:role/{role}",
        RoleSessionName="queue",
    )


def test_the_queues_own_role_is_excepted_from_it(twin: Twin) -> None:
    """By its name in a stack that is called as samconfig.toml calls it."""
    statements = parse_policy_document(twin.document) + parse_policy_document(example("only_the_queue.json"))
    for role, allowed in (("training-job-queue-QueueRole-1A2B3C", True), ("pipelines", False)):
        request = EvalContext(
            principal_arn=f"arn:aws:iam::{ACCOUNT}:role/{role}",
            principal_type="AssumedRole",
            principal_account=ACCOUNT,
            action="sagemaker:CreateTrainingJob",
            resource_arn=f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/job1-qstamp-1",
            region=REGION,
            request_tags={"queue-name": "sagemaker-queue"},
            principal_keys={"aws:principalarn": f"arn:aws:iam::{ACCOUNT}:role/{role}"},
        )
        assert (evaluate(request, [statements]).decision == "Allow") is allowed, role


@pytest.mark.thorough
def test_guardrails_hold_for_what_the_queue_launches(twin: Twin) -> None:
    guardrails = example("guardrails.json", SUBNET="subnet-0123456789abcdef0")
    twin.iam.put_role_policy(RoleName=TWIN, PolicyName="guardrails", PolicyDocument=guardrails)
    resources = {"InstanceType": P5, "InstanceCount": 1, "VolumeSizeInGB": 30, "VolumeKmsKeyId": KEY}
    network = {"Subnets": ["subnet-0123456789abcdef0"], "SecurityGroupIds": ["sg-0123456789abcdef0"]}
    elsewhere = {**network, "Subnets": [*network["Subnets"], "subnet-0123456789abcdef1"]}
    try:
        assert launches(twin, ResourceConfig=resources, VpcConfig=network)
        assert not launches(twin, ResourceConfig=resources)
        assert not launches(twin, ResourceConfig=resources, VpcConfig=elsewhere)
        assert not launches(twin, ResourceConfig={**resources, "InstanceType": "ml.g5.2xlarge"}, VpcConfig=network)
        assert not launches(twin, ResourceConfig={**resources, "VolumeKmsKeyId": ""}, VpcConfig=network)
    finally:
        twin.iam.delete_role_policy(RoleName=TWIN, PolicyName="guardrails")
