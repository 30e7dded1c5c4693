"""``smq``: how it ends, whatever the command."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tomlkit

from sagemaker_queue.cli import main
from tests.client.samples import SEE, job, refused
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")


WRONG_USAGE: list[list[str]] = [
    ["dance"],
    ["ls", "-o", "shoe-size"],
    ["ls", "--json", "--wide"],
    ["cancel"],
    ["hold"],
    ["why"],
    ["set-priority", "job1", "high"],
    ["policy", "dance"],
    ["policy", "apply", "x.yaml", "--version", "new"],
    ["ls", "--all", "--state=x"],
    ["ls", "--mine", "--owner", "ann"],
    ["cancel", "job1", "--group", "lr"],
    ["completion", "tcsh"],
]


class TestEnd:
    def test_refused(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(403, refused("Forbidden", "You may not look.", remedy="Ask Ann."))
        assert main(["ls"]) == 1
        assert capsys.readouterr() == ("", f"smq: You may not look. Ask Ann.\n{SEE}forbidden\n")

    def test_no_queue_is_configured(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.delenv("SAGEMAKER_QUEUE_URL")
        assert main(["ls"]) == 2
        assert capsys.readouterr().err.startswith("smq: No queue is configured")

    def test_no_credentials(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        assert main(["cancel", "job1", "job2"]) == 2
        assert capsys.readouterr().err.count("No AWS credentials") == 1

    @pytest.mark.usefixtures("refused_role")
    def test_a_role_that_aws_refuses(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["ls"]) == 2
        error = capsys.readouterr().err
        assert "to perform: sts:AssumeRole. Log in to AWS again, or correct role_arn in the AWS profile." in error
        assert server.received == []

    def test_wrong_usage(self, capsys: pytest.CaptureFixture[str], server: ScriptedServer) -> None:
        for argv in WRONG_USAGE:
            assert main(argv) == 2, argv
            assert "usage: smq" in capsys.readouterr().err, argv
        assert server.received == []

    @pytest.mark.parametrize(
        ("argv", "usage", "error"),
        [
            (["ls", "--bogus"], "usage: smq ls ", "--bogus"),
            (["cancel"], "usage: smq cancel ", "Name a job, or give --group."),
            (["logs"], "usage: smq logs ", "Name a job, or give --group; not both."),
            (["policy", "show", "x"], "usage: smq policy show ", "Got unexpected extra argument (x)"),
            (
                ["plan", "python", "train.py"],
                "usage: smq plan [OPTIONS] [FILE | -- COMMAND]\n",
                "Got unexpected extra argument (train.py)",
            ),
        ],
    )
    def test_the_command_itself_says_how_it_is_used(
        self, argv: list[str], usage: str, error: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(argv) == 2
        complaint = capsys.readouterr().err
        assert complaint.startswith(usage) and f"smq {argv[0]}" in complaint and error in complaint

    def test_an_unknown_column_is_answered_with_those_there_are(self, capsys: pytest.CaptureFixture[str]) -> None:
        main(["ls", "-o", "job,shoe-size"])
        assert "There is no column 'shoe-size'. Columns: job, state, priority" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("argv", "meant"),
        [
            (["submti"], "There is no command 'submti'. Did you mean 'submit'?"),
            (["policy", "prevew"], "There is no command 'prevew'. Did you mean 'preview'?"),
            (["ls", "-o", "job,prioritty"], "There is no column 'prioritty'. Did you mean 'priority'?"),
            (["submit", "--projekt", "x", "--", "true"], "There is no option --projekt. Did you mean '--project'?"),
        ],
    )
    def test_what_is_mistyped_is_answered_with_what_may_be_meant(
        self, argv: list[str], meant: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(argv) == 2
        said = capsys.readouterr().err
        assert meant in said

    @pytest.mark.parametrize("argv", [["--url", "URL", "ls"], ["ls", "--url", "URL"]])
    def test_the_address_can_stand_before_or_after_the_command(
        self, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, argv: list[str]
    ) -> None:
        monkeypatch.setenv("SAGEMAKER_QUEUE_URL", "http://127.0.0.1:9/prod")
        server.answers(200, {"jobs": []})
        assert main([server.url if word == "URL" else word for word in argv]) == 0

    @pytest.mark.parametrize("option", ["-c", "--profile"])
    def test_an_unknown_profile(self, option: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([option, "research", "ls"]) == 2
        assert "config.toml does not exist" in capsys.readouterr().err

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--version"]) == 0
        project = tomlkit.parse((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
        assert capsys.readouterr().out == f"smq {project['version']}\n"

    def test_help_has_examples_and_exit_codes(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--help"]) == 0
        text = capsys.readouterr().out
        assert "smq ls -o job,age,reason" in text
        assert "exit codes:" in text

    @pytest.mark.parametrize("argv", [[], ["policy"], ["data"], ["config"]])
    def test_the_name_alone_helps(self, argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert main(argv) == 0
        typed = capsys.readouterr()
        assert main([*argv, "--help"]) == 0
        assert typed == capsys.readouterr()
        assert typed.out.startswith(f"usage: {' '.join(['smq', *argv])} ") and "\ncommands:\n" in typed.out

    def test_help_does_not_wait_for_what_only_requests_need(self) -> None:
        program = (
            "import sys, sagemaker_queue; from sagemaker_queue.cli import main\n"
            "main(['--help']); main(['logs', '--help'])\n"
            "slow = {'boto3', 'botocore', 'pandas', 'requests', 'rich', 'sagemaker', 'tabulate', 'tenacity'}\n"
            "print(*sorted(slow & set(sys.modules)), file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE
        )
        assert done.stderr == "\n"

    def test_a_reader_that_leaves(self, server: ScriptedServer) -> None:
        server.answers(200, {"jobs": [job("job1", "running", 1)]})
        # The pipe is made in a process without threads, so that no other child process can have its reading end.
        program = (
            "import os, sys; read, write = os.pipe(); os.close(read); os.dup2(write, 1);"
            "os.execv(sys.executable, [sys.executable, '-m', 'sagemaker_queue', 'ls'])"
        )
        done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, check=False, timeout=PATIENCE)
        assert (done.returncode, done.stderr) == (141, b"")

    def test_ctrl_c(self, server: ScriptedServer) -> None:
        server.keeps_silent()
        # A test runner in the background may have passed on "ignore SIGINT".
        program = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
            "from sagemaker_queue.cli import main; sys.exit(main(['ls']))"
        )
        with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as process:
            try:
                until(lambda: server.received or process.poll() is not None)
                process.send_signal(signal.SIGINT)
                _, complaint = process.communicate(timeout=PATIENCE)
            finally:
                process.kill()
        assert (process.returncode, complaint) == (130, b"")
