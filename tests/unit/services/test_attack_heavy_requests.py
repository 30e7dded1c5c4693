"""Floods of dry runs and previews: two are computed at once at most, and a preview that cannot end in time stops."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from job_queue.adapters.records.heavy_requests import PERMIT_SECONDS
from job_queue.domain.errors import TakesTooLong
from job_queue.services.preview import PreviewService
from tests.counting import WorkClock
from tests.jobs import OWNER, P5, a_body
from tests.queue_harness import Harness
from tests.unit.queue_api import P4, STRANGER, Api, Governed, a_policy
from tests.waiting import PATIENCE

pytestmark = pytest.mark.attack

OTHERS = [f"{STRANGER}{number}" for number in range(5)]
HOUR = 3600


def preview(api: Api, caller: str) -> tuple[int, Any]:
    return api.call("POST", "/policy/preview", '{"capacity": {"default": 3}}', caller)


def plan(api: Api, caller: str) -> tuple[int, Any]:
    return api.call("POST", "/plan", a_body("mine"), caller)


def while_it_is_computed(api: Api, request: Callable[[Api, str], tuple[int, Any]], then: Callable[[], None]) -> int:
    """Make a request, and do something while the queue computes it. Return the request's status."""
    read = api.queue.repository.metadata
    done: list[bool] = []

    def read_then() -> Any:
        if not done:
            done.append(True)
            then()
        return read()

    api.queue.repository.metadata = read_then  # type: ignore[method-assign]
    status, _ = request(api, OWNER)
    api.queue.repository.metadata = read  # type: ignore[method-assign]
    assert done
    return status


def test_one_preview_is_computed_at_a_time_and_the_others_are_refused_at_once() -> None:
    api = Api()
    refused: list[Any] = []

    def flood() -> None:
        refused.extend(preview(api, caller) for caller in OTHERS)
        assert plan(api, OTHERS[0])[0] == 200, "previews leave one slot to dry runs"

    assert while_it_is_computed(api, preview, flood) == 200
    for status, answer in refused:
        assert (status, answer["code"]) == (429, "Busy")
        assert answer["remedy"] == "Try again in a few seconds."
    assert preview(api, STRANGER)[0] == 200, "the slot is free again"


def test_two_dry_runs_are_computed_at_a_time_one_for_each_caller() -> None:
    api = Api()
    statuses: list[int] = []

    def third() -> None:
        statuses.extend(plan(api, caller)[0] for caller in OTHERS)

    def second() -> None:
        statuses.append(plan(api, OWNER)[0])
        assert while_it_is_computed_by(api, STRANGER, third) == 200

    assert while_it_is_computed(api, plan, second) == 200
    assert statuses == [429] * 6


def test_a_caller_has_one_of_the_slots() -> None:
    """Found by an attack: one caller held both, with a preview and a dry run."""
    api = Api()
    statuses: list[int] = []

    def more() -> None:
        statuses.extend((plan(api, OWNER)[0], preview(api, OWNER)[0], plan(api, STRANGER)[0]))

    assert while_it_is_computed(api, preview, more) == 200
    assert while_it_is_computed(api, plan, lambda: statuses.append(preview(api, OWNER)[0])) == 200
    assert statuses == [429, 429, 200, 429]


def while_it_is_computed_by(api: Api, caller: str, then: Callable[[], None]) -> int:
    return while_it_is_computed(api, lambda api, _: plan(api, caller), then)


def test_a_permit_whose_invocation_was_killed_is_free_when_none_can_run_any_more() -> None:
    api = Api()
    permit = api.queue.repository.heavy_requests.permit(STRANGER, api.queue.now, ("0",))
    permit.__enter__()
    api.queue.now += PERMIT_SECONDS
    assert preview(api, OWNER)[0] == 429
    api.queue.now += 1
    assert preview(api, OWNER)[0] == 200


def test_the_end_of_a_killed_request_does_not_free_the_permit_of_the_next() -> None:
    api = Api()
    permits = api.queue.repository.heavy_requests
    late = permits.permit(STRANGER, api.queue.now, ("0",))
    late.__enter__()
    with permits.permit(OWNER, api.queue.now + PERMIT_SECONDS + 1, ("0",)):
        late.__exit__(None, None, None)
        assert preview(api, OTHERS[0])[0] == 429


def test_threads_that_ask_at_the_same_moment_get_two_permits() -> None:
    queue = Harness()
    start, took, end = threading.Barrier(8), list[int](), threading.Event()

    def ask(number: int) -> None:
        start.wait()
        try:
            with queue.repository.heavy_requests.permit(f"{OWNER}{number}", queue.now, ("1", "0")):
                took.append(number)
                end.wait(PATIENCE)
        except Exception:
            took.append(-1)
            if took.count(-1) == 6:
                end.set()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert took.count(-1) == 6


def test_a_caller_who_is_in_no_project_may_not_preview() -> None:
    members = [{**project, "members": [OWNER]} for project in a_policy()["projects"]]
    api = Governed(projects=members)
    status, answer = api.call("POST", "/policy/preview", '{"capacity": {"p5": 3}}', STRANGER)
    assert (status, answer["code"]) == (403, "Forbidden")
    assert "not a member" in answer["message"]
    assert api.call("POST", "/policy/preview", '{"capacity": {"p5": 3}}', OWNER)[0] == 200


def large() -> dict[str, Any]:
    """Return a policy of 38 KiB, of 100 pools and 500 projects."""
    pools = [{"name": f"pool{number}", "instance_type": P4, "capacity": 8} for number in range(99)]
    projects = [{"name": f"project-with-a-long-name-{number:04}", "quota": {"p5": 0}} for number in range(499)]
    return {
        "pools": [{"name": "p5", "instance_type": P5, "capacity": 8}, *pools],
        "projects": [{"name": "default", "quota": {"p5": 8}}, *projects],
    }


def many_waiting(jobs: int) -> Harness:
    queue = Harness(slots=8)
    policy = {
        "pools": [{"name": "p5", "instance_type": P5, "capacity": 8}],
        "projects": [{"name": "default", "quota": {"p5": 8}}],
        "settings": {"window": 1000, "max_waiting": 5000},
    }
    queue.repository.apply_policy(json.dumps(policy), 0, OWNER, queue.now)
    for number in range(jobs):
        limit = {"MaxRuntimeInSeconds": 600 + 60 * number}
        queue.accept(f"job{number}", 1, owner=f"{OWNER}{number % 20}", StoppingCondition=limit)
    queue.wake()
    return queue


def previews_by_work(queue: Harness) -> tuple[PreviewService, WorkClock]:
    """Return previews whose time limit is one of work, so that it is the same on each machine."""
    cluster, clock = queue.dry_run.cluster(ahead=True), WorkClock(queue.now)
    return PreviewService(queue.policies, lambda: cluster, clock), clock


@pytest.mark.thorough
@pytest.mark.slow
def test_a_preview_that_cannot_end_in_time_stops_at_once() -> None:
    queue = many_waiting(500)
    previews, clock = previews_by_work(queue)
    with clock, pytest.raises(TakesTooLong) as refused:
        previews.of_policy(large(), 48 * HOUR)
    assert clock.readings < 50, "one reading for each simulated moment: 7 are enough, of thousands in 48 hours"
    assert "500 live jobs, 500 projects and 100 pools" in refused.value.message
    assert "0 hours" in str(refused.value.issues[0].remedy)
    with clock:
        assert previews.of_policy(large(), 0).comparison.all_examined, "which the remedy promises"


@pytest.mark.thorough
@pytest.mark.slow
def test_a_preview_of_many_jobs_under_an_ordinary_policy_is_not_given_up() -> None:
    queue = many_waiting(500)
    previews, clock = previews_by_work(queue)
    with clock:
        assert previews.of_capacity({"p5": 9}, 48 * HOUR).comparison.futures > 0
