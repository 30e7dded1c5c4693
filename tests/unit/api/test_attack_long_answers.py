"""Somebody fills the queue with long names and texts: each answer can be sent all the same, and nobody is lost."""

import json
from typing import Any

import pytest

from api_contract.models import JobSummary, Reason
from job_queue.api import routes
from job_queue.api.responses import queue_status
from job_queue.api.sizes import LARGEST_ANSWER, MOST_BYTES, bytes_of, sent_bytes
from job_queue.domain.expectations.published_plan import PublishedPlan
from job_queue.domain.job import ExternalTrainingJob, iso
from tests.jobs import NOW, OWNER, a_body, a_job
from tests.payloads import api_event
from tests.queue_harness import Harness
from tests.unit.queue_api import Api

pytestmark = pytest.mark.attack

LAMBDA = 6 * 1024 * 1024
JOBS = 2500
JOBS_OF_A_PLAN = 900  # whose forecast takes time with the square of their number; they are 8 MB
LONG = "ä" * 256  # takes 1,536 bytes where Lambda's answer is ASCII
QUOTES = '"\\' * 1000  # takes four bytes a character where it is escaped twice


def payload(answer: dict[str, Any]) -> int:
    """Bytes of an invocation's answer at worst."""
    return len(json.dumps(answer))


@pytest.fixture
def api() -> Api:
    return queue_of(JOBS)


def queue_of(jobs: int) -> Api:
    """Return a queue with very many jobs that are as long as they may be, each in a window that shows them all."""
    api = Api(slots=1)
    queue = api.queue
    policy = {
        "pools": [{"name": "p5", "capacity": 1}],
        "projects": [{"name": "default", "quota": {"p5": 1}}],
        "settings": {"window": 10_000},
    }
    queue.repository.apply_policy(json.dumps(policy), 0, "ada", queue.now)
    for number in range(jobs):
        name = f"job{number:05}".ljust(63, "x")
        job = a_job(name, group=LONG, reason=QUOTES, entered=iso(NOW + number), pools=("p5",), tries=1)
        queue.repository.add(job, '{"Tags":[]}', NOW)
    return api


def resolved(api: Api, path: str, body: str | None = None, **query: str) -> dict[str, Any]:
    event = api_event("POST" if body else "GET", path, body=body, caller=OWNER, **query)
    answer: dict[str, Any] = api.resolver.resolve(event, {})  # type: ignore[arg-type]
    return answer


def test_every_page_of_jobs_can_be_sent_and_together_they_have_them_all(api: Api) -> None:
    names: list[str] = []
    following: str | None = None
    while following is not None or not names:
        answer = resolved(api, "/jobs", limit="500", **({"next": following} if following else {}))
        assert answer["statusCode"] == 200
        assert payload(answer) < LAMBDA
        page = json.loads(answer["body"])
        names += [job["job"] for job in page["jobs"]]
        following = page.get("next")
    assert len(names) == len(set(names)) == JOBS


def test_the_queue_can_be_sent_and_says_that_more_wait(api: Api) -> None:
    for number in range(20_000):
        name = f"theirs{number:05}".ljust(63, "x")
        api.queue.repository.add_external(ExternalTrainingJob(name, {"ml.p5.48xlarge": 1}, iso(NOW)))
    answer = resolved(api, "/queue")
    assert answer["statusCode"] == 200
    assert payload(answer) < LAMBDA
    status = json.loads(answer["body"])
    assert status["moreWaiting"] and status["moreExternal"]
    assert len(status["waiting"]) > 100
    assert len(status["external"]) > 1000
    assert status["pools"][0]["external"] == 20_000


def test_a_job_and_a_plan_can_be_sent() -> None:
    api = queue_of(JOBS_OF_A_PLAN)
    for path, body in ((f"/jobs/{'job00000'.ljust(63, 'x')}", None), ("/plan", a_body("mine"))):
        answer = resolved(api, path, body)
        assert answer["statusCode"] == 200, answer
        assert payload(answer) < LAMBDA


def test_what_is_too_large_all_the_same_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "LARGEST_ANSWER", 100)
    answer = resolved(Api(), "/queue")
    assert answer["statusCode"] == 500
    assert "too large to send" in answer["body"]


def test_those_that_wait_and_those_outside_have_room_beside_those_that_run() -> None:
    queue = Harness(slots=40)
    for number in range(60):
        queue.submit(f"job{number}")
    for number in range(100):
        queue.start_outside(f"theirs{number}")
    for _ in range(5):  # twenty are described in each
        queue.tick()
    cluster, decided = queue.forecast()
    plan = PublishedPlan.of(cluster, decided, queue.now)
    whole = queue_status(cluster, plan, queue.now, shows_values=lambda job: True)
    assert (len(whole.active), len(whole.waiting), len(whole.external)) == (40, 20, 100)
    assert not (whole.more_active or whole.more_waiting or whole.more_external)
    for share in (2, 4, 8):
        room = bytes_of(whole) // share
        part = queue_status(cluster, plan, queue.now, lambda job: True, room)
        assert bytes_of(part) < room + 100
        assert part.active and part.waiting and part.external
        assert part.more_active and part.more_external
        assert part.active == whole.active[: len(part.active)]
        assert part.waiting == whole.waiting[: len(part.waiting)]


def test_sizes_are_those_of_lambdas_answer() -> None:
    text = 'ä"\\'
    assert sent_bytes(text) == len(json.dumps(text)) == len('"') * 2 + len("\\u00e4") + 2 * 2
    longest = JobSummary(job="x" * 63, state="preempted", group=LONG, reason=Reason("BACKOFF", QUOTES))
    assert bytes_of(longest) > 9_000
    assert MOST_BYTES < LARGEST_ANSWER < LAMBDA
