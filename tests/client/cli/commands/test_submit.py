"""``smq submit`` and ``sweep``: what is looked at before anything is uploaded, and what is said of a refusal."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import boto3
import pytest

from api_contract.models import Submission
from job_queue.api.redaction import redacted
from sagemaker_queue.cli import main
from sagemaker_queue.jobs.script_check import script_of
from sagemaker_queue.presentation.text.submission_text import submission_line
from tests.client.conftest import Received, ScriptedServer
from tests.client.samples import SEE, job, refused

JOB = [
    "--role",
    "arn:aws:iam::123456789012:role/training",
    "--image",
    "train:1",
    "-t",
    "ml.m5.large",
    "--bucket",
    "own",
]
TAKEN = refused("NameTaken", "Another request already has the name lr-lr-1.", remedy="Give it another name.")
MISSING = "s3://sets/none"


def sent(server: ScriptedServer) -> list[Received]:
    """The submissions."""
    return [one for one in server.received if one.method == "POST" and one.path != "/prod/plan"]


def uploaded(s3: Any) -> list[str]:
    return [one["Key"].rpartition("/")[2] for one in s3.list_objects_v2(Bucket="own").get("Contents", [])]


@pytest.mark.parametrize("command", [["submit"], ["sweep", "--grid", "lr=1,2"]])
def test_data_are_looked_for_before_the_code_is_uploaded(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert main([*command, *JOB, "--data", f"x={MISSING}", "--", "train", "{lr}"]) == 1
    assert f"{MISSING}/, which has no objects" in capsys.readouterr().err
    assert (uploaded(s3), server.received) == ([], [])
    server.always_answers(202, {"job": "job1", "state": "pending"})
    s3.put_object(Bucket="sets", Key="none/1")
    assert main([*command, *JOB, "--data", f"x={MISSING}", "--", "train", "{lr}"]) == 0
    assert sorted(uploaded(s3)) == ["run.py", "source.tar.gz"]


def keys_in(s3: Any, bucket: str) -> list[str]:
    return sorted(one["Key"] for one in s3.list_objects_v2(Bucket=bucket).get("Contents", []))


@pytest.mark.parametrize("command", [["submit"], ["sweep", "--grid", "lr=1,2"]])
def test_the_code_is_uploaded_to_the_project_s_bucket_in_each_region(
    s3: Any, server: ScriptedServer, command: list[str]
) -> None:
    create: Any = boto3.client
    ohio = create("s3", region_name="us-east-2")
    ohio.create_bucket(Bucket="ohio", CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
    server.answers(200, {"bucketByRegion": {"us-east-1": "own", "us-east-2": "ohio"}})
    server.always_answers(202, {"job": "job1", "state": "pending"})
    assert main([*command, *JOB, "--", "train", "{lr}"]) == 0
    assert len(keys_in(s3, "own")) == 2 and keys_in(s3, "own") == keys_in(ohio, "ohio")
    assert {one.path for one in server.received} == {"/prod/plan", "/prod/add-job"}  # no further request


def test_a_region_that_the_project_got_later_gets_the_same_code(s3: Any, server: ScriptedServer) -> None:
    create: Any = boto3.client
    ohio = create("s3", region_name="us-east-2")
    ohio.create_bucket(Bucket="ohio", CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
    command = ["submit", *JOB, "--", "train"]
    for answer in (
        {"bucketByRegion": {"us-east-1": "own"}},
        {"bucketByRegion": {"us-east-1": "own", "us-east-2": "ohio"}},
    ):
        server.answers(200, answer)
        server.answers(202, {"job": "job1", "state": "pending"})
        assert main(command) == 0
    assert len(keys_in(s3, "own")) == 2 and keys_in(s3, "own") == keys_in(ohio, "ohio")


@pytest.mark.parametrize("buckets", [{}, {"us-east-1": "another", "us-east-2": "sets"}])
def test_other_code_is_uploaded_to_its_own_bucket_only(
    s3: Any, server: ScriptedServer, buckets: dict[str, str]
) -> None:
    server.answers(200, {"bucketByRegion": buckets})
    server.always_answers(202, {"job": "job1", "state": "pending"})
    assert main(["submit", *JOB, "--", "train"]) == 0
    assert len(keys_in(s3, "own")) == 2 and keys_in(s3, "sets") == []


def test_without_the_bucket_of_another_region_nothing_is_submitted(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(200, {"bucketByRegion": {"us-east-1": "own", "us-east-2": "ohio"}})
    assert main(["submit", *JOB, "--", "train"]) == 1
    assert "There is no bucket ohio" in capsys.readouterr().err
    assert keys_in(s3, "own") == [] and sent(server) == []


def have_scripts(folder: Path) -> None:
    for name in ("train.py", "script.py"):
        (folder / name).touch()


def commands_of(server: ScriptedServer) -> list[list[str]]:
    """The commands of the submissions."""
    return [json.loads(json.loads(one.body)["HyperParameters"]["command"]) for one in sent(server)]


@pytest.fixture
def profile(tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile with all that a job needs, so that a command alone is enough."""
    file = tmp_path / "profiles" / "config.toml"
    file.parent.mkdir()
    settings = {"url": server.url, **dict(zip(("role", "image", "instance_type", "bucket"), JOB[1::2]))}
    file.write_text("[profiles.own]\n" + "".join(f'{key} = "{value}"\n' for key, value in settings.items()))
    monkeypatch.delenv("SAGEMAKER_QUEUE_URL")
    monkeypatch.setenv("SAGEMAKER_QUEUE_CONFIG", str(file))
    monkeypatch.setenv("SAGEMAKER_QUEUE_PROFILE", "own")


def test_credentials_are_loaded_once(
    s3: Any, server: ScriptedServer, profile: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile with mfa_serial asks for a code each time that a session loads its credentials."""
    config, program = tmp_path / "profiles" / "aws_config", tmp_path / "profiles" / "credentials"
    keys = {"Version": 1, "AccessKeyId": "AKIDANN", "SecretAccessKey": "secret"}  # pragma: allowlist secret
    program.write_text(f"#!/bin/sh\necho loaded >> {program}.log\necho '{json.dumps(keys)}'\n")
    program.chmod(0o755)
    config.write_text(f"[profile ann]\ncredential_process = {program}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    settings = Path(os.environ["SAGEMAKER_QUEUE_CONFIG"])
    settings.write_text(f'{settings.read_text()}aws_profile = "ann"\n')
    server.answers(200, {})
    server.always_answers(202, {"job": "job1", "state": "pending"})
    s3.put_object(Bucket="sets", Key="none/1")
    assert main(["submit", "--data", f"x={MISSING}", "nvidia-smi"]) == 0
    assert len(uploaded(s3)) == 2 and {one.path for one in server.received} == {"/prod/plan", "/prod/add-job"}
    assert Path(f"{program}.log").read_text() == "loaded\n"


@pytest.mark.parametrize(
    "words",
    [
        ["python", "script.py"],
        ["python", "script.py", "--data", "imagenet"],
        ["nvidia-smi"],
        ["sh", "-c", "ls -n | wc"],
        ["python", "train.py", "--", "--lr", "1"],
    ],
)
def test_document_004_words_after_submit_are_the_command(
    s3: Any, server: ScriptedServer, profile: None, words: list[str], tmp_path: Path
) -> None:
    have_scripts(tmp_path)
    server.always_answers(202, {"job": "job1", "state": "pending"})
    assert main(["submit", *words]) == 0
    assert main(["submit", "--priority", "5", "--checkpoint", "--name=a", *words]) == 0
    assert main(["submit", "--", *words]) == 0
    assert commands_of(server) == [words] * 3


def test_document_004_options_after_the_first_word_are_told_to_be_the_commands(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    have_scripts(tmp_path)
    server.always_answers(202, {"job": "job1", "state": "pending"})
    words = ["python", "train.py", "--data", "imagenet", "--name=x", "-n", "2", "--data", "coco", "--lr", "1"]
    assert main(["submit", *JOB, *words]) == 0
    errors = capsys.readouterr().err
    assert errors.count("smq: note:") == 1
    assert (
        "smq: note: The command python gets --data, --name, -n, because smq passes on all words after the first word "
        "of the command. "
        "Put options of smq before the command; -- before the command hides this note.\n"
    ) in errors
    assert main(["submit", *JOB, "--", *words]) == 0
    assert main(["submit", *JOB, "sh", "-c", "ls -l"]) == 0
    assert main(["submit", *JOB, "python", "train.py", "--lr", "1"]) == 0
    assert "note" not in capsys.readouterr().err
    assert commands_of(server)[:2] == [words, words]


@pytest.mark.parametrize(
    "command",
    [
        ["submit", "--data", "in/a=s3://sets/a", "train", "{data:in/b}"],
        ["plan", "--data", "in/a=s3://sets/a", "--", "train", "{data:in/b}"],
        ["sweep", "--data", "in/a=s3://sets/a", "--grid", "set=in/a,in/b", "train", "{data:{set}}"],
    ],
)
def test_document_004_a_placeholder_of_unknown_data_is_refused_before_anything_is_sent(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    s3.put_object(Bucket="sets", Key="a/1")
    assert main([command[0], *JOB, *command[1:]]) == 2
    message = "The command has {data:in/b}, but the job has no data of that name. Did you mean 'in/a'? It has: in/a."
    assert message in capsys.readouterr().err
    assert (server.received, uploaded(s3)) == ([], [])


def test_a_placeholder_of_a_sweep_may_have_a_value_of_a_grid(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data", "in/a=s3://sets/a", "--data", "in/b=s3://sets/b"]
    sweep = ["sweep", *JOB, *data, "--grid", "set=a,b", "--dry-run", "--json", "train", "{data:in/{set}}"]
    assert main(sweep) == 0
    requests = json.loads(capsys.readouterr().out)
    assert [json.loads(it["HyperParameters"]["places"]) for it in requests] == [{"in/a": "in-a"}, {"in/b": "in-b"}]


def test_a_folder_with_both_compile_scripts_is_told_which_one_runs(
    s3: Any, server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = "smq: note: The job runs compile.sh and not compile.aml.sh: the folder has both.\n"
    (tmp_path / "compile.aml.sh").touch()
    assert main(["submit", *JOB, "--dry-run", "train"]) == 0
    assert "note" not in capsys.readouterr().err
    (tmp_path / "compile.sh").touch()
    assert main(["submit", *JOB, "--dry-run", "train"]) == 0
    assert note in capsys.readouterr().err
    (tmp_path / ".smqignore").write_text("compile.aml.sh\n")
    assert main(["submit", *JOB, "--dry-run", "train"]) == 0
    assert "note" not in capsys.readouterr().err


def test_a_note_does_not_hide_what_is_missing_in_front_of_the_command(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *JOB, "train", "{lr}", "--grid", "lr=1,2"]) == 2
    errors = capsys.readouterr().err
    assert "smq: note: The command train gets --grid" in errors
    assert "smq: Nothing is varied: give --grid" in errors


def test_document_004_the_two_spellings_on_the_page_are_one_command(
    s3: Any, server: ScriptedServer, profile: None, tmp_path: Path
) -> None:
    """AML Command Transfer puts two words before a command (`a submit python train.py`), and so does `smq`."""
    have_scripts(tmp_path)
    page = (Path(__file__).parents[4] / "docs" / "run" / "command.md").read_text()
    typed = [shlex.split(line) for line in re.findall(r"^smq submit .*--data voc20$", page, re.MULTILINE)]
    assert len(typed) == 2
    server.always_answers(202, {"job": "job1", "state": "pending"})
    for _, *arguments in typed:
        assert main(arguments) == 0
    words = ["python", "train.py", "--data", "voc20"]
    assert commands_of(server) == [words, words]


def test_another_sweep_of_the_name_is_told_to_take_another_one(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(200, {})  # what the plan says before the upload
    server.answers(409, TAKEN)
    server.answers(409, TAKEN)
    command = ["sweep", *JOB, "--name", "lr", "--grid", "lr=1,2", "--", "train", "{lr}"]
    assert main(command) == 1
    message = capsys.readouterr().err
    assert "another --name" in message and "submits the missing jobs" not in message
    assert message.count("another name") == 2
    server.answers(200, {})
    server.answers(409, TAKEN)
    server.answers(413, refused("TooLarge", "It is too large."))
    assert main(command) == 1
    message = capsys.readouterr().err
    assert "another --name" in message and "submits the missing jobs" in message


def test_waiting_for_a_job_prints_its_lines_and_nothing_else(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(200, {})
    server.answers(202, {"job": "job1", "state": "pending", "warnings": ["No checkpoints."]})
    server.always_answers(200, {"job": "job1", "state": "completed"})
    assert main(["submit", *JOB, "--wait", "--json", "--", "train"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "smq: warning: No checkpoints." in err and err.endswith("job1 completed\n")


def test_jobs_that_are_named_come_first_as_a_tag(s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["--after", "prepare", "--after", "clean-up:any"]
    assert main(["submit", *JOB, *names, "--dry-run", "--", "true"]) == 0
    tags = {tag["Key"]: tag["Value"] for tag in json.loads(capsys.readouterr().out)["Tags"]}
    assert tags["after"] == "prepare clean-up:any"
    assert main(["submit", *JOB, "--after", "a b", "--dry-run", "--", "true"]) == 2
    assert "'a b' is not the name of a job" in capsys.readouterr().err


def test_the_numbers_of_instances_that_it_accepts_come_as_a_tag(s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def request(*options: str) -> Any:
        assert main(["submit", *JOB, *options, "--dry-run", "--", "true"]) == 0
        sent = json.loads(capsys.readouterr().out)
        tags = {tag["Key"]: tag["Value"] for tag in sent.get("Tags", [])}
        return sent["ResourceConfig"]["InstanceCount"], tags.get("instances")

    assert request("-n", "8,4,2") == (8, "8 4 2")  # SageMaker takes no comma in a tag
    assert request("--instances", "8, 4") == (8, "8 4")
    assert request("-n", "3") == (3, None)
    assert request() == (1, None)


@pytest.mark.parametrize("text", ["0", "-1", "x", "8,", "8,0", "8,8", "4,8", "8 4", ""])
def test_numbers_of_instances_that_are_none_are_refused(s3: Any, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main(["submit", *JOB, f"--instances={text}", "--dry-run", "--", "true"]) == 2
    assert "--instances" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "1e400", "0", "1.5", "x"])
def test_numbers_of_gpus_that_are_none_are_refused(s3: Any, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main(["submit", *JOB, f"--gpus={text}", "--dry-run", "--", "true"]) == 2
    assert f"'{text}' is not a number of GPUs" in capsys.readouterr().err


def test_what_the_queue_would_refuse_is_told_before_the_upload_in_the_options_own_words(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    s3.put_object(Bucket="sets", Key="a/1")
    wrong = [
        ("ResourceConfig.InstanceCount", "must be at most 20.", "-n must be at most 20."),
        ("InputDataConfig[1].DataSource.S3DataSource.S3Uri", "is wrong.", "--data in/a is wrong."),
        ("StoppingCondition.MaxRuntimeInSeconds", "is too large.", "--max-run is too large."),
        ("Tags[0].Value", "", "--priority must be a whole number."),
    ]
    messages = [f"{field} {what}" if what else "The tag priority must be a whole number." for field, what, _ in wrong]
    go_on = "To submit it anyway: smq submit --no-preflight, or preflight=False in Python."
    refusals = [
        {"code": "InvalidRequest", "message": message, "field": field, "remedy": go_on}
        for message, (field, _, _) in zip(messages, wrong)
    ]
    server.answers(400, {"errors": refusals})
    assert main(["submit", *JOB, "--data", "in/a=s3://sets/a", "--", "train"]) == 1
    said = "\n".join([*(own for *_, own in wrong), "To submit it anyway: --no-preflight."])
    assert capsys.readouterr() == ("", f"smq: {said}\n{SEE}invalidrequest\n")
    assert [one.path for one in server.received] == ["/prod/plan"]
    assert uploaded(s3) == []


def test_a_plan_that_cannot_be_had_keeps_nobody_from_submitting(s3: Any, server: ScriptedServer) -> None:
    server.answers(503, {"message": "busy"})
    server.answers(202, job("job1", "running", 1))
    assert main(["submit", *JOB, "--", "train"]) == 0
    assert len(sent(server)) == 1


def test_the_line_has_what_to_type_next(s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    reason = {"code": "X", "message": "Needs 1 instance."}
    for answer, line in (
        (job("a", "starting", 1), "a is starting (smq logs -f a)"),
        (
            job("a", "pending", 1, position=3, reason=reason),
            "a is pending, 3rd in the queue: Needs 1 instance. (smq why a)",
        ),
        (job("a", "running", 1, known=True), "a was submitted before: it is running (smq logs -f a)"),
    ):
        server.answers(200, {})
        server.answers(202, answer)
        assert main(["submit", *JOB, "--", "train"]) == 0
        assert capsys.readouterr().out == f"{line}\n"


def test_a_warning_is_put_in_the_options_words_too(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(200, {})
    server.answers(202, job("a", "running", 1, warnings=["ResourceConfig.InstanceType is scarce; a tag `project`."]))
    assert main(["submit", *JOB, "--", "train"]) == 0
    assert "smq: warning: -t is scarce; --project.\n" in capsys.readouterr().err


CHECKPOINTS = (
    "The job has no CheckpointConfig: if it is preempted, it starts again from the beginning. Give the estimator a "
    "checkpoint_s3_uri (smq submit: --checkpoint), and let the script resume from its checkpoint directory."
)


def test_a_plan_warns_in_the_options_words_too(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server.always_answers(200, {"wouldStart": True, "warnings": [CHECKPOINTS]})
    assert main(["plan", *JOB, "--", "train"]) == 0
    page = capsys.readouterr().out
    assert "- A preemption loses all work: add --checkpoint, or: smq config set checkpoint true\n" in page
    assert "estimator" not in page
    (tmp_path / "request.json").write_text("{}")
    for arguments in (["request.json"], [*JOB, "--json", "--", "train"]):  # who writes a request, and programs
        assert main(["plan", *arguments]) == 0
        assert CHECKPOINTS in capsys.readouterr().out


@pytest.mark.parametrize(
    ("subject", "named"), [(["request.json"], "a file with a request"), (["--capacity", "p5=1"], "--capacity")]
)
def test_a_plan_without_a_command_takes_no_options_of_a_job(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str], subject: list[str], named: str
) -> None:
    assert main(["plan", *subject, "-t", "ml.m5.large", "--priority", "5", "--checkpoint"]) == 2
    told = capsys.readouterr().err
    assert all(name in told for name in ("--instance-type", "--priority", "--checkpoint"))
    assert f"cannot be given together with {named}" in told
    assert server.received == []


def test_on_a_terminal_no_word_of_a_warning_is_broken(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    server.answers(200, {})
    server.answers(202, job("a", "running", 1, warnings=[CHECKPOINTS]))
    assert main(["submit", *JOB, "--", "train"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 50 and len(lines) == 2
    assert " ".join(lines).startswith("smq: warning: A preemption loses all work: add --checkpoint, or: smq config")


def test_the_warning_about_checkpoints_has_one_line(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    server.answers(200, {})
    server.answers(202, job("a", "running", 1, warnings=[CHECKPOINTS]))
    assert main(["submit", *JOB, "--", "train"]) == 0
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("command", [["submit"], ["sweep", "--grid", "lr=1,2"]])
def test_a_script_that_is_not_packed_is_an_error_before_anything_is_sent(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str], command: list[str], tmp_path: Path
) -> None:
    (tmp_path / "train.py").touch()
    words = ["--", "python", "-u", "tran.py", "{lr}"]
    assert main([*command, *JOB, *words]) == 1
    error = capsys.readouterr().err
    assert "The command runs tran.py, which is not in the packed folder" in error
    assert "Did you mean 'train.py'?" in error and "--no-preflight" in error
    assert (uploaded(s3), server.received) == ([], [])
    server.always_answers(202, {"job": "job1", "state": "pending"})
    assert main([*command, *JOB, "--no-preflight", *words]) == 0


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (["python", "train.py"], "train.py"),
        (["python3.11", "-u", "src/train.py", "x.py"], "src/train.py"),
        (["bash", "./run.sh"], "run.sh"),
        (["./run.sh"], "run.sh"),
        (["train.py"], "train.py"),
        (["run.sh"], None),
        (["python", "-m", "pkg.train"], None),
        (["python", "-c", "import a.py"], None),
        (["python", "/opt/train.py"], None),
        (["python", "../train.py"], None),
        (["python", "{data:code}/train.py"], None),
        (["bash", "-c", "python train.py"], None),
        (["nvidia-smi"], None),
        ([], None),
    ],
)
def test_the_script_of_a_command(words: list[str], script: str) -> None:
    assert script_of(words) == script


def test_a_script_in_data_or_from_a_compile_script_is_not_looked_for(
    s3: Any, server: ScriptedServer, tmp_path: Path
) -> None:
    server.always_answers(202, {"job": "job1", "state": "pending"})
    s3.put_object(Bucket="sets", Key="code/train.py")
    assert main(["submit", *JOB, "--data", "code=s3://sets/code", "--", "python", "code/train.py"]) == 0
    (tmp_path / "compile.sh").touch()
    assert main(["submit", *JOB, "--", "python", "made.py"]) == 0


def test_a_tag_that_contradicts_an_option_is_refused(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", *JOB, "--priority", "3", "--tag", "priority=9", "--", "train"]) == 2
    assert "--priority is 3 and --tag priority is 9: give only one of them." in capsys.readouterr().err
    assert server.received == []
    server.always_answers(202, {"job": "job1", "state": "pending"})
    assert main(["submit", *JOB, "--priority", "3", "--tag", "priority=3", "--", "train"]) == 0


REQUEST: dict[str, Any] = {"TrainingJobName": "job1", "Tags": [{"Key": "project", "Value": "old"}]}


def test_a_job_of_a_former_project_is_submitted_again_for_another(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(200, job("job1", "failed", 1, request=REQUEST))
    server.answers(202, {"job": "job1-r2", "state": "pending"})
    assert main(["resubmit", "job1", "--project", "vision", "--tag", "team=a", "--priority", "5"]) == 0
    tags = {tag["Key"]: tag["Value"] for tag in json.loads(server.received[-1].body)["Tags"]}
    assert tags == {"project": "vision", "team": "a", "priority": "5"}
    server.answers(200, job("job1", "failed", 1, request=REQUEST))
    assert main(["resubmit", "job1", "--project", "vision", "--tag", "project=nlp"]) == 2
    assert "--project is vision and --tag project is nlp" in capsys.readouterr().err


@pytest.mark.parametrize(
    "private",
    [
        {"AlgorithmSpecification": {"TrainingImage": "train:1", "ContainerEntrypoint": ["python", "train.py"]}},
        {"ProfilerRuleConfigurations": [{"RuleConfigurationName": "a", "RuleParameters": {"key": "1"}}]},
    ],
)
def test_a_request_with_redacted_values_is_not_submitted_again(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str], private: dict[str, Any]
) -> None:
    server.answers(200, job("job1", "failed", 1, request=redacted({**REQUEST, **private})))
    assert main(["resubmit", "job1"]) == 1
    assert "you cannot see all of its request" in capsys.readouterr().err
    assert sent(server) == []


@pytest.mark.parametrize("width", [80, 120])
def test_the_line_fits_the_terminal(width: int) -> None:
    reason = {"code": "X", "message": "Needs 1 instance; 0 of 2 are free, 2 are used by jobs of others. " * 3}
    waiting = Submission.from_json(job("second", "pending", 1, position=12, reason=reason))
    line = submission_line(waiting, width)
    assert len(line) == width
    assert line.startswith("second is pending, 12th in the queue: Needs 1 i") and line.endswith("… (smq why second)")
    assert submission_line(waiting, 40) == "second is pending, 12th (smq why second)"
    assert submission_line(waiting, 39) == "second is pending (smq why second)"


@pytest.mark.parametrize("position", [5, 12])
def test_the_line_of_a_job_that_smq_has_named_fits_80_columns(position: int) -> None:
    name = "train-20261123-061139-vdsj"
    line = submission_line(Submission.from_json(job(name, "pending", 1, position=position)), 80)
    assert line == f"{name} is pending, {position}th (smq why {name})"
    assert len(line) <= 80


def test_a_name_whose_job_has_ended_gets_a_number(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers(200, job("typo", "failed", 1))
    server.answers(200, job("typo-r2", "completed", 1))
    server.answers(404, refused("NotFound", "There is no job typo-r3."))
    server.answers(200, {})
    server.answers(202, job("typo-r3", "running", 1))
    assert main(["submit", *JOB, "--name", "typo", "--", "train"]) == 0
    out, errors = capsys.readouterr()
    assert out == "typo-r3 is running (smq logs -f typo-r3)\n"
    assert "A finished job has the name typo (completed); the new job is typo-r3." in errors
    assert json.loads(sent(server)[0].body)["TrainingJobName"] == "typo-r3"


def test_a_name_whose_job_lives_stays(s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers(200, job("typo", "running", 1))
    server.answers(200, {})
    server.answers(409, TAKEN)
    assert main(["submit", *JOB, "--name", "typo", "--", "train"]) == 1
    said = "Another request has the name typo: give another --name. To cancel that job: smq cancel typo\n"
    assert capsys.readouterr().err.endswith(said)
    assert json.loads(sent(server)[0].body)["TrainingJobName"] == "typo"


def test_an_option_that_takes_the_commands_first_word_is_caught(
    s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", *JOB, "--checkpoint", "python", "train.py"]) == 2
    assert "write -- before it: --checkpoint -- python ..." in capsys.readouterr().err
    assert server.received == []
    assert main(["submit", *JOB, "--name", "a", "--checkpoint", "--dry-run", "--", "python", "train.py"]) == 0
    assert "CheckpointConfig" in json.loads(capsys.readouterr().out)


def test_a_sweep_is_summed_up(s3: Any, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers(200, {})
    for name, state in (("a", "running"), ("b", "pending"), ("c", "pending")):
        server.answers(202, job(name, state, 1, known=name == "a"))
    assert main(["sweep", *JOB, "--name", "lr", "--grid", "lr=1,2,3", "--", "train", "{lr}"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Sweep lr: 3 jobs, 1 instance of ml.m5.large each",
        "2 jobs submitted, 1 there already: 2 pending, 1 running (smq ls --group lr)",
    ]
