"""The GPUs of one instance, and who sits on them: on whole ones, or on a part of one, in tenths."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from job_queue.scheduler.model import JobState

WHOLE = 10  # tenths of a GPU


@dataclass(frozen=True, slots=True)
class Seat:
    """What a member has of a carrier's instance."""

    carrier: str
    gpus: tuple[int, ...]  # their numbers, from 0
    tenths: int = WHOLE  # of each of them

    @property
    def size(self) -> int:
        """Tenths of GPUs, of all of them together."""
        return len(self.gpus) * self.tenths


@dataclass(frozen=True, slots=True)
class Carrier:
    """A training job of the queue's own on one instance, on which members run side by side."""

    name: str
    pool: str
    project: str
    kind: str  # whose members it takes
    gpus: int
    state: "JobState"
    started: float
    empty_since: float | None = None  # nobody has sat on it since
    preemptible: bool = True
    owner: str = ""  # to whom it is charged
    stop_denied: bool = False  # SageMaker denied a short while ago to stop it
    ready: bool = True  # its agent has introduced itself, so members can be assigned

    @property
    def takes_members(self) -> bool:
        """Return whether a member can be assigned now."""
        return self.ready and self.state.value == "running"


@dataclass(frozen=True, slots=True)
class SitDown:
    """Assign this waiting member to a carrier that runs."""

    job: str
    seat: Seat


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch a carrier, for these waiting members."""

    members: tuple[str, ...]  # the first has the place in the queue that it is launched for
    slots: Mapping[str, int]


class Row:
    """How much of each GPU of an instance is free, in tenths.

    Parts of GPUs go where the least is left over, whole ones to the first that are free, so that whole GPUs stay free.
    """

    def __init__(self, gpus: int, taken: Iterable[Seat] = ()) -> None:
        self._free = [WHOLE] * gpus
        self.free = gpus * WHOLE  # tenths of GPUs that nobody has
        for seat in taken:
            self.take(seat)

    def copy(self) -> "Row":
        """Another row with the same seats."""
        other = Row(0)
        other._free, other.free = list(self._free), self.free
        return other

    def take(self, seat: Seat) -> None:
        """Somebody sits down."""
        self.free -= seat.size
        for gpu in seat.gpus:
            self._free[gpu] -= seat.tenths

    def leave(self, seat: Seat) -> None:
        """Somebody gets up."""
        self.free += seat.size
        for gpu in seat.gpus:
            self._free[gpu] += seat.tenths

    def place(self, size: int, other: "Row | None" = None) -> tuple[int, ...] | None:
        """Which GPUs somebody gets who asks for so many tenths; None: there is no place.

        :param other: where they have to be free, too.
        """
        if self.free < size:
            return None
        free = (
            self._free if other is None else [min(one, two) for one, two in zip(self._free, other._free, strict=True)]
        )
        if size < WHOLE:
            fitting = [(left, gpu) for gpu, left in enumerate(free) if left >= size]
            return (min(fitting)[1],) if fitting else None
        whole = [gpu for gpu, left in enumerate(free) if left == WHOLE]
        count = size // WHOLE
        return tuple(whole[:count]) if len(whole) >= count else None

    def opens_a_gpu(self, gpus: tuple[int, ...], size: int) -> bool:
        """Whether a part of a GPU would be the first on it."""
        return size < WHOLE and self._free[gpus[0]] == WHOLE


def seat_on(carrier: str, gpus: tuple[int, ...], size: int) -> Seat:
    """A seat of so many tenths on these GPUs."""
    return Seat(carrier, gpus, min(size, WHOLE))
