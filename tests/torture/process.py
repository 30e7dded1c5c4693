"""Lambda invocations as coroutines: each stops before every call to AWS, and goes on when the world says so."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from greenlet import greenlet

from job_queue.controller.cycle import Invocation
from job_queue.domain.errors import QueueError
from tests.torture.faults import Call, Fault, Killed

if TYPE_CHECKING:
    from tests.torture.world import Sandbox, World

    Program = Callable[[Sandbox, Invocation], None]

LAMBDA_SECONDS = 45.0
PATIENCE_SECONDS = 25.0
MOST_CYCLES = 25  # of one invocation: more of them is going round in circles


class Process:
    """One invocation, from its beginning until it ends or is killed."""

    def __init__(
        self,
        world: "World",
        sandbox: "Sandbox",
        number: int,
        words: str,
        program: "Program",
        may_wait: bool,  # noqa: FBT001
        woken_by: str | None,
    ) -> None:
        self.sandbox = sandbox
        self.words = words
        self.number = number
        self.deadline = world.now + LAMBDA_SECONDS
        self.call: Call | None = None  # that it is about to make; None: it has ended
        self.killed = False
        self.lost_lease_write = False  # a write of the lease's row has met a fault by which it may count later or never
        self.cycles = 0
        self.knowledge = 0  # a digest of the answers so far: with its program, they determine what it does next
        self.holder = f"process-{number}"
        self._world = world
        self._began = world.now
        self._program = program
        self._may_wait, self._woken_by = may_wait, woken_by
        self._greenlet = greenlet(self._run)

    @property
    def ended(self) -> bool:
        return bool(self._greenlet.dead)

    def start(self) -> None:
        """Run up to the first call."""
        self.call = self._greenlet.switch()

    def resume(self, fault: Fault) -> None:
        """Make the call, and go on to the next one."""
        self.call = self._greenlet.switch(fault)

    def make(self, call: Call) -> Any:
        """Called from inside, for every call to AWS."""
        if self.killed:
            raise Killed  # while it unwinds, which a killed process does not
        driver = self._greenlet.parent
        assert driver is not None
        fault: Fault = driver.switch(call)
        try:
            answer = self._world.carry_out(self, call, fault)
        except Exception as error:
            self._learn(error)
            raise
        self._learn(answer)
        return answer

    def _learn(self, answer: object) -> None:
        if self._world.digests:
            self.knowledge = hash((self.knowledge, repr(answer)))

    def kill(self) -> None:
        """Called from inside: end here."""
        self.killed = True
        raise Killed

    def _run(self) -> None:
        invocation = Invocation(
            holder=self.holder,
            remaining=lambda: self.deadline - self._world.now,
            may_go_on=self._may_go_on,
            may_wait=self._may_wait,
            woken_by=self._woken_by,
        )
        try:
            self._program(self.sandbox, invocation)
        except Killed:
            self._world.say(f"{self.words}: killed")
        except QueueError as error:
            self._world.say(f"{self.words}: {error.message}")

    def _may_go_on(self) -> bool:
        self.cycles += 1
        patient = self._world.now - self._began < PATIENCE_SECONDS and self.cycles < MOST_CYCLES
        if not patient:
            self._world.sound = False
        return patient
