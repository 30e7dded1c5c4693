"""What may go wrong with a call to AWS, as its caller and AWS see it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Killed(BaseException):
    """The process of an invocation ends here; no line of it runs any more."""


class Fault(StrEnum):
    """The fate of one call."""

    NONE = "ok"
    THROTTLED = "throttled"  # refused by AWS, at once
    CAPACITY = "no capacity"  # refused by SageMaker for lack of capacity
    QUOTA = "no quota"  # refused by SageMaker for a quota of the account
    DENIED = "denied"  # refused by SageMaker for want of permission
    UNSENT = "lost on its way"  # it never takes effect, and the caller waits in vain
    UNANSWERED = "answer lost"  # it takes effect, and the caller waits in vain
    LATE = "late"  # it takes effect later, and the caller waits in vain
    TWICE = "twice"  # the SDK tries again: it takes effect now, and a second time later
    SLOW = "slow"  # it takes effect, and much of the invocation's time is gone
    KILLED_BEFORE = "killed before"
    KILLED_AFTER = "killed after"
    KILLED_LATE = "killed while it is under way"  # it takes effect later
    UNREACHABLE = "region unreachable"  # refused on its way: it never takes effect, and the caller knows


NOT_AT_ONCE = (Fault.THROTTLED, Fault.UNSENT, Fault.LATE, Fault.TWICE)  # a write takes effect never, later or again
_KILLED = (Fault.KILLED_BEFORE, Fault.KILLED_AFTER, Fault.KILLED_LATE)
_READ = (Fault.THROTTLED, Fault.UNSENT, Fault.SLOW, Fault.KILLED_BEFORE)
_WRITE = (Fault.THROTTLED, Fault.UNSENT, Fault.UNANSWERED, Fault.LATE, Fault.SLOW, *_KILLED)

FAULTS: dict[str, tuple[Fault, ...]] = {
    "get": _READ,
    "query": _READ,
    "describe": _READ,
    "list": _READ,
    "log": _READ,
    "transact": _WRITE,  # its request token keeps the SDK from doing it twice
    "update": (*_WRITE, Fault.TWICE),
    "stop": (*_WRITE, Fault.TWICE),
    "release": (*_WRITE, Fault.TWICE, Fault.DENIED),
    "sleep": (Fault.KILLED_BEFORE,),
    "assign": (*_WRITE, Fault.DENIED),  # tried once as well
    "create": (*_WRITE, Fault.CAPACITY, Fault.QUOTA, Fault.DENIED),  # tried once: the SDK's retries are off
}
"""The faults that each kind of call can meet."""

PARTITIONS: dict[str, dict[str, tuple[Fault, ...]]] = {
    "refuses": dict.fromkeys(FAULTS, (Fault.UNREACHABLE,)),
    "swallows": {
        kind: (Fault.UNSENT, Fault.UNANSWERED, Fault.LATE) if Fault.LATE in faults else (Fault.UNSENT,)
        for kind, faults in FAULTS.items()
    },
    "throttles": {"create": (Fault.THROTTLED,)},
}
"""The faults that each kind of call to a broken region meets, by the way in which the region is broken."""

SIGNATURE_SECONDS = 16 * 60  # how long a call that was sent may still take effect
WAIT_SECONDS = {"create": 8.0, "assign": 8.0}  # until the caller of an unanswered call gives up
USUAL_WAIT_SECONDS = 5.0
SLOW_SECONDS = 12.0


@dataclass(frozen=True, slots=True)
class Call:
    """A call to AWS that a process is about to make."""

    kind: str
    words: str
    effect: Callable[[], Any]
    unanswered: Callable[[], Any]  # what its caller gets if no answer comes
    refused: Callable[[Fault], Any]  # ... and if AWS refuses it
    site: str = ""  # the key of the site that the call is sent to; empty: the home site

    def meets(self, other: "Call") -> bool:
        """Whether it matters which of the two takes effect first."""
        if "list" in (self.kind, other.kind):
            return {self.kind, other.kind} & {"create", "stop", "release"} != set()
        if {self.kind, other.kind} == {"create", "release"}:
            return True
        mine, others = self.words.split(", "), other.words.split(", ")
        return any(
            one == another or one.startswith(f"{another}/") or another.startswith(f"{one}/")
            for one in mine
            for another in others
        )

    @property
    def wait(self) -> float:
        """Seconds until its caller gives up."""
        return WAIT_SECONDS.get(self.kind, USUAL_WAIT_SECONDS)


@dataclass(frozen=True, slots=True)
class LateCall:
    """A call under way whose caller is gone or has given up."""

    call: Call
    expires_at: float  # it takes effect before this time, or never
