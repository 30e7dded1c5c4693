"""What attempts that have ended have used, as plans want to know it: from their records, in the order of their ends."""

from collections.abc import Iterable, Mapping

from job_queue.domain.accounting.attempts import AttemptRecord
from job_queue.domain.job import epoch
from job_queue.scheduler import PastUse, Policy, UseLedger, looks_back_to


class PastUseOfAttempts:
    """Adds up records of one policy's attempts. Another policy asks for another one, fed anew.

    An attempt counts from the moment that it had its instances until its end, times its instances, as `smq usage`
    counts; one that never had any counts for nothing. What is remembered is bounded, whatever is added
    (`UseLedger`). A record that is added twice counts twice.

    :param past: what was used before, as of `at` (epoch seconds).
    """

    def __init__(self, policy: Policy, past: Mapping[str, PastUse] | None = None, at: float = 0.0) -> None:
        self._ledger = UseLedger(policy, past, at)

    def add(self, records: Iterable[AttemptRecord]) -> None:
        """More attempts have ended. In whatever order, they count alike, but for those of a budget's past periods."""
        for record in records:
            if record.began is not None:
                self._ledger.enter(record.project, record.owner, record.slots, epoch(record.began), epoch(record.ended))

    def at(self, now: float) -> Mapping[str, PastUse]:
        """A snapshot's `past_use`, by project. `now` is not before the last end that was added."""
        return self._ledger.past_use(now)


def read_from(policy: Policy, now: float) -> float:
    """Attempts that ended before this do not matter any more at `now`; both are seconds since the epoch.

    It is the beginning of the longest period of a budget, or ten half-lives ago, when a thousandth of a use is left.
    """
    return looks_back_to(policy, now)
