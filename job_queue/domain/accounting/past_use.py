"""Past use of projects and owners for plans, summed up from attempt records in the order of their ends."""

from collections.abc import Iterable, Mapping

from job_queue.domain.accounting.attempts import AttemptRecord
from job_queue.domain.job import epoch
from job_queue.scheduler import PastUse, Policy, UseLedger, looks_back_to


class PastUseOfAttempts:
    """The sum of attempt records under one policy. Another policy needs a new sum over all records.

    An attempt counts from the time at which it got its instances until its end, times its instances, like in `smq
    usage`. An attempt that never had instances does not count. Memory is bounded for any number of records
    (`UseLedger`). A record that is added twice counts twice.

    :param past: earlier use, as of `at` (epoch seconds).
    """

    def __init__(self, policy: Policy, past: Mapping[str, PastUse] | None = None, at: float = 0.0) -> None:
        self._ledger = UseLedger(policy, past, at)

    def add(self, records: Iterable[AttemptRecord]) -> None:
        """Add attempts that have ended. The order matters only for attempts in past periods of a budget."""
        for record in records:
            if record.began is not None:
                self._ledger.enter(record.project, record.owner, record.slots, epoch(record.began), epoch(record.ended))

    def at(self, now: float) -> Mapping[str, PastUse]:
        """Return a snapshot's `past_use`, by project. `now` must not be before the last added end."""
        return self._ledger.past_use(now)


def read_from(policy: Policy, now: float) -> float:
    """Return the time before which ended attempts no longer matter at `now`; both are epoch seconds.

    The time is the beginning of the longest period of a budget, or ten half-lives ago, when a thousandth of a use is
    left.
    """
    return looks_back_to(policy, now)
