"""The base class of the controller's parts, with the tables, SageMaker, the policies and the clock."""

from collections.abc import Callable
from dataclasses import dataclass

from job_queue.adapters.carriers.training import Training
from job_queue.adapters.cluster_reader import Parallel
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies


@dataclass(frozen=True, slots=True)
class Backend:
    """The tables, SageMaker, the policies, the clock (epoch seconds) and parallel calls."""

    repository: JobRepository
    training: Training
    policies: Policies
    clock: Callable[[], float]
    parallel: Parallel


class ControllerPart:
    """A part of the controller. One process has one object of each part; only `Opening` is made per invocation."""

    def __init__(self, backend: Backend) -> None:
        self._repository = backend.repository
        self._training = backend.training
        self._policies = backend.policies
        self._clock = backend.clock
        self._parallel = backend.parallel
