"""The history of the policy, with author and time. The latest versions are kept, in partitions that no cycle reads.

A version has a small row for the list and a large one with the document, so that the list is one small query.
"""

from job_queue.adapters.dynamodb import Delete, Put, Tables, Write
from job_queue.adapters.items import STORED_POLICY, Form
from job_queue.domain.policy import PolicyVersion, StoredPolicy

HISTORY = "policy-history"
DOCUMENTS = "policy-documents"
VERSIONS_KEPT = 50  # each at most 200 KB


class PolicyVersions:
    """The history of the policy: reads, and the writes that add to it."""

    def __init__(self, tables: Tables, lines_table: str) -> None:
        self._tables = tables
        self._lines_table = lines_table

    def versions(self) -> list[PolicyVersion]:
        """Return the kept versions, the latest first, without their documents."""
        items = self._tables.query(self._lines_table, HISTORY)
        return [_PAST.record(item) for item in reversed(items)]

    def policy(self, version: int) -> StoredPolicy | None:
        """Return a version with its document; None if the version is not kept any more."""
        key = {"line": DOCUMENTS, "position": _position(version)}
        item = self._tables.get(self._lines_table, key)
        return STORED_POLICY.record({**item, "version": version}) if item else None

    def writes(self, new: StoredPolicy, restored: int | None) -> list[Write]:
        """Return the writes that add a new version and delete the version that is older by `VERSIONS_KEPT`, if any.

        :param restored: the earlier version that the new version restores; None: a new document.
        """
        gone = _position(new.version - VERSIONS_KEPT)
        writes: list[Write] = [Delete(self._lines_table, {"line": line, "position": gone}) for line in _LINES]
        past = PolicyVersion(new.version, new.applied_by, new.applied_at, restored)
        document = STORED_POLICY.item(new)
        del document["version"]  # the key has the version
        position = _position(new.version)
        return [
            *writes,
            Put(self._lines_table, {"line": HISTORY, "position": position, **_PAST.item(past)}),
            Put(self._lines_table, {"line": DOCUMENTS, "position": position, **document}),
        ]


_LINES = (HISTORY, DOCUMENTS)
_PAST = Form(PolicyVersion)


def _position(version: int) -> str:
    return f"{max(version, 0):010d}"
