"""Open a cycle: raise the generation, take the lease, read the cluster's state, and promise a later cycle."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from job_queue.adapters.cluster_reader import cluster_reads, read_cluster_state, with_expected_runtimes
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Lease, LeaseHeld
from job_queue.adapters.telemetry import log
from job_queue.controller.part import Backend, ControllerPart
from job_queue.domain.cluster_state import ClusterState, Metadata
from job_queue.domain.errors import QueueError

PROMISE_SECONDS = 30  # a promise is valid until this long after its cycle is due
RENEWAL_SECONDS = 10  # a promise is renewed if it ends less than this long after the next cycle is due
SOONER_SECONDS = 2  # an invocation that would run a cycle this much earlier makes its own promise


@dataclass(slots=True)
class OpenedCycle:
    """An opened cycle: the lease, and the data that was read while the lease was taken."""

    lease: Lease
    metadata: Metadata
    cluster: ClusterState | None = None  # None: the state is not read yet

    @property
    def is_current(self) -> bool:
        """Whether no other holder wrote between the reads and the lease."""
        return self.metadata.fencing_token in (self.lease.fencing_token - 1, self.lease.fencing_token)


class CycleOpener(ControllerPart):
    """The opening of the cycles of one invocation.

    :param holder: unique name of the holder of the lease.
    """

    def __init__(self, backend: Backend, holder: str) -> None:
        super().__init__(backend)
        self._holder = holder

    def begin(self, seen: Metadata | None) -> tuple[int, OpenedCycle | LeaseHeld]:
        """Raise the generation and try to take the lease. Return the generation to plan with, and the result.

        :param seen: the metadata that was read before the change was stored. If it shows a free lease, all calls are
            made at the same time. Such reads may miss a change that another invocation makes meanwhile. That invocation
            raises the generation after its change, so that another cycle runs.
        """
        if seen is None or seen.lease_expires >= self._clock():
            return self._repository.raise_generation(), self.acquire()
        reads = cluster_reads(self._repository, self._policies, seen, self._clock())

        def opened(lease: Lease, answers: list[Any]) -> OpenedCycle:
            _, _, metadata, active = answers
            unchanged = lease.fencing_token == seen.fencing_token + 1
            cluster = reads.cluster_state(metadata, active, self._parallel) if unchanged else None
            return OpenedCycle(lease, metadata, cluster)

        repository = self._repository
        calls = [repository.raise_generation, self._acquire, repository.metadata, repository.active]
        tried = self._call_and_acquire(calls, opened)
        # The holder of the lease may have read the generation just before this invocation raised it, and then released
        # the lease. So the lease is tried once more.
        return seen.generation + 1, self.acquire() if isinstance(tried, LeaseHeld) else tried

    def acquire(self) -> OpenedCycle | LeaseHeld:
        """Try to take the lease."""
        return self._call_and_acquire(
            [self._acquire, self._repository.metadata], lambda lease, answers: OpenedCycle(lease, answers[1])
        )

    def _call_and_acquire(
        self, calls: Sequence[Callable[[], Any]], opened: Callable[[Lease, list[Any]], OpenedCycle]
    ) -> OpenedCycle | LeaseHeld:
        """Make calls at the same time, one of which tries to take the lease. After an error, give the lease back.

        The lease is given back only after every call has ended. Otherwise a pending call could take the lease again.

        :param opened: makes the result from the lease and the answers.
        :raises Exception: the error of the first call that has failed.
        """
        answers = self._parallel([partial(_answer_or_error, call) for call in calls])
        lease = answers[calls.index(self._acquire)]
        try:
            for error in (answer for answer in answers if isinstance(answer, Exception)):
                raise error
            return lease if isinstance(lease, LeaseHeld) else opened(lease, answers)
        except Exception:
            if not isinstance(lease, LeaseHeld):  # true also after an error: the lease may be taken all the same
                self._give_back()
            raise

    def _give_back(self) -> None:
        try:
            self._repository.give_back(self._holder)
        except QueueError as error:  # no other invocation can run a cycle until the lease expires
            log.warning("lease not given back", why=error.message)

    def read(self, opened: OpenedCycle, *, again: bool) -> ClusterState:
        """Return the cluster's state.

        Metadata that was read while the lease was taken is valid if no holder wrote in between. An invocation that
        registers a waiting queue or applies a policy after the read raises the generation, so that another cycle runs.

        :param again: whether to read again even if the state was read before.
        """
        cluster = None if again else opened.cluster
        if cluster is None:
            metadata = opened.metadata if opened.is_current and not again else None
            cluster = read_cluster_state(self._repository, self._policies, self._parallel, self._clock(), metadata)
        return with_expected_runtimes(self._repository, cluster, self._clock())

    def _acquire(self) -> Lease | LeaseHeld:
        return self._repository.acquire(self._holder, self._clock())


def _answer_or_error(call: Callable[[], Any]) -> Any:
    """Make a call. Return its answer or its error."""
    try:
        return call()
    except Exception as error:
        return error


class CyclePromise:
    """The promise of one invocation to run the next cycle when it is due, so that no other invocation waits.

    :param holder: name of the holder that promises. An invocation that was woken for a promise uses the name of the
        holder that woke it.
    :param was_woken: whether this invocation was woken to keep a promise.
    """

    def __init__(self, repository: JobRepository, clock: Callable[[], float], holder: str, *, was_woken: bool) -> None:
        self._repository = repository
        self._clock = clock
        self.holder = holder
        self._until = clock() + PROMISE_SECONDS if was_woken else 0.0
        self._promised_for = clock()

    def make(self, due: float) -> bool:
        """Promise to run the next cycle, unless another invocation has promised. Return whether to run the cycle here.

        :param due: when the cycle is due (epoch seconds). Another invocation's promise does not count if its cycle is
            more than `SOONER_SECONDS` later. For example, a launch that waits only for the launch rate must not wait
            until the end of a backoff for quota lag.
        """
        now = self._clock()
        due = max(now, due)
        if self._until > due + RENEWAL_SECONDS and due <= self._promised_for + SOONER_SECONDS:
            return True
        if not self._repository.promise(self.holder, now, due + PROMISE_SECONDS, due, due + SOONER_SECONDS):
            return False
        self._until, self._promised_for = due + PROMISE_SECONDS, due
        return True

    def withdraw(self) -> bool:
        """Withdraw the promise. Return whether another invocation may have relied on the promise."""
        if not self._until:
            return False
        self._repository.withdraw(self.holder)
        self._until = 0.0
        return True
