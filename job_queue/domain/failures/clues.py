"""The texts by which a failure is recognised, each with its class and its sentence."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from job_queue.domain.failures.classes import FailureClass

_GPU_MEMORY = FailureClass.GPU_MEMORY
_MEMORY = FailureClass.MEMORY
_DISK = FailureClass.DISK_FULL
_LOST = FailureClass.COMMUNICATION
_HARDWARE = FailureClass.HARDWARE
_MISSING = FailureClass.MISSING_DATA
_DENIED = FailureClass.ACCESS_DENIED
_USER = FailureClass.USER_ERROR


@dataclass(frozen=True, slots=True)
class Clue:
    """A text that points to a class.

    A line has the clue if it contains ``marker`` in any case and the pattern matches a part of it. Patterns have
    bounded repetitions only, so that the time is proportional to the length of the line.
    """

    failure_class: FailureClass
    marker: str  # lower case
    sentence: str = ""  # with the names of the pattern's groups in braces; empty: the meaning of the class
    pattern: re.Pattern[str] | None = None
    is_symptom: bool = False  # also appears if another failure came first

    def found_in(self, line: str, lowered: str) -> "Sighting | None":
        """Return the sighting of this clue in a line, or None."""
        if self.marker not in lowered:
            return None
        if self.pattern is None:
            return Sighting(self, self.sentence)
        match = self.pattern.search(line)
        if match is None:
            return None
        names = {name: (value or "").strip(" .,:;'\"") for name, value in match.groupdict().items()}
        return Sighting(self, self.sentence.format_map(names) if names else self.sentence)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A clue that was found, and its sentence with the names from the line."""

    clue: Clue
    sentence: str


def _clue(
    failure_class: FailureClass, marker: str, sentence: str = "", pattern: str | None = None, *, symptom: bool = False
) -> Clue:
    compiled = None if pattern is None else re.compile(pattern, re.IGNORECASE)
    return Clue(failure_class, marker, sentence, compiled, symptom)


# The reasons that SageMaker gives by itself. Programs cannot write them: they count in a reason only, at its beginning.
REASONS = (
    _clue(FailureClass.CAPACITY, "capacityerror", pattern=r"^\s?(Insufficient)?Capacity(Error|Exception)"),
    _clue(FailureClass.INTERNAL, "internalservererror", pattern=r"^\s?InternalServerError"),
    _clue(FailureClass.QUOTA, "resourcelimitexceeded", pattern=r"^[^\"]{0,200}ResourceLimitExceeded"),
    _clue(FailureClass.TIME_LIMIT, "maxruntimeexceeded", pattern=r"^\s?MaxRuntimeExceeded"),
    _clue(FailureClass.TIME_LIMIT, "maxwaittimeexceeded", pattern=r"^\s?MaxWaitTimeExceeded"),
)

CLUES = (
    # Hardware. The numbers of Xid are those of defects; 13, 31, 43 and 45 are mostly errors of programs.
    _clue(
        _HARDWARE,
        "xid",
        "A GPU reported a hardware error (Xid {number}).",
        r"\bXid\b.{0,60}?\b(?P<number>48|6[1-4]|74|79|8[0-9]|9[245]|109|11[09]|12[0-9]|13[0-9]|14[0-9]|15[0-9])\b",
    ),
    _clue(_HARDWARE, "fallen off the bus", "A GPU has fallen off the bus."),
    _clue(
        _HARDWARE,
        "uncorrectable",
        "A GPU reported an uncorrectable memory error (ECC).",
        r"uncorrectable.{0,60}\b(ecc|error|nvlink)",
    ),
    _clue(_HARDWARE, "double bit", "A GPU reported an uncorrectable memory error (ECC).", r"double bit (ecc )?error"),
    _clue(_HARDWARE, "gpu is lost", "A GPU was lost."),
    _clue(_HARDWARE, "unable to determine the device handle", "The driver does not reach a GPU."),
    _clue(_HARDWARE, "failed to initialize nvml", "The driver does not reach the GPUs (NVML)."),
    _clue(
        _HARDWARE,
        "system not yet initialized",
        "The GPUs' NVSwitch fabric is not ready.",
        r"error 802|system not yet initialized",
    ),
    _clue(_HARDWARE, "unknown error", "The driver does not reach the GPUs.", r"cuda(?:error)?.{0,30}unknown error"),
    # Memory of a GPU.
    _clue(
        _GPU_MEMORY,
        "cuda out of memory",
        "A GPU has no memory left: it asked for {size}.",
        r"CUDA out of memory.{0,20}Tried to allocate (?P<size>[\d.]{1,12} ?[KMGT]i?B)",
    ),
    _clue(_GPU_MEMORY, "cuda out of memory"),
    _clue(_GPU_MEMORY, "outofmemoryerror", pattern=r"(cuda|torch)[\w.]{0,30}OutOfMemoryError"),
    _clue(
        _GPU_MEMORY, "out of memory", pattern=r"(cuda|cublas|cudnn|nccl|cumem|hip|gpu)\w{0,20}\b.{0,80}out of memory"
    ),
    _clue(_GPU_MEMORY, "cuda_error_out_of_memory"),
    _clue(_GPU_MEMORY, "alloc_failed", pattern=r"CU(BLAS|DNN|SOLVER|FFT)_STATUS_ALLOC_FAILED"),
    _clue(_GPU_MEMORY, "oom when allocating tensor", pattern=r"OOM when allocating tensor.{0,200}gpu"),
    _clue(_GPU_MEMORY, "resource_exhausted", pattern=r"RESOURCE_EXHAUSTED: (out of memory|failed to allocate)"),
    # Disk.
    _clue(
        _DISK,
        "no space left on device",
        "A disk is full: no space left for {file}.",
        r"No space left on device: ?['\"](?P<file>[^'\"]{1,200})",
    ),
    _clue(_DISK, "no space left on device"),
    _clue(_DISK, "disk quota exceeded"),
    # Permissions.
    _clue(_DENIED, "accessdenied", "Access to S3 or another service was denied."),
    _clue(_DENIED, "access denied", "Access was denied."),
    _clue(
        _DENIED,
        "is not authorized to perform",
        "The role may not call {action}.",
        r"is not authorized to perform:? (?P<action>[\w:*-]{3,100})",
    ),
    _clue(
        _DENIED,
        "forbidden",
        "Access to S3 or another service was denied (403).",
        r"\b403\b.{0,40}forbidden|forbidden.{0,40}\b403\b",
    ),
    _clue(_DENIED, "unauthorized", "A login is missing or wrong (401).", r"\b401\b.{0,40}unauthorized"),
    _clue(_DENIED, "gated repo", "The token has no access to a gated repository of Hugging Face."),
    _clue(_DENIED, "expiredtoken", "The credentials have expired."),
    _clue(_DENIED, "unable to locate credentials", "The container has no AWS credentials."),
    # Data.
    _clue(
        _MISSING,
        "no s3 objects found",
        "S3 has no objects at {address}.",
        r"No S3 objects found under S3 URL ['\"]?(?P<address>s3://[^\s'\"]{1,300})",
    ),
    _clue(_MISSING, "nosuchkey", "An object in S3 does not exist."),
    _clue(_MISSING, "nosuchbucket", "A bucket in S3 does not exist."),
    _clue(_MISSING, "not found", "S3 has no such object (404).", r"HeadObject operation: Not Found"),
    _clue(
        _MISSING,
        "no such file",
        "The input {file} does not exist.",
        r"No such file or directory.{0,3}['\"](?P<file>/opt/ml/input/data/[^'\"]{1,200})",
    ),
    _clue(_MISSING, "valid model identifier", "The model does not exist on the Hugging Face Hub or on the instance."),
    # Memory of the instance.
    _clue(
        _MEMORY,
        "is killed by signal",
        "A data loader worker was killed, most likely because memory ran out.",
        r"DataLoader worker .{0,40}is killed by signal: (Killed|Bus error)",
    ),
    _clue(_MEMORY, "insufficient shared memory", "The shared memory (/dev/shm) is full."),
    _clue(_MEMORY, "cannot allocate memory"),
    _clue(_MEMORY, "defaultcpuallocator", pattern=r"DefaultCPUAllocator: (can't allocate memory|not enough memory)"),
    _clue(_MEMORY, "memoryerror", pattern=r"\bMemoryError\b"),
    _clue(_MEMORY, "oom-kill"),
    _clue(_MEMORY, "out of memory: kill"),
    _clue(_MEMORY, "std::bad_alloc"),
    _clue(_MEMORY, "instance type with more memory"),
    _clue(_MEMORY, "signal 9", symptom=True, pattern=r"Signal 9 \(SIGKILL\)|signal 9 \(Killed\)"),
    _clue(_MEMORY, "exitcode", symptom=True, pattern=r"exitcode\s{0,3}: -9\b"),
    # Errors of the program. Other Python exceptions are found by their form.
    _clue(
        _USER,
        "modulenotfounderror",
        "The module {name} is not installed.",
        r"No module named ['\"]?(?P<name>[\w.-]{1,100})",
    ),
    _clue(
        _USER,
        "cannot import name",
        "{name} cannot be imported from {origin}.",
        r"cannot import name ['\"]?(?P<name>\w{1,100})['\"]? from ['\"]?(?P<origin>[\w.-]{1,100})",
    ),
    _clue(
        _USER,
        "no such file",
        "The file {file} does not exist.",
        r"(FileNotFoundError|can't open file).{0,60}['\"](?P<file>[^'\"]{1,200})['\"]",
    ),
    _clue(
        _USER,
        "error: unrecognized arguments",
        "The program does not know the argument {name}.",
        r"error: unrecognized arguments: (?P<name>[^\s]{1,100})",
    ),
    _clue(
        _USER,
        "the following arguments are required",
        "The argument {name} is missing.",
        r"the following arguments are required: (?P<name>.{1,100})",
    ),
    _clue(_USER, "error: argument", "An argument is wrong: {name}.", r"error: argument (?P<name>.{1,150})"),
    _clue(_USER, "device-side assert", "An index or a label is out of range in a GPU kernel (device-side assert)."),
    _clue(
        _USER, "command not found", "The command {name} does not exist.", r"(?P<name>[\w./-]{1,100}): command not found"
    ),
    # Communication. All of these appear also if a peer ended for another reason.
    _clue(
        _LOST, "watchdog caught collective operation timeout", "A collective operation (NCCL) timed out.", symptom=True
    ),
    _clue(_LOST, "ncclremoteerror", "A peer was lost (ncclRemoteError).", symptom=True),
    _clue(_LOST, "ncclsystemerror", "A network call of NCCL failed (ncclSystemError).", symptom=True),
    _clue(_LOST, "ncclinternalerror", "NCCL failed (ncclInternalError).", symptom=True),
    _clue(
        _LOST,
        "nccl",
        "NCCL reported an error.",
        r"NCCL (error|WARN.{0,80}(failed|closed|timed? ?out|refused))|NCCL.{0,60}(abort|timed out|timeout)",
        symptom=True,
    ),
    _clue(_LOST, "distnetworkerror", symptom=True),
    _clue(_LOST, "diststoreerror", symptom=True),
    _clue(_LOST, "connection closed by peer", symptom=True),
    _clue(_LOST, "connection reset by peer", symptom=True),
    _clue(_LOST, "connection refused", symptom=True),
    _clue(_LOST, "broken pipe", symptom=True),
    _clue(
        _LOST,
        "rendezvous",
        symptom=True,
        pattern=r"Rendezvous(Connection|Timeout|Closed)Error|rendezvous.{0,40}tim(ed|e) ?out",
    ),
    _clue(_LOST, "socket timeout", symptom=True),
    _clue(
        _LOST,
        "timed out",
        symptom=True,
        pattern=r"(gloo|store|barrier|recv|connect|read).{0,80}timed out|timed out after \d{1,9} ?(ms|milli|sec)",
    ),
    _clue(
        _LOST,
        "efa",
        symptom=True,
        pattern=r"\bEFA\b.{0,80}(error|fail|timed? ?out|unreachable)|efa_?\w{0,20} (error|fail)",
    ),
    _clue(
        _LOST,
        "connectionerror",
        symptom=True,
        pattern=r"\b(requests\.exceptions\.|aiohttp\.|urllib3\.)?Connect(ion|Timeout)?Error\b",
    ),
    _clue(_LOST, "max retries exceeded", symptom=True),
)

# An exception of Python at the beginning of a line, or quoted: SageMaker quotes the last line of the log.
_EXCEPTION = re.compile(
    r"(?:^|ErrorMessage \"|[\"'] |: |\s)"
    r"(?P<type>(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Exit|Interrupt))"
    r"(?::\s?(?P<text>.{0,250})|\s?$)"
)
_WRAPPERS = {
    *("ChildFailedError", "CalledProcessError", "ProcessExitedException", "ProcessRaisedException", "SignalException"),
    *("ExecuteUserScriptError", "AlgorithmError", "ClientError"),
    *("DistBackendError", "RayTaskError", "TrainingFailedError", "SystemExit"),
}


def python_exception(line: str) -> str | None:
    """Return the sentence for an exception of Python that a line reports, or None."""
    if "Err" not in line and "Exc" not in line:
        return None
    for match in _EXCEPTION.finditer(line):
        name = match["type"].rpartition(".")[2]
        if name not in _WRAPPERS:
            text = (match["text"] or "").strip(" \"'")
            return f"The program raised {name}: {text}." if text else f"The program raised {name}."
    return None


def sightings(line: str) -> Iterator[Sighting]:
    """Yield the clues in a line."""
    lowered = line.lower()
    for clue in CLUES:
        if sighting := clue.found_in(line, lowered):
            yield sighting
