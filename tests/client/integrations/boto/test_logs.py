"""The log streams of a job of the queue, as a boto3 client of CloudWatch Logs reads them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from sagemaker_queue.integrations.boto.sessions import hooks_of
from sagemaker_queue.workflows.job_logs.attempt_logs import LOG_GROUP
from tests.client.integrations.boto.hooked_clients import WAITING, HookedClients, twice_run

BEGIN = "2026-11-21T10:00:00Z"


class TestLogs:
    @pytest.fixture(autouse=True)
    def streams(self, clients: HookedClients) -> None:
        """What two attempts on two instances have written."""
        logs = clients.direct.logs
        logs.create_log_group(logGroupName=LOG_GROUP)
        begin = int((datetime.now(timezone.utc) - timedelta(hours=1)).timestamp() * 1000)
        for attempt in (1, 2):
            for host in (1, 2):
                name = f"job1-qstamp-{attempt}/algo-{host}-170000000{attempt}"
                logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=name)
                events = [
                    {"timestamp": begin + 1000 * (10 * attempt + line), "message": f"{attempt}.{host}.{line}"}
                    for line in range(3)
                ]
                logs.put_log_events(logGroupName=LOG_GROUP, logStreamName=name, logEvents=events)

    def names(self, clients: HookedClients, prefix: str = "job1/") -> list[str]:
        answer = clients.logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=prefix, limit=1)
        return [stream["logStreamName"] for stream in answer["logStreams"]]

    def test_there_is_one_stream_for_each_instance(self, clients: HookedClients) -> None:
        clients.job(**twice_run("running"))
        assert self.names(clients) == ["job1/algo-1-1700000001", "job1/algo-2-1700000001"]
        assert self.names(clients, "job1/algo-2") == ["job1/algo-2-1700000001"]
        assert self.names(clients, "job1") == ["job1/algo-1-1700000001", "job1/algo-2-1700000001"]

    def test_a_job_that_waits_has_none(self, clients: HookedClients) -> None:
        clients.job(**WAITING)
        assert self.names(clients) == []

    def test_who_has_seen_its_end_sees_all_of_its_log(self, clients: HookedClients) -> None:
        clients.job(**WAITING)
        assert self.names(clients) == []
        ended = {"job": "job1", "state": "completed", "attempt": 2, "entryTime": BEGIN, "stateSince": BEGIN}
        clients.server.answers(200, {"jobs": [ended], "next": None})
        (listed,) = clients.sagemaker.list_training_jobs()["TrainingJobSummaries"]
        assert listed["TrainingJobStatus"] == "Completed"
        clients.job(**twice_run("completed"))
        assert len(self.names(clients)) == 2

    def test_a_stream_has_the_lines_of_all_attempts(self, clients: HookedClients) -> None:
        clients.job(**twice_run("running"))
        messages: list[str] = []
        token: dict[str, str] = {}
        for _ in range(10):
            page = clients.logs.get_log_events(
                logGroupName=LOG_GROUP, logStreamName="job1/algo-2-1700000001", startFromHead=True, limit=2, **token
            )
            messages += [event["message"] for event in page["events"]]
            token = {"nextToken": page["nextForwardToken"]}
        assert messages == ["1.2.0", "1.2.1", "1.2.2", "2.2.0", "2.2.1", "2.2.2"]

    def test_a_time_in_the_second_attempt(self, clients: HookedClients) -> None:
        clients.job(**twice_run("running"))
        stream = "job1/algo-1-1700000001"
        arguments = {"logGroupName": LOG_GROUP, "logStreamName": stream, "startFromHead": True, "limit": 3}
        first = clients.logs.get_log_events(**arguments)
        second = clients.logs.get_log_events(**arguments, nextToken=first["nextForwardToken"])
        after = second["events"][1]["timestamp"]
        page = clients.logs.get_log_events(**arguments, startTime=after)
        assert [event["message"] for event in page["events"]] == ["2.1.1", "2.1.2"]

    @pytest.mark.parametrize("from_head", [True, False])
    def test_one_page_has_all_attempts_if_there_is_room(self, clients: HookedClients, from_head: bool) -> None:
        clients.job(**twice_run("running"))
        page = clients.logs.get_log_events(
            logGroupName=LOG_GROUP, logStreamName="job1/algo-1-1700000001", startFromHead=from_head
        )
        messages = [event["message"] for event in page["events"]]
        assert messages == ["1.1.0", "1.1.1", "1.1.2", "2.1.0", "2.1.1", "2.1.2"]

    @pytest.mark.parametrize("from_head", [True, False])
    @pytest.mark.parametrize("token", ["2@", "7@b/1", "7@f/1"])
    def test_a_token_of_no_attempt_is_refused_as_by_cloudwatch(
        self, clients: HookedClients, token: str, from_head: bool
    ) -> None:
        clients.job(**twice_run("running"))
        with pytest.raises(clients.logs.exceptions.InvalidParameterException, match="nextToken is invalid"):
            clients.logs.get_log_events(
                logGroupName=LOG_GROUP,
                logStreamName="job1/algo-1-1700000001",
                startFromHead=from_head,
                nextToken=token,
            )

    @pytest.mark.parametrize("from_head", [True, False])
    def test_a_job_that_waits_has_empty_pages(self, clients: HookedClients, from_head: bool) -> None:
        clients.job(**WAITING)
        arguments = {"logGroupName": LOG_GROUP, "logStreamName": "job1/algo-1-1700000001", "startFromHead": from_head}
        page = clients.logs.get_log_events(**arguments)
        again = clients.logs.get_log_events(**arguments, nextToken=page["nextBackwardToken"])
        assert page["events"] == again["events"] == []
        assert page["nextBackwardToken"] == again["nextBackwardToken"]

    def test_from_the_tail(self, clients: HookedClients) -> None:
        clients.job(**twice_run("running"))
        page = clients.logs.get_log_events(logGroupName=LOG_GROUP, logStreamName="job1/algo-1-1700000001", limit=1)
        assert [event["message"] for event in page["events"]] == ["2.1.2"]

    def test_a_prefix_of_several_jobs_is_no_job(self, clients: HookedClients) -> None:
        clients.unknown()
        assert self.names(clients, "job") == ["job1-qstamp-1/algo-1-1700000001"]  # as many as were asked for

    @pytest.mark.parametrize(
        "chosen",
        [
            {"logStreamNames": ["job1/algo-1-1700000001"]},
            {"logStreamNamePrefix": "job1/algo-1"},
            {"logStreamNamePrefix": "job1"},
        ],
    )
    def test_filtered(self, clients: HookedClients, chosen: dict[str, Any]) -> None:
        clients.job(**twice_run("running"))
        pages = clients.logs.get_paginator("filter_log_events").paginate(logGroupName=LOG_GROUP, **chosen)
        events = [event for page in pages for event in page["events"] if "/algo-1-" in event["logStreamName"]]
        assert [event["message"] for event in events] == ["1.1.0", "1.1.1", "1.1.2", "2.1.0", "2.1.1", "2.1.2"]
        assert {event["logStreamName"].partition("/")[0] for event in events} == {"job1"}

    def test_filtered_by_one_call(self, clients: HookedClients) -> None:
        """Programs that look at one page only see all attempts, too."""
        clients.job(**twice_run("running"))
        page = clients.logs.filter_log_events(logGroupName=LOG_GROUP, logStreamNamePrefix="job1/algo-2")
        messages = [event["message"] for event in page["events"] if "/algo-2-" in event["logStreamName"]]
        assert messages == ["1.2.0", "1.2.1", "1.2.2", "2.2.0", "2.2.1", "2.2.2"]
        assert "nextToken" not in page

    def test_filtered_page_by_page(self, clients: HookedClients) -> None:
        clients.job(**twice_run("running"))
        found: list[list[str]] = []
        token: dict[str, str] = {}
        while True:
            page = clients.logs.filter_log_events(
                logGroupName=LOG_GROUP, logStreamNames=["job1/algo-1-1700000001"], limit=4, **token
            )
            assert len(page["events"]) <= 4
            found.append([event["message"] for event in page["events"]])
            if "nextToken" not in page:
                break
            token = {"nextToken": page["nextToken"]}
        assert [message for page in found for message in page] == [
            f"{it}.1.{line}" for it in (1, 2) for line in range(3)
        ]

    def test_other_groups_are_left_alone(self, clients: HookedClients) -> None:
        clients.direct.logs.create_log_group(logGroupName="/mine")
        clients.logs.describe_log_streams(logGroupName="/mine", logStreamNamePrefix="job1/")
        assert clients.server.received == []


class TestInsights:
    """CloudWatch evaluates the queries: looked at is what is sent."""

    TWO = "(?:job1-qstamp-1|job1-qstamp-2)"

    @pytest.fixture
    def sent(self, clients: HookedClients) -> Iterator[list[str]]:
        queries: list[str] = []

        def keep(params: Any, **_: Any) -> None:
            queries.append(params["queryString"])

        event = "provide-client-params.cloudwatch-logs.StartQuery"
        clients.session.events.register(event, keep)
        hooks_of(clients.session).renew()  # so that its own client has the handler, too
        clients.logs = clients.session.client("logs")
        yield queries
        clients.session.events.unregister(event, keep)
        hooks_of(clients.session).renew()

    def ask(self, clients: HookedClients, query: str, group: str = LOG_GROUP) -> None:
        clients.direct.logs.create_log_group(logGroupName=group)
        clients.logs.start_query(logGroupName=group, startTime=0, endTime=1, queryString=query)

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("@logStream like 'job1/'", "@logStream like /{two}\\//"),
            ('@logStream like "job1/algo-1"', "@logStream like /{two}\\/algo-1/"),
            ("@logStream like /^job1\\/algo-[12]/", "@logStream like /^{two}\\/algo-[12]/"),
            ("@logStream =~ /job1\\//", "@logStream =~ /{two}\\//"),
        ],
    )
    def test_a_job_is_its_attempts(
        self, clients: HookedClients, sent: list[str], condition: str, expected: str
    ) -> None:
        clients.job(**twice_run("running"))
        self.ask(clients, f"fields @message | filter {condition} | sort @timestamp")
        assert sent[-1] == f"fields @message | filter {expected.format(two=self.TWO)} | sort @timestamp"

    def test_a_stream_is_those_of_its_instance(self, clients: HookedClients, sent: list[str]) -> None:
        clients.job(**twice_run("running"))
        clients.direct.logs.create_log_group(logGroupName=LOG_GROUP)
        streams = [
            "job1-qstamp-1/algo-1-1700000001",
            "job1-qstamp-2/algo-1-1700000002",
            "job1-qstamp-2/algo-2-1700000002",
        ]
        for stream in streams:
            clients.direct.logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)
        clients.logs.start_query(
            logGroupName=LOG_GROUP, startTime=0, endTime=1, queryString='filter @logStream = "job1/algo-1-1700000001"'
        )
        assert sent[-1] == f'filter @logStream in ["{streams[0]}", "{streams[1]}"]'

    @pytest.mark.parametrize(
        "query", ["fields @message", "filter @logStream like 'job1'", "filter @message like 'job1/x'"]
    )
    def test_other_conditions_stay(self, clients: HookedClients, sent: list[str], query: str) -> None:
        """A name without a slash is found in the names of attempts anyway."""
        self.ask(clients, query)
        assert sent == [query]
        assert clients.server.received == []

    def test_other_groups_are_left_alone(self, clients: HookedClients, sent: list[str]) -> None:
        self.ask(clients, "filter @logStream like 'job1/'", group="/mine")
        assert clients.server.received == []
