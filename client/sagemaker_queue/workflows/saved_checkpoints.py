"""List, remove and copy the checkpoints of a job in S3, with the caller's own credentials."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from posixpath import basename
from typing import TYPE_CHECKING, Any

from sagemaker_queue.errors import Conflict, InvalidOption, NotFound, StorageError
from sagemaker_queue.jobs.checkpoint_layouts import (
    DEEPSPEED,
    LATEST,
    LIGHTNING,
    Checkpoint,
    CheckpointFile,
    FoundCheckpoints,
    in_order_of_removal,
    latest_files,
    recognise,
    to_prune,
)
from sagemaker_queue.jobs.formatting import amount
from sagemaker_queue.queue.data_links import S3Address
from sagemaker_queue.workflows.attempt_storage import address_there, last_launched, storage_there
from sagemaker_queue.workflows.results import checkpoints_of
from sagemaker_queue.workflows.submission import storage_of

if TYPE_CHECKING:
    from sagemaker_queue.jobs.packaging.storage import Progress, S3Storage
    from sagemaker_queue.queue.client import QueueClient

REMOVED_AT_ONCE = 1000  # files of one DeleteObjects call, which is S3's limit
_MOST_LATEST = 50  # maximum number of files named latest that are read
_MOST_STEPS = 20  # maximum number of steps in an error message
_LAST = "last.ckpt"  # the file that Lightning loads for ckpt_path="last"

Shown = Callable[[int], "AbstractContextManager[Progress]"]
"""Takes the total in bytes, and returns a context manager that yields the callback for the progress."""


@dataclass(frozen=True)
class JobCheckpoints:
    """The checkpoints of a job. Iteration yields them by folder, then by step."""

    job: str  # the name of the job
    address: str  # the job's checkpoint folder in S3
    checkpoints: tuple[Checkpoint, ...]  # by folder, then by step
    others: tuple[CheckpointFile, ...] = ()  # files that belong to no recognised checkpoint
    storage: S3Storage | None = field(default=None, repr=False, compare=False)  # S3 with credentials for the address

    def __iter__(self) -> Iterator[Checkpoint]:
        """Yield the checkpoints."""
        return iter(self.checkpoints)

    def __len__(self) -> int:
        """Return the number of checkpoints."""
        return len(self.checkpoints)

    @property
    def found(self) -> FoundCheckpoints:
        """The content of the folder in the form of ``checkpoint_layouts``."""
        return FoundCheckpoints(self.checkpoints, self.others)

    def to_json(self) -> dict[str, object]:
        """Return the checkpoints for programs."""
        return {
            "job": self.job,
            "address": self.address,
            "checkpoints": [checkpoint_json(one) for one in self.checkpoints],
            "others": {"files": len(self.others), "bytes": sum(file.size for file in self.others)},
        }


def checkpoint_json(one: Checkpoint) -> dict[str, object]:
    """Return a checkpoint for programs."""
    return {
        "name": one.name,
        "step": one.step,
        "layout": one.layout,
        "files": len(one.files),
        "bytes": one.size,
        "modified": one.modified.isoformat(),
        "complete": not one.incomplete,
        "incomplete": one.incomplete or None,
        "resumes": one.resumes,
    }


def list_checkpoints(queue: QueueClient, name: str) -> JobCheckpoints:
    """Return a job's checkpoints in S3. Raises NotFound if the job has no checkpoint folder."""
    job = queue.job(name)
    place = last_launched(job)
    address = address_there(queue, job, place, checkpoints_of(job).folder)
    storage = storage_there(queue, job, place, address)
    files = list(_files_below(address, storage))
    found = recognise(files)
    if latest := latest_files(found.others)[:_MOST_LATEST]:
        found = recognise(files, {file.path: _text(storage, address / file.path, file.size) for file in latest})
    return JobCheckpoints(job.job, str(address), found.checkpoints, found.others, storage)


def prunable(listed: JobCheckpoints, keep: int, now: datetime | None = None) -> list[Checkpoint]:
    """Return the checkpoints that ``to_prune`` selects for removal. Raises InvalidOption if ``keep`` is less than 1."""
    if keep < 1:
        raise InvalidOption("At least one checkpoint must be kept, from which the job can resume: --keep 1 or more.")
    return to_prune(listed.found, keep, now or datetime.now(timezone.utc))


def remove_checkpoints(
    queue: QueueClient, listed: JobCheckpoints, removed: Iterable[Checkpoint], shown: Shown
) -> tuple[int, int]:
    """Remove checkpoints in the given order, REMOVED_AT_ONCE files in a call; return the numbers of files and bytes."""
    storage, address = listed.storage or storage_of(queue), S3Address.parse(listed.address)
    files = [file for one in removed for file in in_order_of_removal(one.files)]
    with shown(sum(file.size for file in files)) as progress:
        for start in range(0, len(files), REMOVED_AT_ONCE):
            batch = files[start : start + REMOVED_AT_ONCE]
            storage.remove([address / file.path for file in batch])
            progress(sum(file.size for file in batch))
    return len(files), sum(file.size for file in files)


def choose_step(listed: JobCheckpoints, step: int) -> list[Checkpoint]:
    """Return the complete checkpoints of a step; there may be several, in several folders.

    Raises NotFound if the job has no checkpoint of this step, and Conflict if all of them are incomplete.
    """
    chosen = listed.found.with_step(step)
    if not chosen:
        steps = sorted({one.step for one in listed if one.step is not None and not one.incomplete})
        known = ", ".join(map(str, steps[-_MOST_STEPS:])) or "none"
        more = f", and {len(steps) - _MOST_STEPS} earlier ones" if len(steps) > _MOST_STEPS else ""
        raise NotFound(f"{listed.job} has no checkpoint of step {step} in {listed.address}. Its steps: {known}{more}.")
    complete = [one for one in chosen if not one.incomplete]
    if not complete:
        raise Conflict(f"The checkpoint of step {step} of {listed.job} is incomplete: {chosen[0].incomplete}.")
    return complete


def copy_step(
    queue: QueueClient, listed: JobCheckpoints, step: int, request: Mapping[str, Any], shown: Shown
) -> JobCheckpoints:
    """Copy a step into the checkpoint folder of a new job's request, so that the new job resumes from this step.

    DeepSpeed's ``latest`` is created for this step, and so is Lightning's ``last.ckpt`` if the old job has this file. A
    repeated call continues an interrupted copy. Raises StorageError if the folder has other files.
    """
    from sagemaker_queue.jobs.packaging.copying import Copier  # noqa: PLC0415  # boto3
    from sagemaker_queue.jobs.packaging.storage import Stored  # noqa: PLC0415

    source, target = S3Address.parse(listed.address), S3Address.parse(request["CheckpointConfig"]["S3Uri"]).folder
    storage = storage_of(queue)
    storage_of_source = listed.storage or storage
    chosen = choose_step(listed, step)
    copies = [(file.path, file.path) for one in chosen for file in one.files]
    copies += [pair for one in chosen for pair in _copies_as_last(listed, one)]
    latest = {f"{one.folder}/{LATEST}".lstrip("/"): basename(one.name) for one in chosen if one.layout == DEEPSPEED}
    existing = {stored.address: stored for stored in storage.objects(target)}
    unexpected = existing.keys() - {target / path for path in (*latest, *(to for _, to in copies))}
    if unexpected:
        raise StorageError(
            f"{target} has {amount(len(unexpected), 'other file')} already, such as {min(map(str, unexpected))}:"
            " give the new job another --name."
        )
    stored = {it.address.key: it for it in storage_of_source.objects(source)}
    copier = Copier(storage_of_source, storage)
    sizes = {file.path: file.size for one in chosen for file in one.files}
    with shown(sum(sizes[path] for path, _ in copies)) as progress:
        for path, to in copies:
            original = stored.get((source / path).key)
            if original is None:
                raise StorageError(f"{source / path} was removed meanwhile: run the command again.")
            arrived = existing.get(target / to)
            if arrived is None or not copier.has_arrived(original, arrived):
                copier.copy(Stored(original.address, original.size, original.etag), target / to, progress)
            else:
                progress(sizes[path])
    with tempfile.TemporaryDirectory() as folder:
        for path, text in latest.items():
            file = Path(folder) / LATEST
            file.write_text(text)
            storage.put(file, target / path)
    return JobCheckpoints(request["TrainingJobName"], str(target), tuple(chosen))


def _copies_as_last(listed: JobCheckpoints, one: Checkpoint) -> list[tuple[str, str]]:
    """Return source and target paths that copy a Lightning checkpoint to ``last.ckpt``, if the job has this file."""
    last = f"{one.folder}/{_LAST}".lstrip("/")
    if one.layout != LIGHTNING or not any(other.name == last for other in listed):
        return []
    return [(file.path, f"{last}{file.path[len(one.name) :]}") for file in one.files]


def _files_below(address: S3Address, storage: S3Storage) -> Iterator[CheckpointFile]:
    for stored in storage.objects(address):
        path = stored.address.key[len(address.key) :]
        if path and not path.endswith("/"):
            modified = stored.modified or datetime.now(timezone.utc)
            yield CheckpointFile(path, stored.size, modified)


def _text(storage: S3Storage, address: S3Address, size: int) -> str:
    from sagemaker_queue.jobs.packaging.storage import Stored  # noqa: PLC0415  # boto3

    with storage.reader(Stored(address, size)) as content:
        return content.read().decode(errors="replace")
