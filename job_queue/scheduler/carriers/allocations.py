"""Place members on the GPUs of one instance: on whole GPUs, or on a part of one GPU in tenths."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

WHOLE = 10  # tenths of GPUs in one whole GPU


@dataclass(frozen=True, slots=True)
class GpuAllocation:
    """The GPUs of a carrier's instance that a member has."""

    carrier: str
    gpus: tuple[int, ...]  # indexes of the GPUs, from 0
    tenths: int = WHOLE  # tenths of each GPU

    @property
    def size(self) -> int:
        """Tenths of GPUs, summed over all GPUs."""
        return len(self.gpus) * self.tenths


@dataclass(frozen=True, slots=True)
class GpuAssignment:
    """The assignment of a waiting member to GPUs of a running carrier."""

    job: str
    allocation: GpuAllocation


@dataclass(frozen=True, slots=True)
class Launch:
    """The launch of a carrier for waiting members."""

    members: tuple[str, ...]  # in waiting order; the carrier has the first member's place in the queue
    slots: Mapping[str, int]
    starts_before: int = 0  # number of the plan's starts that come before the launch


class FreeGpus:
    """Free tenths of each GPU of an instance.

    A part of a GPU is taken from the GPU with the fewest free tenths that suffice, so that whole GPUs stay free. Whole
    GPUs are taken in the order of their indexes.
    """

    def __init__(self, gpus: int, taken: Iterable[GpuAllocation] = ()) -> None:
        self._free = [WHOLE] * gpus
        self.free = gpus * WHOLE  # tenths of GPUs that no member has
        for allocation in taken:
            self.add(allocation)

    def copy(self) -> "FreeGpus":
        """Return a copy that can be changed independently."""
        other = FreeGpus(0)
        other._free, other.free = list(self._free), self.free
        return other

    def add(self, allocation: GpuAllocation) -> None:
        """Take the GPUs of a member's allocation."""
        self.free -= allocation.size
        for gpu in allocation.gpus:
            self._free[gpu] -= allocation.tenths

    def remove(self, allocation: GpuAllocation) -> None:
        """Free the GPUs of a member's allocation."""
        self.free += allocation.size
        for gpu in allocation.gpus:
            self._free[gpu] += allocation.tenths

    def find_gpus(self, size: int, other: "FreeGpus | None" = None) -> tuple[int, ...] | None:
        """Return the GPUs for a member that needs `size` tenths, or None if there is no place.

        :param other: another state of the same GPUs; the place must be free in both states.
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

    def would_split_whole_gpu(self, gpus: tuple[int, ...], size: int) -> bool:
        """Return whether a member of `size` tenths needs a part of a GPU, and would be the first member on this GPU."""
        return size < WHOLE and self._free[gpus[0]] == WHOLE


def allocation_on(carrier: str, gpus: tuple[int, ...], size: int) -> GpuAllocation:
    """Return an allocation of `size` tenths in all on these GPUs."""
    return GpuAllocation(carrier, gpus, min(size, WHOLE))
