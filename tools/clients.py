"""Run unmodified SageMaker programs through the queue on a local cloud, and make a table of the results.

    .venv/bin/python -m tools.clients [--write] [NAME ...]

uv makes the environments in build/clients: each contains a program as pip installs it, and the client of this checkout.
The environments of programs that use smq proxy do not contain this client. Programs that are not in Python are built
with the tools of their languages. A job that needs all instances preempts the program's job in the middle. The program
must see the job end as if it had not been preempted.

The option --write puts the rows of this run into the table of docs/reference/tested-programs.md.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from local_cloud.aws.stack import LocalCloud
from local_cloud.commands.up_and_exec import without_account
from sagemaker_queue import QueueClient, QueueError
from tools.client_environments import SCRIPTS, Failed, install_client, versions
from tools.client_programs import CLIENTS, Client
from tools.matrix import ROOT, uv_settings

SMQ = Path(sys.executable).parent / "smq"
TABLE = ROOT / "docs/reference/tested-programs.md"
HEADER = "| program | versions | way | result |\n|---|---|---|---|\n"
INSTANCE_TYPE = "ml.p5.48xlarge"
SLOTS = 2
TIMEOUT = 600.0  # longest wait in seconds for each: the job trains, the program ends, the last outcome is recorded
STEPS_BEFORE_PREEMPTION = 3

# A program that ends only after it was preempted and resumed.
TRAIN = """
import os, pathlib, time
kept = pathlib.Path("/opt/ml/checkpoints" if "SM_CHECKPOINT_DIR" not in os.environ else os.environ["SM_CHECKPOINT_DIR"])
kept = kept / "step"
begin = step = int(kept.read_text()) if kept.exists() else 0
while not begin or step < begin + 3:
    time.sleep(0.1)
    step += 1
    new = kept.with_suffix(".new")
    new.write_text(str(step))
    new.replace(kept)
    print("step", step, flush=True)
"""


class Trial:
    """A local cloud on which programs are run."""

    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud
        self._queue = QueueClient(url=cloud.queue_url, boto_session=cloud.boto_session())
        self._sagemaker = cloud.client("sagemaker")
        self._runs = 0
        cloud.client("s3").create_bucket(Bucket="clients")

    def run(self, name: str, client: Client, programs: Path) -> str:
        """Run a program in its environment. The name of the job that it creates contains ``name``.

        ``programs`` is the folder of the environment's programs. Return the notes that the program printed. Raise
        Failed if the program fails, or if its job does not run as expected.
        """
        self._runs += 1
        name = f"run{self._runs}-{name}"  # no other run's name contains this name
        with tempfile.TemporaryDirectory() as folder:
            job = Path(folder, "job.json")
            job.write_text(json.dumps(self.request(name, TRAIN)))
            environment = {
                **without_account(os.environ),
                **self._cloud.environment(),
                **client.settings,
                "AIRFLOW_HOME": folder,
                "HOME": folder,  # removed with the folder, so that no file of a program stays
                "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
                "PYTHONWARNINGS": "ignore",
            }
            if client.aws_config:
                config = Path(folder, "config")
                config.write_text(client.aws_config)
                environment["AWS_CONFIG_FILE"] = str(config)
            known = {
                **{"{job}": str(job), "{name}": name, "{scripts}": str(SCRIPTS), "{smq}": str(SMQ)},
                **{"{python}": str(programs / "python"), "{programs}": str(programs)},
            }
            words = [filled(word, known) for word in client.command]
            output = Path(folder, "output")
            with output.open("w") as file:
                process = subprocess.Popen(
                    words, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
                )
            try:
                self._preempt(name, process, output)
                self._wait("its end", lambda: process.poll() is not None, process, output)
                if process.returncode:
                    raise Failed(f"it ended with {process.returncode}: {last_line(output)}")
                self._check(name)
            except Failed:
                kill(process)
                self._cancel_jobs(name)
                raise
            finally:
                kill(process)
            return "; ".join(re.findall(r"^note: (.*)$", output.read_text(), re.MULTILINE))

    def request(self, name: str, script: str, instances: int = 1, priority: int = 1) -> dict[str, Any]:
        """Return the request of a CreateTrainingJob call."""
        return {
            "TrainingJobName": name,
            "RoleArn": self._cloud.role,
            "AlgorithmSpecification": {
                "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["python", "-c", "import os; exec(os.environ['SCRIPT'])"],
            },
            "Environment": {"SCRIPT": script},
            "OutputDataConfig": {"S3OutputPath": "s3://clients/output"},
            "ResourceConfig": {"InstanceType": INSTANCE_TYPE, "InstanceCount": instances, "VolumeSizeInGB": 30},
            "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
            "CheckpointConfig": {"S3Uri": f"s3://clients/kept/{name}"},
            "Tags": [{"Key": "priority", "Value": str(priority)}],
        }

    def _preempt(self, name: str, process: "subprocess.Popen[bytes]", output: Path) -> None:
        """Preempt the job once it trains."""

        def trains() -> bool:
            job = self._job_of(name)
            if job is None:
                self._require_job_in_queue(name)
                return False
            steps = [line for line in self._cloud.training_log(f"{job}-qstamp-1") if line.startswith("step ")]
            return len(steps) > STEPS_BEFORE_PREEMPTION

        self._wait("its job to train", trains, process, output)
        self._queue.submit(self.request(f"{name}-gang", "pass", instances=SLOTS, priority=9))

    def _job_of(self, name: str) -> str | None:
        """Return the name of the job that the program created; None if there is no job yet.

        The name is ``name`` itself, or a longer name that the program made from it.
        """
        names = {job.job for job in self._queue.jobs("all") if name in job.job}
        return min(names - {f"{name}-gang"}, default=None)

    def _cancel_jobs(self, name: str) -> None:
        """Cancel the live jobs of a run that has failed. They would keep the instances from the next program."""
        for job in list(self._queue.jobs()):
            if name in job.job:
                with suppress(QueueError):  # the job has ended meanwhile
                    self._queue.cancel(job.job)

    def _require_job_in_queue(self, name: str) -> None:
        answer = self._sagemaker.list_training_jobs(MaxResults=100)
        names = [job["TrainingJobName"] for job in answer["TrainingJobSummaries"]]
        if any(name in one and "-qstamp-" not in one for one in names):
            raise Failed("its job went past the queue")

    def _check(self, name: str) -> None:
        self._require_job_in_queue(name)
        deadline = time.monotonic() + TIMEOUT
        while (outcomes := self._outcomes(name))[-1:] == [None] and time.monotonic() < deadline:
            time.sleep(0.3)  # the program may see the end in SageMaker before the event reaches the queue
        if outcomes != ["preempted", "completed"]:
            raise Failed(f"its job's attempts were {outcomes}")

    def _outcomes(self, name: str) -> list[str | None]:
        return [attempt.outcome for attempt in self._queue.job(self._job_of(name) or name).attempts]

    def _wait(self, what: str, reached: Callable[[], bool], process: "subprocess.Popen[bytes]", output: Path) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not reached():
            if process.poll() is not None and not reached():
                raise Failed(f"it ended with {process.returncode} before {what}: {last_line(output)}")
            if time.monotonic() > deadline:
                raise Failed(f"waited {TIMEOUT:.0f} s for {what}: {last_line(output)}")
            time.sleep(0.3)


def kill(process: "subprocess.Popen[bytes]") -> None:
    """End a process and its child processes, if the process still runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def filled(word: str, known: Mapping[str, str]) -> str:
    """Return a word of a command, with the placeholders replaced."""
    for name, value in known.items():
        word = word.replace(name, value)
    return word


def last_line(output: Path) -> str:
    """Return the last line that a program wrote."""
    lines = [line.strip() for line in output.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it wrote nothing"


def row_of(name: str, trial: Trial, uv: Mapping[str, str]) -> tuple[str, str, str, str]:
    """Run a client and return its row: program, versions, way, result."""
    client = CLIENTS[name]
    shown = ""
    try:
        programs = install_client(client, uv)
        shown = versions(client, programs)
        note = trial.run(name, client, programs)
    except Failed as failure:
        return client.program, shown, client.way, f"FAILED: {failure}"
    return client.program, shown, client.way, f"works{f': {note}' if note else ''}"


def written(table: str, rows: Mapping[str, Sequence[str]]) -> str:
    """Return the document with these rows in its table, sorted like CLIENTS. Rows of the same clients are replaced."""
    begin, end = "<!-- made by make clients -->\n", "<!-- end of the table -->"
    before, _, rest = table.partition(begin)
    old, _, after = rest.partition(end)
    new = ["| " + " | ".join(row) + " |" for row in rows.values()]
    lines = {tuple(line.split(" | ")[::2][:2]): line for line in [*old.removeprefix(HEADER).splitlines(), *new]}
    known = [(f"| {client.program}", client.way) for client in CLIENTS.values()]
    return f"{before}{begin}{HEADER}" + "".join(f"{lines[key]}\n" for key in known if key in lines) + f"{end}{after}"


def main(arguments: Sequence[str]) -> int:
    """Run each program; return 1 if one failed."""
    names = [argument for argument in arguments if not argument.startswith("-")] or list(CLIENTS)
    if unknown := sorted(set(names) - CLIENTS.keys()):
        sys.exit(f"No program is named {', '.join(unknown)}. There are {', '.join(CLIENTS)}.")
    uv = uv_settings()
    rows = {}
    with LocalCloud(slots=SLOTS) as cloud:
        trial = Trial(cloud)
        for name in names:
            rows[name] = row_of(name, trial, uv)
            print(f"{name:20} {' | '.join(rows[name])}", flush=True)
    if "--write" in arguments:
        TABLE.write_text(written(TABLE.read_text(), rows))
    return int(any(row[-1].startswith("FAILED") for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
