"""The queue's shell on memory tables and a SageMaker in memory, with a clock that the test moves."""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from job_queue.adapters.carriers.training import Training
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.adapters.records.attempt_history import AttemptHistory
from job_queue.adapters.settings import DeploymentSettings
from job_queue.controller.cycle import Controller, Invocation
from job_queue.domain import state_machine
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.domain_events import Notify
from job_queue.domain.job import Job, JobRecord
from job_queue.domain.launching.launch_rate import CreateRate
from job_queue.scheduler import Plan, plan
from job_queue.services.drains import DrainService
from job_queue.services.dry_run import DryRun
from job_queue.services.job_commands import JobCommands
from job_queue.services.submission import Accepted, SubmissionService, one_by_one
from tests.fake_sagemaker import FakeTraining
from tests.jobs import NOW, OWNER, ROLE, a_request
from tests.memory_tables import MemoryTables

ADMIN = "arn:aws:iam::123456789012:role/ops"
USAGE_SECONDS = 400 * 86_400
FAST = CreateRate(1000, 1000)  # for tests that are not about it


class Harness:
    """A queue that a test plays with."""

    def __init__(
        self,
        slots: int = 2,
        tables: MemoryTables | None = None,
        notify: Notify = lambda event: None,
        training: FakeTraining | None = None,
        history_seconds: int = 1000,
        create_rate: CreateRate = FAST,
        ceiling: int = 2_000_000,
        roles: tuple[str, ...] = (ROLE,),
    ) -> None:
        self.now = NOW
        self.tables = tables or MemoryTables()
        self.training = training or FakeTraining()
        self.training.clock = self.clock
        self.training.carrier_of = lambda name: self.repository.record(name).job  # type: ignore[union-attr]
        self.settings = DeploymentSettings(max_capacity=slots, allowed_role_arns=roles, work_bucket="work")
        self.create_rate = create_rate
        self.woken: list[str] = []  # who has asked for another invocation
        attempts = AttemptHistory(self.tables, "sagemaker-queue-history", USAGE_SECONDS)
        self.repository = JobRepository(
            self.tables, "sagemaker-queue", "sagemaker-queue-lines", history_seconds, attempts, notify
        )
        self.policies = Policies(slots)
        self.policies.max_capacity = ceiling  # of policies that tests apply; the default policy has the slots
        self.submissions = SubmissionService(
            self.repository,
            self._service(),
            self.policies,
            self.settings,
            self.clock,
            self.parallel,
        )
        self.controller = self.new_controller(self._service())
        self.dry_run = DryRun(self.repository, self.policies, self.clock, one_by_one)

    def clock(self) -> float:
        return self.now

    def new_controller(self, training: Training, **more: Any) -> Controller:
        return Controller(
            self.repository,
            training,
            self.policies,
            self.clock,
            self.parallel,
            create_rate=self.create_rate,
            sleep=self.sleep,
            wake_up=lambda by: self.woken.append(by),  # noqa: PLW0108  (a subclass has another list)
            **more,
        )

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def parallel(self, calls: Sequence[Callable[[], Any]], /) -> list[Any]:
        return one_by_one(calls)

    def _service(self) -> Any:
        return self.training

    def invocation(self, remaining: Callable[[], float] | None = None, **options: Any) -> Invocation:
        """Of 45 s, and with some for further cycles as the function has it."""
        began = self.now
        return Invocation(
            holder=uuid.uuid4().hex,
            remaining=remaining or (lambda: began + 45 - self.now),
            may_go_on=lambda: self.now < began + 25,
            **options,
        )

    def wake(self) -> None:
        """One invocation with news; and further ones, as agents introduce themselves and report."""
        self.controller.wake(self.invocation())
        self.hear()

    def hear(self) -> None:
        """The events of the bucket with the mailboxes arrive."""
        while reported := self.training.reported():
            self.controller.mailboxes_changed(reported, self.invocation())

    def tick(self, seconds: float = 60) -> None:
        """Time passes, then the schedule fires."""
        self.now += seconds
        self.controller.tick(self.invocation())
        self.hear()

    def accept(self, *args: Any, owner: str = OWNER, **changes: Any) -> Accepted:
        """A request is stored; nobody has looked at it yet."""
        self.now += 1
        return self.submissions.submit(a_request(*args, **changes), owner)

    def submit(self, *args: Any, **changes: Any) -> JobRecord:
        """A request is stored and looked at."""
        accepted = self.accept(*args, **changes)
        self.wake()
        return self.record(accepted.record.job.name)

    def start_outside(self, name: str, instances: int = 1, **tags: str) -> None:
        """Somebody starts a training job without the queue."""
        listed = [{"Key": key.replace("_", "-"), "Value": value} for key, value in tags.items()]
        self.training.create({**a_request(name, instances=instances), "Tags": listed})

    def cancel(self, name: str) -> None:
        self.repository.apply(state_machine.cancel(self.record(name).job, "ada", self.now), self.now)
        self.wake()

    def change(self, name: str, owner: str = OWNER, **changes: Any) -> None:
        """A user holds, releases or requeues a job."""
        JobCommands(self.repository, self.policies, self.settings, self.clock).change(name, owner, **changes)
        self.wake()

    def drain(self, pool: str, **options: Any) -> None:
        """An admin drains a pool."""
        DrainService(self.repository, self.dry_run.cluster, self.clock).drain(pool, ADMIN, **options)
        self.wake()

    def undrain(self, pool: str) -> None:
        DrainService(self.repository, self.dry_run.cluster, self.clock).undrain(pool, ADMIN)
        self.wake()

    def end(self, attempt: str, status: str = "Completed", secondary: str = "", failure: str | None = None) -> None:
        """A training job ends, and its event arrives."""
        self.training.end(attempt, status, secondary, failure)
        self.event(attempt)

    def event(self, attempt: str) -> None:
        """An event tells the present state of a training job."""
        self.now += 1
        self.controller.training_job_changed(self.training.event(attempt), self.invocation())
        self.hear()

    def record(self, name: str) -> JobRecord:
        record = self.repository.record(name)
        assert record is not None
        return record

    def job(self, name: str) -> Job:
        return self.record(name).job

    def state(self, name: str) -> str:
        return self.job(name).state.value

    def forecast(self) -> tuple[ClusterState, Plan]:
        """The live jobs, and what a cycle would do now."""
        cluster = self.dry_run.cluster()
        return cluster, plan(cluster.snapshot(self.clock()))

    def states(self) -> dict[str, str]:
        """Live jobs and their states, in no special order."""
        cluster = self.dry_run.cluster()
        return {job.name: job.state.value for job in [*cluster.active.values(), *cluster.waiting.values()]}


class LastFirst(Harness):
    """What may be done at the same time is done in the other order."""

    def parallel(self, calls: Sequence[Callable[[], Any]], /) -> list[Any]:
        return one_by_one(calls[::-1])[::-1]
