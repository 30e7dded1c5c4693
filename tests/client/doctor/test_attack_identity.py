"""A shared role whose session anybody can name: ``smq doctor`` says who else can be the same owner."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import boto3
import pytest

from sagemaker_queue.workflows.doctor.findings import OK, WARNED
from sagemaker_queue.workflows.doctor.identity_step import check_identity
from tests.client.conftest import ScriptedServer, serving

pytestmark = pytest.mark.attack

SESSIONS = "arn:aws:sts::123456789012:assumed-role"
ANN = f"{SESSIONS}/research/ann"
PEOPLE = {"AWS": "arn:aws:iam::123456789012:root"}
ALLOWED = {"Effect": "Allow"}
NAMED = {"StringEquals": {"sts:RoleSessionName": "${aws:username}"}}


@pytest.fixture
def iam(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with serving() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_IAM", server.url)
        yield server


def trusts(iam: ScriptedServer, *statements: dict[str, Any]) -> None:
    document = quote(json.dumps({"Version": "2012-10-17", "Statement": list(statements)}))
    role = (
        "<Role><Path>/</Path><RoleName>research</RoleName><RoleId>AROAEXAMPLEEXAMPLE</RoleId><Arn>arn</Arn>"
        f"<CreateDate>2026-11-22T00:00:00Z</CreateDate><AssumeRolePolicyDocument>{document}</AssumeRolePolicyDocument>"
        "</Role>"
    )
    answer = f"<GetRoleResponse><GetRoleResult>{role}</GetRoleResult></GetRoleResponse>"
    iam.always_answers(200, answer)


def statement(action: Any = "sts:AssumeRole", principal: Any = None, condition: Any = None) -> dict[str, Any]:
    told = {**ALLOWED, "Principal": principal or PEOPLE, "Action": action}
    return {**told, "Condition": condition} if condition else told


def session() -> boto3.Session:
    return boto3.Session("key", "secret", region_name="us-east-1")


@pytest.mark.parametrize(
    ("caller", "status", "told"),
    [
        ("arn:aws:iam::123456789012:user/ann", OK, "only to you"),
        (f"{SESSIONS}/AWSReservedSSO_research_0123456789abcdef/ann@example.org", OK, "IAM Identity Center"),
        (f"{SESSIONS}/machines/i-0123456789abcdef0", OK, "everybody on this machine"),
        (f"{SESSIONS}/research/botocore-session-1791092141", WARNED, "everybody who has this role"),
        (f"{SESSIONS}/studio/SageMaker", WARNED, "everybody who has this role in SageMaker Studio"),
    ],
)
def test_who_an_owner_is_can_be_seen_by_the_arn(caller: str, status: str, told: str) -> None:
    finding = check_identity(caller, None)
    assert (finding.status, told in finding.message) == (status, True), finding


@pytest.mark.parametrize(
    ("statements", "status"),
    [
        ([statement()], WARNED),
        ([statement(["sts:AssumeRole", "sts:TagSession"])], WARNED),
        ([statement(condition=NAMED)], OK),
        ([statement(condition={"StringEquals": {"sts:SourceIdentity": "${aws:username}"}})], WARNED),
        ([statement("STS:assume*", condition={"stringlike": {"STS:rolesessionname": ["${aws:SourceIdentity}"]}})], OK),
        *(
            ([statement(condition={"StringLike": {"sts:RoleSessionName": names}})], WARNED)
            for names in (
                "*@example.org",
                ["ann", "${aws:username}"],
                "${aws:username}*",
                "${aws:username, 'ann'}",
                "${sts:RoleSessionName}",
                "${aws:PrincipalTag/team}",
                "${aws:PrincipalAccount}",
            )
        ),
        *(
            ([statement(condition=NAMED, principal={"AWS": accounts})], WARNED)
            for accounts in ("*", "210987654321", ["arn:aws:iam::123456789012:root", "arn:aws:iam::210987654321:root"])
        ),
        ([statement(condition=NAMED, principal={"AWS": ["123456789012", "arn:aws:iam::123456789012:user/bob"]})], OK),
        *(
            ([statement(condition=NAMED), statement(action, principal={"Federated": "accounts.google.com"})], expected)
            for action, expected in (
                ("sts:AssumeRoleWithWebIdentity", WARNED),
                ("sts:*", WARNED),
                ("sts:AssumeRoleWithSAML", OK),
            )
        ),
        ([statement(condition=NAMED, principal="*")], WARNED),
        ([statement(condition={"StringLike": {"sts:RoleSessionName": ["ann", "*"]}})], WARNED),
        ([statement(condition={"StringNotLike": {"sts:RoleSessionName": "root"}})], WARNED),
        ([statement(condition={"StringEqualsIfExists": {"sts:RoleSessionName": "${aws:username}"}})], WARNED),
        ([statement(condition={"Null": {"sts:RoleSessionName": "false"}})], WARNED),
        *(
            ([statement(condition=NAMED), statement(action)], WARNED)
            for action in ("sts:*", "sts:Assume*", "STS:AssumeRole*", "sts:?ssumeRole", "*", ["sts:TagSession", "s*"])
        ),
        ([statement(condition=NAMED), statement(["sts:TagSession", "sts:Set*"])], OK),
        ([statement(condition=NAMED), {**ALLOWED, "Principal": PEOPLE, "NotAction": "sts:TagSession"}], WARNED),
        ([statement(condition=NAMED), {**ALLOWED, "Principal": PEOPLE, "NotAction": "sts:Assume*"}], OK),
        ([statement(condition=NAMED), {**ALLOWED, "NotPrincipal": PEOPLE, "Action": "sts:AssumeRole"}], WARNED),
        ([statement(condition=NAMED), statement(principal="*", condition={"Bool": {"a": "true"}})], WARNED),
        ([statement(condition=NAMED), statement(principal={"Service": "sagemaker.amazonaws.com"})], OK),
        ([statement(principal={"Service": "ec2.amazonaws.com"})], WARNED),
    ],
)
def test_a_trust_policy_has_to_say_how_sessions_are_named(
    iam: ScriptedServer, statements: list[dict[str, Any]], status: str
) -> None:
    trusts(iam, *statements)
    finding = check_identity(ANN, session())
    assert finding.status == status, finding
    if status == WARNED:
        assert "they can take the name ann" in finding.message
        assert "sts:RoleSessionName" in (finding.remedy or "")


@pytest.mark.parametrize("known", [None, "denied"])
def test_where_nobody_may_read_it_the_warning_says_so(iam: ScriptedServer, known: str | None) -> None:
    iam.always_answers(403, "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>")
    finding = check_identity(ANN, session() if known else None)
    assert finding.status == WARNED
    assert "you may not read the role's trust policy" in finding.message
