"""A demo of the article "A Priority Based Scheduler for Amazon SageMaker Training Jobs".

Four jobs with priorities run on two instances. One job is preempted and resumed.

The demo checks itself: it ends with a message and status 1 at the first difference from the article.
"""

import contextlib
import io
import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from local_cloud.aws.stack import PROJECT, LocalCloud
from local_cloud.commands.signals import Interrupted, Signals
from local_cloud.commands.up_and_exec import without_account
from local_cloud.sagemaker.account.options import Account
from local_cloud.user_errors import LocalCloudError
from sagemaker_queue import QueueError

PATIENCE = 600.0  # seconds for one step, which normally takes one or two
STEP = 0.1  # seconds per training step
ENDED = ("completed", "failed", "stopped")

# For several sites: two instances in the home site. Without a policy, the home site would get two more instances for
# each further site.
POLICY = {"pools": [{"name": "default", "capacity": 2}], "projects": [{"name": "default", "quota": {"default": 2}}]}

Row = tuple[str, str, int]  # job, state, priority


class DemoFailed(LocalCloudError):
    """A difference from the article."""


def main(account: Account | None = None, options: Mapping[str, Any] | None = None, *, several: bool = False) -> int:
    """Run the demo and return the exit status.

    :param account: as for LocalCloud, which also gets `options`.
    :param several: whether the options are for several sites.
    """
    began = time.monotonic()
    try:
        with Signals() as signals:
            say("Starting AWS on this machine and deploying template.yaml to it, with 2 instances for training ...")
            with LocalCloud(2, policy=POLICY if several else None, account=account, **(options or {})) as cloud:
                try:
                    say(f"Ready after {cloud.ready_after:.1f} s. Loading the SageMaker SDK ...")
                    Demo(cloud).run()
                finally:
                    signals.ignore()
                    say("Stopping the local cloud ...")
    except Interrupted as interrupted:
        return interrupted.status
    except (LocalCloudError, QueueError) as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    say(f"The demo has passed: each step had the expected result, in {time.monotonic() - began:.0f} s.")
    return 0


class Demo:
    """The steps of the article, on a local cloud.

    Each step waits for the state that it shows, and a job trains until the demo completes it. So the speed of the
    machine does not matter.
    """

    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud
        self._finish = cloud.folder / "finish"  # a job ends when a file with its name appears here
        self._finish.mkdir()
        environment = without_account(os.environ) | cloud.environment()
        os.environ.clear()
        os.environ.update(environment)
        self._sdk, self._queue = load_sdk()
        self._training: set[str] = set()  # submitted jobs that the demo has not completed yet

    def run(self) -> None:
        """Submit jobs, wait for the states of the article, and check the outcomes."""
        self._submit("job1", priority=1)
        self._show_queue(("job1", "running", 1))
        self._submit("job2", priority=2)
        self._show_queue(("job2", "running", 2), ("job1", "running", 1))
        self._submit("job3", priority=1)
        self._show_queue(("job2", "running", 2), ("job1", "running", 1), ("job3", "pending", 1))
        self._explain("job3")
        self._wait("job1 to have something to lose", lambda: self._last_step("job1-qstamp-1") >= 8)

        self._submit("job4", priority=3)
        say("job4 outranks all: the lowest priority that runs, job1, is asked to stop; its checkpoint is kept.")
        self._show_queue(
            ("job4", "running", 3), ("job2", "running", 2), ("job1", "preempted", 1), ("job3", "pending", 1)
        )

        self._complete("job2")
        say("Its instance goes to job1, which has waited for longer than job3.")
        self._show_queue(("job4", "running", 3), ("job1", "running", 1), ("job3", "pending", 1))
        self._check_resumption()

        self._complete("job4")
        self._show_queue(("job1", "running", 1), ("job3", "running", 1))
        self._complete("job1", "job3")
        self._show_queue()
        self._check_outcomes()

    # --- steps -----------------------------------------------------------------------------------

    def _submit(self, name: str, *, priority: int) -> None:
        say(f"estimator.fit() of {name}, priority {priority}")
        session = self._sdk.session()
        estimator = self._sdk.pytorch(
            role=os.environ["SAGEMAKER_QUEUE_ROLE"],
            entry_point="train.py",
            source_dir=str(PROJECT / "examples"),
            instance_type="ml.p5.48xlarge",
            instance_count=1,
            framework_version="2.0.1",
            py_version="py310",
            hyperparameters={"until": str(self._finish / name), "seconds-per-step": STEP},
            checkpoint_s3_uri=f"s3://{session.default_bucket()}/checkpoints/{name}",
            tags=[{"Key": "priority", "Value": str(priority)}],
            sagemaker_session=session,
        )
        estimator.fit(wait=False, job_name=name)
        self._training.add(name)

    def _complete(self, *names: str) -> None:
        """Let jobs finish their training."""
        say(f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'} trained enough, and will complete.")
        for name in names:
            self._training.remove(name)
            (self._finish / name).touch()

    def _show_queue(self, *expected: Row) -> None:
        """Wait until the queue is as expected, and print it with `smq ls --brief`."""
        jobs = ", ".join(f"{job} {state}" for job, state, _ in expected) or "empty"
        self._wait(f"the queue to be: {jobs}", lambda: self._rows() == list(expected))
        print()
        self._sdk.smq(["ls", "--brief"])
        print(flush=True)

    def _explain(self, name: str) -> None:
        job = self._queue.job(name)
        if job.reason is None or job.position != 1:
            raise DemoFailed(f"{name} should be the next, with a reason why it waits")
        say(f"{name} waits: {job.reason.message}")

    def _check_resumption(self) -> None:
        first, second = "job1-qstamp-1", "job1-qstamp-2"
        self._wait("job1's first step", lambda: self._last_step(second) > 0)
        done = self._last_step(first)
        resumed = next((line for line in self._cloud.training_log(second) if line.startswith("resuming at step ")), "")
        say(f"job1 was stopped after step {done}; its second attempt says: {resumed or 'nothing'}")
        # SageMaker saves the checkpoint folder, so no step is repeated. The script is killed at the end, perhaps after
        # it wrote its checkpoint and before it printed the step.
        if resumed not in (f"resuming at step {done}", f"resuming at step {done + 1}"):
            raise DemoFailed(f"job1 should resume at step {done}")

    def _check_outcomes(self) -> None:
        attempts = {name: self._queue.job(name).attempts for name in ("job1", "job2", "job3", "job4")}
        outcomes = {name: [attempt.outcome for attempt in tries] for name, tries in attempts.items()}
        if outcomes != {"job1": ["preempted", "completed"]} | dict.fromkeys(("job2", "job3", "job4"), ["completed"]):
            raise DemoFailed(f"the attempts ended otherwise: {outcomes}")
        say("Each job completed exactly once; job1 in two attempts.")

    # --- states ----------------------------------------------------------------------------------

    def _rows(self) -> list[Row]:
        return [(job.job, job.state, job.priority) for job in self._queue.jobs()]

    def _last_step(self, attempt: str) -> int:
        steps = [
            int(found[1]) for line in self._cloud.training_log(attempt) if (found := re.match(r"step (\d+):", line))
        ]
        return steps[-1] if steps else 0

    def _wait(self, what: str, reached: Callable[[], bool]) -> None:
        """Wait until `reached` returns True. Raise DemoFailed after PATIENCE seconds, or if a job ends too early."""
        if not reached():
            say(f"Waiting for {what} ...")
        deadline = time.monotonic() + PATIENCE
        while not reached():
            self._cloud.check()
            self._check_training()
            if time.monotonic() > deadline:
                raise DemoFailed(f"waited {PATIENCE:.0f} s for {what}; it is {self._rows()}")
            time.sleep(0.2)

    def _check_training(self) -> None:
        """Raise DemoFailed if a job has ended too early, because further waiting would not help."""
        gone = self._training - {name for name, _, _ in self._rows()}
        for job in (self._queue.job(name) for name in sorted(gone)):
            if job.state in ENDED:  # else the job was not listed while it moved between waiting queues
                ends = [f"{attempt.training_job_name} {attempt.outcome}" for attempt in job.attempts]
                log = [line for attempt in job.attempts for line in self._cloud.training_log(attempt.training_job_name)]
                raise DemoFailed("\n  ".join([f"{job.job} should still train: {', '.join(ends)}", *log[-10:]]))


class Sdk:
    """The parts of the SageMaker SDK and of the client that the demo uses."""

    def __init__(self, pytorch: Any, session: Any, smq: Callable[[list[str]], int]) -> None:
        self.pytorch = pytorch
        self.session = session
        self.smq = smq


def load_sdk() -> tuple[Sdk, Any]:
    """Import the SDK, which takes seconds, and hide its output."""
    warnings.filterwarnings("ignore")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            from sagemaker import utils  # noqa: PLC0415
            from sagemaker.pytorch import PyTorch  # noqa: PLC0415

            from sagemaker_queue import QueueClient, QueueTrainingJobSession  # noqa: PLC0415
            from sagemaker_queue.cli import main as smq  # noqa: PLC0415
        except ImportError as error:
            raise LocalCloudError(f"The demo needs the extras: pip install -e '.[sdk,local]' ({error})") from error
    logging.disable(logging.WARNING)
    # The SDK validates its configuration when it is read and at each access, which takes half of the demo's time.
    utils.validate_sagemaker_config = lambda _: None
    return Sdk(PyTorch, QueueTrainingJobSession, smq), QueueClient()


def say(text: str) -> None:
    """Print a line about the current step."""
    print(f"- {text}", flush=True)
