"""``smq submit --interactive`` and ``smq shell``, on a local cloud: real shells, commands and ports in real jobs."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import boto3
import pytest
import requests
from botocore.exceptions import ClientError

from local_cloud.ports import free_ports
from tests.client.conftest import ROOT
from tests.client.terminal import Terminal
from tests.system.conftest import FOREVER, System
from tests.system.people import session_of
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.thorough

SMQ = [sys.executable, "-m", "sagemaker_queue"]
ENTERED = "Starting session with SessionId"

MANY = ("--tag", "preemptible=true")  # an owner has one interactive job at a time


class Person:
    """Somebody with a working folder and the settings of a local cloud."""

    def __init__(self, system: System, folder: Path) -> None:
        self.system = system
        self.folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SAGEMAKER_"))},
            **system.cloud.environment(),
            "SAGEMAKER_QUEUE_INSTANCE_TYPE": "ml.p5.48xlarge",
            "HOME": str(folder),
        }

    def smq(
        self, *arguments: str, code: int = 0, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*SMQ, *arguments],
            env={**self.environment, **(environment or {})},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), (done.stdout, done.stderr)
        return done

    def terminal(self, *arguments: str) -> Terminal:
        go = ["sh", "-c", 'cd "$0" && exec "$@"', str(self.folder), *SMQ, *arguments]
        return Terminal(go, columns=120, environment=self.environment)

    def keep(self, name: str, *options: str) -> None:
        """Submit a job that is kept for shells, and wait until it runs."""
        self.smq("submit", "--interactive", "--name", name, *options)
        self.system.wait_state(name, "running")


@pytest.fixture
def person(system: System, tmp_path: Path) -> Iterator[Person]:
    yield Person(system, tmp_path)


def keys_of(session: boto3.Session) -> dict[str, str]:
    credentials = session.get_credentials()
    assert credentials and credentials.access_key and credentials.secret_key
    return {"AWS_ACCESS_KEY_ID": credentials.access_key, "AWS_SECRET_ACCESS_KEY": credentials.secret_key}


def sessions_of(terminal: Terminal) -> int:
    return terminal.written.count(ENTERED.encode())


def test_a_shell_opens_in_the_job_and_leaves_it_alone(system: System, person: Person) -> None:
    (person.folder / "here.txt").write_text("brought along")
    with person.terminal("submit", "--interactive", "--name", "lab", "--env", "COLOUR=b'l u\"e") as terminal:
        terminal.shows(ENTERED)
        terminal.press('echo "[$SM_CURRENT_HOST|$COLOUR|$(cat here.txt)|$(stty size)]"\r')
        terminal.shows("[algo-1|b'l u\"e|brought along|24 120]")
        terminal.resize(100, 30)
        # The size reaches the job on another way than the keys, perhaps later.
        terminal.press('clear; until [ "$(stty size)" = "30"" 100" ]; do sleep 0.1; done; stty size\r')
        terminal.shows("30 100")
        terminal.press("clear; PS1='rea''dy> '; echo at work; sleep 1000\r")
        terminal.shows("at work\n")
        terminal.press("\x03")  # goes there
        terminal.wait(lambda: terminal.text.rstrip().endswith("ready>"))
        terminal.press("exit 0\r")
        assert terminal.end() == 0 and terminal.is_as_before
        assert terminal.has("The job ends by itself 1 hour after the last session.")
    job = system.job("lab")
    assert (job.state, job.preemptible) == ("running", False)

    command = "printf 'a\\nb'; printf c >&2; printf \"$COLOUR\"; exit 7"
    done = person.smq("shell", "lab", "--", "sh", "-c", command, code=7)
    assert done.stdout == "a\nbcb'l u\"e"
    assert person.smq("shell", "lab", "--", "no-such-program", code=127).stdout.endswith("not found\n")

    assert (
        "lab has no instance algo-2; its instances: algo-1"
        in person.smq("shell", "lab", "--instance", "2", code=3).stderr
    )
    system.queue.cancel("lab")
    system.wait_state("lab", "stopped")
    assert "lab has finished (stopped)" in person.smq("shell", "lab", code=1).stderr


def test_a_port_of_the_job_is_a_port_here(person: Person) -> None:
    inside = free_ports(2)
    outside = inside + 1
    server = f"from http.server import *; HTTPServer(('127.0.0.1', {inside}), SimpleHTTPRequestHandler).serve_forever()"
    (person.folder / "answer.txt").write_text("from the job")
    person.smq("submit", "--interactive", "--name", "jupyter", "--", "python", "-c", server)
    with person.terminal("shell", "jupyter", "--forward", f"{inside}:{outside}") as terminal:
        terminal.shows("Waiting for connections")

        def answer() -> str:
            try:
                return requests.get(f"http://127.0.0.1:{outside}/answer.txt", timeout=PATIENCE).text
            except requests.ConnectionError:  # the server in the job is not up yet
                return ""

        assert until(answer) == "from the job"
        taken = person.smq("shell", "jupyter", "--forward", f"{inside}:{outside}", code=1).stdout
        assert "Unable to start tcp listener" in taken
        terminal.press("\x03")
        assert terminal.end() == 0
        assert "jupyter continues to run." in terminal.text


def test_a_preemption_is_told_and_the_next_attempt_is_entered(system: System, person: Person) -> None:
    person.keep("moved", "--tag", "preemptible=true", "--env", "MARK=x")
    with person.terminal("shell", "moved") as terminal:
        terminal.shows(ENTERED)
        terminal.press("echo 1=$TRAINING_JOB_NAME\r")
        terminal.shows("1=moved-qstamp-1")
        system.submit("urgent", FOREVER, priority=9, instances=2)
        terminal.wait(lambda: terminal.has("moved was preempted"))
        terminal.wait(lambda: terminal.has("The job waits, 1st in the queue."))
        system.queue.cancel("urgent")
        terminal.wait(lambda: sessions_of(terminal) == 2)
        terminal.press("clear; echo 2=$TRAINING_JOB_NAME\r")
        terminal.shows("2=moved-qstamp-2")
        system.queue.cancel("moved")
        assert terminal.end() == 4 and terminal.is_as_before
        assert "moved was stopped" in terminal.text


def test_the_command_of_a_preempted_job_is_not_run_again(system: System, person: Person) -> None:
    person.keep("work", "--tag", "preemptible=true")
    with person.terminal("shell", "work", "--", "sh", "-c", "echo at work; sleep 1000") as terminal:
        terminal.shows("at work")
        system.submit("sooner", FOREVER, priority=9, instances=2)
        assert terminal.end() == 4
        assert "work was preempted" in terminal.text and terminal.written.count(b"at work") == 1


def test_it_ends_once_nobody_has_a_shell(system: System, person: Person) -> None:
    person.smq("submit", "--interactive", "--name", "brief", "--idle-end", "1s")
    system.wait_state("brief", "completed")
    assert "no shell for 1 s" in " ".join(system.log("brief-qstamp-1"))


def test_ctrl_c_while_it_waits_leaves_it_in_the_queue(system: System, person: Person) -> None:
    system.submit("busy", FOREVER, instances=2, Tags=[{"Key": "preemptible", "Value": "false"}])
    system.wait_state("busy", "running")
    with person.terminal("submit", "--interactive", "--name", "later") as terminal:
        terminal.wait(lambda: terminal.text.count("later is pending") == 2)  # once by submit, once while it waits
        terminal.press("\x03")
        assert terminal.end() == 130
        assert terminal.has("To enter it later: smq shell later; to cancel it: smq cancel later"), terminal.text
    assert system.state("later") == "pending"
    said = person.smq("shell", "later", "--no-follow", code=1).stderr
    assert "later does not run: it is pending. To wait for it: --follow" in said


def test_who_leaves_with_rm_ends_it(system: System, person: Person) -> None:
    with person.terminal("submit", "--interactive", "--rm", "--name", "short") as terminal:
        terminal.shows(ENTERED)
        terminal.press("exit\r")
        assert terminal.end() == 0
        assert "short is cancelled" in terminal.text
    system.wait_state("short", "stopped")


def test_what_is_lacking_is_said(system: System, person: Person) -> None:
    person.keep("closed")

    bare = {"SAGEMAKER_QUEUE_SESSION_PLUGIN": "", "PATH": str(person.folder)}
    said = person.smq("shell", "closed", code=2, environment=bare).stderr
    assert "session-manager-plugin is not on this machine" in said and "https://docs.aws.amazon.com/" in said

    keys = keys_of(session_of(system.cloud, "nobody", ("execute-api:Invoke",)))
    said = person.smq("shell", "closed", code=1, environment=keys).stderr
    assert "You may not open a session in closed" in said and "ssm:StartSession" in said

    isolated = person.folder / "isolated.json"
    isolated.write_text(json.dumps({"EnableNetworkIsolation": True}))
    said = person.smq("submit", "--interactive", "--request", str(isolated), code=2).stderr
    assert "EnableNetworkIsolation separates the container from Session Manager" in said


def test_a_shell_opens_in_a_job_that_did_not_ask_for_one(system: System, person: Person) -> None:
    person.smq("submit", "--name", "plain", "--env", "COLOUR=blue", "--", "sh", "-c", "echo works; sleep 86400")
    system.wait_state("plain", "running")
    done = person.smq("shell", "plain", "--", "sh", "-c", "echo $COLOUR in $TRAINING_JOB_NAME; pwd; exit 5", code=5)
    assert done.stdout.splitlines()[0] == "blue in plain-qstamp-1"
    assert "which is now enabled for its running attempt plain-qstamp-1" in done.stderr
    assert "now enabled" not in person.smq("shell", "plain", "--", "true").stderr
    (entry,) = [it.cause for it in system.job("plain").history if "remote" in (it.cause or "")]
    assert entry.startswith("remote debugging enabled by arn:aws:iam::")
    with person.terminal("shell", "plain") as terminal:
        terminal.shows(ENTERED)
        terminal.press("echo [$COLOUR]\r")
        terminal.shows("[blue]")
        terminal.press("exit\r")
        assert terminal.end() == 0
        assert "plain continues to run." in terminal.text
    person.smq("requeue", "plain")
    until(lambda: system.job("plain").attempt == 2 and system.state("plain") == "running")
    again = person.smq("shell", "plain", "--", "printenv", "TRAINING_JOB_NAME")
    assert (again.stdout.strip(), "now enabled" in again.stderr) == ("plain-qstamp-2", True)


def test_no_shell_is_enabled_in_the_job_of_another_user(system: System, person: Person) -> None:
    """Whatever IAM allows her on the training job, and whatever names and tags she gives her own jobs."""
    system.run("bobs")
    everything = ("sagemaker:DescribeTrainingJob", "execute-api:Invoke", "ssm:StartSession")
    hers = keys_of(session_of(system.cloud, "mallory", everything))
    said = person.smq("shell", "bobs", "--", "true", code=1, environment=hers).stderr
    assert "may enable a shell in it" in said
    described = system.sagemaker.describe_training_job(TrainingJobName="bobs-qstamp-1")
    assert not described.get("RemoteDebugConfig", {}).get("EnableRemoteDebug")
    assert not [it for it in system.job("bobs").history if "remote" in (it.cause or "")]
    body = {"Tags": [{"Key": "queue-job", "Value": "bobs"}]}
    named = person.folder / "named.json"
    named.write_text(json.dumps(body))
    person.smq("submit", "--name", "bobs-qstamp-1", "--request", str(named), "--", "true", code=1, environment=hers)


def test_whose_containers_one_enters_is_for_a_policy_to_say(system: System, person: Person) -> None:
    """The example's policy, with names."""
    person.keep("ann-lab", *MANY)
    person.keep("bob-lab", *MANY)
    ann = session_of(system.cloud, "ann", ("sagemaker:DescribeTrainingJob", "execute-api:Invoke"))
    policy = (ROOT / "examples/iam/shell.json").read_text().replace("NAMES", "ann-*")
    system.cloud.client("iam").put_user_policy(UserName="ann", PolicyName="shell", PolicyDocument=policy)
    hers = keys_of(ann)
    assert person.smq("shell", "ann-lab", "--", "echo", "hers", environment=hers).stdout == "hers\n"
    assert (
        "You may not open a session in bob-lab"
        in person.smq("shell", "bob-lab", "--", "true", code=1, environment=hers).stderr
    )


def test_session_manager_connects_to_nothing_else(system: System, person: Person) -> None:
    """What the emulator refuses, as AWS does."""
    ssm = system.cloud.client("ssm")
    person.keep("strict", *MANY)
    system.run("barred")

    def refused(target: str, **request: object) -> str:
        with pytest.raises(ClientError) as error:
            ssm.start_session(Target=target, **request)
        return str(error.value.response["Error"]["Code"])

    lab = "sagemaker-training-job:strict-qstamp-1"
    # SageMaker says Training before the process runs, without which no session can begin.
    until(lambda: "waiting for shells" in " ".join(system.log("strict-qstamp-1")))
    for target in (
        f"{lab}_algo-2",
        "sagemaker-training-job:barred-qstamp-1_algo-1",
        "sagemaker-training-job:x_algo-1",
        "i",
    ):
        assert refused(target) == "TargetNotConnected"
    assert refused(f"{lab}_algo-1", DocumentName="No-Such") == "InvalidDocument"

    opened = ssm.start_session(Target=f"{lab}_algo-1")
    address = re.fullmatch(r"ws://([0-9.]+):(\d+)/.*", opened["StreamUrl"])
    assert address
    with socket.create_connection((address[1], int(address[2]))) as stranger:
        stranger.sendall(b"guessed\n")
        assert stranger.recv(1) == b""
    ssm.terminate_session(SessionId=opened["SessionId"])
    with socket.create_connection((address[1], int(address[2]))) as late:
        late.sendall(f"{opened['TokenValue']}\n".encode())
        assert late.recv(1) == b""

    iam, role = system.cloud.client("iam"), system.cloud.role.rpartition("/")[2]
    (name,) = iam.list_role_policies(RoleName=role)["PolicyNames"]
    granted = json.dumps(iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"])
    iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=granted.replace("ssmmessages:*", "ssm:*"))
    try:
        assert refused(f"{lab}_algo-1") == "TargetNotConnected"  # its agent may not connect itself
        enough = (ROOT / "examples/iam/training_shell.json").read_text()
        iam.put_role_policy(RoleName=role, PolicyName="shell", PolicyDocument=enough)
        assert ssm.start_session(Target=f"{lab}_algo-1")["SessionId"]
    finally:
        iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=granted)
