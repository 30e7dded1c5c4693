"""How an attempt ended, as SageMaker reports it."""

from dataclasses import dataclass

from job_queue.domain.accounting.attempts import EndReport

# How SageMaker's FailureReason begins when the job is not the cause.
_LACK_OF_CAPACITY = ("CapacityError", "InsufficientCapacityError")  # the second where a plan has none
_ERROR_OF_SAGEMAKER = "InternalServerError"
_OUT_OF_TIME = {
    "MaxRuntimeExceeded": "it reached its MaxRuntimeInSeconds",
    "MaxWaitTimeExceeded": "it reached its MaxWaitTimeInSeconds",
}


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended."""

    status: str  # Completed, Failed or Stopped; any other: it was deleted before its end was known
    secondary: str = ""
    failure: str | None = None
    starved: bool = False  # stopped because its instances did not come in time
    cut_off_by: str | None = None  # the training plan that has ended with it
    report: EndReport = EndReport()

    @property
    def is_known(self) -> bool:
        """Whether SageMaker has said how it ended."""
        return self.status in ("Completed", "Failed", "Stopped")

    @property
    def lacks_capacity(self) -> bool:
        """Whether SageMaker had no instances for it."""
        return self.starved or (self.failure or "").startswith(_LACK_OF_CAPACITY)

    @property
    def is_error_of_sagemaker(self) -> bool:
        """Whether SageMaker itself failed."""
        return (self.failure or "").startswith(_ERROR_OF_SAGEMAKER)

    @property
    def out_of_time(self) -> str | None:
        """Which limit of its own it has reached, as people read it."""
        return _OUT_OF_TIME.get(self.secondary)
