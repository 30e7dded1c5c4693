"""SageMaker as the shell sees it, in memory and under the test's control."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import botocore.session

from job_queue.adapters.carriers.mailbox import AgentActivity, Introduction, reported_attempts
from job_queue.adapters.lookups.training_list import PAGE, ListedJob
from job_queue.adapters.sagemaker import DELETING, LaunchResult, StopResult, TrainingJob, UpdateResult
from job_queue.domain.errors import SiteSilent, Unavailable
from job_queue.domain.fleet.sites import Site
from job_queue.domain.fleet.training_plans import PlanPart
from job_queue.domain.job import Job, WarmPool
from job_queue.domain.names import CARRIER_PREFIX
from job_queue.domain.requests.training_request import TrainingRequest
from tests.jobs import NOW
from tests.mailboxes import AgentInMemory, BucketInMemory, mailboxes

_MODEL = botocore.session.Session().get_service_model("sagemaker")
DELETION_SECONDS = 30  # in which a training job that is being deleted keeps its name


def refusal(result: LaunchResult, request: Mapping[str, Any]) -> str:
    """What SageMaker says. It counts no more instances than the queue does, so that the refusal is no quota lag."""
    if result not in (LaunchResult.NO_CAPACITY, LaunchResult.NO_QUOTA):
        return f"{result.name}: scripted"
    ((_, count), *_) = TrainingRequest.read(request).resources.demand[0].items()
    return quota_refusal(request, count if result is LaunchResult.NO_CAPACITY else 0, used=0)


def quota_refusal(request: Mapping[str, Any], limit: int, used: int) -> str:
    """Return the words in which SageMaker refuses a request whose instances do not fit into the quota of their type."""
    ((instance_type, count), *_) = TrainingRequest.read(request).resources.demand[0].items()
    usage = "spot training job usage" if request.get("EnableManagedSpotTraining") else "training job usage"
    return (
        f"ResourceLimitExceeded: The account-level service limit '{instance_type} for {usage}' is {limit} "
        f"Instances, with current utilization of {used} Instances and a request delta of {count} Instances."
    )


def _without_trace(job: TrainingJob) -> TrainingJob:
    """Return a training job that is being deleted, and does not show how it ended."""
    return replace(job, status=DELETING, secondary=DELETING, failure=None, starved=False)


class FakeTraining:
    """Keeps every training job until it is deleted, as SageMaker keeps their names.

    `script` holds what the next launches meet, in order: a result that refuses, with SageMaker's words or without,
    "lost" (the call takes effect, its answer is lost), "late" (it takes effect at the next `land`), or "never" (it is
    lost on its way).
    """

    request_shape = _MODEL.operation_model("CreateTrainingJob").input_shape

    def __init__(self, site: Site | None = None) -> None:
        self.site = site
        self.others: dict[str, FakeTraining] = {}  # SageMaker at other sites, by their keys
        self.unreachable = False  # no call arrives
        self.jobs: dict[str, TrainingJob] = {}
        self.requests: dict[str, Mapping[str, Any]] = {}
        self.script: list[LaunchResult | tuple[LaunchResult, str] | str] = []
        self.calls: list[tuple[str, str]] = []
        self.stopped: set[str] = set()
        self.untagged: set[str] = set()  # whose tags were removed, so that the queue may not stop them
        self.down = False
        self.lists_nobody = False
        self.warm_pools: dict[str, WarmPool] = {}  # by the training job that left it
        self.deletion_seconds = DELETION_SECONDS
        self.deletions: dict[str, float] = {}  # training job that is being deleted -> epoch seconds when it is gone
        self.traceless: set[str] = set()  # of them, those that show no more how they ended
        self.reused: dict[str, str] = {}  # training job -> the one that has its instances now
        self.releases = True  # at once, when it is asked to
        self.may_release = True
        self.debugged: set[str] = set()  # training jobs with remote debugging
        self.plans: dict[str, tuple[PlanPart, ...]] = {}
        self.plan_uses: dict[str, int] = {}  # instances of each plan that the queue last said training jobs use
        self.clock: Callable[[], float] = lambda: NOW
        self.created: dict[str, float] = {}
        self.carrier_of: Callable[[str], Job | None] = lambda name: None
        self.bucket = BucketInMemory(self._now)
        self.mailboxes = mailboxes(self.bucket, self._carrier)
        self.agents: dict[str, AgentInMemory] = {}  # by the attempt of their carrier
        self.agents_start = True  # with their carriers
        self.silent: set[str | None] = set()  # carriers whose agents write no heartbeat any more
        self._late: list[Mapping[str, Any]] = []

    def at(self, site: Site | None) -> "FakeTraining":
        """SageMaker at a site."""
        if site is None:
            return self
        if site.key not in self.others:
            self.others[site.key] = FakeTraining(site)
            self.others[site.key].clock = self._now
        return self.others[site.key]

    def create(self, request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        self.calls.append(("create", request["TrainingJobName"]))
        if self.unreachable:
            return LaunchResult.UNREACHABLE, "scripted: connection refused"
        turn = self.script.pop(0) if self.script else None
        if isinstance(turn, tuple):
            return turn
        if isinstance(turn, LaunchResult):
            return turn, refusal(turn, request)
        if turn == "late":
            self._late.append(request)
        if turn in ("late", "never"):
            return LaunchResult.UNKNOWN, "timeout"
        taken = not self._start(request)
        if turn == "lost":
            return LaunchResult.UNKNOWN, "timeout"
        return (LaunchResult.NAME_TAKEN, "ResourceInUse") if taken else (LaunchResult.LAUNCHED, "")

    def _now(self) -> float:
        return self.clock()

    def _carrier(self, name: str) -> Job | None:
        return self.carrier_of(name)

    def assign(self, job: Job, request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        self.calls.append(("assign", job.address or ""))
        turn = self.script.pop(0) if self.script else None
        if turn == "never":
            return LaunchResult.UNKNOWN, "timeout"
        result = self.mailboxes.assign(job, request)
        return (LaunchResult.UNKNOWN, "timeout") if turn == "lost" else result

    def stop_attempt(self, job: Job) -> StopResult:
        if job.carrier_attempt is None:
            return self.at(job.site).stop(job.launched or "")
        self.calls.append(("stop", job.address or ""))
        self.stopped.add(job.address or "")
        return self.mailboxes.stop(job)

    def describe_attempt(self, job: Job) -> TrainingJob | None:
        if job.carrier_attempt is None:
            return self.at(job.site).describe(job.launched or "")
        self.calls.append(("describe", job.address or ""))
        if self.down or self.unreachable:
            raise Unavailable("scripted")
        return self.mailboxes.describe(job)

    def forget_attempt(self, job: Job) -> None:
        if job.carrier_attempt is not None:
            self.mailboxes.forget(job)

    def introduction(self, carrier: str) -> Introduction | None:
        return self.mailboxes.introduction(carrier)

    def agent_activity(self, carrier: Job) -> AgentActivity:
        self.calls.append(("hear", carrier.launched or ""))
        if carrier.launched in self.agents and carrier.launched not in self.silent:
            self.agents[carrier.launched].look()
            self.agents[carrier.launched].beat()
        return self.mailboxes.agent_activity(carrier)

    def report(self, address: str, status: str = "Completed", failure: str | None = None) -> None:
        """A carrier's agent reports the end of an attempt."""
        carrier, _, attempt = address.partition("/")
        agent = self.agents[carrier]
        agent.look()
        agent.report(attempt, status, failure)

    def reported(self) -> list[tuple[str, str | None]]:
        """What the events of the bucket tell, since this was asked last."""
        keys, self.bucket.written = self.bucket.written, []
        bodies = [{"source": "aws.s3", "detail": {"object": {"key": key}}} for key in keys]
        return reported_attempts({"Records": [{"body": json.dumps(body)} for body in bodies]})

    def land(self) -> None:
        """Late calls take effect now."""
        for request in self._late:
            self._start(request)
        self._late.clear()

    def _start(self, request: Mapping[str, Any]) -> bool:
        name = request["TrainingJobName"]
        self._forget_deleted()
        if name in self.jobs:
            return False
        kept = request["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0)
        tags = {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}
        demand = TrainingRequest.read(request).resources.demand[0]
        for other, pool in self.warm_pools.items():
            if not self._are_together(other, name):
                continue
            if pool.footprint == TrainingRequest.read(request).footprint and self.jobs[other].instance_counts == demand:
                del self.warm_pools[other]
                self.reused[other] = name
                break
        plan = next(iter(TrainingRequest.read(request).resources.plans), None)
        job = TrainingJob(name, f"arn:{name}", "InProgress", "Training", None, demand, tags, plan=plan, site=self.site)
        self.jobs[name] = replace(job, keep_alive=kept, created=self.clock())
        self.requests[name] = request
        self.created[name] = self.clock()
        if name.startswith(CARRIER_PREFIX) and self.agents_start:
            self.start_agent(name)
        return True

    def _are_together(self, one: str, other: str) -> bool:  # noqa: ARG002
        """Return whether two training jobs are in one account and region."""
        return True

    def start_agent(self, carrier: str) -> None:
        """The container of a carrier starts."""
        self.jobs[carrier] = replace(self.jobs[carrier], began=self.clock())
        settings = self.requests[carrier]["HyperParameters"]
        self.agents[carrier] = AgentInMemory(self.bucket, settings, self._now)
        self.agents[carrier].introduce()
        self.agents[carrier].beat()

    def stop(self, name: str) -> StopResult:
        self.calls.append(("stop", name))
        if self.unreachable:
            return StopResult.UNKNOWN
        if name not in self.jobs or self.jobs[name].ended:
            return StopResult.ENDED_ALREADY
        if name in self.untagged:
            return StopResult.DENIED
        self.stopped.add(name)
        self.jobs[name] = replace(self.jobs[name], status="Stopping", secondary="Stopping")
        return StopResult.ASKED

    def describe(self, name: str) -> TrainingJob | None:
        self.calls.append(("describe", name))
        if self.down or self.unreachable:
            raise Unavailable("scripted")
        return self.known(name)

    def known(self, name: str) -> TrainingJob | None:
        """A training job, and its warm pool."""
        self._end_warm_pools()
        self._forget_deleted()
        job, pool = self.jobs.get(name), self.warm_pools.get(name)
        if job is not None and name in self.traceless:
            return _without_trace(job)
        return job if job is None or pool is None else replace(job, warm=pool)

    def _end_warm_pools(self) -> None:
        """Forget the warm pools whose time is over."""
        self.warm_pools = {it: pool for it, pool in self.warm_pools.items() if pool.until > self.clock()}

    def _forget_deleted(self) -> None:
        """Free the names of training jobs whose deletion is over."""
        if self.deletions:
            now = self.clock()
            for name in [name for name, gone_at in self.deletions.items() if gone_at <= now]:
                self.forget(name)

    def forget(self, name: str) -> None:
        """End the deletion of a training job: its name is free."""
        del self.jobs[name], self.requests[name], self.created[name], self.deletions[name]
        self.traceless.discard(name)
        self.stopped.discard(name)

    def enable_remote_debug(self, name: str) -> tuple[UpdateResult, str]:
        self.calls.append(("enable", name))
        if self.down or self.unreachable:
            raise Unavailable("scripted")
        if name in self.untagged:
            return UpdateResult.DENIED, "not authorized to perform: sagemaker:UpdateTrainingJob"
        if name not in self.jobs or self.jobs[name].secondary not in ("Downloading", "Training"):
            return UpdateResult.REFUSED, "the SecondaryStatus of the training job is another one"
        self.debugged.add(name)
        return UpdateResult.UPDATED, ""

    def release(self, name: str) -> bool:
        self.calls.append(("release", name))
        if self.down or self.unreachable:
            raise Unavailable("scripted")
        if self.releases:
            self.warm_pools.pop(name, None)
        return self.may_release

    def plan_parts(self, arn: str, in_use: Callable[[], int]) -> tuple[PlanPart, ...]:
        self.calls.append(("plan", arn))
        self.plan_uses[arn] = in_use()
        if self.down or arn not in self.plans:
            raise Unavailable("scripted")
        return self.plans[arn]

    def training_jobs(self) -> "FakeTraining":
        return self

    def newest_first(self, before: int | None = None) -> Iterator[list[ListedJob]]:
        listed = [] if self.lists_nobody else sorted(self.jobs, key=lambda name: self.created[name], reverse=True)
        names = [name for name in listed if before is None or self.created[name] < before]
        for first in range(0, max(1, len(names)), PAGE):
            yield self.page(names[first : first + PAGE])

    def page(self, names: list[str]) -> list[ListedJob]:
        self.calls.append(("list", ""))
        if self.unreachable:
            raise SiteSilent("scripted")
        if self.down:
            raise Unavailable("scripted")
        found = [(name, self.known(name)) for name in names]
        return [
            ListedJob(name, self.created[name], not it.ended, it.warm is not None, it.secondary, it.modified)
            for name, it in found
            if it
        ]

    # --- what happens in SageMaker ---------------------------------------------------------------

    def delete(self, name: str, *, keeps_trace: bool = True) -> bool:
        """DeleteTrainingJob. Return whether SageMaker accepts it: the training job has ended and keeps no warm pool.

        :param keeps_trace: whether the training job shows how it ended, while it is being deleted.
        """
        job = self.known(name)
        if job is None or not job.ended or job.warm or name in self.deletions:
            return False
        self.deletions[name] = self.clock() + self.deletion_seconds
        if not keeps_trace:
            self.traceless.add(name)
        return True

    def end(self, name: str, status: str = "Completed", secondary: str = "", failure: str | None = None) -> None:
        """A training job ends."""
        job = self.jobs[name]
        modified = None if job.modified is None else self.clock()
        self.jobs[name] = replace(job, status=status, secondary=secondary or status, failure=failure, modified=modified)
        if seconds := self.jobs[name].keep_alive:
            request = self.requests[name]
            self.warm_pools[name] = WarmPool(TrainingRequest.read(request).footprint or "", int(self.clock()) + seconds)

    def starve(self, name: str, secondary: str = "Stopped") -> None:
        """A training job has been pending for too long."""
        self.end(name, "Stopped", secondary)
        self.jobs[name] = replace(self.jobs[name], starved=True)

    def run(self, name: str, began: float, ended: float | None = None) -> None:
        """SageMaker knows since when, and till when, a training job had its instances."""
        self.jobs[name] = replace(self.jobs[name], began=began, ended_at=ended)

    def progress(self, name: str, secondary: str) -> None:
        """A training job reaches another SecondaryStatus."""
        at = max(self.clock(), (self.jobs[name].modified or 0) + 0.001)
        self.jobs[name] = replace(self.jobs[name], secondary=secondary, modified=at)

    def give_instances(self, name: str, at: float) -> None:
        """A training job gets its instances."""
        self.jobs[name] = replace(self.jobs[name], provisioned_at=at)

    def event(self, name: str) -> dict[str, Any]:
        """The detail of an event that tells a training job's state."""
        job = self.jobs[name]
        if name in self.traceless:
            job = _without_trace(job)
        return {
            "TrainingJobName": name,
            "TrainingJobStatus": DELETING if name in self.deletions else job.status,
            "SecondaryStatus": job.secondary,
            "Tags": dict(job.tags),
            "ResourceConfig": {
                **({"KeepAlivePeriodInSeconds": job.keep_alive} if job.keep_alive else {}),
                "InstanceGroups": [
                    {"InstanceType": kind, "InstanceCount": count} for kind, count in job.instance_counts.items()
                ],
            },
            **({"FailureReason": job.failure} if job.failure else {}),
            "CreationTime": int(self.created[name] * 1000),
            **({"LastModifiedTime": round(job.modified * 1000)} if job.modified is not None else {}),
            **({"TrainingStartTime": int(job.began * 1000)} if job.began is not None else {}),
            **({"TrainingEndTime": int(job.ended_at * 1000)} if job.ended_at is not None else {}),
            **self._times(job, self.created[name]),
        }

    def _times(self, job: TrainingJob, created: float) -> dict[str, Any]:
        """The fields that tell when its instances came, or that they did not come in time."""
        if job.starved:
            return {
                "StoppingCondition": {"MaxPendingTimeInSeconds": 7200},
                "SecondaryStatusTransitions": [
                    {"Status": "Pending", "StartTime": int(created * 1000)},
                    {"Status": "Stopped", "StartTime": int(created * 1000) + 7200 * 1000},
                ],
                "LastModifiedTime": str(int(created * 1000) + 7200 * 1000),
            }
        if job.provisioned_at is None:
            return {}
        return {"SecondaryStatusTransitions": [{"Status": "Training", "StartTime": job.provisioned_at * 1000}]}

    def in_use(self) -> int:
        """Instances that SageMaker is using, by its own truth."""
        warm = (self.jobs[name] for name in self.warm_pools)
        held = [*(job for job in self.jobs.values() if not job.ended), *warm]
        return sum(sum(job.instance_counts.values()) for job in held)
