"""Injection of faults into a local cloud, such as throttling and lost events, each kind with its own probability.

Each kind draws its decisions from its own random generator: with the same seed, the n-th decision of a kind is always
the same. But the timing of real processes determines the call or event to which the n-th decision applies.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from local_cloud.sagemaker.account.options import limit_exceeded
from local_cloud.sagemaker.wire import ConnectionAbort, EmulatedError

KINDS = {
    "throttle": "a call of SageMaker's API is refused: ThrottlingException",
    "slow": "an answer of SageMaker's API comes late",
    "unanswered": "a call of SageMaker's API takes effect, and the connection breaks before the answer",
    "limit": "a CreateTrainingJob is refused: ResourceLimitExceeded",
    "capacity": "an accepted training job fails before it trains: CapacityError",
    "internal": "an accepted training job fails before it trains: InternalServerError",
    "pending": "an accepted training job is stopped before it trains, as if its MaxPendingTimeInSeconds were over",
    "oom": "an instance runs out of memory while it trains: the processes are killed; exit code 137",
    "hardware": "a GPU fails while it trains: the log gets Xid and ECC errors, the processes are killed; exit code 134",
    "hang": "the processes of a training job are stopped by SIGSTOP: they write nothing, and the job stays InProgress",
    "logs-late": "the lines of an instance's log arrive late, some of them after the end of the job",
    "duplicate": "an event comes twice",
    "late": "an event comes late, behind others",
    "lost": "an event is lost",
    "crash": "a process of the queue's function is killed while it works on an invocation",
    "partition": "each other site does not answer for this part of the time, in outages of 1 to 10 s",
}
LATEST = 5.0  # maximum delay of an event, in seconds
SLOWEST = 2.0  # maximum delay of an answer, in seconds
LATEST_LOGS = 5.0  # maximum delay of the lines of a log, in seconds
LATEST_STRIKE = 3.0  # maximum time from the start of the training to its failure or hang, in seconds
STRIKES = ("oom", "hardware", "hang")
"""The faults that happen while a job trains."""


def parse(text: str) -> dict[str, float]:
    """Parse `KIND=PROBABILITY,...`; raise ValueError with the reason if the text is wrong."""
    probabilities: dict[str, float] = {}
    for part in text.split(","):
        kind, _, number = part.strip().partition("=")
        if kind not in KINDS:
            raise ValueError(f"there is no fault {kind!r}; known are {', '.join(KINDS)}")
        if kind in probabilities:
            raise ValueError(f"{kind} is given twice")
        try:
            probability = float(number)
        except ValueError:
            probability = -1.0
        if not 0 <= probability <= 1:
            raise ValueError(f"{kind} must be a probability from 0 to 1, such as {kind}=0.1, and not {number!r}")
        probabilities[kind] = probability
    return probabilities


class Chance:
    """The decisions of one kind of fault. Thread-safe."""

    def __init__(self, kind: str, probability: float, seed: int) -> None:
        self.count = 0
        self._probability = probability
        self._random = Random(f"{seed}/{kind}")
        self._lock = threading.Lock()

    def draw(self) -> float | None:
        """Decide whether the fault happens, and count it if so.

        :return: a random number from 0 to 1 if the fault happens; otherwise None.
        """
        with self._lock:
            drawn = self._random.random()
            if drawn >= self._probability:
                return None
            self.count += 1
            return drawn / self._probability

    def record(self) -> None:
        """Count a fault that other code has decided."""
        with self._lock:
            self.count += 1


class Faults:
    """The faults that happen after `begin` and before `end`, and their counts.

    The fault `crash` is chosen in `server.py`, which starts the function's processes, and `partition` in `outages.py`.

    :param probabilities: the probability of each kind of fault.
    """

    def __init__(self, probabilities: Mapping[str, float] | None = None, seed: int = 0) -> None:
        self.probabilities = dict(probabilities or {})
        self.seed = seed
        self._chances = {kind: Chance(kind, self.probabilities.get(kind, 0.0), seed) for kind in KINDS}
        self._on = threading.Event()

    def begin(self) -> None:
        """Let faults happen from now on."""
        self._on.set()

    def end(self) -> None:
        """Let no fault happen from now on."""
        self._on.clear()

    @property
    def happen(self) -> bool:
        """Whether faults may happen now."""
        return self._on.is_set()

    def record(self, kind: str) -> None:
        """Count a fault whose time was chosen elsewhere."""
        self._chances[kind].record()

    @property
    def counts(self) -> dict[str, int]:
        """The number of faults so far, for each kind that has a probability."""
        return {kind: self._chances[kind].count for kind in self.probabilities}

    def refuse(self, operation: str, request: Mapping[str, Any]) -> None:
        """Raise the error of a refused call of SageMaker's API, if a fault happens."""
        if self._happens("throttle"):
            raise EmulatedError("ThrottlingException", "Rate exceeded")
        if operation == "CreateTrainingJob" and self._happens("limit"):
            groups = request.get("ResourceConfig", {})
            first = (groups.get("InstanceGroups") or groups.get("InstancePreferences") or [groups])[0]
            count = first.get("InstanceCount") or groups.get("InstanceCount") or 1
            market = "spot training job" if request.get("EnableManagedSpotTraining") else "training job"
            # The error reports a quota of `count`, all in use. With a smaller quota, the job could never start.
            raise limit_exceeded(f"{first.get('InstanceType')} for {market} usage", count, count, count)

    def answer(self) -> None:
        """Delay the answer of a call, or raise ConnectionAbort in place of the answer, if a fault happens."""
        if (slow := self._draw("slow")) is not None:
            time.sleep(SLOWEST * slow)
        if self._happens("unanswered"):
            raise ConnectionAbort

    def early_end(self, *, may_be_pending: bool) -> str | None:
        """Return the kind of fault that ends a training job before it trains; None if no fault happens.

        :param may_be_pending: whether the request has MaxPendingTimeInSeconds, so that this time may be over.
        """
        kinds = ("capacity", "internal", "pending") if may_be_pending else ("capacity", "internal")
        return next((kind for kind in kinds if self._happens(kind)), None)

    def strike(self) -> tuple[str, float] | None:
        """Decide whether a fault happens to a job that begins to train.

        :return: one of STRIKES, and the seconds until it happens. None if no fault happens.
        """
        for kind in STRIKES:
            if (drawn := self._draw(kind)) is not None:
                return kind, LATEST_STRIKE * drawn
        return None

    def log_delay(self) -> float:
        """Return the seconds by which the lines of one instance's log arrive late: normally 0."""
        late = self._draw("logs-late")
        return LATEST_LOGS * late if late is not None else 0.0

    def deliveries(self) -> Iterator[float]:
        """Yield the delay in seconds of each delivery of an event: normally one, without delay."""
        lost, twice = self._happens("lost"), self._happens("duplicate")
        for _ in range(0 if lost else 2 if twice else 1):
            late = self._draw("late")
            yield LATEST * late if late is not None else 0.0

    def _happens(self, kind: str) -> bool:
        return self._draw(kind) is not None

    def _draw(self, kind: str) -> float | None:
        return self._chances[kind].draw() if self._on.is_set() else None
