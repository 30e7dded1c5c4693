"""Who may do what: each cell of the table in docs/reference/iam.md, as a request of that caller to the real API."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_contract.routes import OPERATIONS
from job_queue.api.routes import ACTIONS
from job_queue.domain.access.rights import ALLOWED, Action, Relation
from tests.jobs import P5, a_request
from tests.payloads import api_event
from tests.unit.queue_api import ADMIN, Api

pytestmark = pytest.mark.attack

PAGE = (Path(__file__).parents[3] / "docs/reference/iam.md").read_text()
SECRET = "hunter2-s3cret"
CALLERS = {
    Relation.ANYBODY: "arn:aws:iam::123456789012:user/eve",
    Relation.MEMBER: "arn:aws:iam::123456789012:user/mia",
    Relation.OWNER: "arn:aws:iam::123456789012:user/ada",  # was a member when the job was submitted
    Relation.PROJECT_ADMIN: "arn:aws:iam::123456789012:user/lea",
    Relation.ADMIN: ADMIN,
}
WITHIN_OTHERS = {Action.SHOW_VALUES, Action.REQUEUE, Action.ENTER}  # parts of requests that need another right, too
OTHERS = {"pools": [{"name": "p5", "instance_type": P5, "capacity": 2}], "projects": [{"name": "vision"}]}


def policy(*members: Relation) -> dict[str, Any]:
    project = {
        "name": "vision",
        "members": [CALLERS[member] for member in members],
        "admins": [CALLERS[Relation.PROJECT_ADMIN]],
    }
    return {**OTHERS, "projects": [project]}


def table() -> list[tuple[Action, str, str, Relation, bool]]:
    """What, method, path, who, and whether they may, cell by cell."""
    lines = re.findall(r"^\|(.*)\|$", PAGE.partition("## Rights of callers")[2].partition("\n## ")[0], re.MULTILINE)
    header, _, *rows = ([cell.strip() for cell in line.split("|")] for line in lines)
    columns = [Relation(name) for name in header[2:]]
    return [
        (Action(what), *route.strip("`").split(" ", 1), who, {"yes": True, "no": False}[cell])
        for what, route, *cells in rows
        for who, cell in zip(columns, cells, strict=True)
    ]


TABLE = table()


def test_the_table_has_every_route_and_every_caller_once() -> None:
    assert {(method, path) for _, method, path, _, _ in TABLE} == {(it.method, it.path) for it in OPERATIONS}
    assert sorted((what, who) for what, _, _, who, _ in TABLE) == sorted(
        (what, who) for what in Action for who in Relation
    )
    assert {ACTIONS[it.id]: (it.method, it.path) for it in OPERATIONS} == {
        what: (method, path) for what, method, path, _, _ in TABLE if what not in WITHIN_OTHERS
    }


def test_the_module_says_the_same() -> None:
    """But for what a caller is besides: an admin of a project is a member, and all are anybody."""
    for what, _, _, who, allowed in TABLE:
        implied = {who, Relation.ANYBODY} | ({Relation.MEMBER} if who is Relation.PROJECT_ADMIN else set())
        assert bool(ALLOWED[what] & implied) is allowed, (what, who)


@pytest.fixture
def api() -> Api:
    """A job of the owner's waits in the project; meanwhile the owner is no member any more."""
    api = Api(slots=2)
    applied = {"policy": policy(Relation.MEMBER, Relation.OWNER), "version": 0}
    assert api.call("PUT", "/policy", json.dumps(applied), caller=ADMIN)[0] == 200
    assert api.call("POST", "/add-job", submission("job1"), caller=CALLERS[Relation.OWNER])[0] == 202
    applied = {"policy": policy(Relation.MEMBER), "version": 1}
    assert api.call("PUT", "/policy", json.dumps(applied), caller=ADMIN)[0] == 200
    return api


def submission(name: str) -> str:
    tags = [{"Key": "project", "Value": "vision"}]
    return json.dumps(a_request(name, Tags=tags, Environment={"KEY": SECRET}))


def body_for(what: Action) -> str | None:
    return {
        Action.SUBMIT: submission("another"),
        Action.PLAN: submission("another"),
        Action.CHANGE: '{"priority": -5}',
        Action.REQUEUE: '{"requeue": true}',
        Action.ENTER: '{"remoteDebug": true}',
        Action.APPLY_POLICY: json.dumps({"policy": OTHERS, "version": 2}),
        Action.ROLL_BACK: '{"to": 1, "version": 2}',
        Action.DRAIN: '{"pool": "p5"}',
        Action.UNDRAIN: '{"pool": "p5"}',
        Action.PREVIEW: '{"capacity": {"p5": 4}}',
    }.get(what)


def rows(api: Api) -> str:
    return json.dumps(sorted(map(str, api.queue.tables.rows.items())))


@pytest.mark.parametrize(
    ("what", "method", "path", "who", "allowed"), TABLE, ids=[f"{what} by {who}" for what, _, _, who, _ in TABLE]
)
def test_each_cell(api: Api, what: Action, method: str, path: str, who: Relation, allowed: bool) -> None:
    before = rows(api)
    status, answer = api.call(method, path.replace("{name}", "job1"), body_for(what), caller=CALLERS[who])
    if what is Action.SHOW_VALUES:
        assert (SECRET in json.dumps(answer)) is allowed
    elif allowed:
        assert status in {200, 202}, answer
    else:
        assert status == 403, answer
        assert answer["remedy"], answer
        assert rows(api) == before


def methods() -> Iterator[tuple[str, str, Action]]:
    yield from {(method, path, what) for what, method, path, _, _ in TABLE}


@pytest.mark.parametrize(("method", "path", "what"), sorted(methods()))
def test_who_has_not_signed_gets_nothing(api: Api, method: str, path: str, what: Action) -> None:
    before = rows(api)
    event = api_event(method, path.replace("{name}", "job1"), body=body_for(what))
    event["requestContext"]["identity"] |= {"userArn": None, "caller": None}
    answer = api.resolver.resolve(event, {})  # type: ignore[arg-type]
    assert answer["statusCode"] == 403
    assert json.loads(answer["body"])["errors"][0]["code"] == "Forbidden"
    assert rows(api) == before
