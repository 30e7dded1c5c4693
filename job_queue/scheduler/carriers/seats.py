"""The GPUs of one instance and the members on them: whole GPUs, or a part of one GPU in tenths."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from job_queue.scheduler.model import JobState

WHOLE = 10  # tenths of a GPU


@dataclass(frozen=True, slots=True)
class Seat:
    """The GPUs of a carrier's instance that a member has."""

    carrier: str
    gpus: tuple[int, ...]  # indexes of the GPUs, from 0
    tenths: int = WHOLE  # tenths of each GPU

    @property
    def size(self) -> int:
        """Tenths of GPUs, summed over all GPUs."""
        return len(self.gpus) * self.tenths


@dataclass(frozen=True, slots=True)
class Carrier:
    """A training job of the queue's own on one instance, on which members run side by side."""

    name: str
    pool: str
    project: str
    kind: str  # kind of its members
    gpus: int
    state: "JobState"
    started: float
    empty_since: float | None = None  # since when it has no members
    preemptible: bool = True
    owner: str = ""  # the owner that is charged for it
    stop_denied: bool = False  # SageMaker denied the queue's last request to stop it, a short while ago
    ready: bool = True  # its agent has reported that it runs, so members can be assigned

    @property
    def takes_members(self) -> bool:
        """Whether a member can be assigned now."""
        return self.ready and self.state.value == "running"


@dataclass(frozen=True, slots=True)
class SitDown:
    """Assign this waiting member to a running carrier."""

    job: str
    seat: Seat


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch a carrier for these waiting members."""

    members: tuple[str, ...]  # the place of the first in the waiting queue counts for the carrier
    slots: Mapping[str, int]


class Row:
    """Free tenths of each GPU of an instance.

    Parts of GPUs go where the least is left over, whole GPUs to the first that are free, so that whole GPUs stay free.
    """

    def __init__(self, gpus: int, taken: Iterable[Seat] = ()) -> None:
        self._free = [WHOLE] * gpus
        self.free = gpus * WHOLE  # tenths of GPUs that no member has
        for seat in taken:
            self.take(seat)

    def copy(self) -> "Row":
        """Return a copy that can be changed independently."""
        other = Row(0)
        other._free, other.free = list(self._free), self.free
        return other

    def take(self, seat: Seat) -> None:
        """Add a member's seat."""
        self.free -= seat.size
        for gpu in seat.gpus:
            self._free[gpu] -= seat.tenths

    def leave(self, seat: Seat) -> None:
        """Remove a member's seat."""
        self.free += seat.size
        for gpu in seat.gpus:
            self._free[gpu] += seat.tenths

    def place(self, size: int, other: "Row | None" = None) -> tuple[int, ...] | None:
        """Return the GPUs for a member that needs `size` tenths; None: there is no place.

        :param other: another state of the same GPUs, in which they must be free, too.
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
        """Return whether the member would be the first with a part of this GPU."""
        return size < WHOLE and self._free[gpus[0]] == WHOLE


def seat_on(carrier: str, gpus: tuple[int, ...], size: int) -> Seat:
    """Return a seat of `size` tenths in all on these GPUs."""
    return Seat(carrier, gpus, min(size, WHOLE))
