"""The outlook (expected runtimes and starts of live jobs) in two rows, which the tick replaces each minute.

One row has the whole outlook, for new forecasts. The other row has only the part for readers, because a read costs by
the size of its row.

The content is compressed JSON, because DynamoDB would store each number as a decimal. Compressed, a thousand jobs take
a fifth of a row.
"""

from itertools import islice
from typing import Any

import msgspec

from job_queue.adapters.dynamodb import Tables, Update
from job_queue.adapters.records.packed_json import LARGEST, pack, to_text, unpack
from job_queue.domain.errors import Unwritable
from job_queue.domain.expectations.outlook import Arrival, Outlook
from job_queue.simulation.forecast import Estimate

OUTLOOK = "outlook"  # the partition, which holds only the outlook
LATEST = "latest"
FOR_READERS = "told"
MOST_JOBS = (3000, 1000, 300, 0)  # limits on its live jobs, tried in this order until the content fits in a row


class OutlookRecord:
    """The rows of the outlook."""

    def __init__(self, tables: Tables, lines_table: str) -> None:
        self._tables = tables
        self._lines_table = lines_table

    def replace(self, outlook: Outlook) -> None:
        """Store an outlook. The last jobs are left out if they do not fit. If two are stored at once, either one stays.

        :raises Unwritable: the content does not fit in a row even without jobs.
        """
        for position, parts in ((LATEST, _all), (FOR_READERS, _for_readers)):
            packed = (pack(to_text(parts(outlook, most))) for most in MOST_JOBS)
            content = next((it for it in packed if len(it) <= LARGEST), None)
            if content is None:
                raise Unwritable("What projects have used takes more than a row may have.")
            self._tables.update(Update(self._lines_table, _key(position), set={"content": content}))

    def for_readers(self) -> Outlook:
        """Return the part for readers of the latest stored outlook; an empty outlook if there is none.

        This part has expected runtimes, starts and idle GPUs.
        """
        return self._stored(FOR_READERS)

    def latest(self) -> Outlook:
        """Return the latest stored outlook; an empty outlook if there is none."""
        return self._stored(LATEST)

    def _stored(self, position: str) -> Outlook:
        row = self._tables.get(self._lines_table, _key(position))
        if row is None:
            return Outlook()
        stored = unpack(row["content"])
        estimates = {it["job"]: it for it in stored["estimates"]}
        return msgspec.convert({**stored, "arrivals": stored.get("came", ()), "estimates": estimates}, Outlook)


def _for_readers(outlook: Outlook, most: int) -> dict[str, Any]:
    return {
        "at": outlook.at,
        "expected": {job: round(it) for job, it in islice(outlook.expected.items(), most)},
        "estimates": [_without_none(it) for it in islice(outlook.estimates.values(), most)],
        "idle": dict(islice(outlook.idle.items(), most)),
        "idle_at": outlook.idle_at,
    }


def _all(outlook: Outlook, most: int) -> dict[str, Any]:
    return {
        **_for_readers(outlook, most),
        "provisioning": outlook.provisioning,
        "expected": dict(islice(outlook.expected.items(), most)),
        "likely": {job: [*map(round, it)] for job, it in islice(outlook.likely.items(), most)},
        "came": [_without_none(it) for it in outlook.arrivals[:most]],
        "past_use": msgspec.to_builtins(outlook.past_use),
        "counted": sorted(outlook.counted),
    }


def _key(position: str) -> dict[str, str]:
    return {"line": OUTLOOK, "position": position}


def _without_none(record: Estimate | Arrival) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(record).items() if value is not None}
