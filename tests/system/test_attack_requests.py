"""Generated requests as owner, other and admin: no 5xx, and no change that docs/reference/iam.md forbids."""

import pytest

from tests.system.generated_requests import Watched, a_cloud, attack

pytestmark = [pytest.mark.attack, pytest.mark.slow, pytest.mark.thorough]

REQUESTS = 300


def test_nobody_does_by_any_request_what_they_may_not() -> None:
    with a_cloud() as cloud:
        statuses = attack(Watched(cloud), REQUESTS)
        assert "Traceback" not in cloud.function_logs()
    assert sum(statuses.values()) >= REQUESTS // 2
    seen = {who: {status for other, status in statuses if other == who} for who in ("owner", "other", "admin")}
    assert seen["other"] >= {200, 400, 403}, "it is let in, and refused what it may not"
    assert seen["owner"] & {200, 202} and seen["admin"] & {200, 202}
