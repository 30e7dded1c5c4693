"""The queue's shell on memory tables and a SageMaker in memory, with a clock that the test moves."""

import uuid
from collections.abc import Callable
from typing import Any

from job_queue import lifecycle
from job_queue.cycle import Invocation, Scheduler
from job_queue.intake import Accepted, Intake
from job_queue.observing import Observer
from job_queue.outlook import Outlook
from job_queue.policy import Policies
from job_queue.records import Job, JobRecord
from job_queue.settings import Settings
from job_queue.store import Store
from job_queue.training import TrainingService
from job_queue.world import one_by_one
from tests.fake_training import FakeTraining
from tests.jobs import NOW, OWNER, ROLE, a_body
from tests.memory_tables import MemoryTables


class Harness:
    """A queue that a test plays with."""

    def __init__(self, slots: int = 2, tables: MemoryTables | None = None, observer: Observer | None = None) -> None:
        self.now = NOW
        self.tables = tables or MemoryTables()
        self.training = FakeTraining()
        self.settings = Settings(max_capacity=slots, allowed_role_arns=(ROLE,))
        self.observer = observer
        self.store = Store(self.tables, "sagemaker-queue", "sagemaker-queue-lines", 1000, observer)
        training: Any = self.training
        self.policies = Policies(slots)
        self.intake = Intake(self.store, training, self.policies, self.settings, self.clock)
        self.scheduler = self.new_scheduler(training)
        self.outlook = Outlook(self.store, self.policies, self.clock, one_by_one)

    def clock(self) -> float:
        return self.now

    def new_scheduler(self, training: TrainingService) -> Scheduler:
        return Scheduler(self.store, training, self.policies, self.clock, one_by_one, self.observer)

    def invocation(self, remaining: Callable[[], float] = lambda: 45.0) -> Invocation:
        return Invocation(owner=uuid.uuid4().hex, remaining=remaining, may_go_on=lambda: True)

    def wake(self) -> None:
        """One invocation with news."""
        self.scheduler.wake(self.invocation())

    def tick(self, seconds: float = 60) -> None:
        """Time passes, then the schedule fires."""
        self.now += seconds
        self.wake()

    def accept(self, *args: Any, owner: str = OWNER, **changes: Any) -> Accepted:
        """A request is stored; nobody has looked at it yet."""
        self.now += 1
        return self.intake.submit(a_body(*args, **changes), owner)

    def submit(self, *args: Any, **changes: Any) -> JobRecord:
        """A request is stored and looked at."""
        accepted = self.accept(*args, **changes)
        self.wake()
        return self.record(accepted.record.job.name)

    def cancel(self, name: str) -> None:
        self.store.move(lifecycle.cancel(self.record(name).job, "ada", self.now), self.now)
        self.wake()

    def end(self, attempt: str, status: str = "Completed", secondary: str = "", failure: str | None = None) -> None:
        """A training job ends, and its event arrives."""
        self.training.end(attempt, status, secondary, failure)
        self.event(attempt)

    def event(self, attempt: str) -> None:
        """An event tells the present state of a training job."""
        self.now += 1
        if self.scheduler.reconciler.handle_event(self.training.event(attempt)):
            self.wake()

    def record(self, name: str) -> JobRecord:
        record = self.store.record(name)
        assert record is not None
        return record

    def job(self, name: str) -> Job:
        return self.record(name).job

    def state(self, name: str) -> str:
        return self.job(name).state.value

    def states(self) -> dict[str, str]:
        """Live jobs and their states, in no special order."""
        world, _ = self.outlook.look()
        return {job.name: job.state.value for job in [*world.active.values(), *world.waiting.values()]}
