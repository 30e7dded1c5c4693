"""What people can do with the mailboxes of carriers, each with an IAM user of their own, on the real template.

Ann has a member on a carrier, Bob is another owner of her project, Eve is of another project and has a whole-instance
job. Ann, Bob and Eve have the rights of the example for the roles of jobs. Mel has all rights on the bucket.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local_cloud.aws.deployment import WORK_BUCKET
from local_cloud.aws.stack import ACCOUNT, LocalCloud
from sagemaker_queue import QueueClient
from tests.system.conftest import FOREVER, System
from tests.system.people import arn, document, queue_of, session_of
from tests.waiting import until

pytestmark = pytest.mark.attack

EXAMPLE = Path(__file__).parents[2] / "examples/iam/training_shared.json"
SECRET = "s3cret-of-ann"
SEALED = re.compile(rb'sealed\\":\\"([^"\\]+)')  # in an order, which is JSON in JSON
PROJECTS = {"ann": "nlp", "bob": "nlp", "eve": "vision"}
POLICY = {
    "pools": [{"name": "p5", "instance_type": "ml.p5.48xlarge", "capacity": 3, "shared": True, "keep_warm": 3600}],
    "projects": [{"name": "nlp", "quota": {"p5": 1}}, {"name": "vision", "quota": {"p5": 1}}],
}


class FirstAgent:
    """Publishes a key as the agent of the next carrier of an owner, before that carrier is created."""

    def __init__(self) -> None:
        self.owner: str | None = None
        self.publish: Callable[[str], None] = lambda carrier: None
        self.carriers: list[str] = []

    def __call__(self, phase: str, operation: str, request: dict[str, Any]) -> None:
        if self.owner is None or (phase, operation) != ("before", "CreateTrainingJob"):
            return
        name = request["TrainingJobName"]
        if name.startswith("carrier--") and f"--{self.owner}--" in name:
            self.owner = None
            self.publish(name)
            self.carriers.append(name)


FIRST_AGENT = FirstAgent()


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[LocalCloud]:
    parameters = {"AdminArns": f"arn:aws:iam::{ACCOUNT}:root", "AllowedRoleArns": f"arn:aws:iam::{ACCOUNT}:role/*"}
    with LocalCloud(slots=3, parameters=parameters, policy=POLICY, intercept=FIRST_AGENT) as cloud:
        yield cloud


@dataclass
class Scene:
    """Everybody, and what runs."""

    system: System
    queues: dict[str, QueueClient]
    s3: dict[str, Any]
    carrier: str  # the attempt that Ann's member is on
    number: int = 0

    def submit(self, who: str, name: str, script: str, gpus: str | None = "1", **changes: Any) -> None:
        tags = [{"Key": "project", "Value": PROJECTS[who]}]
        if gpus is not None:
            tags.append({"Key": "gpus", "Value": gpus})
        request = self.system.request(name, script, Tags=tags, **changes)
        request["Environment"] |= {"TOKEN": SECRET} if who == "ann" else {}
        self.queues[who].submit(request)

    def another_member_has_run(self) -> str:
        """Wait until Ann's agent has looked into its mailbox again, and its report has arrived; give the attempt."""
        self.number += 1
        name = f"after-{self.number}"
        self.submit("ann", name, "pass")
        self.system.wait_state(name, "completed")
        return f"{name}-qstamp-1"

    def put(self, who: str, key: str, content: Any) -> None:
        self.s3[who].put_object(Bucket=WORK_BUCKET, Key=key, Body=json.dumps(content))

    def get(self, who: str, key: str) -> bytes:
        content: bytes = self.s3[who].get_object(Bucket=WORK_BUCKET, Key=key)["Body"].read()
        return content

    def keys(self, below: str) -> list[str]:
        pages = self.system.cloud.client("s3").get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=WORK_BUCKET, Prefix=f"carriers/{self.carrier}/{below}")
        return [it["Key"] for page in found for it in page.get("Contents", [])]

    def unharmed(self) -> None:
        """Both jobs run in their first attempts, and the fleet is theirs."""
        for name in ("ann-member", "eve-whole"):
            job = self.system.job(name)
            assert (job.state, job.attempt) == ("running", 1), f"{name} is {job.state}: {job.reason}"
        status = self.system.queue.queue()
        assert not status.external, "nothing of the attackers is counted as a training job"


@pytest.fixture(scope="module")
def scene(shared_cloud: LocalCloud) -> Scene:
    system = System(shared_cloud)
    queues, s3 = {}, {}
    for who, project in PROJECTS.items():
        session = session_of(shared_cloud, who)
        queues[who] = queue_of(shared_cloud, session)
        owner = queues[who].whoami().carrier_owner
        assert owner is not None and owner.startswith(f"{who}-")
        text = EXAMPLE.read_text().replace("WORK_BUCKET", WORK_BUCKET).replace("PROJECT", project)
        shared_cloud.client("iam").put_user_policy(
            UserName=who, PolicyName="role", PolicyDocument=text.replace("OWNER", owner)
        )
        s3[who] = session.client("s3", endpoint_url=shared_cloud.client("s3").meta.endpoint_url)
    mel = session_of(shared_cloud, "mel", ["s3:*", "sagemaker:DescribeTrainingJob", "sagemaker:ListTags"])
    s3["mel"] = mel.client("s3", endpoint_url=shared_cloud.client("s3").meta.endpoint_url)
    made = Scene(system, queues, s3, "")
    made.submit("ann", "ann-member", FOREVER)
    made.submit("eve", "eve-whole", FOREVER, gpus=None)
    for name in ("ann-member", "eve-whole"):
        system.wait_state(name, "running")
    made.carrier = f"{system.job('ann-member').carrier}-qstamp-1"
    assert made.carrier.startswith(f"carrier--nlp--{queues['ann'].whoami().carrier_owner}--")
    return made


def tags_of(scene: Scene, attempt: str) -> list[dict[str, str]]:
    """The tags of a training job, which many may read."""
    sagemaker = scene.system.sagemaker
    found = sagemaker.describe_training_job(TrainingJobName=attempt)["TrainingJobArn"]
    tags: list[dict[str, str]] = sagemaker.list_tags(ResourceArn=found)["Tags"]
    return tags


@pytest.mark.thorough
@pytest.mark.parametrize("status", ["Completed", "Failed", "InProgress"])
def test_no_report_ends_a_job_that_is_not_on_that_carrier(scene: Scene, status: str) -> None:
    """Attacks 21, 23 and 33: the tags of a whole-instance job, in a mailbox that has nothing to do with it."""
    attempt = "eve-whole-qstamp-1"
    report = {"status": status, "reason": "", "tags": tags_of(scene, attempt), "at": 0}
    for name in (attempt, f"of-my-choice-{status.lower()}-qstamp-1"):
        scene.put("mel", f"carriers/{scene.carrier}/out/{name}/ended.json", report)
    scene.another_member_has_run()
    scene.unharmed()


@pytest.mark.thorough
def test_no_report_of_somebody_else_ends_a_member(scene: Scene) -> None:
    """In the right mailbox and under the right name, with the code of another report, and with none."""
    ended = scene.another_member_has_run()
    copied = json.loads(scene.get("mel", f"carriers/{scene.carrier}/out/{ended}/ended.json"))
    report = {**json.loads(copied["report"]), "attempt": "ann-member-qstamp-1"}
    key = f"carriers/{scene.carrier}/out/ann-member-qstamp-1/ended.json"
    for content in (copied, {"report": json.dumps(report), "code": copied["code"]}, report):
        scene.put("mel", key, content)
        scene.another_member_has_run()
        scene.unharmed()
    scene.s3["mel"].delete_object(Bucket=WORK_BUCKET, Key=key)


@pytest.mark.thorough
def test_no_order_of_somebody_else_is_obeyed(scene: Scene, tmp_path: Path) -> None:
    """Attack 22: an order of one's own, and a copy of a real one under another name; and a stop."""
    trace = tmp_path / "trace"
    command = {"ContainerEntrypoint": ["touch", str(trace)]}
    order = {"do": "assign", "carrier": scene.carrier, "attempt": "mine-qstamp-1", "submission": "s", "call": 99}
    request = {"AlgorithmSpecification": command}
    plain = {"request": request, "gpus": [7], "tenths": 10}
    real = json.loads(scene.get("mel", f"carriers/{scene.carrier}/in/ann-member-qstamp-1/assign.json"))
    forged = {"order": json.dumps({**order, **plain}), "signature": "00" * 256}
    for content in (plain, forged, {**forged, "signature": real["signature"]}, real):
        scene.put("mel", f"carriers/{scene.carrier}/in/mine-qstamp-1/assign.json", content)
        scene.another_member_has_run()
    stop = {**json.loads(real["order"]), "do": "stop"}
    for content in ({}, {"order": json.dumps(stop), "signature": real["signature"]}):
        scene.put("mel", f"carriers/{scene.carrier}/in/ann-member-qstamp-1/stop.json", content)
        scene.another_member_has_run()
    assert not trace.exists()
    assert not [key for key in scene.keys("out/") if "/mine-qstamp-1/" in key]
    scene.unharmed()


def test_a_foreign_object_in_the_place_of_an_order_is_replaced(scene: Scene) -> None:
    scene.put("mel", f"carriers/{scene.carrier}/in/awaited-qstamp-1/assign.json", {"order": "{}", "signature": ""})
    scene.submit("ann", "awaited", "pass")
    scene.system.wait_state("awaited", "completed")


def test_nobody_reads_a_request_in_a_mailbox(scene: Scene) -> None:
    """Neither in the objects, nor by what DescribeTrainingJob says of the carrier."""
    scene.another_member_has_run()
    contents = [scene.get("mel", key) for key in [*scene.keys("in/"), *scene.keys("out/")]]
    sealed = [base64.b64decode(it) for content in contents for it in SEALED.findall(content)]
    assert sealed, "an order has a request"
    for content in [*contents, *sealed]:
        assert SECRET.encode() not in content
    described = scene.system.sagemaker.describe_training_job(TrainingJobName=scene.carrier)
    assert SECRET not in json.dumps(described, default=str)
    assert set(described["HyperParameters"]) == {"mailbox", "gpus", "order_key", "queue_key"}


@pytest.mark.thorough
def test_a_mailbox_full_of_objects_delays_nobody(scene: Scene) -> None:
    """Attack 25, with as many objects as a test can write."""
    for number in range(1_200):
        scene.put("mel", f"carriers/{scene.carrier}/out/x{number}-qstamp-1/started.json", {})
    scene.another_member_has_run()
    scene.unharmed()


@pytest.mark.thorough
def test_a_training_job_under_the_name_of_a_member_is_another(scene: Scene) -> None:
    """The name of a member's attempt is free in SageMaker: the training job is counted, and ends nothing."""
    name = "ann-member-qstamp-1"
    order = json.loads(json.loads(scene.get("mel", f"carriers/{scene.carrier}/in/{name}/assign.json"))["order"])
    tags = [
        {"Key": "queue-name", "Value": "sagemaker-queue"},
        {"Key": "queue-job", "Value": "ann-member"},
        {"Key": "queue-submission", "Value": order["submission"]},
    ]
    request = scene.system.request(name, FOREVER, Tags=tags)
    request["ResourceConfig"]["InstanceType"] = "ml.c5.xlarge"
    scene.system.sagemaker.create_training_job(**request)
    scene.system.wait("it to be counted", lambda: [it.training_job_name for it in scene.system.queue.queue().external])
    scene.system.sagemaker.stop_training_job(TrainingJobName=name)
    scene.system.wait("it to be gone", lambda: not scene.system.queue.queue().external)
    scene.another_member_has_run()
    scene.unharmed()


@pytest.mark.thorough
def test_a_program_that_introduces_itself_as_the_agent_is_not_believed(scene: Scene) -> None:
    """Found by an attack: with all rights on the bucket, before the agent of a new carrier has introduced itself."""
    own = "ab" * 256

    def publish(carrier: str) -> None:
        scene.put("mel", f"carriers/{carrier}/out/agent.json", {"key": own})

    FIRST_AGENT.publish, FIRST_AGENT.owner = publish, scene.queues["bob"].whoami().carrier_owner
    scene.submit("bob", "bobs-member", "pass")
    (carrier,) = until(lambda: FIRST_AGENT.carriers)

    def ended() -> bool:
        try:
            found = scene.system.sagemaker.describe_training_job(TrainingJobName=carrier)
        except ClientError:  # the call that creates it is not finished
            return False
        return bool(found["TrainingJobStatus"] != "InProgress")

    while not ended():
        publish(carrier)
        scene.system.cloud.tick()
    rows = scene.system.cloud.client("dynamodb").scan(TableName="sagemaker-queue")["Items"]
    assert own not in json.dumps(rows)
    objects = scene.system.cloud.client("s3").list_objects_v2(Bucket=WORK_BUCKET, Prefix=f"carriers/{carrier}/in/")
    assert objects["KeyCount"] == 0, "nothing was ordered"
    scene.system.wait_state("bobs-member", "completed")


# --- the table of rights in docs/developers/assurance.md -------------------------------------------------------------


def allowed(call: Callable[[], object]) -> bool:
    try:
        call()
    except ClientError as error:
        assert error.response["Error"]["Code"] in ("AccessDenied", "403"), error
        return False
    return True


def rows() -> dict[str, tuple[str, list[bool]]]:
    """What -> place, and yes or no for another owner's role, a member's role, the function, all rights."""
    page = (Path(__file__).parents[2] / "docs/developers/assurance.md").read_text()
    table = page.split("| what | object | another owner's role")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {it[0]: (it[1].strip("`"), [cell == "yes" for cell in it[2:]]) for it in cells}


def by_iam(scene: Scene, who: str) -> dict[str, bool]:
    """What IAM lets somebody do."""
    order = f"carriers/{scene.carrier}/in/ann-member-qstamp-1/assign.json"
    agent = scene.system.cloud.client("s3").list_objects_v2(Bucket=WORK_BUCKET, Prefix="carrier-agents/")["Contents"]
    return {
        "read an order": allowed(lambda: scene.get(who, order)),
        "write an order": allowed(lambda: scene.put(who, f"carriers/{scene.carrier}/in/n-qstamp-9/x.json", {})),
        "write a report": allowed(lambda: scene.put(who, f"carriers/{scene.carrier}/out/n-qstamp-9/x.json", {})),
        "run the carrier's agent": allowed(lambda: scene.get(who, agent[0]["Key"])),
    }


@pytest.mark.parametrize(("column", "who"), [(0, "bob"), (0, "eve"), (1, "ann"), (3, "mel")])
def test_the_table_says_what_iam_allows(scene: Scene, column: int, who: str) -> None:
    expected = {what: cells[column] for what, (_, cells) in rows().items()}
    found = by_iam(scene, who)
    assert found == {what: expected[what] for what in found}


def test_the_other_rows_are_no_for_everybody_but_the_queue() -> None:
    """What the tests above show for somebody with all rights on the bucket holds for those with fewer."""
    others = rows()
    for what in (
        "have an agent obey an order of one's own",
        "end one's own job by a report of one's own",
        "end another owner's job by a report of one's own",
        "change what a carrier runs",
        "read the request in an order",
    ):
        _, (another, member, _, everything) = others[what]
        assert not (another or member or everything), what


def test_who_may_write_the_agents_place_changes_nothing_that_runs(scene: Scene) -> None:
    """Another archive is not what the digest in the signed request says: the carrier fails, and runs nothing of it."""
    assert not allowed(lambda: scene.put("ann", "carrier-agents/x/agent.zip", {}))
    described = scene.system.sagemaker.describe_training_job(TrainingJobName=scene.carrier)
    digest = described["AlgorithmSpecification"]["ContainerEntrypoint"][-1]
    assert described["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"].endswith(digest)
    until(lambda: scene.system.state("ann-member") == "running")


@pytest.mark.thorough
def test_people_without_a_role_of_jobs_have_no_rights(scene: Scene) -> None:
    session = session_of(scene.system.cloud, "zoe")
    scene.system.cloud.client("iam").put_user_policy(
        UserName="zoe",
        PolicyName="user",
        PolicyDocument=document({"Effect": "Allow", "Action": "sagemaker:ListTrainingJobs", "Resource": "*"}),
    )
    scene.s3["zoe"] = session.client("s3", endpoint_url=scene.system.cloud.client("s3").meta.endpoint_url)
    assert not any(by_iam(scene, "zoe").values())
    assert arn("zoe") == scene.queues.setdefault("zoe", queue_of(scene.system.cloud, session)).whoami().owner
