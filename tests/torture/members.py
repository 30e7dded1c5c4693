"""Attempts on carriers as the world has them: mailboxes, agents, and the fate of members whose carrier ends.

The mailboxes are the queue's real ones over a bucket in memory, and agents verify orders by the agent's real code.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from job_queue.adapters.carriers.mailbox import AgentActivity, Introduction
from job_queue.adapters.sagemaker import LaunchResult, StopResult, TrainingJob
from job_queue.domain.errors import Unavailable
from job_queue.domain.fleet.sites import Site
from job_queue.domain.job import Job
from job_queue.domain.names import ATTEMPT_TAG, CARRIER_PREFIX, JOB_TAG, SUBMISSION_TAG
from job_queue.scheduler import WHOLE, GpuAllocation
from tests.mailboxes import AgentInMemory
from tests.torture.aws import Launch, SimulatedSageMaker
from tests.torture.faults import Call, Fault
from tests.torture.invariants import require

CARRIER_STOPPED = "the carrier was stopped"  # the agent's words


def _no_answer(*_: object) -> Any:
    raise Unavailable("simulated")


class SimulatedCarriers(SimulatedSageMaker):
    """SageMaker, and in some of its training jobs agents that run members.

    A member is a training job among the others, without instances, and no list names it.
    """

    def __init__(self, ask: Callable[[Call], Any], pool_of: Callable[[str, str], str]) -> None:
        super().__init__(ask, pool_of)
        self.agents_start = False  # in `_create`: with what the world knows of their carriers
        self.carrier_of_member: dict[str, str] = {}  # member's attempt -> carrier's
        self.allocation_of: dict[str, GpuAllocation] = {}
        self.untold: set[str] = set()  # members that ended without a report
        self.dead: dict[str, float] = {}  # carrier -> since when its agent is dead
        self.introduced: list[str] = []  # carriers whose agents have started, and of which no event has told yet
        self.foreign: list[str] = []  # carriers whose mailboxes others have written into since agents last looked
        self._ordered: set[tuple[str, str]] = set()  # carrier and member that the queue has assigned
        self._stops: set[tuple[str, str]] = set()  # ... and stopped

    # --- as the queue sees it ----------------------------------------------------------------------------

    def assign(self, job: Job, request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        refused = {Fault.DENIED: LaunchResult.NOT_NOW, Fault.THROTTLED: LaunchResult.UNKNOWN}
        answer: tuple[LaunchResult, str] = self._ask(
            Call(
                "assign",
                job.address or "",
                partial(self._assign, job, request),
                lambda: (LaunchResult.UNKNOWN, "timeout"),
                lambda fault: (refused[fault], "AccessDenied: scripted"),
            )
        )
        return answer

    def stop_attempt(self, job: Job) -> StopResult:
        if job.carrier_attempt is None:
            return self.stop(job.launched or "", job.site)
        unknown = lambda *_: StopResult.UNKNOWN  # noqa: E731
        answer: StopResult = self._ask(
            Call("stop", job.address or "", partial(self._stop_member, job), unknown, unknown)
        )
        return answer

    def describe_attempt(self, job: Job) -> TrainingJob | None:
        if job.carrier_attempt is None:
            return self.describe(job.launched or "", job.site)
        described = partial(self.mailboxes.describe, job)
        found: TrainingJob | None = self._ask(Call("describe", job.address or "", described, _no_answer, _no_answer))
        return found

    def introduction(self, carrier: str) -> Introduction | None:
        seen = partial(self.mailboxes.introduction, carrier)
        found: Introduction | None = self._ask(Call("list", carrier, seen, _no_answer, _no_answer))
        return found

    def agent_activity(self, carrier: Job) -> AgentActivity:
        activity: AgentActivity = self._ask(
            Call("list", carrier.launched or "", partial(self._agent_activity, carrier), _no_answer, _no_answer)
        )
        return activity

    def page(self, names: list[str]) -> Any:
        return super().page([name for name in names if name not in self.carrier_of_member])

    # --- the truth ---------------------------------------------------------------------------------------

    def carriers(self) -> list[str]:
        """Carriers that are alive."""
        return [name for name in self.alive_names() if name.startswith(CARRIER_PREFIX)]

    def on_carrier(self, carrier: str) -> list[str]:
        """Members that run on a carrier."""
        there = (member for member, its in self.carrier_of_member.items() if its == carrier)
        return [member for member in there if not self.jobs[member].ended]

    def taken(self) -> Counter[tuple[str, int]]:
        """Tenths of each GPU that members have who run."""
        taken: Counter[tuple[str, int]] = Counter()
        for member, allocation in self.allocation_of.items():
            if not self.jobs[member].ended:
                taken.update({(self.carrier_of_member[member], gpu): allocation.tenths for gpu in allocation.gpus})
        return taken

    def too_much(self) -> list[tuple[str, int]]:
        """GPUs of which members have more than the whole."""
        return [gpu for gpu, tenths in self.taken().items() if tenths > WHOLE]

    def end(self, name: str, status: str = "Completed", secondary: str = "", failure: str | None = None) -> None:
        on_carrier, carrier = self.on_carrier(name), self.carrier_of_member.get(name)
        if carrier in self.dead:
            status, secondary, failure = "Stopped", "", None  # its report is never written
            self.untold.add(name)
        super().end(name, status, secondary, failure)
        if carrier is not None and name not in self.untold:
            self.agents[carrier].report(name, status, failure or secondary, self.created[name])
        for member in on_carrier:
            if status == "Stopped" and name not in self.dead:
                super().end(member, "Stopped")
                self.agents[name].report(member, "Stopped", CARRIER_STOPPED)
            else:
                self.untold.add(member)
                super().end(member, "Stopped")

    def starve(self, name: str, secondary: str = "Stopped") -> None:
        on_carrier = self.on_carrier(name)
        super().starve(name, secondary)
        for member in on_carrier:
            self.untold.add(member)
            super().end(member, "Stopped")

    def forget(self, name: str) -> None:
        super().forget(name)
        self.agents.pop(name, None)
        self.dead.pop(name, None)

    def fall_silent(self, carrier: str) -> None:
        """Its agent is dead; what it ran goes on unheard."""
        self.dead.setdefault(carrier, self.clock())

    def look(self, carrier: str) -> None:
        """The agent of a carrier looks into its mailbox, and does as it is ordered."""
        if carrier not in self.agents or carrier in self.dead or self.jobs[carrier].ended:
            return
        agent = self.agents[carrier]
        for name, assignment in agent.look().items():
            ordered = (carrier, name) in self._ordered
            require(ordered, "only the queue has an agent start a member", f"{name} on {carrier}")
            if assignment:
                self._start_member(carrier, name, assignment)
        for name in self.on_carrier(carrier):
            if agent.is_stopped(name):
                require((carrier, name) in self._stops, "only the queue has an agent stop a member", f"{name}")

    def look_everywhere(self) -> None:
        """All agents look, as they do every other second."""
        for carrier in self.carriers():
            self.look(carrier)

    def _create(self, request: Mapping[str, Any], site: Site | None = None) -> tuple[LaunchResult, str]:
        result = super()._create(request, site)
        name = request["TrainingJobName"]
        if result[0] is LaunchResult.LAUNCHED and name.startswith(CARRIER_PREFIX):
            self.jobs[name] = replace(self.jobs[name], began=self.clock())
            agent = AgentInMemory(self.bucket, request["HyperParameters"], self._now)
            is_first = agent.introduce()
            if is_first:
                self.introduced.append(name)
            if is_first or name not in self.former:  # another agent has worked under this name, so this one refuses to
                self.agents[name] = agent
        return result

    def _assign(self, job: Job, request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        carrier, name = job.carrier_attempt or "", job.launched or ""
        self._ordered.add((carrier, name))
        result = self.mailboxes.assign(job, request)
        unread = carrier not in self.agents or carrier in self.dead or self.jobs[carrier].ended
        if result[0] is LaunchResult.LAUNCHED and unread and not self._has_run(carrier, request):
            self._start_member(carrier, name, {"request": request, "gpus": [], "tenths": 10})  # nobody reads it
            self.untold.add(name)
            self.jobs[name] = replace(self.jobs[name], status="Stopped")
        self.look(carrier)
        return result

    def _has_run(self, carrier: str, request: Mapping[str, Any]) -> bool:
        """Return whether the agent has started this member already: the order of a repeated call changes nothing."""
        name, tags = request["TrainingJobName"], {tag["Key"]: tag["Value"] for tag in request["Tags"]}
        known = self.launches.get(name)
        return (
            known is not None
            and known.submission == tags[SUBMISSION_TAG]
            and self.carrier_of_member.get(name) == carrier
        )

    def _start_member(self, carrier: str, name: str, assignment: Mapping[str, Any]) -> None:
        request = assignment["request"]
        tags = {tag["Key"]: tag["Value"] for tag in request["Tags"]}
        job = TrainingJob(name, "", "InProgress", "Training", None, {}, tags, carrier=carrier)
        self.jobs[name] = replace(job, created=self.clock())
        self.requests[name], self.created[name] = request, self.clock()
        self.carrier_of_member[name] = carrier
        for names in (self.untold, self.stopped):
            names.discard(name)  # the name may have been an earlier job's
        self.allocation_of[name] = GpuAllocation(carrier, tuple(assignment["gpus"]), assignment["tenths"])
        self.launches[name] = Launch(tags[JOB_TAG], tags[SUBMISSION_TAG], int(tags[ATTEMPT_TAG]), tags)
        self.changed[name] = None

    def _agent_activity(self, carrier: Job) -> AgentActivity:
        name = carrier.launched or ""
        if name in self.agents and name not in self.dead and not self.jobs[name].ended:
            self.agents[name].beat()
        return self.mailboxes.agent_activity(carrier)

    def _stop_member(self, job: Job) -> StopResult:
        carrier, name = job.carrier_attempt or "", job.launched or ""
        self._stops.add((carrier, name))
        answer = self.mailboxes.stop(job)
        self.look(carrier)
        if self.carrier_of_member.get(name) == carrier and not self.jobs[name].ended:
            super()._stop(name)
            self.changed[name] = None
        return answer
