"""The recognition of clues and of Python exceptions in one line of a log."""

import re
from collections.abc import Iterator

from job_queue.domain.failures.clues import Sighting
from job_queue.domain.failures.known_texts import CLUES

# Lines with these texts say nothing about the cause: lists of possible causes, and the program's own arguments.
_NO_EVIDENCE = ("potential root causes", "will operate in serial mode", "sm_training_env=", "sm_user_args=", "sm_hps=")

# An exception of Python at the beginning of a line, or after a prefix of a launcher or of SageMaker.
_EXCEPTION = re.compile(
    r"(?:^|[|\])>\"'] ?|[Ee]rror: |ERROR: )"
    r"(?P<type>(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Exit|NotFound|Invalid|Failure))"
    r"(?::\s?(?P<text>.{0,250})|\s?\"?$|\s{2,40}Traceback \()"
)
_OTHER_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.]{0,100})(?::\s?(?P<text>.{0,250}))?$")
_WRAPPERS = {
    *("ChildFailedError", "CalledProcessError", "ProcessExitedException", "ProcessRaisedException", "SignalException"),
    *("ExecuteUserScriptError", "AlgorithmError", "ClientError", "UnexpectedStatusException"),
    *("RayActorError", "ActorDiedError", "RayTaskError", "WorkerCrashedError", "TrainingFailedError", "SystemExit"),
}


def python_exception(line: str, ends_traceback: bool = False) -> str | None:
    """Return the sentence for an exception of Python that a line reports, or None.

    The line after a traceback names an exception even if the name does not end in Error.
    """
    other = _OTHER_EXCEPTION.match(line) if ends_traceback else None
    for match in [*_EXCEPTION.finditer(line), *([other] if other else [])]:
        name = match["type"].rpartition(".")[2]
        if name not in _WRAPPERS:
            text = (match["text"] or "").strip(" \"'.")
            return f"The program raised {name}: {text}." if text else f"The program raised {name}."
    return None


def sightings(line: str) -> Iterator[Sighting]:
    """Yield the clues in a line. Lines with a text of `_NO_EVIDENCE` have none."""
    lowered = line.lower()
    if any(text in lowered for text in _NO_EVIDENCE):
        return
    for clue in CLUES:
        if sighting := clue.found_in(line, lowered):
            yield sighting
