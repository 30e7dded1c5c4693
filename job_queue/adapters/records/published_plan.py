"""The published plan in one row, which is replaced after a cycle whose decisions differ.

The fencing token keeps an older cycle from replacing a newer plan. The content is compressed JSON, like the outlook's.
Holds refer to job names by number. Equal lists of jobs (ahead, blockers) are stored once.
"""

import hashlib
from dataclasses import dataclass
from itertools import islice
from typing import Any

from job_queue.adapters.condition_expressions import is_published_before
from job_queue.adapters.dynamodb import Tables, Update
from job_queue.adapters.records.packed_json import LARGEST, NOT_READABLE, compress, from_compressed, to_text
from job_queue.adapters.telemetry import log
from job_queue.domain.errors import Refused, Unwritable
from job_queue.domain.expectations.published_plan import PublishedPlan
from job_queue.scheduler import Hold, WaitReason

PUBLISHED = "published-plan"  # the partition, which has no other rows
POSITION = "latest"  # position of the only row
MOST_HOLDS = (3000, 1000, 300, 0)  # maximum numbers of holds in the row; each is tried in turn until the content fits
FORMAT = 1  # format of the content; a row of another version of the queue may have another format


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan in its stored form.

    :param digest: hash of the plan without its time: equal if readers would see the same plan.
    """

    at: int  # milliseconds since the epoch
    content: str
    digest: str


class PublishedPlanRecord:
    """The row of the published plan."""

    def __init__(self, tables: Tables, lines_table: str) -> None:
        self._tables = tables
        self._lines_table = lines_table

    def replace(self, plan: StoredPlan, fencing_token: int) -> None:
        """Store a plan, unless the row has the plan of a later cycle."""
        changes = {"content": plan.content, "at": plan.at, "token": fencing_token}
        try:
            # An update costs half as much as a transaction, and this row depends on no other row.
            self._tables.update(Update(self._lines_table, _key(), set=changes, when=is_published_before(fencing_token)))
        except Refused:
            log.info("a later plan is published", token=fencing_token)

    def latest(self) -> PublishedPlan:
        """Return the latest stored plan; an empty plan if there is none that can be read."""
        row = self._tables.get(self._lines_table, _key())
        if row is None:
            return PublishedPlan()
        try:
            return _unpacked(row)
        except NOT_READABLE as error:
            log.error("published plan not readable", exc_info=error)
            return PublishedPlan()


def to_stored(plan: PublishedPlan) -> StoredPlan:
    """Return a plan in its stored form, with at most 3,000 holds, or fewer if these do not fit in a row.

    :raises Unwritable: the plan does not fit even without holds.
    """
    for most in MOST_HOLDS:
        text = to_text(_content(plan, most))
        content = compress(text)
        if len(content) <= LARGEST:
            return StoredPlan(int(plan.at * 1000), content, hashlib.sha256(text.encode()).hexdigest())
    raise Unwritable("The published plan does not fit in a row.")


def _content(plan: PublishedPlan, most: int) -> dict[str, Any]:
    holds = list(islice(plan.holds, most))
    names: dict[str, int] = {}
    lists: dict[tuple[str, ...], int] = {}

    def number(name: str) -> int:
        return names.setdefault(name, len(names))

    def list_number(members: tuple[str, ...]) -> int:
        return lists.setdefault(members, len(lists))

    rows = [
        [
            number(it.job),
            plan.versions[it.job],
            it.reason.value,
            it.message,
            list_number(it.ahead),
            list_number(it.blockers),
        ]
        for it in holds
    ]
    return {
        "format": FORMAT,
        "holds": rows,
        "lists": [[number(name) for name in members] for members in lists],
        "names": list(names),
        "starting": sorted(plan.starting),
        "shares": {pool: dict(shares) for pool, shares in plan.shares.items()},
        "window": plan.window,
        "cut": sorted(plan.truncated_queues),
        "unrecorded": sorted(plan.unrecorded),
        "left_out": len(holds) < len(plan.holds),
    }


def _unpacked(row: dict[str, Any]) -> PublishedPlan:
    content = from_compressed(row["content"])
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']} in place of {FORMAT}")
    names = content["names"]
    lists = [tuple(names[number] for number in members) for members in content["lists"]]
    holds = tuple(
        Hold(names[job], WaitReason(reason), message, lists[ahead], lists[blockers])
        for job, _, reason, message, ahead, blockers in content["holds"]
    )
    return PublishedPlan(
        at=row["at"] / 1000,
        holds=holds,
        versions={names[job]: version for job, version, *_ in content["holds"]},
        starting=frozenset(content["starting"]),
        shares=content["shares"],
        window=content["window"],
        truncated_queues=frozenset(content["cut"]),
        unrecorded=frozenset(content["unrecorded"]),
        left_out=content["left_out"],
    )


def _key() -> dict[str, str]:
    return {"line": PUBLISHED, "position": POSITION}
