"""Attacks by objects in mailboxes of carriers, and by training jobs under the names of members."""

import json
from dataclasses import replace
from typing import Any

import pytest

from job_queue.adapters.carriers.mailbox import AgentActivity, Introduction
from job_queue.carrier_agent.mailbox import key_line
from job_queue.controller.carriers import OVERDUE_SECONDS
from job_queue.domain.carriers.carrier_launch import carrier_name, owner_part, project_part
from job_queue.domain.errors import Unavailable
from job_queue.domain.job import Job
from job_queue.domain.launching.proof import attempt_tags
from job_queue.domain.names import apply_qstamp, is_name
from tests.jobs import OWNER, P5, a_request
from tests.queue_harness import Harness
from tests.unit.controller.test_carriers import carrier, carriers, member_request, reported, share, submit, whole

pytestmark = pytest.mark.attack


@pytest.fixture
def queue() -> Harness:
    queue = Harness()
    share(queue, 2)
    return queue


def put(queue: Harness, key: str, content: Any) -> None:
    queue.training.bucket.put_object(Bucket="work", Key=key, Body=json.dumps(content).encode())
    queue.now += 1
    queue.hear()


def writes(queue: Harness) -> Any:
    """What the tables have, but for the lease and the generation."""
    return {place: row for place, row in queue.tables.rows.items() if place[1:2] != ("control",)}


def test_a_report_for_a_job_that_is_not_on_the_carrier_changes_nothing(queue: Harness) -> None:
    submit(queue, "m0")
    whole(queue, "w")
    before, home = writes(queue), f"carriers/{carrier(queue).launched}/out"
    tags = [{"Key": key, "Value": it} for key, it in queue.training.jobs["w-qstamp-1"].tags.items()]
    queue.training.calls.clear()
    for name in (f"{home}/w-qstamp-1", f"{home}/unknown-qstamp-1", "carriers/another-qstamp-1/out/m0-qstamp-1"):
        for status in ("Completed", "InProgress"):
            put(queue, f"{name}/ended.json", {"status": status, "tags": tags, "at": queue.now})
    assert writes(queue) == before
    assert queue.training.calls == [], "nothing is read, either"
    assert (queue.state("w"), queue.state("m0")) == ("running", "running")


def test_an_authentic_report_counts_for_its_own_attempt_alone(queue: Harness) -> None:
    submit(queue, "m0")
    submit(queue, "m1")
    home = f"carriers/{carrier(queue).launched}/out"
    reported(queue, "m0")
    content = queue.training.bucket.objects[f"{home}/m0-qstamp-1/ended.json"][0]
    put(queue, f"{home}/m1-qstamp-1/ended.json", json.loads(content))
    queue.tick()
    assert (queue.state("m0"), queue.state("m1")) == ("completed", "running")


def test_a_key_that_was_published_before_the_agent_started_is_not_the_agents(queue: Harness) -> None:
    queue.training.agents_start = False
    submit(queue, "m0")
    launched = carrier(queue).launched or ""
    put(queue, f"carriers/{launched}/out/agent.json", {"key": "ab" * 256})
    queue.training.bucket.key_lines[launched] = {key_line("ab" * 256)}
    queue.now += 60
    queue.training.jobs[launched] = replace(queue.training.jobs[launched], began=queue.now)
    queue.tick()
    assert carrier(queue).agent_key is None
    assert queue.state("m0") == "pending"


@pytest.mark.parametrize("lines", [(), ("cd" * 256,), ("ab" * 256, "cd" * 256)])
def test_a_key_that_the_log_of_the_carrier_does_not_name_alone_is_not_the_agents(
    queue: Harness, lines: tuple[str, ...]
) -> None:
    """Found by an attack: who could write to the mailbox introduced a program of their own, and read the request."""
    queue.training.agents_start = False
    submit(queue, "m0")
    launched = carrier(queue).launched or ""
    queue.training.jobs[launched] = replace(queue.training.jobs[launched], began=queue.now)
    put(queue, f"carriers/{launched}/out/agent.json", {"key": "ab" * 256})
    queue.training.bucket.key_lines[launched] = {key_line(key) for key in lines}
    queue.tick()
    assert carrier(queue).agent_key is None
    assert queue.state("m0") == "pending"
    queue.training.bucket.key_lines[launched] = {key_line("ab" * 256)}
    queue.tick()
    assert carrier(queue).agent_key == "ab" * 256


def test_the_first_key_stays(queue: Harness) -> None:
    submit(queue, "m0")
    key = carrier(queue).agent_key
    put(queue, f"carriers/{carrier(queue).launched}/out/agent.json", {"key": "ab" * 256})
    queue.tick()
    assert carrier(queue).agent_key == key


def test_the_first_key_stays_where_two_invocations_look_for_it(queue: Harness) -> None:
    """Another key takes the place of the agent's between the two looks."""
    queue.training.agents_start = False
    submit(queue, "m0")
    launched = carrier(queue).launched or ""
    look = queue.training.introduction

    def overtaken(carrier: str) -> Introduction | None:
        queue.training.introduction = look  # type: ignore[method-assign]
        queue.hear()
        return Introduction("ab" * 256, queue.now)

    queue.training.introduction = overtaken  # type: ignore[method-assign]
    queue.training.start_agent(launched)
    queue.tick()
    published = json.loads(queue.training.bucket.objects[f"carriers/{launched}/out/agent.json"][0])
    assert carrier(queue).agent_key == published["key"]


def test_a_key_of_a_training_job_that_is_not_the_queues_is_not_recorded(queue: Harness) -> None:
    """The tables were restored, and the training job of that name is not the queue's."""
    queue.training.agents_start = False
    submit(queue, "m0")
    launched = carrier(queue).launched or ""
    queue.training.start_agent(launched)
    queue.training.jobs[launched] = replace(queue.training.jobs[launched], tags={})
    queue.tick()
    assert carrier(queue).agent_key is None


@pytest.mark.parametrize("number", ["0", "1", "", "zz", 7, None, "f" * 513, "f" * 512, "0" * 512 + "5"])
def test_a_key_that_is_no_element_of_the_group_is_none(queue: Harness, number: object) -> None:
    queue.training.agents_start = False
    submit(queue, "m0")
    launched = carrier(queue).launched or ""
    queue.training.jobs[launched] = replace(queue.training.jobs[launched], began=queue.now)
    put(queue, f"carriers/{launched}/out/agent.json", {"key": number})
    queue.tick()
    assert carrier(queue).agent_key is None


def test_an_agent_that_never_starts_has_its_carrier_stopped(queue: Harness) -> None:
    queue.training.agents_start = False
    submit(queue, "m0")
    for _ in range(59):
        queue.tick()
    first = carrier(queue).name
    assert carrier(queue).state == "running"
    for _ in range(3):
        queue.tick()
    assert queue.state(first) == "stopping"


def test_a_member_that_does_not_end_has_its_carrier_stopped(queue: Harness) -> None:
    """Attack 24: the agent waits for it for ever."""
    submit(queue, "m0")
    submit(queue, "m1")
    queue.cancel("m0")
    assert queue.state("m0") == "stopping"
    for _ in range(4):
        queue.tick()
    assert carrier(queue).state == "running"
    for _ in range(2):
        queue.tick()
    assert carrier(queue).state == "stopping"
    assert "m0 has not stopped since" in (carrier(queue).reason or "")
    queue.end(carrier(queue).launched or "", "Stopped")
    assert queue.state("m0") == "stopped"
    for _ in range(5):
        queue.tick()
    assert queue.state("m1") == "running"


def test_a_member_that_goes_on_long_after_its_time_has_its_carrier_stopped(queue: Harness) -> None:
    """Found by an attack: an agent of the member's own that does not look at MaxRuntimeInSeconds."""
    submit(queue, "m0", StoppingCondition={"MaxRuntimeInSeconds": 60})
    queue.tick(60 + OVERDUE_SECONDS - 120)
    assert (queue.state("m0"), carrier(queue).state) == ("running", "running")
    queue.tick(240)
    assert carrier(queue).state == "stopping"
    assert carrier(queue).reason == "m0 has not ended after its MaxRuntimeInSeconds"


def test_a_heartbeat_of_somebody_else_does_not_keep_a_carrier(queue: Harness) -> None:
    """Attack 36: a member stops the agent, and writes its heartbeat."""
    submit(queue, "m0")
    launched = carrier(queue).launched
    queue.tick()
    beat = queue.training.bucket.objects[f"carriers/{launched}/out/alive.json"][0]
    queue.training.silent.add(launched)
    for content in (beat, b'{"report": "{}", "code": ""}', beat, b"{}", beat, beat):
        queue.training.bucket.put_object(Bucket="work", Key=f"carriers/{launched}/out/alive.json", Body=content)
        queue.tick()
    assert carrier(queue).state == "stopping"


def test_a_look_at_a_mailbox_reads_the_heartbeat_alone_while_members_run(queue: Harness) -> None:
    """Attack 25: no added object makes a look longer."""
    for number in range(3):
        submit(queue, f"m{number}")
    launched = carrier(queue).launched or ""
    queue.tick()
    for number in range(100):
        put(queue, f"carriers/{launched}/out/x{number}-qstamp-1/ended.json", {})
    queue.training.calls.clear()
    queue.tick()
    assert [it for it in queue.training.calls if it[0] != "list"] == [("hear", launched)]


def test_an_attempt_that_a_batch_names_often_is_looked_at_once(queue: Harness) -> None:
    """Attack 23: one report can be written many times."""
    submit(queue, "m0")
    member = queue.job("m0")
    queue.training.calls.clear()
    queue.controller.mailboxes_changed([(member.carrier_attempt or "", member.launched)] * 10, queue.invocation())
    assert queue.training.calls == [("describe", member.address)]


def test_mailboxes_are_not_read_without_time(queue: Harness) -> None:
    submit(queue, "m0")
    queue.training.report(queue.job("m0").address or "")
    queue.controller.tick(queue.invocation(remaining=lambda: 10))
    assert queue.state("m0") == "running"
    queue.tick()
    assert queue.state("m0") == "completed"


def test_mailboxes_are_read_after_the_cycle(queue: Harness) -> None:
    """Attack 25: an invocation that is killed while it reads mailboxes has started all that can start."""
    submit(queue, "m0")
    started: list[str] = []

    def killed(carrier: Job) -> AgentActivity:
        started.append(queue.state("w"))
        raise MemoryError

    queue.training.agent_activity = killed  # type: ignore[method-assign]
    queue.now += 1
    request = a_request("w")
    request["Tags"].append({"Key": "project", "Value": "nlp"})
    queue.submissions.submit(request, OWNER)
    queue.tick()
    assert started == ["running"]


def test_a_mailbox_that_cannot_be_read_does_not_keep_others_from_being_read(queue: Harness) -> None:
    submit(queue, "m0")
    queue.submissions.submit(member_request("m1"), OWNER.replace("ada", "bob"))
    queue.wake()
    jobs = [queue.job(name) for name in ("m0", "m1")]
    assert len({job.carrier_attempt for job in jobs}) == 2
    look = queue.training.agent_activity
    for job, other in (jobs, jobs[::-1]):

        def activity(carrier: Job, unread: str | None = other.carrier_attempt) -> AgentActivity:
            if carrier.launched == unread:
                raise Unavailable("scripted")
            return look(carrier)

        queue.training.agent_activity = activity  # type: ignore[method-assign]
        queue.training.report(job.address or "")
        queue.training.bucket.written.clear()  # no event tells of it
        queue.tick()
        assert queue.state(job.name) == "completed"


def test_a_member_that_does_not_end_has_its_carrier_stopped_though_the_mailbox_cannot_be_read(queue: Harness) -> None:
    submit(queue, "m0")
    queue.cancel("m0")
    assert queue.state("m0") == "stopping"

    def unread(carrier: Job) -> AgentActivity:
        raise Unavailable("scripted")

    queue.training.agent_activity = unread  # type: ignore[method-assign]
    for _ in range(8):
        queue.tick(60)
    (one,) = carriers(queue)
    assert one.state == "stopping"


def test_a_report_that_was_removed_ends_its_attempt_as_failed(queue: Harness) -> None:
    submit(queue, "m0")
    queue.training.report(queue.job("m0").address or "")
    for key in [key for key in queue.training.bucket.objects if key.endswith("ended.json")]:
        queue.training.bucket.objects[key] = (b"{}", queue.now)
    queue.training.bucket.written.clear()
    queue.tick()
    assert queue.job("m0").carrier_attempt is None


def test_a_report_that_s3_does_not_return_ends_its_attempt_as_failed(queue: Harness) -> None:
    submit(queue, "m0")
    submit(queue, "m1")
    for name in ("m0", "m1"):
        queue.training.report(queue.job(name).address or "")
    queue.training.bucket.archived |= {
        key for key in queue.training.bucket.objects if key.endswith("m0-qstamp-1/ended.json")
    }
    queue.hear()
    assert (queue.job("m0").carrier_attempt is None, queue.state("m1")) == (False, "completed")
    queue.tick()
    assert queue.job("m0").carrier_attempt is None


def test_a_mailbox_that_cannot_be_read_loses_no_launch_of_the_same_cycle(queue: Harness) -> None:
    submit(queue, "m0")
    carrier_of = queue.training.assign

    def unread(job: Job, request: Any) -> Any:
        raise Unavailable("scripted")

    queue.training.assign = unread  # type: ignore[method-assign]
    queue.submissions.submit(member_request("m1"), OWNER)
    queue.accept("w")
    queue.wake()
    assert (queue.state("m1"), queue.state("w")) == ("starting", "running")
    queue.training.assign = carrier_of  # type: ignore[method-assign]
    queue.tick()
    assert queue.state("m1") == "running"


def test_a_training_job_under_the_name_of_a_member_is_counted_and_ends_nothing(queue: Harness) -> None:
    submit(queue, "m0")
    member = queue.job("m0")
    tags = {it["Key"]: it["Value"] for it in json.loads(order_of(queue, "m0-qstamp-1"))["request"]["Tags"]}
    request = a_request("m0-qstamp-1", Tags=[{"Key": key, "Value": it} for key, it in tags.items()])
    queue.training._start({**request, "TrainingJobName": "m0-qstamp-1"})
    queue.event("m0-qstamp-1")
    for _ in range(3):
        queue.tick()
        assert [job.name for job in queue.repository.external()] == ["m0-qstamp-1"]
    queue.end("m0-qstamp-1", "Completed")
    assert (queue.state("m0"), queue.job("m0").attempt) == ("running", member.attempt)


def test_a_training_job_with_the_proof_of_an_unanswered_assignment_is_not_the_members(queue: Harness) -> None:
    """The training job is neither believed nor stopped: the queue has launched none of that name."""
    submit(queue, "m0")
    queue.training.script = ["never"]
    submit(queue, "m1")
    member = queue.job("m1")
    assert (member.state, member.launched) == ("starting", "m1-qstamp-1")
    tags = [{"Key": key, "Value": it} for key, it in attempt_tags(member).items()]
    queue.training._start(a_request("m1-qstamp-1", Tags=tags))
    queue.training.script = ["never"]
    queue.tick()
    queue.event("m1-qstamp-1")
    assert "m1-qstamp-1" not in queue.training.stopped
    assert [(job.name, job.orphan) for job in queue.repository.external()] == [("m1-qstamp-1", False)]
    queue.end("m1-qstamp-1", "Completed")
    queue.tick()
    assert (queue.state("m1"), queue.job("m1").carrier_attempt) == ("running", member.carrier_attempt)


def order_of(queue: Harness, attempt: str) -> str:
    agent = queue.training.agents[carrier(queue).launched or ""]
    agent.look()
    return json.dumps(agent.assignments[attempt])


def test_a_training_job_with_the_proof_of_a_finished_attempt_is_stopped(queue: Harness) -> None:
    """Attack 33, had its first part succeeded: what still trains is counted, and stopped."""
    whole(queue, "w")
    attempt = queue.job("w").launched or ""
    queue.controller.reconciler.end(queue.record("w"), replace(queue.training.jobs[attempt], status="Completed"))
    assert queue.state("w") == "completed"
    queue.tick()
    queue.tick()
    assert attempt in queue.training.stopped
    assert [job.name for job in queue.repository.external()] == [attempt]


def test_a_training_job_of_a_finished_attempt_is_stopped_once_that_is_possible(queue: Harness) -> None:
    """Attack 33, after the tags were removed that the queue's right to stop a training job needs."""
    whole(queue, "w")
    attempt = queue.job("w").launched or ""
    queue.controller.reconciler.end(queue.record("w"), replace(queue.training.jobs[attempt], status="Completed"))
    queue.training.untagged.add(attempt)
    queue.tick()
    assert attempt not in queue.training.stopped
    queue.training.untagged.clear()
    queue.tick()
    assert attempt in queue.training.stopped


def test_a_member_is_charged_from_its_assignment_at_least(queue: Harness) -> None:
    submit(queue, "m0")
    queue.now += 500
    reported(queue, "m0")
    (account,) = [row for place, row in queue.tables.rows.items() if place[0] == "sagemaker-queue-history"]
    assert "began" in account


def test_a_carrier_that_sagemaker_does_not_let_the_queue_stop_is_not_asked_again_and_again(queue: Harness) -> None:
    submit(queue, "m0")
    launched = carrier(queue).launched or ""
    queue.training.untagged.add(launched)
    reported(queue, "m0")
    for _ in range(10):
        queue.tick()
    stops = [address for call, address in queue.training.calls if call == "stop"]
    assert len(stops) <= 3
    assert len(carriers(queue)) == 1


def test_a_carrier_has_the_name_of_its_owner_unless_owners_share(queue: Harness) -> None:
    """The example policies give the mailboxes of such names to the owner's role."""
    submit(queue, "m0")
    assert carrier(queue).name.startswith(f"carrier--nlp--{owner_part(OWNER)}--")
    together = Harness()
    share(together, owners_share=True)
    submit(together, "m0")
    assert carrier(together).name.startswith("carrier--nlp--shared--")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("nlp.a", "nlp-a"),
        ("nlp--a", "nlp-a"),
        ("nlp-a-", "nlp-a"),
        ("speech-recognition-of-the-north-1", "speech-recognition-of-the-north-2"),
        ("nlp.a", "nlp/a"),
    ],
)
def test_names_of_projects_that_are_alike_give_different_mailboxes(one: str, other: str) -> None:
    assert project_part(one) != project_part(other)
    assert project_part(project_part(one)) != project_part(one) or project_part(one) == one


def test_no_project_has_carriers_below_the_prefix_of_an_owner_of_another() -> None:
    """The example policy gives an owner's role `carriers/carrier--PROJECT--OWNER--*`."""
    owner = "arn:aws:iam::1:user/o"
    prefix = f"carrier--{project_part('n')}--{owner_part(owner)}--"
    assert carrier_name("n", owner, "0123abcd").startswith(prefix)
    assert not carrier_name(f"n--{owner_part(owner)}", OWNER, "0123abcd").startswith(prefix)
    assert not carrier_name("n", f"{owner}--{owner_part(owner)}", "0123abcd").startswith(prefix)


def test_the_name_of_a_carrier_is_a_name_whatever_its_project_and_owner_are() -> None:
    for project in ("nlp", "x" * 200, "n.l.p/ä", "-", "nlp--a", "a" * 16):
        for owner in (None, OWNER, "arn:aws:sts::1:assumed-role/r/" + "s" * 64, "arn:aws:iam::1:user/a/b/ö"):
            name = carrier_name(project, owner, "0123abcd")
            assert is_name(apply_qstamp(name, 1)) and apply_qstamp(name, 1) == f"{name}-qstamp-1", name
            assert name.startswith(f"carrier--{project_part(project)}--{owner_part(owner)}--")
    assert owner_part(OWNER) != owner_part(OWNER + "x")
    assert owner_part("arn:aws:sts::1:assumed-role/r/s") != owner_part("arn:aws:sts::1:assumed-role/other/s")
    assert P5
