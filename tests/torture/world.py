"""The simulated world: a clock, AWS, the queue's processes, and everything that is under way between them.

Nothing happens by itself. A driver (walks.py, search.py) says which process goes on, what becomes of its call, and when
SageMaker, users and time act.
"""

import itertools
import logging
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any
from unittest.mock import patch

from job_queue.adapters.carriers.training import Training
from job_queue.adapters.dynamodb import Update, Write
from job_queue.adapters.items import LEASE, job_from
from job_queue.adapters.lookups.failure_log import FailureLog
from job_queue.adapters.telemetry import log
from job_queue.controller.cycle import Controller, Invocation
from job_queue.domain.errors import QueueError, Refused, Signal
from job_queue.domain.job import Job
from job_queue.services.drains import DrainService
from job_queue.services.job_commands import JobCommands
from job_queue.services.policy_service import PolicyService
from job_queue.validation import service_model
from tests.jobs import NOW
from tests.metered_tables import Throttled
from tests.queue_harness import Harness
from tests.torture.aws import JOBS, LINES, SimulatedTables
from tests.torture.faults import NOT_AT_ONCE, PARTITIONS, SIGNATURE_SECONDS, SLOW_SECONDS, Call, Fault, LateCall
from tests.torture.invariants import Invariants, ViolationError, require
from tests.torture.members import SimulatedCarriers
from tests.torture.process import Process
from tests.torture.setups import Setup

HISTORY_SECONDS = 3600  # longer than any call can be late
CALL_SECONDS = 0.02  # that a call takes


_matches = lru_cache(10_000)(service_model._matches)  # requests are alike, and patterns take their time


def nothing(*_: object) -> None:
    """What a process learns that slept in vain."""


class Sandbox(Harness):
    """The queue's parts as one Lambda process has them."""

    def __init__(self, world: "World") -> None:
        self._world = world
        super().__init__(
            world.setup.capacity,
            world.tables,
            training=world.sagemaker,
            history_seconds=HISTORY_SECONDS,
            create_rate=world.setup.create_rate,
        )
        self.training.carrier_of = world.job
        self.woken = world.woken
        self.commands = JobCommands(self.repository, self.policies, self.settings, self.clock)
        self.policy_service = PolicyService(self.repository, self.policies, self.dry_run.cluster, self.clock)
        self.drains = DrainService(self.repository, self.dry_run.cluster, self.clock)

    def new_controller(self, training: Training, **more: Any) -> Controller:
        logs: Any = self._world.sagemaker.logs
        read = FailureLog(logs.at, self.clock) if self._world.setup.failures else None
        return super().new_controller(training, failure_log=read, **more)

    def clock(self) -> float:
        return self._world.now

    def sleep(self, seconds: float) -> None:
        self._world.wait(seconds)

    def parallel(self, calls: Sequence[Callable[[], Any]], /) -> list[Any]:
        """As threads do it: in any order; all are made, and then the first error counts."""
        answers: list[Any] = [None] * len(calls)
        errors: dict[int, Exception] = {}
        for place in self._world.order(len(calls)):
            try:
                answers[place] = calls[place]()
            except Exception as error:
                errors[place] = error
        if errors:
            raise errors[min(errors)]
        return answers


class World:
    """Everything, and what has happened so far.

    :param order: in which order calls are made that are made at the same time.
    :param call_seconds: that an ordinary call takes.
    :param digests: whether processes keep a digest of what they know, so that states can be compared.
    """

    def __init__(
        self,
        setup: Setup,
        order: Callable[[int], Sequence[int]] = range,
        *,
        call_seconds: float = CALL_SECONDS,
        trace: bool = False,
        digests: bool = False,
    ) -> None:
        self.setup = setup
        self.order = order
        self.now = NOW
        self.running: Process | None = None
        self.processes: list[Process] = []
        self.late: list[LateCall] = []
        self.events: list[dict[str, Any]] = []
        self.woken: list[str] = []  # invocations that have asked for another one
        self.faults: Counter[str] = Counter()
        self.sound = True  # nothing has failed yet, nobody backs off, and no invocation was cut short
        self.broken: dict[str, str] = {}  # key of a site -> the way in which its region is broken, one of PARTITIONS
        self.story: list[str] = []
        self._trace = trace
        self._call_seconds = call_seconds
        self.digests = digests
        self._numbers = itertools.count(1)
        self.tables = SimulatedTables(
            self.ask,
            self._taking_effect,
            setup.key_limits,
            clock=lambda: self.now,
            wait=self._throttled,
            metered=lambda: self.running is not None,
        )
        self.sagemaker = SimulatedCarriers(self.ask, setup.pool_of)
        self.sagemaker.tells_times = bool(setup.deadlines or setup.failures or setup.regions)
        self.sagemaker.refuses_checks = setup.refuses_checks
        self.sagemaker.releases_slowly = setup.releases_slowly
        self.sagemaker.quota_lag = setup.quota_lag
        self.sagemaker.clock_ahead = setup.clock_ahead
        self.sagemaker.deletion_seconds = setup.deletion_seconds
        self.invariants = Invariants(self.tables, self.sagemaker, setup)
        self.sandboxes: list[Sandbox] = [Sandbox(self)]

    def say(self, text: str) -> None:
        """A line of the story."""
        line = f"{self.now - NOW:9.2f}  {text}"
        self.story.append(line)
        if self._trace:
            print(line)

    def job(self, name: str) -> Job | None:
        """A job as its row is now."""
        row = self.tables.rows.get((JOBS, name))
        return job_from(row) if row else None

    def sandbox(self) -> Sandbox:
        """A warm process of Lambda that is free, or a new one; each runs one invocation at a time."""
        taken = {process.sandbox for process in self.processes}
        free = [sandbox for sandbox in self.sandboxes if sandbox not in taken]
        if not free:
            self.sandboxes.append(Sandbox(self))
        return free[-1] if free else self.sandboxes[-1]

    # --- processes -------------------------------------------------------------------------------

    def begin(
        self,
        words: str,
        program: Callable[[Sandbox, Invocation], None],
        *,
        may_wait: bool = False,
        woken_by: str | None = None,
    ) -> Process:
        """A new invocation, up to its first call.

        :param may_wait: nobody waits for its answer.
        :param woken_by: the invocation that has asked for it.
        """
        self.say(words)
        process = Process(self, self.sandbox(), next(self._numbers), words, program, may_wait, woken_by)
        self.processes.append(process)
        self._go_on(process, process.start)
        return process

    def pass_time(self, seconds: float) -> None:
        """It is later."""
        self.now += seconds

    def wait(self, seconds: float) -> None:
        """Let the process that runs now wait, while others go on."""
        self.ask(Call("sleep", f"{seconds:.0f} s", partial(self.pass_time, seconds), nothing, nothing))

    def _throttled(self, seconds: float) -> None:
        self.faults["key throttled"] += 1
        self.sound = False
        if self.running:
            self.running.lost_lease_write = True  # perhaps: a release that is throttled each time is lost
        self.say(f"{self.running.words if self.running else 'a late call'}: a key is throttled")
        self.wait(seconds)

    def resume(self, process: Process, fault: Fault = Fault.NONE) -> None:
        """A process makes its call, which meets this fate, and comes to its next one."""
        self._go_on(process, partial(process.resume, fault))
        self.check()

    def _go_on(self, process: Process, step: Callable[[], None]) -> None:
        self.running = process
        try:
            step()
        finally:
            self.running = None
        if process.ended:
            self.processes.remove(process)
            if not process.killed and not process.lost_lease_write:
                self.invariants.check_lease_is_not_of(process.holder)

    def ask(self, call: Call) -> Any:
        """Every call to AWS comes here; those of the simulation itself take effect at once."""
        process = self.running
        if process and call.kind == "log" and not process.lost_lease_write:
            self.invariants.check_no_cycle_of(process.holder)
        return process.make(call) if process else call.effect()

    def carry_out(self, process: Process, call: Call, fault: Fault) -> Any:
        """Within a process: its call meets its fate."""
        if self.now >= process.deadline:
            self.sound = False
            self.say(f"{process.words}: out of time before {call.kind} {call.words}")
            process.kill()
        self.now += self._call_seconds
        if fault is Fault.NONE:
            return call.effect()
        self.faults[fault] += 1
        self.sound = False
        self.say(f"{process.words}: {call.kind} {call.words}: {fault}")
        return self._fail(process, call, fault)

    def _fail(self, process: Process, call: Call, fault: Fault) -> Any:
        if f"/{LEASE}" in call.words and fault in NOT_AT_ONCE:
            process.lost_lease_write = True
        if fault in (Fault.LATE, Fault.TWICE, Fault.KILLED_LATE):
            self.late.append(LateCall(call, self.now + SIGNATURE_SECONDS))
        match fault:
            case Fault.THROTTLED | Fault.CAPACITY | Fault.QUOTA | Fault.DENIED | Fault.UNREACHABLE:
                return call.refused(fault)
            case Fault.SLOW | Fault.TWICE:
                self.now += SLOW_SECONDS if fault is Fault.SLOW else 0
                answer = call.effect()
                if self.now >= process.deadline:
                    process.kill()
                return answer
            case Fault.UNANSWERED | Fault.KILLED_AFTER:
                self.take_effect(call)
        if fault in (Fault.KILLED_BEFORE, Fault.KILLED_AFTER, Fault.KILLED_LATE):
            process.kill()
        self.now += call.wait
        return call.unanswered()

    def take_effect(self, call: Call) -> None:
        """A call takes effect whose answer nobody hears."""
        try:
            call.effect()
        except (Refused, Throttled) as error:
            if self.running and isinstance(error, Throttled):
                self.running.lost_lease_write = True  # perhaps: of a release
            self.say(f"{call.kind} {call.words}, unheard: {error!r}"[:200])

    def land(self, late: LateCall) -> None:
        """A late call takes effect now, unless its time is over."""
        self.late.remove(late)
        if self.now < late.expires_at:
            self.say(f"late {late.call.kind} {late.call.words} takes effect")
            self.sagemaker.landing = True
            self.take_effect(late.call)
            self.check()
            self.sagemaker.landing = False

    def fate_of_broken(self, call: Call | None, rng: random.Random) -> Fault:
        """Draw the fate of a call to a region that is broken; NONE for a call to any other one."""
        mode = self.broken.get(call.site) if call else None
        possible = PARTITIONS[mode].get(call.kind, ()) if call and mode else ()
        return rng.choice(possible) if possible else Fault.NONE

    # --- what is checked -------------------------------------------------------------------------

    def check(self) -> None:
        """Hold the invariants against what has just changed."""
        if self.tables.changed or self.sagemaker.changed:
            self.sound = (
                self.sound and not self.sagemaker.blocked and not self.sagemaker.lag_refusals
            )  # its pool backs off
            self.invariants.check(self.now)

    def _taking_effect(self, writes: Sequence[Write]) -> Callable[[], None]:
        """A lease holder's write is remembered when it is sent, and told to the invariants when it takes effect."""
        for write in writes:
            if isinstance(write, Update) and write.table == LINES and write.key["position"] == "lease":
                acquires = len(writes) == 1
                if acquires and not write.set.get("owner"):
                    break  # a release decides nothing
                holder, number = self.running, next(self._numbers)
                return lambda: self.invariants.lease.took_effect(holder, number, acquires=acquires)
        return lambda: None


SURPRISE = "the queue meets no surprise"


class _Surprises(logging.Filter):
    """The queue reports errors of its own and goes on; here they are violations."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, ViolationError):
            raise error
        require(error is None or isinstance(error, QueueError | Signal), SURPRISE, repr(error))
        return False


SHORT_PRIME = 2**255 - 19  # keys of agents take a tenth of the time


@contextmanager
def determined(seed: int) -> Iterator[random.Random]:
    """Within it nothing is left to chance but by the generator it gives, and errors are all that is logged."""
    drawn = itertools.count(1)  # secrets that nobody guesses, and the same in each run
    logger, surprises = logging.getLogger(log.name), _Surprises()
    disabled, state = logging.root.manager.disable, random.getstate()
    logger.addFilter(surprises)
    logging.disable(logging.WARNING)
    random.seed(seed)
    try:
        with (
            patch("uuid.uuid4", lambda: uuid.UUID(int=random.getrandbits(128), version=4)),
            patch("secrets.token_hex", lambda size: f"{next(drawn):0{2 * size}x}"),
            patch("job_queue.validation.service_model._matches", _matches),
            patch("job_queue.carrier_agent.seal.PRIME", SHORT_PRIME),
        ):
            yield random.Random(seed)
    finally:
        random.setstate(state)
        logging.disable(disabled)
        logger.removeFilter(surprises)
