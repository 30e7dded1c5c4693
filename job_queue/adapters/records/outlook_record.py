"""The outlook (expected runtimes and starts of live jobs) in two rows, which the tick replaces each minute.

One row has the whole outlook, for new forecasts. The other row has only the part for readers, because the cost
of a read depends on the size of the row. A third row has past estimates, from which the tick learns their errors.

The content is compressed JSON, because DynamoDB would store each number as a decimal. Compressed, a thousand jobs take
a fifth of a row.
"""

from itertools import islice
from typing import Any

import msgspec

from job_queue.adapters.dynamodb import Tables, Update
from job_queue.adapters.items import prepare_conversion
from job_queue.adapters.records.packed_json import LARGEST, NOT_READABLE, compress, from_compressed, to_text
from job_queue.adapters.telemetry import log
from job_queue.domain.errors import Unwritable
from job_queue.domain.expectations.outlook import Arrival, Outlook
from job_queue.domain.expectations.past_estimates import PastEstimates
from job_queue.scheduler import WaitReason
from job_queue.simulation.forecast import Doubt, Estimate

OUTLOOK = "outlook"  # the partition, which has no other rows
LATEST = "latest"
FOR_READERS = "told"
PAST_ESTIMATES = "past-estimates"
SCORE_DIGITS = 3  # digits after the decimal point
MOST_JOBS = (3000, 1000, 300, 0)  # maximum numbers of jobs in a row; each is tried in turn until the content fits

prepare_conversion(Outlook, PastEstimates)


class OutlookRecord:
    """The rows of the outlook."""

    def __init__(self, tables: Tables, lines_table: str) -> None:
        self._tables = tables
        self._lines_table = lines_table

    def replace(self, outlook: Outlook) -> None:
        """Store an outlook. The last jobs are left out if they do not fit. Either of two concurrent writes may remain.

        :raises Unwritable: the content does not fit in a row even without jobs.
        """
        for position, parts in ((LATEST, _all), (FOR_READERS, _for_readers)):
            packed = (compress(to_text(parts(outlook, most))) for most in MOST_JOBS)
            content = next((it for it in packed if len(it) <= LARGEST), None)
            if content is None:
                raise Unwritable("The use of the projects does not fit in a row.")
            self._tables.update(Update(self._lines_table, _key(position), set={"content": content}))

    def for_readers(self) -> Outlook:
        """Return the latest stored outlook, but only its part for readers; an empty outlook if no row is readable.

        The part has expected runtimes, estimated starts, idle GPUs, unsaved jobs and the usual errors of estimates.
        """
        return self._stored(FOR_READERS)

    def latest(self) -> Outlook:
        """Return the latest stored outlook; an empty outlook if there is no readable row."""
        return self._stored(LATEST)

    def past_estimates(self) -> PastEstimates:
        """Return the stored past estimates; empty past estimates if there is no row or the row is not readable."""
        row = self._tables.get(self._lines_table, _key(PAST_ESTIMATES))
        try:
            return PastEstimates() if row is None else msgspec.convert(from_compressed(row["content"]), PastEstimates)
        except (*NOT_READABLE, msgspec.ValidationError):
            return PastEstimates()  # an error for an unreadable row would prevent all further estimates

    def replace_past_estimates(self, past: PastEstimates) -> None:
        """Store past estimates. Either of two concurrent writes may remain."""
        looks = [
            {
                "at": look.at,
                "scores": [round(it, SCORE_DIGITS) for it in look.scores],
                "waiting": {submission: round(wait) for submission, wait in look.waiting.items()},
            }
            for look in past.looks
        ]
        content = compress(to_text({"looks": looks}))
        self._tables.update(Update(self._lines_table, _key(PAST_ESTIMATES), set={"content": content}))

    def _stored(self, position: str) -> Outlook:
        row = self._tables.get(self._lines_table, _key(position))
        if row is None:
            return Outlook()
        try:
            stored = from_compressed(row["content"])
            estimates = {it["job"]: _known(it) for it in stored["estimates"]}
            return msgspec.convert({**stored, "arrivals": stored.get("came", ()), "estimates": estimates}, Outlook)
        except (*NOT_READABLE, msgspec.ValidationError) as error:
            log.error("outlook not readable", row=position, why=repr(error))
            return Outlook()  # an error would keep the tick from replacing the row


def _known(estimate: dict[str, Any]) -> dict[str, Any]:
    """Return a stored estimate, with None for a doubt or a reason that this version of the queue does not know."""
    foreign = {
        name for name, kind in (("doubt", Doubt), ("reason", WaitReason)) if estimate.get(name) not in (None, *kind)
    }
    return {**estimate, **dict.fromkeys(foreign)}


def _for_readers(outlook: Outlook, most: int) -> dict[str, Any]:
    return {
        "at": outlook.at,
        "expected": {job: round(it) for job, it in islice(outlook.expected.items(), most)},
        "estimates": [_estimate(it) for it in islice(outlook.estimates.values(), most)],
        "idle": dict(islice(outlook.idle.items(), most)),
        "idle_at": outlook.idle_at,
        "saved_work": {"unsaved": dict(islice(outlook.saved_work.unsaved.items(), most))},
        "errors": msgspec.to_builtins(outlook.errors),
    }


def _all(outlook: Outlook, most: int) -> dict[str, Any]:
    return {
        **_for_readers(outlook, most),
        "saved_work": {
            "unsaved": dict(islice(outlook.saved_work.unsaved.items(), most)),
            "settled": sorted(outlook.saved_work.settled)[:most],
        },
        "provisioning": outlook.provisioning,
        "expected": dict(islice(outlook.expected.items(), most)),
        "likely": {job: [*map(round, it)] for job, it in islice(outlook.likely.items(), most)},
        "came": [_without_none(it) for it in outlook.arrivals[:most]],
        "past_use": msgspec.to_builtins(outlook.past_use),
        "counted": sorted(outlook.counted),
    }


def _key(position: str) -> dict[str, str]:
    return {"line": OUTLOOK, "position": position}


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {name: round(it) if isinstance(it, float) else it for name, it in _without_none(estimate).items()}


def _without_none(record: Estimate | Arrival) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(record).items() if value is not None}
