"""The classes of failures: their meaning, their default action, and the remedy."""

from collections.abc import Mapping
from dataclasses import dataclass

from job_queue.scheduler import FailureAction, FailureClass

__all__ = ["DEFAULT_ACTIONS", "MEANINGS", "REMEDIES", "Failure", "FailureAction", "FailureClass"]


@dataclass(frozen=True, slots=True)
class Failure:
    """The classified end of an attempt."""

    failure_class: FailureClass
    sentence: str  # for people: one line of printable characters, at most MAX_SENTENCE
    remedy: str
    evidence: tuple[str, ...] = ()  # the texts that decided, most important first; printable and bounded


DEFAULT_ACTIONS: Mapping[FailureClass, FailureAction] = {
    FailureClass.USER_ERROR: FailureAction.FAIL,
    FailureClass.GPU_MEMORY: FailureAction.FAIL,
    FailureClass.MEMORY: FailureAction.RETRY,
    FailureClass.DISK_FULL: FailureAction.FAIL,
    FailureClass.COMMUNICATION: FailureAction.RETRY_FREE,
    FailureClass.HARDWARE: FailureAction.RETRY_FREE,
    FailureClass.MISSING_DATA: FailureAction.FAIL,
    FailureClass.ACCESS_DENIED: FailureAction.FAIL,
    FailureClass.INTERNAL: FailureAction.RETRY_FREE,
    FailureClass.CAPACITY: FailureAction.RETRY_FREE,
    FailureClass.QUOTA: FailureAction.RETRY_FREE,
    FailureClass.TIME_LIMIT: FailureAction.FAIL,
    FailureClass.STOPPED: FailureAction.FAIL,
    FailureClass.UNKNOWN: FailureAction.RETRY,
}

MEANINGS: Mapping[FailureClass, str] = {
    FailureClass.USER_ERROR: "The program or its arguments are wrong.",
    FailureClass.GPU_MEMORY: "The memory of a GPU is used up.",
    FailureClass.MEMORY: "The memory of an instance is used up.",
    FailureClass.DISK_FULL: "A disk of an instance is full.",
    FailureClass.COMMUNICATION: "The processes lost contact with each other or with a service.",
    FailureClass.HARDWARE: "A GPU or another device of an instance is defective.",
    FailureClass.MISSING_DATA: "The data that the job reads does not exist.",
    FailureClass.ACCESS_DENIED: "A permission or a login is missing.",
    FailureClass.INTERNAL: "SageMaker itself failed.",
    FailureClass.CAPACITY: "AWS had no instances of this type.",
    FailureClass.QUOTA: "A quota of the account or the rate of a service is exceeded.",
    FailureClass.TIME_LIMIT: "The job reached its time limit.",
    FailureClass.STOPPED: "The training job was stopped.",
    FailureClass.UNKNOWN: "The cause is not known.",
}

REMEDIES: Mapping[FailureClass, str] = {
    FailureClass.USER_ERROR: "Correct the program or its arguments, and submit the job again.",
    FailureClass.GPU_MEMORY: "Use a smaller batch, gradient checkpointing or sharding, or GPUs with more memory.",
    FailureClass.MEMORY: "Use an instance type with more memory, or fewer data loader workers.",
    FailureClass.DISK_FULL: "Raise VolumeSizeInGB, or keep fewer checkpoints on the instance.",
    FailureClass.COMMUNICATION: "Resume from the checkpoint; if this repeats, compare the logs of the ranks.",
    FailureClass.HARDWARE: "Retry on other instances; if this repeats, open a case with AWS Support.",
    FailureClass.MISSING_DATA: "Check the address, the channel and the region of the data.",
    FailureClass.ACCESS_DENIED: "Give the job's role or token the missing permission.",
    FailureClass.INTERNAL: "Retry; if this repeats, open a case with AWS Support.",
    FailureClass.CAPACITY: "Wait, or allow another pool or instance type.",
    FailureClass.QUOTA: "Request a larger quota in Service Quotas, or wait until other jobs end.",
    FailureClass.TIME_LIMIT: "Raise MaxRuntimeInSeconds, or save checkpoints and resume.",
    FailureClass.STOPPED: "Submit the job again if it is still needed.",
    FailureClass.UNKNOWN: "Read the last log lines of the rank that failed first.",
}
