"""Attempts on carriers as the world has them: mailboxes, agents, and what becomes of members with their carrier."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from job_queue.adapters.carriers.mailbox import Heard
from job_queue.adapters.sagemaker import LaunchResult, StopResult, TrainingJob
from job_queue.domain.errors import Unavailable
from job_queue.domain.names import ATTEMPT_TAG, JOB_TAG, SUBMISSION_TAG
from job_queue.scheduler import WHOLE, Seat
from tests.torture.aws import Launch, SimulatedSageMaker
from tests.torture.faults import Call, Fault

GONE = ("Failed", "InternalServerError: the carrier was stopped")  # as a mailbox tells of who was told to go with it


def _no_answer(*_: object) -> Any:
    raise Unavailable("simulated")


class SimulatedCarriers(SimulatedSageMaker):
    """SageMaker, and in some of its training jobs agents that run members.

    A member is a training job among the others, without instances, and no list names it.
    """

    def __init__(self, ask: Callable[[Call], Any], pool_of: Callable[[str], str]) -> None:
        super().__init__(ask, pool_of)
        self.carrier_of: dict[str, str] = {}  # member's attempt -> carrier's
        self.seat_of: dict[str, Seat] = {}
        self.untold: set[str] = set()  # members that ended without a report
        self.silent: dict[str, float] = {}  # carrier -> since when its agent is dead

    # --- as the queue sees it ----------------------------------------------------------------------------

    def assign(self, carrier: str, seat: Seat, request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        refused = {Fault.DENIED: LaunchResult.NOT_NOW, Fault.THROTTLED: LaunchResult.UNKNOWN}
        answer: tuple[LaunchResult, str] = self._ask(
            Call(
                "assign",
                f"{carrier}/{request['TrainingJobName']}",
                partial(self._assign, carrier, seat, request),
                lambda: (LaunchResult.UNKNOWN, "timeout"),
                lambda fault: (refused[fault], "AccessDenied: scripted"),
            )
        )
        return answer

    def heard_of(self, carrier: str) -> Heard:
        heard: Heard = self._ask(Call("list", carrier, partial(self._heard_of, carrier), _no_answer, _no_answer))
        return heard

    def known(self, name: str) -> TrainingJob | None:
        carrier, _, member = name.rpartition("/")
        if self.carrier_of.get(member, "") != carrier:
            return None
        job = super().known(member)
        if job is not None and member in self.untold:
            return replace(job, status="InProgress", failure=None)
        return job

    def page(self, names: list[str]) -> Any:
        return super().page([name for name in names if name not in self.carrier_of])

    # --- the truth ---------------------------------------------------------------------------------------

    def carriers(self) -> list[str]:
        """Carriers that are alive."""
        return [name for name in self.alive_names() if name.startswith("carrier--")]

    def aboard(self, carrier: str) -> list[str]:
        """Members that run on a carrier."""
        there = (member for member, its in self.carrier_of.items() if its == carrier)
        return [member for member in there if not self.jobs[member].ended]

    def taken(self) -> Counter[tuple[str, int]]:
        """Tenths of each GPU that members have who run."""
        taken: Counter[tuple[str, int]] = Counter()
        for member, seat in self.seat_of.items():
            if not self.jobs[member].ended:
                taken.update({(self.carrier_of[member], gpu): seat.tenths for gpu in seat.gpus})
        return taken

    def too_much(self) -> list[tuple[str, int]]:
        """GPUs of which members have more than the whole."""
        return [gpu for gpu, tenths in self.taken().items() if tenths > WHOLE]

    def end(self, name: str, status: str = "Completed", secondary: str = "", failure: str | None = None) -> None:
        aboard = self.aboard(name)
        if name in self.carrier_of and self.carrier_of[name] in self.silent:
            status, secondary, failure = "Stopped", "", None  # nobody will ever hear how
            self.untold.add(name)
        super().end(name, status, secondary, failure)
        for member in aboard:
            if status == "Stopped" and name not in self.silent:
                super().end(member, GONE[0], failure=GONE[1])
            else:
                self.untold.add(member)
                super().end(member, "Stopped")

    def starve(self, name: str, secondary: str = "Stopped") -> None:
        aboard = self.aboard(name)
        super().starve(name, secondary)
        for member in aboard:
            self.untold.add(member)
            super().end(member, "Stopped")

    def fall_silent(self, carrier: str) -> None:
        """Its agent is dead; what it ran goes on unheard."""
        self.silent.setdefault(carrier, self.clock())

    def _assign(self, carrier: str, seat: Seat, request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        name = request["TrainingJobName"]
        tags = {tag["Key"]: tag["Value"] for tag in request["Tags"]}
        if name in self.jobs:
            return LaunchResult.NAME_TAKEN, ""
        job = TrainingJob(name, "", "InProgress", "Training", None, {}, tags)
        self.jobs[name] = replace(job, created=self.clock())
        self.requests[name], self.created[name] = request, self.clock()
        self.carrier_of[name], self.seat_of[name] = carrier, seat
        self.launches[name] = Launch(tags[JOB_TAG], tags[SUBMISSION_TAG], int(tags[ATTEMPT_TAG]), tags)
        if carrier not in self.alive_names() or carrier in self.silent:  # nobody reads it any more
            self.untold.add(name)
            self.jobs[name] = replace(self.jobs[name], status="Stopped")
        self.changed[name] = None
        return LaunchResult.LAUNCHED, ""

    def _heard_of(self, carrier: str) -> Heard:
        there = [member for member, its in self.carrier_of.items() if its == carrier]
        ended = (member for member in there if self.jobs[member].ended and member not in self.untold)
        return Heard(frozenset(ended), self.silent.get(carrier, self.clock()))

    def _stop(self, name: str) -> StopResult:
        carrier, _, member = name.rpartition("/")
        if not carrier:
            return super()._stop(name)
        if self.carrier_of.get(member) != carrier:
            return StopResult.ASKED  # a stop that comes before its assignment
        if self.jobs[member].ended:
            return StopResult.UNKNOWN if member in self.untold else StopResult.ENDED_ALREADY
        answer = super()._stop(member)
        self.changed[member] = None
        return answer
