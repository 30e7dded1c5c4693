"""The API of a queue in memory, without a policy and with one."""

import copy
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from job_queue.adapters.dynamodb import Tables
from job_queue.adapters.items import OWNERS
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.records.attempt_history import AttemptHistory
from job_queue.adapters.records.shared_reads import SharedReads
from job_queue.adapters.settings import DeploymentSettings
from job_queue.api.pages import HistoryPages, JobPages
from job_queue.api.routes import build_api
from job_queue.services.drains import DrainService
from job_queue.services.job_commands import JobCommands, RemoteDebugService
from job_queue.services.policy_service import PolicyService
from job_queue.services.preview import PreviewService
from job_queue.services.queue_reader import QueueReader
from job_queue.services.submission import one_by_one
from tests.jobs import OWNER, P5, ROLE, a_body, a_request
from tests.memory_tables import MemoryTables
from tests.payloads import api_event
from tests.queue_harness import USAGE_SECONDS, Harness

P4 = "ml.p4d.24xlarge"
ADMIN = "arn:aws:iam::123456789012:role/ops"
STRANGER = "arn:aws:iam::123456789012:user/eve"


def first_error(refusal: dict[str, Any]) -> dict[str, Any]:
    """The first error of a refusal, with the messages of all."""
    assert set(refusal) == {"errors"}
    errors = refusal["errors"]
    for error in errors:
        assert set(error) == {"code", "field", "message", "remedy"}
        assert error["message"].endswith((".", "?"))
        assert error["remedy"] is None or error["remedy"].endswith(".")
        assert error["code"] == errors[0]["code"]
        assert "Traceback" not in error["message"]
    return {**errors[0], "errors": errors, "message": " ".join(error["message"] for error in errors)}


def stored(queue: Harness) -> dict[Any, Any]:
    """All that is stored, but for the counts of people's own submissions, which a refused one may raise."""
    return {where: copy.deepcopy(row) for where, row in queue.tables.rows.items() if where[1] != OWNERS}


def _repository(tables: Tables) -> JobRepository:
    attempts = AttemptHistory(tables, "sagemaker-queue-history", USAGE_SECONDS)
    return JobRepository(tables, "sagemaker-queue", "sagemaker-queue-lines", 1000, attempts)


class Api:
    """The API of a harness.

    :param consistent: the tables for consistent reads of requests, if not the harness's.
    :param eventual: the tables for the others.
    :param seconds: the clock by which they are shared.
    """

    def __init__(
        self,
        slots: int = 2,
        queue: Harness | None = None,
        *,
        settings: DeploymentSettings | None = None,
        roles: tuple[str, ...] = (ROLE,),
        consistent: MemoryTables | None = None,
        eventual: MemoryTables | None = None,
        seconds: Callable[[], float] | None = None,
    ) -> None:
        self.queue = queue or Harness(slots, roles=roles)
        queue = self.queue
        settings = settings or DeploymentSettings(
            max_capacity=slots, allowed_role_arns=roles, admin_arns=("arn:aws:iam::*:role/ops*",)
        )
        self.requests = 0
        self.shared = shared = SharedReads(eventual or queue.tables, seconds or self.seconds)
        current = _repository(eventual or queue.tables)
        repository = _repository(consistent) if consistent else queue.repository
        seen = _repository(shared)
        unshared = (queue.policies, current.last_cycle, queue.clock, one_by_one)
        commands = JobCommands(repository, queue.policies, settings, queue.clock)
        self.resolver = build_api(
            queue.repository,
            queue.submissions,
            queue.controller,
            QueueReader(seen, *unshared, renew=shared.begin),
            QueueReader(queue.repository, *unshared),
            queue.dry_run,
            JobPages(seen, one_by_one),
            HistoryPages(queue.repository.attempts, queue.clock),
            commands,
            RemoteDebugService(commands, repository, queue.training, queue.clock),
            PolicyService(queue.repository, queue.policies, queue.dry_run.cluster, queue.clock),
            DrainService(queue.repository, queue.dry_run.cluster, queue.clock),
            PreviewService(queue.policies, partial(queue.dry_run.cluster, ahead=True), queue.clock),
            settings,
            queue.invocation,
        )

    def seconds(self) -> float:
        """A clock by which each request comes so late that it shares no reads with the one before."""
        return 10.0 * self.requests

    def call(
        self, method: str, path: str, body: str | None = None, caller: str = OWNER, **query: str
    ) -> tuple[int, Any]:
        self.requests += 1
        answer = self.resolver.resolve(api_event(method, path, body=body, caller=caller, **query), {})  # type: ignore[arg-type]
        content = json.loads(answer["body"])
        if answer["statusCode"] < 400:
            return answer["statusCode"], content
        return answer["statusCode"], first_error(content)

    def add(self, name: str, priority: int = 1, preflight: str | None = None, **changes: Any) -> tuple[int, Any]:
        self.queue.now += 1
        query = {} if preflight is None else {"preflight": preflight}
        return self.call("POST", "/add-job", a_body(name, priority, **changes), **query)


def a_policy(**changes: Any) -> dict[str, Any]:
    """Two pools, a department of two projects and one of its own."""
    return {
        "pools": [
            {"name": "p5", "instance_type": P5, "capacity": 4},
            {"name": "p4", "instance_type": P4, "capacity": 4},
        ],
        "departments": [{"name": "research", "quota": {"p5": 3}}],
        "projects": [
            {"name": "vision", "department": "research", "quota": {"p5": 2}, "pools": ["p5", "p4"]},
            {"name": "nlp", "department": "research", "quota": {"p5": 1}, "members": ["arn:aws:iam::*:user/ada"]},
            {"name": "ops", "quota": {"p5": 1}, "priority_ceiling": 10, "pools": ["p4"]},
        ],
        **changes,
    }


class Governed(Api):
    """An API with a policy applied."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        status, answer = self.put(a_policy(**changes), version=0)
        assert (status, answer["version"]) == (200, 1)

    def put(self, document: object, version: object, caller: str = ADMIN, **more: Any) -> tuple[int, Any]:
        body = json.dumps({"policy": document, "version": version, **more})
        return self.call("PUT", "/policy", body, caller=caller)

    def tagged(self, name: str, caller: str = OWNER, **tags: str) -> tuple[int, Any]:
        listed = [{"Key": key, "Value": value} for key, value in tags.items()]
        return self.call("POST", "/add-job", json.dumps(a_request(name, Tags=listed)), caller=caller, preflight="false")
