"""Check a job's request, and upload its code to S3, before the job is submitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sagemaker_queue.errors import Conflict, Forbidden, InvalidRequest, NameTaken, QueueError, TooLarge
from sagemaker_queue.jobs.packaging.job_options import with_times_of

if TYPE_CHECKING:
    from api_contract.models import PlanAnswer, Submission
    from sagemaker_queue.jobs.packaging.code import Code
    from sagemaker_queue.jobs.packaging.storage import S3Storage
    from sagemaker_queue.queue.client import QueueClient
    from sagemaker_queue.queue.data_links import S3Address

_PATIENCE = 5.0  # seconds to wait for the queue's answer before an upload


def upload_code(
    queue: QueueClient,
    request: Mapping[str, Any],
    code: Code,
    storage: S3Storage,
    *,
    preflight: bool,
    before: Callable[[], None] = lambda: None,
) -> bool:
    """Check a request and upload its code; return False if S3 had the same code already.

    A project can have a bucket in each region. If the code's bucket is one of these buckets, all of them get the code,
    so that the job can run in each region. The answer to a dry run names the buckets. The dry run is needed even if S3
    has the code already, because the project may have got another bucket since.

    ``before`` is called before an upload, and not if S3 has the code already. Raises InvalidRequest and other errors of
    the checks.
    """
    if preflight:
        check_script(request, code)
        check_storage(queue, request, upload_folder=code.address)
    planned = check_acceptance(queue, request)
    buckets = set(planned.bucket_by_region.values()) if planned else set()
    further = sorted(buckets - {code.address.bucket}) if code.address.bucket in buckets else []
    return code.upload(storage, further_buckets=further, before=before)


def submit_request(
    queue: QueueClient, request: Mapping[str, Any], *, preflight: bool, relative_times: Sequence[str] = ()
) -> Submission:
    """Submit a request. If a job with the same name differs only in relative times, return that job.

    ``relative_times`` names the tags with such times, which differ in each call. Raises NameTaken if more differs.
    """
    try:
        return queue.submit(request, preflight=preflight)
    except NameTaken:
        if not relative_times:
            raise
        try:
            stored = queue.job(request["TrainingJobName"]).request
        except QueueError:
            stored = {}
        times = with_times_of(_tags(request), _tags(stored), relative_times)
        if times == _tags(request):
            raise
    tags = [{"Key": name, "Value": value} for name, value in times.items()]
    return queue.submit({**request, "Tags": tags}, preflight=preflight)


def _tags(request: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}


def check_script(request: Mapping[str, Any], code: Code) -> None:
    """Raise InvalidRequest if the command of a request runs a script that is not in its code."""
    from sagemaker_queue.jobs.preflight import PreflightIssue, refuse  # noqa: PLC0415  # boto3
    from sagemaker_queue.jobs.script_check import missing_script  # noqa: PLC0415

    if problem := missing_script(request, code.archive):
        refuse([PreflightIssue("HyperParameters.command", problem)])


def check_storage(queue: QueueClient, request: Mapping[str, Any], upload_folder: S3Address | None = None) -> None:
    """Raise InvalidRequest if data or a bucket of the request is missing, or if a bucket is in another region.

    ``upload_folder`` does not need to exist.
    """
    from sagemaker_queue.jobs.preflight import check, refuse  # noqa: PLC0415  # boto3

    folder = str(upload_folder.folder) if upload_folder else None
    refuse(check(request, queue.aws_session(), upload_folder=folder, config=queue.config))


def check_acceptance(queue: QueueClient, request: Mapping[str, Any]) -> PlanAnswer | None:
    """Return the dry run of a request, or raise the error with which the queue would refuse the request.

    After other errors, such as no answer within _PATIENCE, return None, because the submission would report them.
    """
    try:
        return queue.impatient(_PATIENCE).plan(request)
    except QueueError as error:
        if error.errors and isinstance(error, (InvalidRequest, Forbidden, Conflict, TooLarge)):
            raise
        return None


def storage_of(queue: QueueClient) -> S3Storage:
    """Return the storage in S3, with the same credentials as the client's requests to the queue."""
    from sagemaker_queue.jobs.packaging.storage import S3Storage  # noqa: PLC0415  # boto3

    return S3Storage.of(queue.config, queue.aws_session())
