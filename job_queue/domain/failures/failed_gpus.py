"""GPUs that hardware failures name: their UUIDs in a log, and GPUs that several failures of a day name.

SageMaker names no instance and no GPU. A program or its start program may log UUIDs of GPUs (`nvidia-smi -L` prints
them). The log is untrusted: a program can write any UUID. So nothing is excluded because of a UUID, and the result is
advice for people.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from job_queue.domain.failures.classes import FailureClass
from job_queue.domain.failures.log_text import bounded_lines
from job_queue.domain.failures.recognition import sightings
from job_queue.domain.job import FailedAttempt, ReturnedGpu

MOST_GPUS = 16  # UUIDs that are recorded for an attempt
RETURN_SECONDS = 24 * 3600  # time after a hardware failure in which another failure of the same GPU is a return

_HEX = "[0-9a-f]"
_UUID = re.compile(
    rf"(?<![0-9a-z])GPU-({_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}})(?![0-9a-z-])", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class GpuFailure:
    """A hardware failure of an attempt, and the GPUs that its log names."""

    attempt: str  # the submission of the job, and the number of the attempt
    at: float  # epoch seconds of the end of the attempt
    uuids: tuple[str, ...]


def gpus_in(reason: str | None, lines: Sequence[str]) -> tuple[str, ...]:
    """Return the UUIDs of GPUs in the log and the reason of a failed attempt, at most `MOST_GPUS`.

    GPUs in lines about a hardware error come first. Any other logged GPU may be the defective one, too.
    """
    suspects: dict[str, None] = {}
    others: dict[str, None] = {}
    for line in bounded_lines([*(reason or "").split("\n"), *lines]):
        uuids = [f"GPU-{uuid.lower()}" for uuid in _UUID.findall(line)]
        if uuids:
            (suspects if _is_about_hardware(line) else others).update(dict.fromkeys(uuids))
    return tuple({**suspects, **others})[:MOST_GPUS]


def _is_about_hardware(line: str) -> bool:
    return any(sighting.clue.failure_class is FailureClass.HARDWARE for sighting in sightings(line))


def returned_gpus(failure: GpuFailure, earlier: Iterable[GpuFailure]) -> tuple[ReturnedGpu, ...]:
    """Return the GPUs of a hardware failure that other hardware failures named in the day before.

    :param earlier: other failures; those of the same attempt are left out.
    """
    found: dict[str, list[float]] = {}
    for other in {it.attempt: it for it in earlier if it.attempt != failure.attempt}.values():
        if 0 <= failure.at - other.at <= RETURN_SECONDS:
            for uuid in other.uuids:
                found.setdefault(uuid, []).append(other.at)
    known = [uuid for uuid in failure.uuids if uuid in found]
    return tuple(ReturnedGpu(uuid, len(found[uuid]), int(max(found[uuid]))) for uuid in known)


def remedy_for_returned(failed: FailedAttempt) -> str:
    """Return the remedy for a failure whose GPUs have failed before; empty if none has."""
    if not failed.returned_gpus:
        return ""
    first, *others = failed.returned_gpus
    more = f" and {len(others)} more GPUs" if len(others) > 1 else " and another GPU" if others else ""
    return (
        f"{first.uuid}{more} returned within a day after another hardware failure. Open a case with AWS Support, with "
        "the UUIDs and the names of the training jobs: SageMaker can exclude no instance."
    )
