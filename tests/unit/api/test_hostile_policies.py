"""Policies that nobody should apply: refused in time, with a sentence, and the one that holds stays."""

import copy
import json
from functools import partial
from itertools import count as numbers
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job_queue.scheduler.documents.policy_schema import (
    MAX_PRIORITY,
    MOST_INSTANCES,
    MOST_POOLS,
    MOST_QUOTA_HOLDERS,
    WIDEST_WINDOW,
)
from job_queue.services.dry_run import ADVICE_SECONDS
from job_queue.services.policy_service import MAX_POLICY_BYTES
from tests.counting import counted
from tests.jobs import NOW, OWNER, P5, a_body, a_request
from tests.queue_harness import Harness
from tests.unit.queue_api import ADMIN, Api, Governed, a_policy

HUGE = 10**99


def deep(levels: int) -> Any:
    document: Any = 1
    for _ in range(levels):
        document = [document]
    return document


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (None, "mapping"),
        ([], "mapping"),
        ("x" * 1000, "mapping"),
        (a_policy(pools=[{"name": "p5", "capacity": HUGE}]), "capacity of p5"),
        (a_policy(projects=[{"name": "a" * 300_000}]), "at most"),
        (a_policy(settings=deep(20)), "mapping"),
        (deep(40), "mapping"),
        (deep(60), "nested too deeply"),
        (deep(900), "nested too deeply"),
        (a_policy(projects=[{"name": f"p{n}"} for n in range(9000)]), "departments and projects"),
    ],
    ids=lambda value: repr(value)[:60] if isinstance(value, str) else "",
)
def test_a_policy_of_nonsense_is_refused_in_time_and_the_old_one_stays(document: object, words: str) -> None:
    api = Governed()
    before = copy.deepcopy(api.queue.tables.rows)
    (status, answer), calls = counted(lambda: api.put(document, version=1, force=True))
    assert calls < 1_000_000
    assert status in {400, 413}
    assert words in answer["message"]
    assert len(answer["message"]) < 5000
    if status != 413 and "deeply" not in words:
        field = answer["field"]
        assert field == "policy" or (field.startswith("policy.") and answer["message"].startswith(f"{field}: "))
    assert api.queue.tables.rows == before
    assert api.call("GET", "/policy")[1]["policy"] == a_policy()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"version": 1}, "policy"),
        ({"policy": a_policy()}, "version"),
        ({"policy": a_policy(), "version": -1}, "version"),
        ({"policy": a_policy(), "version": 1.0}, "version"),
        ({"policy": a_policy(), "version": HUGE}, "version"),
        ({"policy": a_policy(), "version": None}, "version"),
        ({"policy": a_policy(), "version": 1, "force": "yes"}, "force"),
        ({"policy": a_policy(), "version": 1, "Force": True}, "Force"),
        ({"policy": a_policy(), "version": 1, "x" * 500: True}, None),
    ],
    ids=lambda value: repr(value)[-30:],
)
def test_what_goes_with_a_policy_is_checked_too(body: dict[str, Any], field: str | None) -> None:
    api = Governed()
    status, answer = api.call("PUT", "/policy", json.dumps(body), caller=ADMIN)
    assert status == 400
    assert field is None or answer["field"] == field
    assert api.call("GET", "/policy")[1]["version"] == 1


def test_who_is_no_admin_applies_no_policy_good_or_bad() -> None:
    api = Governed()
    before = copy.deepcopy(api.queue.tables.rows)
    for caller in (OWNER, ADMIN.upper(), ADMIN.replace("role/", "user/"), "*", ADMIN[1:]):
        for document in (a_policy(), None, deep(40)):
            assert api.put(document, version=1, caller=caller, force=True)[0] == 403, caller
    assert api.queue.tables.rows == before


def test_a_policy_that_is_too_large_is_refused_before_it_is_read() -> None:
    status, answer = Governed().put({"x" * 100: ["y" * MAX_POLICY_BYTES]}, version=1)
    assert (status, answer["code"]) == (413, "TooLarge")


# --- the largest that is allowed ---------------------------------------------------------------------


class SlowMachine(Harness):
    """A queue that has made few of its advices when their time is over."""

    def __init__(self) -> None:
        super().__init__()
        self._looks = numbers()

    def clock(self) -> float:
        return NOW + next(self._looks) * ADVICE_SECONDS / 4


@pytest.mark.thorough
def test_with_the_largest_policy_the_api_still_answers_in_time() -> None:
    pools = [{"name": f"p{n}", "instance_type": P5, "capacity": 10} for n in range(MOST_POOLS)]
    departments = [{"name": f"d{n}"} for n in range(MOST_QUOTA_HOLDERS // 2)]
    projects = [{"name": f"t{n}", "department": f"d{n}"} for n in range(MOST_QUOTA_HOLDERS // 2)]
    api = Api(queue=SlowMachine())
    document = {"pools": pools, "departments": departments, "projects": projects}
    body = json.dumps({"policy": document, "version": 0})
    wide = json.dumps(a_request("wide", instances=20, Tags=[{"Key": "project", "Value": "t7"}]))
    for method, path, content, status in [
        ("PUT", "/policy", body, 200),
        ("POST", "/plan", wide, 200),
        ("GET", "/queue", None, 200),
    ]:
        (answered, _), calls = counted(partial(api.call, method, path, content, caller=ADMIN))
        assert answered == status, path
        assert calls < 10_000_000, path


extreme = st.sampled_from([0, 1, 4, MOST_INSTANCES])
slots = st.dictionaries(st.just("p5"), extreme)
budgets = st.fixed_dictionaries(
    {"instance_hours": st.sampled_from([5e-324, 1, 1e9]), "period": st.sampled_from(["day", "week", "month", 1, 366])},
    optional={"kind": st.sampled_from(["hard", "soft"])},
)


@settings(max_examples=60, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "pools": st.fixed_dictionaries(
                {"name": st.just("p5"), "capacity": extreme},
                optional={"instance_type": st.just(P5), "min_runtime": st.sampled_from([0, 1e-300, 3e8])},
            ).map(lambda it: [it]),
            "projects": st.lists(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "quota": slots,
                        "limit": slots,
                        "over_quota": st.sampled_from([0, 5e-324, 1e-300, 0.1, MOST_INSTANCES, "none"]),
                        "priority_ceiling": st.sampled_from([-MAX_PRIORITY, 0, MAX_PRIORITY]),
                        "budget": budgets,
                        "owner_budget": budgets,
                        "owners_share": st.booleans(),
                    },
                ),
                min_size=1,
                max_size=3,
            ).map(lambda them: [{"name": ["default", "b", "c"][place], **it} for place, it in enumerate(them)]),
        },
        optional={
            "settings": st.fixed_dictionaries(
                {},
                optional={
                    "window": st.sampled_from([1, WIDEST_WINDOW]),
                    "aging": st.sampled_from([1, 3e8, None]),
                    "order": st.sampled_from(["submission", "shortest"]),
                    "stretch": st.sampled_from([0.1, 10, 10_000]),
                    "backfill": st.sampled_from(["bounded", "predicted"]),
                    "patience": st.sampled_from([0, 1e-300, 3e8, None]),
                    "usage_half_life": st.sampled_from([60, 3e8, None]),
                    "idle_after": st.sampled_from([0, 3e8, None]),
                    "allow_oversubscription": st.just(True),
                },
            )
        },
    )
)
def test_within_the_bounds_nothing_overflows(document: dict[str, Any]) -> None:
    api = Api(slots=2)
    status, _ = api.call("PUT", "/policy", json.dumps({"policy": document, "version": 0}), caller=ADMIN)
    assert status in {200, 400}
    ceiling = document["projects"][0].get("priority_ceiling", 0)
    for name, count in [("one", 1), ("five", 5), ("most", 10_000)]:
        body = a_body(name, min(0, ceiling), instances=count)
        assert api.call("POST", "/add-job", body, preflight="false")[0] == 202
    for path in ("/queue", "/jobs", "/jobs/one", "/jobs/five", "/jobs/most"):
        assert api.call("GET", path)[0] == 200
