"""Rights that people would take from one another, tried by IAM users on a local cloud."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import boto3
import pytest

from api_contract.models import ACTIVE, WAITING
from local_cloud.aws.stack import ACCOUNT, REGION, LocalCloud
from local_cloud.sagemaker.account.options import Account, parse_plan
from sagemaker_queue import Conflict, Forbidden, InvalidRequest, PoolDrain, QueueClient, QueueError
from sagemaker_queue.workflows.doctor.findings import OK, WARNED
from sagemaker_queue.workflows.doctor.identity_step import check_identity
from tests.system.conftest import FOREVER, System
from tests.system.people import arn, document, queue_of, session_of

pytestmark = pytest.mark.attack

P5 = "ml.p5.48xlarge"
ROLES = f"arn:aws:iam::{ACCOUNT}:role"
SECRET = "hunter2-s3cret"
PLANS = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-plan"
PEOPLE = ("ada", "bob", "lea", "eve", "ops")
SHARED = "shared-research"


def policy(capacity: int = 2) -> dict[str, Any]:
    return {
        "pools": [
            {"name": "p5", "instance_type": P5, "capacity": capacity},
            {"name": "winter", "instance_type": P5, "training_plan": f"{PLANS}/winter"},
        ],
        "projects": [
            {
                "name": "vision",
                "members": [arn("ada")],
                "admins": [arn("lea")],
                "roles": [f"{ROLES}/sagemaker-training"],
                "buckets": ["system"],
                "pools": ["p5"],
            },
            {
                "name": "nlp",
                "members": [arn("bob"), f"arn:aws:sts::{ACCOUNT}:assumed-role/{SHARED}/*"],
                "pools": ["p5", "winter"],
            },
        ],
    }


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[LocalCloud]:
    parameters = {"AdminArns": f"arn:aws:iam::{ACCOUNT}:root,{arn('ops')}", "AllowedRoleArns": f"{ROLES}/*"}
    account = Account(plans=(parse_plan("winter=2,-60,+999999"),))
    with LocalCloud(slots=4, parameters=parameters, account=account) as cloud:
        QueueClient(url=cloud.queue_url, boto_session=cloud.boto_session()).apply_policy(policy(), 0)
        yield cloud


@pytest.fixture(scope="module")
def people(shared_cloud: LocalCloud) -> dict[str, QueueClient]:
    return {name: queue_of(shared_cloud, session_of(shared_cloud, name)) for name in PEOPLE}


def request(system: System, name: str, project: str, script: str = FOREVER, **changes: Any) -> dict[str, Any]:
    return system.request(name, script, Tags=[{"Key": "project", "Value": project}], **changes)


def refused(kind: type[QueueError], field: str | None, call: Any, *arguments: Any) -> QueueError:
    """The call is refused, and the error says where and what to do."""
    with pytest.raises(kind) as error:
        call(*arguments)
    (first, *_) = error.value.errors
    assert first.field == field
    assert first.remedy, "it says what to do"
    return error.value


# --- row 2: policies -----------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("who", ["ada", "bob", "lea", "eve"])
def test_only_an_admin_applies_a_policy(system: System, people: dict[str, QueueClient], who: str) -> None:
    version = system.queue.policy().version
    refused(Forbidden, None, people[who].apply_policy, policy(1), version)
    refused(Forbidden, None, people[who].roll_back_policy, 0, version)
    assert system.queue.policy().version == version


def test_no_admin_exceeds_the_ceiling(system: System, people: dict[str, QueueClient]) -> None:
    version = system.queue.policy().version
    with pytest.raises(InvalidRequest, match="MaxCapacity"):
        people["ops"].apply_policy(policy(5), version)
    with pytest.raises(InvalidRequest, match="MaxCapacity"):
        system.queue.apply_policy(policy(1_000_000), version)
    assert system.queue.policy().version == version


def test_every_policy_is_kept_with_its_author(system: System, people: dict[str, QueueClient]) -> None:
    version = system.queue.policy().version
    applied = people["ops"].apply_policy({**policy(), "settings": {"window": 50}}, version)
    restored = system.queue.roll_back_policy(version, applied.version)
    assert restored.policy == policy()
    latest, before, *_ = people["eve"].policy_history().versions
    assert (latest.version, latest.restored, before.applied_by) == (restored.version, version, arn("ops"))
    assert people["eve"].policy(applied.version).policy["settings"] == {"window": 50}


@pytest.mark.thorough
def test_without_admins_nobody_applies_one() -> None:
    with LocalCloud(slots=2, parameters={"AdminArns": ""}) as cloud:
        for session in (cloud.boto_session(), session_of(cloud, "eve")):
            error = refused(Forbidden, None, queue_of(cloud, session).apply_policy, policy(1_000_000), 0)
            assert "AdminArns" in str(error.errors[0].remedy)
        everybody = System(cloud)
        for number in range(4):
            everybody.submit(f"job{number}", FOREVER)
        everybody.wait("two to run", lambda: [everybody.state(f"job{n}") for n in range(4)].count("running") == 2)
        assert everybody.most_at_once() == 2


# --- rows 6 and 14: roles, buckets, plans, projects ----------------------------------------------------


@pytest.mark.thorough
def test_nobody_borrows_anothers_role_bucket_plan_or_project(system: System, people: dict[str, QueueClient]) -> None:
    ada, bob = people["ada"], people["bob"]
    resources = {"InstanceType": P5, "InstanceCount": 1, "VolumeSizeInGB": 30, "TrainingPlanArn": f"{PLANS}/winter"}
    role = f"{ROLES}/nlp-only"
    refused(Forbidden, "RoleArn", ada.submit, request(system, "a", "vision", RoleArn=role))
    elsewhere = request(system, "a", "vision", CheckpointConfig={"S3Uri": "s3://others/a"})
    refused(Forbidden, "CheckpointConfig.S3Uri", ada.submit, elsewhere)
    refused(
        Forbidden,
        "ResourceConfig.TrainingPlanArn",
        ada.submit,
        request(system, "a", "vision", ResourceConfig=resources),
    )
    refused(Forbidden, "Tags[0].Value", ada.submit, request(system, "a", "nlp"))
    refused(Forbidden, "Tags[0].Value", people["eve"].submit, request(system, "a", "vision"))
    refused(Forbidden, "Tags", people["eve"].submit, system.request("a", "pass", Tags=[]))
    assert system.state("a") is None
    assert bob.submit(request(system, "on-the-plan", "nlp", ResourceConfig=resources)).state in WAITING | ACTIVE
    system.wait_state("on-the-plan", "running")
    assert not [it for it in system.attempts() if it["TrainingJobName"].startswith("a-")]


# --- rows 8 and others: whose job it is ----------------------------------------------------------------


def _has_begun(system: System, name: str, attempt: int) -> bool:
    return system.job(name).attempt >= attempt


@pytest.mark.thorough
def test_a_job_obeys_its_owner_its_projects_admins_and_the_queues_and_nobody_else(
    system: System, people: dict[str, QueueClient]
) -> None:
    for number, who in enumerate(("ada", "lea", "ops")):
        name = f"adas-{number}"
        people["ada"].submit(request(system, name, "vision", Environment={"SCRIPT": FOREVER, "KEY": SECRET}))
        for stranger in ("bob", "eve"):
            assert SECRET not in json.dumps(people[stranger].job(name).to_json())
            for change in ({"priority": 9}, {"held": True}, {"held": False}):
                with pytest.raises(Forbidden):
                    people[stranger].change(name, **change)
            with pytest.raises(Forbidden, match="admin of its project vision"):
                people[stranger].cancel(name)
            with pytest.raises(Forbidden, match="admin of its project vision"):
                people[stranger].requeue(name)
            with pytest.raises(Forbidden):
                people[stranger].change(name, held=True, now=True)
        assert people[who].change(name, priority=3).priority == 3
        system.wait_state(name, "running")
        before = system.job(name).attempt
        assert people[who].requeue(name).state in WAITING | ACTIVE  # the next attempt may have begun already
        system.wait("the next attempt", partial(_has_begun, system, name, before + 1))
        assert people[who].cancel(name).cancel_requested or system.state(name) == "stopped"
    assert SECRET in json.dumps(people["ada"].job("adas-0").to_json())
    assert SECRET in json.dumps(people["ops"].job("adas-0").to_json())
    people["bob"].submit(request(system, "bobs", "nlp"))
    refused(Forbidden, None, people["lea"].cancel, "bobs")  # a lead of another project


def drain_of_p5(queue: QueueClient) -> PoolDrain | None:
    return next(pool.drain for pool in queue.queue().pools if pool.name == "p5")


def test_only_an_admin_of_the_queue_drains_a_pool(system: System, people: dict[str, QueueClient]) -> None:
    people["ada"].submit(request(system, "stays", "vision"))
    system.wait_state("stays", "running")
    for who in ("ada", "bob", "lea", "eve"):
        refused(Forbidden, None, people[who].drain, "p5")
        refused(Forbidden, None, people[who].drain, "no-such-pool")  # not even whether there is such a pool
    assert all(pool.drain is None for pool in system.queue.queue().pools)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    people["ops"].drain("p5", at=tomorrow, reason="new disks")
    for who in ("ada", "bob", "lea", "eve"):
        refused(Forbidden, None, people[who].undrain, "p5")
        refused(Forbidden, None, partial(people[who].drain, at=tomorrow + timedelta(days=9)), "p5")
    system.wait("the drain to be shown", partial(drain_of_p5, people["eve"]))
    drain = drain_of_p5(people["eve"])
    assert drain and (drain.by, drain.reason) == (arn("ops"), "new disks")
    assert abs(drain.at - tomorrow) < timedelta(seconds=2)
    assert people["ops"].undrain("p5").was_drained
    assert (system.state("stays"), system.job("stays").attempt) == ("running", 1)


def test_a_stranger_neither_enters_a_job_nor_learns_what_it_said_when_it_failed(
    system: System, people: dict[str, QueueClient]
) -> None:
    people["ada"].submit(request(system, "entered", "vision"))
    system.wait_state("entered", "running")
    for stranger in ("bob", "eve"):
        refused(Forbidden, None, people[stranger].enable_remote_debug, "entered")
    assert not any("remote debugging" in change.cause for change in system.job("entered").history)

    script = f"import sys\nprint('opening {SECRET}', flush=True)\nsys.exit('ValueError: wrong token {SECRET}')"
    people["ada"].submit(request(system, "fails", "vision", script))
    system.wait_state("fails", "failed")
    full = people["ada"].job("fails")
    assert full.failure and SECRET in full.failure.sentence and SECRET in " ".join(full.failure.lines)
    for reader in ("bob", "eve", "lea"):  # an admin of the project sees no values, either
        seen = people[reader].job("fails")
        assert seen.failure and (seen.failure_class, seen.failure.lines) == (full.failure_class, ())
        listed = [job.to_json() for job in people[reader].jobs("finished")]
        past = [attempt.to_json() for attempt in people[reader].history()]
        attempts = [attempt for attempt in past if attempt["job"] == "fails"]
        assert attempts and attempts[0]["failureClass"] == full.failure_class
        for answer in (seen.to_json(), listed, past, people[reader].queue().to_json()):
            assert SECRET not in json.dumps(answer)
    assert SECRET in json.dumps(people["ops"].job("fails").to_json())


def test_a_session_of_a_shared_role_is_told_apart_by_a_trust_policy_alone(
    system: System, people: dict[str, QueueClient]
) -> None:
    """The trust policy of docs/operate/access.md. Without it, the attack succeeds, and the doctor says so."""
    iam = system.cloud.client("iam")
    trust = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "sts:AssumeRole"}
    iam.create_role(RoleName=SHARED, AssumeRolePolicyDocument=document(trust))
    call = {"Effect": "Allow", "Action": ["execute-api:Invoke", "iam:GetRole"], "Resource": "*"}
    iam.put_role_policy(RoleName=SHARED, PolicyName="call", PolicyDocument=document(call))

    def as_session(name: str) -> boto3.Session:
        answer = system.cloud.client("sts").assume_role(RoleArn=f"{ROLES}/{SHARED}", RoleSessionName=name)
        key = answer["Credentials"]
        return boto3.Session(key["AccessKeyId"], key["SecretAccessKey"], key["SessionToken"], region_name=REGION)

    ann, imposter = (queue_of(system.cloud, as_session("ann")) for _ in range(2))
    ann.submit(request(system, "anns", "nlp"))
    with pytest.raises(Forbidden):
        queue_of(system.cloud, as_session("bob")).cancel("anns")
    caller = imposter.whoami().owner
    reader = system.cloud.boto_session()
    assert check_identity(caller, reader).status == WARNED
    imposter.cancel("anns")  # who may choose the name is ann

    named = {**trust, "Condition": {"StringEquals": {"sts:RoleSessionName": "${aws:username}"}}}
    iam.update_assume_role_policy(RoleName=SHARED, PolicyDocument=document(named))
    assert check_identity(caller, reader).status == OK


# --- row 15: places ------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_nobody_writes_where_a_live_job_of_another_does(system: System, people: dict[str, QueueClient]) -> None:
    ada, bob = people["ada"], people["bob"]
    ada.submit(request(system, "victim", "vision", CheckpointConfig={"S3Uri": "s3://system/checkpoints/victim"}))
    for place in ("s3://system/checkpoints/victim", "s3://system/checkpoints/victim/x", "s3://system/checkpoints"):
        theft = request(system, "thief", "nlp", CheckpointConfig={"S3Uri": place})
        error = refused(Conflict, "CheckpointConfig.S3Uri", bob.submit, theft)
        assert "victim" in str(error)
    theft = request(system, "thief", "nlp", OutputDataConfig={"S3OutputPath": "s3://system/checkpoints/victim"})
    refused(Conflict, "OutputDataConfig.S3OutputPath", bob.submit, theft)
    assert system.state("thief") is None
    ada.submit(request(system, "again", "vision", CheckpointConfig={"S3Uri": "s3://system/checkpoints/victim"}))
    for name in ("victim", "again"):
        ada.cancel(name)
        system.wait_state(name, "stopped")
    bob.submit(request(system, "next", "nlp", CheckpointConfig={"S3Uri": "s3://system/checkpoints/other"}))
