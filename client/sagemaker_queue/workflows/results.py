"""Download a job's results or checkpoints from S3 to a folder of this machine, and unpack SageMaker's archives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sagemaker_queue.errors import NotFound, QueueError, StorageError
from sagemaker_queue.jobs.formatting import amount, file_size
from sagemaker_queue.queue.data_links import S3Address
from sagemaker_queue.workflows.attempt_storage import address_there, last_launched, storage_there

if TYPE_CHECKING:
    from api_contract.models import JobDetail
    from sagemaker_queue.jobs.packaging.storage import Progress
    from sagemaker_queue.queue.client import QueueClient

ARCHIVES = {"model.tar.gz": "model", "output.tar.gz": "data"}  # SageMaker's archive -> folder for its content


@dataclass(frozen=True)
class Fetched:
    """Files that were downloaded to a folder."""

    folder: Path  # on this machine
    files: int  # number of files
    size: int  # bytes of all files
    refused: tuple[tuple[str, str], ...] = ()  # files that were not downloaded, each with the reason
    nothing: str = ""  # a sentence that is shown if there are no files

    def __str__(self) -> str:
        """Return a line to show to users."""
        if not self.files and self.nothing:
            return self.nothing
        return f"{amount(self.files, 'file')}, {file_size(self.size)}, now in {self.folder}"

    def __fspath__(self) -> str:
        """Return the folder, for ``open``, ``os.path`` and ``Path``."""
        return str(self.folder)


def fetch_results(
    queue: QueueClient,
    name: str,
    to: Path | None,
    *,
    checkpoints: bool,
    shown: Callable[[int], AbstractContextManager[Progress]],
    max_size: float | None = None,
    max_files: int | None = None,
) -> Fetched:
    """Download the results of a job's last attempt, or its checkpoints.

    ``shown`` is called with the total in bytes, and returns a context manager that yields the callback for progress.
    ``max_size`` (GB) and ``max_files`` bound the unpacked content of all archives together.

    Raises NotFound if there is nothing to download, and StorageError if the folder exists and is not empty, or if an
    archive exceeds a bound. Raises QueueError if results of an unfinished job are requested.
    """
    from sagemaker_queue.jobs.packaging.archive_reader import check_disk  # noqa: PLC0415
    from sagemaker_queue.jobs.packaging.download import fetch_all  # noqa: PLC0415  # boto3

    job = queue.job(name)
    place = last_launched(job)
    source = address_there(queue, job, place, checkpoints_of(job) if checkpoints else results_of(job))
    target = to or Path(f"{job.job}-checkpoints" if checkpoints else job.job)
    if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
        raise StorageError(f"{target} exists already, and no file is overwritten: name another folder.")
    storage = storage_there(queue, job, place, source)
    found = [stored for stored in storage.objects(source) if not stored.address.key.endswith("/")]
    if not found:
        raise NotFound(
            f"{name} has saved no checkpoint at {source} yet."
            if checkpoints
            else f"{name} has left nothing at {source}.{_where_checkpoints_are(job)}"
        )
    check_disk(target, sum(stored.size for stored in found))
    with shown(sum(stored.size for stored in found)) as progress:
        done = fetch_all(found, source.folder.key, target, storage, progress)
    refused = [(str(stored.address), why) for stored, why in done.refused]
    count, size = len(done.fetched), sum(stored.size for stored in done.fetched)
    if not checkpoints:
        more, more_size, not_unpacked = _unpack_all(target, max_size, max_files)
        count, size, refused = count + more, size + more_size, refused + not_unpacked
    return Fetched(target, count, size, tuple(refused), "" if checkpoints else _no_results(job))


def _no_results(job: JobDetail) -> str:
    """Return a sentence about a job without results."""
    return f"{job.job} has left no model and no other output.{_where_checkpoints_are(job)}"


def _where_checkpoints_are(job: JobDetail) -> str:
    return f" Its checkpoints: smq get {job.job} --checkpoints" if "CheckpointConfig" in job.request else ""


def results_of(job: JobDetail) -> S3Address:
    """Return the S3 folder with the results of a job's last attempt, in the bucket that the request names.

    Raises QueueError while the job has not finished, and NotFound if no attempt ran.
    """
    if not job.finished:
        raise QueueError(
            f"{job.job} is {job.state}: its results are uploaded at its end. Wait for that: smq wait {job.job}; or "
            f"download its checkpoints: smq get {job.job} --checkpoints"
        )
    ran = [attempt.training_job_name for attempt in job.attempts if attempt.training_job_name]
    place = job.request.get("OutputDataConfig", {}).get("S3OutputPath")
    if not ran or not place:
        raise NotFound(f"{job.job} was {job.state} before it ran, and has left nothing.")
    return S3Address.parse(place) / ran[-1] / "output"


def checkpoints_of(job: JobDetail) -> S3Address:
    """Return the S3 folder in which a job saves its checkpoints, in the bucket that the request names.

    Raises NotFound if the job saves none.
    """
    place = job.request.get("CheckpointConfig", {}).get("S3Uri")
    if not place:
        raise NotFound(f"{job.job} saves no checkpoints (smq submit --checkpoint).")
    return S3Address.parse(place)


def _unpack_all(folder: Path, max_size: float | None, max_files: int | None) -> tuple[int, int, list[tuple[str, str]]]:
    """Replace the archives in a folder by their content; an archive with a refused member stays.

    Returns the change in the number of files, the change in bytes, and the refused members.
    """
    from sagemaker_queue.jobs.packaging.archive_reader import MOST_FILES, ArchiveBounds  # noqa: PLC0415
    from sagemaker_queue.jobs.packaging.unpacking import unpack  # noqa: PLC0415

    largest = None if max_size is None else int(max_size * 10**9)
    bounds = ArchiveBounds(largest, MOST_FILES if max_files is None else max_files)
    count, size, refused = 0, 0, []
    for name, inside in ARCHIVES.items():
        archive = folder / name
        if archive.is_file() and not (folder / inside).exists():
            done = unpack(archive, folder / inside, bounds)
            count, size = count + done.files, size + done.size
            refused += [(f"{archive}: {member}", why) for member, why in done.refused]
            if not done.refused:
                count, size = count - 1, size - archive.stat().st_size
                archive.unlink()
    return count, size, refused
