"""The base class of the controller's parts, with the tables, SageMaker, the policies and the clock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from job_queue.adapters.carriers.training import Training
from job_queue.adapters.cluster_reader import Parallel
from job_queue.adapters.job_repository import JobRepository, transactions
from job_queue.adapters.metadata import Lease, Policies
from job_queue.adapters.telemetry import log
from job_queue.domain.errors import LeaseLost, Refused, Unavailable, Unwritable
from job_queue.domain.state_machine import JobTransition


@dataclass(frozen=True, slots=True)
class Backend:
    """The tables, SageMaker, the policies, the clock (epoch seconds) and parallel calls."""

    repository: JobRepository
    training: Training
    policies: Policies
    clock: Callable[[], float]
    parallel: Parallel


class ControllerPart:
    """A part of the controller. One process has one object of each part; only `CycleOpener` is made per invocation."""

    def __init__(self, backend: Backend) -> None:
        self._repository = backend.repository
        self._training = backend.training
        self._policies = backend.policies
        self._clock = backend.clock
        self._parallel = backend.parallel

    def _record_all(self, lease: Lease, changes: Sequence[JobTransition], what: str) -> list[JobTransition]:
        """Record transitions in as few transactions as possible. Return the recorded ones.

        :param what: the kind of the transitions, for the log.
        """
        parts = transactions(changes) if changes else ()
        return [transition for part in parts for transition in self._commit(lease, part, what)]

    def _commit(self, lease: Lease, part: list[JobTransition], what: str) -> list[JobTransition]:
        """Record transitions together, or one by one if one of them cannot be recorded. Return the recorded ones."""
        try:
            self._repository.commit(lease, part, self._clock())
        except LeaseLost:
            raise
        except (Refused, Unavailable) as error:  # the invocation that changed a job also causes another cycle
            if len(part) > 1 and isinstance(error, Refused | Unwritable):
                return [transition for one in part for transition in self._commit(lease, [one], what)]
            log.info(f"{what} not recorded", jobs=[it.old.name for it in part], why=repr(error))
            return []
        return part
