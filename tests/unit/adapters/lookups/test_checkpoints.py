"""The newest object under an address in S3, in a bounded number of calls."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from job_queue.adapters.lookups.checkpoint_lookup import PAGES, SECONDS, NewestObject
from job_queue.domain.errors import Unavailable
from tests.jobs import NOW


class S3:
    """A bucket with these objects, which it lists by their keys."""

    def __init__(self, written: dict[str, float], page: int = 1000, slow: float = 0) -> None:
        self._written = dict(sorted(written.items()))
        self._page = page
        self._slow = slow
        self.now = 0.0
        self.calls = 0

    def list_objects_v2(self, **request: Any) -> dict[str, Any]:
        self.calls += 1
        self.now += self._slow
        assert request["Bucket"] == "team-models"
        found = [(key, at) for key, at in self._written.items() if key.startswith(request["Prefix"])]
        first = int(request.get("ContinuationToken", "0"))
        page, more = found[first : first + self._page], len(found) > first + self._page
        contents = [{"Key": key, "LastModified": datetime.fromtimestamp(at, UTC)} for key, at in page]
        following = {"NextContinuationToken": str(first + self._page)} if more else {}
        return {"IsTruncated": more, **({"Contents": contents} if contents else {}), **following}

    def newest(self, address: str, *buckets: str) -> float | None:
        return self._lookup(*buckets)(address)

    def written_since(self, address: str, since: float, *buckets: str) -> bool | None:
        return self._lookup(*buckets).written_since(address, since)

    def _lookup(self, *buckets: str) -> NewestObject:
        return NewestObject(cast(Any, self), buckets or ("team-*",), lambda: self.now)


def test_the_newest_counts_wherever_it_stands() -> None:
    s3 = S3({"run/epoch-10": NOW + 3, "run/epoch-2": NOW + 1, "run/epoch-9": NOW + 2, "run2/later": NOW + 9}, page=1)
    assert s3.newest("s3://team-models/run") == s3.newest("s3://team-models/run/") == NOW + 3


def test_where_nothing_is_or_nobody_may_look_there_is_no_time() -> None:
    s3 = S3({"other/x": NOW})
    assert s3.newest("s3://team-models/run") is None
    assert s3.newest("s3://secrets/run") is None
    assert s3.newest("s3://team-models/run", "team-data") is None
    assert s3.calls == 1


def test_of_very_many_objects_the_first_pages_are_looked_at() -> None:
    s3 = S3({f"run/{number:05}": NOW + number for number in range(20)}, page=2)
    assert s3.newest("s3://team-models/run") == NOW + 2 * PAGES - 1
    assert s3.calls == PAGES


def test_nothing_was_written_only_if_all_objects_were_read() -> None:
    written = {f"run/{number:05}": NOW for number in range(2 * PAGES)}
    run = "s3://team-models/run"
    assert S3(written, page=2).written_since(run, NOW) is True
    assert S3(written, page=2).written_since(run, NOW + 1) is False
    assert S3({}).written_since(run, NOW) is False
    assert S3({**written, "run/last": NOW + 2}, page=2).written_since(run, NOW + 1) is None
    assert S3(written).written_since(run, NOW, "team-data") is None


def test_a_slow_answer_is_the_last() -> None:
    s3 = S3({f"run/{number}": NOW for number in range(9)}, page=1, slow=SECONDS + 1)
    s3.newest("s3://team-models/run")
    assert s3.calls == 1


def test_without_an_answer_it_says_so() -> None:
    class Refusing:
        def list_objects_v2(self, **_: Any) -> None:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "ListObjectsV2")

    with pytest.raises(Unavailable, match="AccessDenied"):
        NewestObject(cast(Any, Refusing()), ("*",), lambda: 0)("s3://bucket/run")
