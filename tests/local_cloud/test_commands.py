"""The command line: exit statuses, signals, and that nothing is left of a cloud whose process is gone."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from local_cloud.__main__ import account_of, main, parser, timing
from local_cloud.commands import up_and_exec
from local_cloud.commands.signals import Signals
from local_cloud.sagemaker.account.options import Rate, strict_account
from local_cloud.user_errors import LocalCloudError
from tests.waiting import PATIENCE, processes, until

ROOT = Path(__file__).resolve().parent.parent.parent


@contextmanager
def local_cloud(
    folder: Path, *arguments: str, program: Sequence[str] = ("-m", "local_cloud"), **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """`python -m local_cloud` with private temporary folders in `folder`, not running any more afterwards."""
    process = subprocess.Popen(
        [sys.executable, *program, *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def nothing_left(folder: Path) -> bool:
    """Whether no private folder is in `folder`, and no process works there."""
    return not list(folder.glob("local-cloud-*")) and not processes_in(folder)


def processes_in(folder: Path) -> list[psutil.Process]:
    return processes(lambda environment: environment.get("TMPDIR", "").startswith(str(folder)))


def test_exec_hands_through_input_output_and_status(tmp_path: Path) -> None:
    script = 'cat; echo "$SAGEMAKER_QUEUE_URL $AWS_PROFILE"; exit 7'
    environment = {**os.environ, "TMPDIR": str(tmp_path), "AWS_PROFILE": "a-real-account"}
    done = subprocess.run(
        [sys.executable, "-m", "local_cloud", "exec", "--slots", "3", "--", "sh", "-c", script],
        cwd=ROOT, env=environment, input="given\n", capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 7
    assert re.fullmatch(r"given\nhttp://127\.0\.0\.1:\d+/restapis/\w+/prod/_user_request_ \n", done.stdout)
    assert re.fullmatch(r"local_cloud: up after [0-9.]+ s\n", done.stderr)
    assert nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 200"], 200),
        (["sh", "-c", "kill -9 $$"], 128 + 9),
        (["no-such-command"], 127),
        ([str(ROOT / "pyproject.toml")], 126),
    ],
)
def test_statuses_are_those_of_a_shell(command: list[str], status: int, capfd: pytest.CaptureFixture[str]) -> None:
    cloud: Any = SimpleNamespace(environment=dict, mark={})
    assert up_and_exec.run(cloud, command, Signals()) == status
    assert (command[0] in capfd.readouterr().err) == (status in (126, 127))


def test_a_signal_that_comes_while_the_command_starts_is_passed_on() -> None:
    def environment() -> dict[str, str]:
        os.kill(os.getpid(), signal.SIGTERM)
        return {}

    cloud: Any = SimpleNamespace(environment=environment, mark={})
    with Signals() as signals:
        assert up_and_exec.run(cloud, ["sleep", "600"], signals) == 128 + signal.SIGTERM


@pytest.mark.thorough
def test_exec_passes_signals_on_once_and_ends_what_the_command_left_running(tmp_path: Path) -> None:
    script = "trap 'echo caught; exit 9' TERM; sleep 600 & echo go; wait"
    with local_cloud(tmp_path, "exec", "--", "sh", "-c", script) as process:
        assert process.stdout
        assert process.stdout.readline() == "go\n"
        until(lambda: len(processes_in(tmp_path)) >= 4)
        process.terminate()
        assert process.communicate(timeout=PATIENCE)[0] == "caught\n"
        assert process.returncode == 9
        assert nothing_left(tmp_path)


@pytest.mark.thorough
def test_up_tells_how_to_use_it_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    env_file = tmp_path / "environment.sh"
    with local_cloud(tmp_path, "up", "--env-file", str(env_file)) as process:
        lines = until(lambda: env_file.read_text() if env_file.exists() else "").splitlines()
        assert all(re.fullmatch(r"(export \w+=\S+|unset [A-Z_ ]+)", line) for line in lines)
        smq = f". {env_file}; {sys.executable} -m sagemaker_queue ls --json"
        listed = subprocess.run(
            ["sh", "-c", smq], cwd=ROOT / "client", capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert (listed.returncode, listed.stderr) == (0, "")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        told, complaints = process.communicate(timeout=PATIENCE)
        assert (process.returncode, complaints) == (0, "")
        assert all(line in told for line in lines if line.startswith("export"))
        assert not env_file.exists()
        assert nothing_left(tmp_path)


# A local cloud whose services never answer.
STARTS_FOR_EVER = """
import sys
from local_cloud.__main__ import main
from local_cloud.aws import ministack
ministack.READY_WITHIN = float("inf")
ministack.Ministack._is_healthy = lambda self: False
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.thorough
def test_ctrl_c_while_it_starts(tmp_path: Path) -> None:
    with local_cloud(tmp_path, "up", program=("-c", STARTS_FOR_EVER)) as process:
        until(lambda: list(tmp_path.glob("local-cloud-*/ministack.log")))
        process.send_signal(signal.SIGINT)
        told, complaints = process.communicate(timeout=PATIENCE)
        assert (process.returncode, told, complaints) == (128 + signal.SIGINT, "", "")
        assert nothing_left(tmp_path)


@pytest.mark.thorough
def test_nothing_is_left_of_a_process_that_is_killed(tmp_path: Path) -> None:
    env_file = tmp_path / "environment.sh"
    script = "trap '' TERM; echo $$; sleep 600 & wait; sleep 600"
    with local_cloud(tmp_path, "exec", "--env-file", str(env_file), "--", "sh", "-c", script) as process:
        assert process.stdout
        command = int(process.stdout.readline())
        assert command in [each.pid for each in processes_in(tmp_path)]
        process.kill()
        until(lambda: nothing_left(tmp_path))
        assert not env_file.exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "required"),
        (["down"], "invalid choice"),
        (["up", "--slots", "0"], "not a number from 1"),
        (["up", "--slots", "two"], "not a number from 1"),
        (["up", "--instances", "ml.m5.large"], "TYPE=N"),
        (["up", "--faults", "thunder=0.1"], "there is no fault 'thunder'; known are throttle, "),
        (["exec", "--faults", "lost=2", "--", "ls"], "lost must be a probability from 0 to 1"),
        (["up", "--seed", "7"], "--seed is for --faults"),
        (["up", "--seed", "x", "--faults", "lost=0"], "invalid int value"),
        (["up", "--quota", "ml.p5.48xlarge=2"], "SageMaker has no quota 'ml.p5.48xlarge' for training; known are"),
        (["up", "--quota", "ml.p5.48xlarge for training job usage"], "not of the form NAME=LIMIT"),
        (["up", "--create-rate", "1"], "not of the form CALLS/BURST"),
        (["up", "--list-rate", "0/1"], "not of the form CALLS/BURST"),
        (["up", "--history", "100001"], "not a number from 0 to 100000"),
        (["up", "--plan", "june=1,+0"], "not of the form NAME=COUNT,START,END"),
        (["up", "--plan", "june=0,+0,+1"], "must have from 1 to 99999 instances"),
        (["up", "--plan", "june=1,+5,+5"], "must end after it starts"),
        (["up", "--plan", "june=1,tomorrow,+5"], "'tomorrow' is no time"),
        (["up", "--plan", "june=1,+0,+5,p5"], "has no instance type 'p5'"),
        (["up", "--provisioning", "soon"], "not a number of seconds"),
        (["demo", "--slots", "2"], "unrecognized arguments"),
        (["up", "--", "ls"], "takes no command"),
        (["exec"], "needs a command"),
        (["exec", "--slots", "2", "ls"], "unrecognized arguments"),
    ],
)
def test_misuse(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_options_make_the_account_and_its_times() -> None:
    given = ["--quota", "ml.p5.48xlarge for training job usage=3", "--create-rate", "5/2", "--plan", "june=1,+0,+60"]
    options = parser().parse_args(["exec", *given, "--provisioning", "180"])
    account = account_of(options)
    assert account.quotas == {"ml.p5.48xlarge for training job usage": 3}
    assert (account.create_rate, account.list_rate, account.history) == (Rate(5, 2), None, 0)
    assert [plan.name for plan in account.plans] == ["june"]
    assert timing(options) == {"strict": False, "startup_delay": 180.0}

    strict = parser().parse_args(["exec", "--strict", *given])
    as_aws_makes_it = strict_account(account_of(strict))
    assert as_aws_makes_it.quotas["ml.p5.48xlarge for training job usage"] == 3
    assert (as_aws_makes_it.create_rate, as_aws_makes_it.list_rate) == (Rate(5, 2), Rate(2, 2))
    assert timing(strict) == {"strict": True}
    assert account_of(strict).quota_lag is None
    assert as_aws_makes_it.quota_lag == 60
    late = account_of(parser().parse_args(["up", "--strict", "--quota-lag", "5"]))
    assert strict_account(late).quota_lag == 5
    own = parser().parse_args(["up", "--strict", "--stop-grace", "120", "--provisioning", "0"])
    assert timing(own) == {"strict": True, "startup_delay": 0.0, "stop_grace": 120.0, "unhandled_grace": 120.0}

    with pytest.raises(LocalCloudError, match="june is given twice"):
        account_of(parser().parse_args(["exec", "--plan", "june=1,+0,+60", "--plan", "june=2,+0,+60"]))


def test_a_file_in_use_is_no_environment_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    precious = tmp_path / "precious"
    precious.write_text("text")
    assert main(["up", "--env-file", str(precious)]) == 1
    assert str(precious) in capsys.readouterr().err
    assert precious.read_text() == "text"


@pytest.mark.thorough
@pytest.mark.parametrize("package", ["samtranslator", "psutil"])
def test_the_extra_is_named_where_it_is_missing(package: str) -> None:
    code = f"import sys; sys.modules['{package}'] = None; from local_cloud.__main__ import main; sys.exit(main(['up']))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert package in done.stderr
    assert "pip install -e '.[local]'" in done.stderr


@pytest.mark.thorough
def test_exec_runs_with_its_input_closed_as_under_cron(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m local_cloud exec -- echo done <&-"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.thorough
def test_exec_applies_a_policy_and_says_what_is_wrong_with_one(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("pools: [{name: p5, capacity: 2}]\nprojects: [{name: vision, quota: {p5: 2}}]\n")
    ask = "from sagemaker_queue import QueueClient; print(QueueClient().policy().policy['projects'][0]['name'])"
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"}

    def run() -> "subprocess.CompletedProcess[str]":
        command = [
            sys.executable,
            "-m",
            "local_cloud",
            "exec",
            "--policy",
            str(policy),
            "--",
            sys.executable,
            "-c",
            ask,
        ]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    done = run()
    assert (done.returncode, done.stdout) == (0, "vision\n"), done.stderr
    policy.write_text("pools: [{name: p5, capacity: 2}]\nprojects: [{name: vision, quota: {p5: 3}}]\n")
    done = run()
    assert done.returncode == 1
    assert "add up to 3, it has 2" in done.stderr
    assert "Traceback" not in done.stderr
