"""The outlook as it was worked out last: one row, which the tick replaces each minute while jobs wait.

It is JSON, packed: DynamoDB would take each of its numbers for a decimal, and a thousand jobs for a fifth of a row.
"""

import json
import zlib
from base64 import b85decode, b85encode
from dataclasses import asdict
from itertools import islice
from typing import Any

from job_queue.adapters.dynamodb import Put, Tables
from job_queue.domain.errors import Unwritable
from job_queue.domain.expectations.outlook import Came, Outlook
from job_queue.scheduler import PastUse, Reason
from job_queue.simulation.forecast import Doubt, Estimate

OUTLOOK = "outlook"  # its partition, which holds nothing else
LATEST = "latest"
MOST_JOBS = (3000, 1000, 300, 0)  # live jobs that are told of: as many as fit
LARGEST = 390_000  # bytes; DynamoDB takes 400 KB


class OutlookRecord:
    """Reads and replaces the row."""

    def __init__(self, tables: Tables, lines_table: str) -> None:
        self._tables = tables
        self._lines_table = lines_table

    def replace(self, outlook: Outlook) -> None:
        """Store an outlook. Of two at the same time either is right. What does not fit is left out, the last jobs."""
        content = next((it for it in (_packed(outlook, most) for most in MOST_JOBS) if len(it) <= LARGEST), None)
        if content is None:
            raise Unwritable("What projects have used takes more than a row may have.")
        self._tables.transact([Put(self._lines_table, {"line": OUTLOOK, "position": LATEST, "content": content})])

    def latest(self) -> Outlook:
        """The one that was stored last; an empty one if there is none."""
        row = self._tables.get(self._lines_table, {"line": OUTLOOK, "position": LATEST})
        if row is None:
            return Outlook()
        told = json.loads(zlib.decompress(b85decode(row["content"])))
        return Outlook(
            told["at"],
            told["expected"],
            {job: tuple(likely) for job, likely in told["likely"].items()},
            tuple(Came(**{**it, "demand": tuple(it["demand"])}) for it in told["came"]),
            told["provisioning"],
            {project: PastUse(**it) for project, it in told["past_use"].items()},
            frozenset(told["counted"]),
            {it["job"]: _estimate(it) for it in told["estimates"]},
            told.get("idle", {}),  # an older version has written it
            told.get("idle_at", 0.0),
        )


def _packed(outlook: Outlook, most: int) -> str:
    told = {
        "at": outlook.at,
        "provisioning": outlook.provisioning,
        "expected": dict(islice(outlook.expected.items(), most)),
        "likely": {job: [*map(round, it)] for job, it in islice(outlook.likely.items(), most)},
        "came": [_without_none(asdict(it)) for it in outlook.came[:most]],
        "past_use": {project: asdict(it) for project, it in outlook.past_use.items()},
        "counted": sorted(outlook.counted),
        "estimates": [_without_none(asdict(it)) for it in islice(outlook.estimates.values(), most)],
        "idle": dict(islice(outlook.idle.items(), most)),
        "idle_at": outlook.idle_at,
    }
    return b85encode(zlib.compress(json.dumps(told, separators=(",", ":")).encode())).decode()


def _without_none(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _estimate(told: dict[str, Any]) -> Estimate:
    doubt, reason = told.get("doubt"), told.get("reason")
    return Estimate(
        told["job"],
        told.get("start"),
        told.get("not_after"),
        Doubt(doubt) if doubt else None,
        Reason(reason) if reason else None,
    )
