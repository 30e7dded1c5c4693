"""ListTrainingJobs and Search: a job of the queue stands for its attempts, among those that are not the queue's."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.exceptions import ClientError

from sagemaker_queue.errors import InvalidRequest
from sagemaker_queue.integrations.boto.listing.expression import matches, names_in
from sagemaker_queue.integrations.boto.listing.pages import MOST_CALLS, ListEntry, LookupLimitError, merge
from sagemaker_queue.integrations.boto.lookup import attempt_name
from sagemaker_queue.integrations.boto.sessions import hooks_of
from tests.client.integrations.boto.hooked_clients import (
    ARN,
    OWNER,
    REQUEST,
    WAITING,
    HookedClients,
    refusal,
    set_status,
    twice_run,
)
from tests.client.samples import refused

LONG = "a-job-whose-name-leaves-no-room-for-what-the-queue-adds-to-it-1"


def job(name: str, state: str, entered: str = "2026-11-21T10:00:00Z", **more: Any) -> dict[str, Any]:
    return {"job": name, "state": state, "owner": OWNER, "entryTime": entered, "stateSince": entered, **more}


def listed(clients: HookedClients, *jobs: dict[str, Any]) -> None:
    """Let the queue list these once."""
    clients.server.answers(200, {"jobs": list(jobs), "next": None})


def names(clients: HookedClients, **asked: Any) -> list[str]:
    answer = clients.sagemaker.list_training_jobs(**asked)
    return [job["TrainingJobName"] for job in answer["TrainingJobSummaries"]]


def states_asked(clients: HookedClients) -> list[str]:
    return [parse_qs(urlsplit(received.path).query)["state"][0] for received in clients.server.received]


def make_older(name: str, days: int = 1) -> None:
    """Let moto's SageMaker have a training job for days."""
    from moto.sagemaker.models import sagemaker_backends  # noqa: PLC0415

    found = sagemaker_backends["123456789012"]["eu-west-1"].training_jobs[name]
    found.creation_time = found.last_modified_time = datetime.now(timezone.utc) - timedelta(days=days)


class TestListTrainingJobs:
    def test_attempts_are_one_job_and_waiting_jobs_are_there_too(self, clients: HookedClients) -> None:
        for name in ("job1-qstamp-1", "job1-qstamp-2", "external"):
            clients.attempt(name)
        listed(clients, job("job1", "running"), job("job2", "pending", "2026-11-21T10:05:00Z"))
        found = clients.sagemaker.list_training_jobs()["TrainingJobSummaries"]
        assert [(it["TrainingJobName"], it["TrainingJobStatus"], it["SecondaryStatus"]) for it in found[:2]] == [
            ("job1", "InProgress", "Training"),
            ("job2", "InProgress", "Pending"),
        ]
        assert [it["TrainingJobName"] for it in found[2:]] == ["external"]
        assert found[0]["TrainingJobArn"] == f"{ARN}/job1"
        assert found[0]["CreationTime"] == datetime(2026, 11, 21, 10, tzinfo=timezone.utc)
        assert "TrainingEndTime" not in found[0]

    def test_a_job_that_is_cancelled_is_stopping_and_one_that_has_ended_says_when(self, clients: HookedClients) -> None:
        listed(clients, job("job1", "running", cancelRequested=True), job("job2", "failed"))
        first, second = clients.sagemaker.list_training_jobs()["TrainingJobSummaries"]
        assert first["TrainingJobStatus"] == "Stopping"
        assert (second["TrainingJobStatus"], second["TrainingEndTime"]) == ("Failed", second["LastModifiedTime"])

    def test_an_attempt_with_a_cut_name_is_its_jobs(self, clients: HookedClients) -> None:
        clients.attempt(attempt_name(LONG, 1))
        make_older(attempt_name(LONG, 1))
        listed(clients, job(LONG, "running"))
        assert names(clients) == [LONG]

    def test_an_attempt_whose_job_the_queue_has_forgotten_is_shown_as_it_is(self, clients: HookedClients) -> None:
        clients.attempt("gone-qstamp-3")
        make_older("gone-qstamp-3", days=100)
        listed(clients)
        assert names(clients) == ["gone-qstamp-3"]

    def test_an_attempt_that_is_newer_than_the_queues_list_is_none_of_its_own(self, clients: HookedClients) -> None:
        clients.attempt("new-qstamp-1")
        listed(clients)
        assert names(clients) == []

    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            ({"NameContains": "job2"}, ["job2"]),
            ({"StatusEquals": "Completed"}, ["job3"]),
            ({"StatusEquals": "InProgress", "SortOrder": "Descending"}, ["job2", "job1"]),
            ({"CreationTimeAfter": "2026-11-21T10:00:00Z"}, ["job2", "job3"]),
            ({"CreationTimeBefore": datetime(2026, 11, 21, 10, 30, tzinfo=timezone.utc)}, ["job1"]),
            ({"LastModifiedTimeAfter": "2026-11-21T11:00:00Z", "SortBy": "Name"}, ["job3"]),
            ({"SortBy": "Status"}, ["job3", "job1", "job2"]),
            ({"SortBy": "Name", "SortOrder": "Descending"}, ["job3", "job2", "job1"]),
        ],
    )
    def test_filters_and_orders(self, clients: HookedClients, asked: dict[str, Any], expected: list[str]) -> None:
        jobs = [
            job("job1", "running"),
            job("job2", "preempted", "2026-11-21T11:00:00Z"),
            job("job3", "completed", "2026-11-21T12:00:00Z"),
        ]
        states = {"InProgress": ["running", "preempted"], "Completed": ["completed"]}.get(
            str(asked.get("StatusEquals"))
        )
        listed(clients, *(it for it in jobs if states is None or it["state"] in states))
        assert names(clients, **asked) == expected

    @pytest.mark.parametrize(
        ("status", "states"),
        [("InProgress", "live"), ("Completed", "completed"), ("Failed", "all"), ("Stopped", "all")],
    )
    def test_no_more_of_the_queue_is_asked_for_than_tells_whose_an_attempt_is(
        self, clients: HookedClients, status: str, states: str
    ) -> None:
        """A failed or stopped attempt may be one of a job that is in any state."""
        clients.attempt("job1-qstamp-1")
        set_status("Failed")
        make_older("job1-qstamp-1")
        listed(clients, job("job1", "completed"))
        assert names(clients, StatusEquals=status) == (["job1"] if status == "Completed" else [])
        assert states_asked(clients) == [states]

    def test_pages(self, clients: HookedClients) -> None:
        for number in range(3):
            clients.attempt(f"external{number}")
        jobs = [job(f"job{number}", "completed", f"2026-11-21T10:0{number}:00Z") for number in range(4)]
        listed(clients, *jobs)
        pages = clients.sagemaker.get_paginator("list_training_jobs").paginate(PaginationConfig={"PageSize": 2})
        found = [[it["TrainingJobName"] for it in page["TrainingJobSummaries"]] for page in pages]
        assert found == [["job0", "job1"], ["job2", "job3"], ["external0", "external1"], ["external2"]]
        assert len(clients.server.received) == 1  # the queue is asked once for all pages

    def test_a_page_that_another_process_began_is_gone_on_with(self, clients: HookedClients) -> None:
        jobs = [job(f"job{number}", "completed", f"2026-11-21T10:0{number}:00Z") for number in range(4)]
        listed(clients, *jobs)
        token = clients.sagemaker.list_training_jobs(MaxResults=3)["NextToken"]
        hooks_of(clients.session).renew()
        listed(clients, *jobs)
        assert names(clients, NextToken=token) == ["job3"]

    def test_a_token_of_another_order_is_refused(self, clients: HookedClients) -> None:
        listed(clients, job("job1", "running"), job("job2", "running"))
        token = clients.sagemaker.list_training_jobs(MaxResults=1)["NextToken"]
        for wrong in ({"NextToken": token, "SortBy": "Name"}, {"NextToken": "no-token"}):
            listed(clients)
            with pytest.raises(ClientError, match="NextToken is not valid") as error:
                clients.sagemaker.list_training_jobs(**wrong)
            assert refusal(error) == ("ValidationException", 400)
            clients.server.script.clear()

    def test_what_ended_before_the_time_that_is_asked_for_ends_the_look(self, clients: HookedClients) -> None:
        page = [job("job2", "running", "2026-11-22T10:00:00Z"), job("job1", "completed", "2026-11-20T10:00:00Z")]
        clients.server.answers(200, {"jobs": page, "next": "more"})
        assert names(clients, CreationTimeAfter="2026-11-21T00:00:00Z") == ["job2"]
        assert len(clients.server.received) == 1

    @pytest.mark.parametrize("asked", [{"NameContains": "job1-qstamp-"}, {"WarmPoolStatusEquals": "Available"}])
    def test_what_concerns_attempts_passes(self, clients: HookedClients, asked: dict[str, Any]) -> None:
        clients.attempt("job1-qstamp-1")
        assert names(clients, **asked) == ["job1-qstamp-1"]
        assert clients.server.received == []

    def test_a_page_larger_than_sagemakers_is_left_to_sagemaker_to_refuse(self, clients: HookedClients) -> None:
        for ask in (clients.sagemaker.list_training_jobs, partial(clients.sagemaker.search, Resource="TrainingJob")):
            with suppress(ClientError):  # moto refuses one of the two
                ask(MaxResults=101)
        assert clients.server.received == []

    def test_an_outage_of_the_queue_is_not_an_empty_list(self, clients: HookedClients) -> None:
        clients.server.answers(403, refused("Forbidden", "Not you."))
        with pytest.raises(ClientError) as error:
            clients.sagemaker.list_training_jobs()
        assert refusal(error) == ("AccessDeniedException", 403)


class TestSearch:
    def search(self, clients: HookedClients, *filters: dict[str, str], **more: Any) -> list[dict[str, Any]]:
        operator = more.pop("Operator", "And")
        expression = {"SearchExpression": {"Filters": list(filters), "Operator": operator}} if filters else {}
        answer = clients.sagemaker.search(Resource="TrainingJob", **expression, **more)
        return [result["TrainingJob"] for result in answer["Results"]]

    def equals(self, name: str, value: str) -> dict[str, str]:
        return {"Name": name, "Operator": "Equals", "Value": value}

    def test_by_names_as_syne_tune_does_it(self, clients: HookedClients) -> None:
        """Up to 20 names, joined by Or: they are looked up, the queue is not listed."""
        clients.attempt("job1-qstamp-1")
        clients.job(**WAITING)
        clients.server.answers(404, refused("NotFound", "No."))
        found = self.search(
            clients,
            self.equals("TrainingJobName", "job1"),
            self.equals("TrainingJobName", "other"),
            Operator="Or",
            MaxResults=20,
        )
        (only,) = [it for it in found if it["TrainingJobName"] == "job1"]
        assert (only["TrainingJobStatus"], only["ResourceConfig"]["InstanceCount"]) == ("InProgress", 2)
        assert [received.path for received in clients.server.received] == ["/prod/jobs/job1", "/prod/jobs/other"]

    def test_an_attempt_that_is_asked_for_by_its_name(self, clients: HookedClients) -> None:
        clients.attempt("job1-qstamp-1")
        found = self.search(clients, self.equals("TrainingJobName", "job1-qstamp-1"))
        assert [it["TrainingJobName"] for it in found] == ["job1-qstamp-1"]
        assert clients.server.received == []

    def test_by_tag_where_waiting_jobs_are_looked_up(self, clients: HookedClients) -> None:
        for name, team in (("external", "vision"), ("others", "text"), ("job1-qstamp-1", "vision")):
            clients.attempt(name, Tags=[{"Key": "team", "Value": team}])
        listed(clients, job("job1", "preempted"), job("job2", "pending"))
        for name, team in (("job1", "vision"), ("job2", "text")):
            clients.job(**{**WAITING, "job": name, "request": {**REQUEST, "Tags": [{"Key": "team", "Value": team}]}})
        found = self.search(clients, self.equals("Tags.team", "vision"), SortBy="CreationTime", SortOrder="Ascending")
        assert {it["TrainingJobName"] for it in found} == {"job1", "external"}
        (own,) = [it for it in found if it["TrainingJobName"] == "job1"]
        assert own["Tags"] == [{"Key": "team", "Value": "vision"}]

    def test_by_status_only_those_are_looked_up_that_match(self, clients: HookedClients) -> None:
        clients.attempt("job2-qstamp-2")
        set_status("InProgress")
        listed(clients, job("job1", "completed"), job("job2", "running"))
        clients.job(**{**twice_run("running"), "job": "job2", "trainingJobName": "job2-qstamp-2"})
        found = self.search(clients, self.equals("TrainingJobStatus", "InProgress"))
        assert [it["TrainingJobName"] for it in found] == ["job2"]
        assert clients.server.received[-1].path == "/prod/jobs/job2"

    def test_other_resources_pass(self, clients: HookedClients) -> None:
        assert clients.sagemaker.search(Resource="Pipeline")["Results"] == []
        assert clients.server.received == []


class TestExpressions:
    KNOWN = frozenset({"TrainingJobName", "TrainingJobStatus"})
    DESCRIBED: dict[str, Any] = {
        "TrainingJobName": "job1",
        "TrainingJobStatus": "InProgress",
        "CreationTime": datetime(2026, 11, 21, 10, tzinfo=timezone.utc),
        "HyperParameters": {"lr": "0.1", "a.b": "c"},
        "ResourceConfig": {"InstanceCount": 2},
        "InputDataConfig": [{"ChannelName": "train"}, {"ChannelName": "test"}],
        "Tags": [{"Key": "team.of", "Value": "vision"}],
    }

    @pytest.mark.parametrize(
        ("name", "operator", "value", "expected"),
        [
            ("TrainingJobName", "Equals", "job1", True),
            ("TrainingJobName", "Contains", "ob", True),
            ("TrainingJobName", "In", "job0, job1", True),
            ("TrainingJobName", "NotEquals", "job1", False),
            ("TrainingJobStatus", "Equals", "Completed", False),
            ("CreationTime", "GreaterThan", "2026-11-21T09:59:59", True),
            ("CreationTime", "LessThan", "2026-11-21T09:59:59Z", False),
            ("CreationTime", "GreaterThan", "2026-11-21", True),
            ("CreationTime", "LessThan", "2026-11-21", False),
            ("CreationTime", "LessThan", "2026-11-21T06:00:00-05:00", True),
            ("CreationTime", "GreaterThan", "2026-11-21T06:00:00-05:00", False),
            ("CreationTime", "Equals", "2026-11-21T11:00:00+01:00", True),
            ("CreationTime", "GreaterThan", "yesterday", False),
            ("CreationTime", "LessThan", "9" * 40, False),
            ("HyperParameters.lr", "Equals", "0.1", True),
            ("HyperParameters.a.b", "Equals", "c", True),
            ("HyperParameters.momentum", "NotExists", None, True),
            ("ResourceConfig.InstanceCount", "GreaterThanOrEqualTo", "2", True),
            ("ResourceConfig.InstanceCount", "GreaterThan", "many", False),
            ("InputDataConfig.ChannelName", "Equals", "test", True),
            ("Tags.team.of", "Equals", "vision", True),
            ("Tags.team", "Exists", None, False),
        ],
    )
    def test_filters(self, name: str, operator: str, value: str | None, expected: bool) -> None:
        filter_ = {"Name": name, "Operator": operator, **({"Value": value} if value is not None else {})}
        assert matches({"Filters": [filter_]}, self.DESCRIBED) is expected

    def test_what_is_not_known_decides_nothing_that_is_decided_anyway(self) -> None:
        name = {"Name": "TrainingJobName", "Operator": "Equals", "Value": "job2"}
        tag = {"Name": "Tags.team.of", "Operator": "Equals", "Value": "vision"}
        assert matches({"Filters": [tag]}, self.DESCRIBED, self.KNOWN) is None
        assert matches({"Filters": [tag, name]}, self.DESCRIBED, self.KNOWN) is False
        assert matches({"Filters": [tag, name], "Operator": "Or"}, self.DESCRIBED, self.KNOWN) is None
        inner = {"SubExpressions": [{"Filters": [tag, name], "Operator": "Or"}]}
        assert matches(inner, self.DESCRIBED) is True

    def test_nested_filters_hold_for_one_member(self) -> None:
        def nested(*values: str) -> Any:
            filters = [
                {"Name": "InputDataConfig.ChannelName", "Operator": "Contains", "Value": value} for value in values
            ]
            return {"NestedFilters": [{"NestedPropertyName": "InputDataConfig", "Filters": filters}]}

        assert matches(nested("tr", "ain"), self.DESCRIBED) is True
        assert matches(nested("train", "test"), self.DESCRIBED) is False

    def test_names(self) -> None:
        def one(name: str) -> Any:
            return {"Name": "TrainingJobName", "Operator": "Equals", "Value": name}

        tag = {"Name": "Tags.a", "Operator": "Exists"}
        assert names_in({"Filters": [one("a"), one("b")], "Operator": "Or"}) == frozenset("ab")
        assert names_in({"Filters": [one("a"), tag]}) == frozenset("a")
        assert names_in({"Filters": [one("a"), tag], "Operator": "Or"}) is None
        assert names_in({}) is None


class TestPages:
    @pytest.mark.parametrize("seed", range(20))
    @pytest.mark.parametrize("descending", [False, True])
    def test_every_page_goes_on_where_the_last_one_ended(self, seed: int, descending: bool) -> None:
        """Whatever is in the lists, and however SageMaker cuts its pages: nothing is lost, nothing comes twice."""
        chance = random.Random(seed)
        keys = "abcdef"
        own = [ListEntry(chance.choice(keys), f"own{number}", self.showing(f"own{number}")) for number in range(12)]
        theirs = [
            ListEntry(
                chance.choice(keys), f"their{number}", self.showing(f"their{number}" if chance.random() < 0.5 else None)
            )
            for number in range(40)
        ]
        theirs.sort(key=lambda entry: (entry.key, entry.name), reverse=descending)
        size, cut = chance.randint(1, 7), chance.randint(1, 5)
        calls = 0

        def fetch(token: str | None) -> tuple[list[ListEntry], str | None]:
            nonlocal calls
            calls += 1
            begin = int(token or 0)
            return theirs[begin : begin + cut], str(begin + cut) if begin + cut < len(theirs) else None

        found: list[str] = []
        token: str | None = None
        for _ in range(200):
            calls = 0
            page, token = merge(own, fetch, order="x", descending=descending, size=size, token=token)
            assert len(page) <= size
            assert calls <= MOST_CALLS
            found += [shown["is"] for shown in page]
            if token is None:
                break
        shown = [entry for entry in [*own, *theirs] if entry.show()]
        key = {entry.name: entry.key for entry in shown}
        assert sorted(found) == sorted(key)
        assert [key[name] for name in found] == sorted(key.values(), reverse=descending)

    def showing(self, name: str | None) -> Any:
        return lambda: {"is": name} if name else None

    def test_what_would_cost_too_much_comes_on_the_next_page(self) -> None:
        room = [1]

        def costly(name: str) -> Any:
            def show() -> Any:
                if not room[0]:
                    raise LookupLimitError
                room[0] -= 1
                return {"is": name}

            return show

        own = [ListEntry(name, name, costly(name)) for name in "ab"]
        pages: list[Any] = []
        token: str | None = None
        for _ in range(2):
            room[0] = 1
            page, token = merge(own, lambda token: ([], None), order="x", descending=False, size=10, token=token)
            pages.append(page)
        assert (pages, token) == ([[{"is": "a"}], [{"is": "b"}]], None)

    @pytest.mark.parametrize("token", ["e30=", "WzFd", "bm9uc2Vuc2U=", "{}", "eyJvcmRlciI6IngiLCJvd24iOjF9", "ä"])
    def test_what_is_no_token(self, token: str) -> None:
        with pytest.raises(InvalidRequest, match="NextToken is not valid"):
            merge([], lambda token: ([], None), order="x", descending=False, size=1, token=token)
