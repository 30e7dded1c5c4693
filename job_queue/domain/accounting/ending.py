"""Classify the end of an attempt as SageMaker reports it: lack of capacity, error of SageMaker, out of time."""

from dataclasses import dataclass

from job_queue.domain.accounting.attempts import EndReport
from job_queue.domain.job import FailedAttempt, Job

# Prefixes of SageMaker's FailureReason when the cause is not the job.
# InsufficientCapacityError means that a training plan has no instances.
_LACK_OF_CAPACITY = ("CapacityError", "InsufficientCapacityError")
_ERROR_OF_SAGEMAKER = "InternalServerError"
_OUT_OF_TIME = {
    "MaxRuntimeExceeded": "it reached its MaxRuntimeInSeconds",
    "MaxWaitTimeExceeded": "it reached its MaxWaitTimeInSeconds",
}


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of an attempt."""

    status: str  # Completed, Failed or Stopped; any other value: the attempt was deleted before its end was known
    secondary: str = ""
    failure: str | None = None
    starved: bool = False  # stopped because its instances were not available in time
    cut_off_by: str | None = None  # training plan whose end took the instances
    report: EndReport = EndReport()
    # the failure, classified by log and rules; None: if the attempt failed, only SageMaker's reason classifies it
    failed: FailedAttempt | None = None

    @property
    def is_known(self) -> bool:
        """Whether SageMaker has reported how the attempt ended."""
        return self.status in ("Completed", "Failed", "Stopped")

    @property
    def lacks_capacity(self) -> bool:
        """Whether SageMaker had no instances for the attempt."""
        return self.starved or (self.failure or "").startswith(_LACK_OF_CAPACITY)

    @property
    def is_error_of_sagemaker(self) -> bool:
        """Whether SageMaker itself failed."""
        return (self.failure or "").startswith(_ERROR_OF_SAGEMAKER)

    def must_be_classified(self, job: Job) -> bool:
        """Return whether the end is a failure whose class decides whether the job is tried again."""
        failed = self.status == "Failed" and not self.lacks_capacity
        return failed and job.carries is None and not job.cancelled and not job.is_interrupted

    @property
    def out_of_time(self) -> str | None:
        """The time limit that the attempt has reached, as a clause for people; None if it reached none."""
        return _OUT_OF_TIME.get(self.secondary)
