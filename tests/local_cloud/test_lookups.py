"""Search, and the filters of CloudWatch Logs: what programs look training jobs up by."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from local_cloud.aws.log_filters import matches
from tests.local_cloud.emulator import Emulator

GROUP = "/looked-up"


def equals(name: str, value: str) -> dict[str, str]:
    return {"Name": name, "Operator": "Equals", "Value": value}


@pytest.fixture(scope="module")
def jobs(emulator: Emulator) -> None:
    for name, team, rate in (
        ("sought-1", "vision", "0.1"),
        ("sought-2", "text", "0.2"),
        ("sought-3", "text", "0.1"),
    ):
        emulator.create(name, Tags=[{"Key": "team", "Value": team}], HyperParameters={"lr": rate})
        emulator.ended(name)


@pytest.fixture(scope="module")
def logs(emulator: Emulator) -> Any:
    logs = emulator.logs
    logs.create_log_group(logGroupName=GROUP)
    for name, first in (("job1/algo-1", 0), ("job1/algo-2", 1), ("job10/algo-1", 2)):
        logs.create_log_stream(logGroupName=GROUP, logStreamName=name)
        events = [{"timestamp": 1_700_000_000_000 + first + 10 * n, "message": f"{name} {n}"} for n in range(3)]
        logs.put_log_events(logGroupName=GROUP, logStreamName=name, logEvents=events)
    return logs


@pytest.mark.usefixtures("jobs")
class TestSearch:
    def found(self, emulator: Emulator, *filters: Any, **options: Any) -> list[str]:
        expression = {"Filters": list(filters), "Operator": options.pop("Operator", "And")}
        answer = emulator.sagemaker.search(
            Resource="TrainingJob", SearchExpression=expression, SortBy="CreationTime", SortOrder="Ascending", **options
        )
        return [result["TrainingJob"]["TrainingJobName"] for result in answer["Results"]]

    @pytest.mark.parametrize(
        ("filters", "names"),
        [
            ([equals("TrainingJobName", "sought-1")], ["sought-1"]),
            (
                [{"Name": "TrainingJobName", "Operator": "Contains", "Value": "sought"}],
                ["sought-1", "sought-2", "sought-3"],
            ),
            ([{"Name": "TrainingJobName", "Operator": "In", "Value": "sought-1,sought-3"}], ["sought-1", "sought-3"]),
            ([equals("Tags.team", "text"), equals("HyperParameters.lr", "0.1")], ["sought-3"]),
            ([equals("TrainingJobStatus", "Failed"), equals("Tags.team", "text")], []),
            ([equals("ResourceConfig.InstanceCount", "1"), equals("Tags.team", "vision")], ["sought-1"]),
            (
                [
                    equals("Tags.team", "text"),
                    {"Name": "CreationTime", "Operator": "LessThan", "Value": "2020-01-01T00:00:00"},
                ],
                [],
            ),
        ],
    )
    def test_filters(self, emulator: Emulator, filters: list[Any], names: list[str]) -> None:
        assert self.found(emulator, *filters) == names

    def test_pages_and_orders(self, emulator: Emulator) -> None:
        pages = emulator.sagemaker.get_paginator("search").paginate(
            Resource="TrainingJob",
            SearchExpression={"Filters": [{"Name": "TrainingJobName", "Operator": "Contains", "Value": "sought"}]},
            SortBy="TrainingJobName",
            PaginationConfig={"PageSize": 2},
        )
        names = [[result["TrainingJob"]["TrainingJobName"] for result in page["Results"]] for page in pages]
        assert names == [["sought-3", "sought-2"], ["sought-1"]]

    def test_a_result_has_tags_and_hyperparameters(self, emulator: Emulator) -> None:
        expression = {"Filters": [equals("TrainingJobName", "sought-1")]}
        (found,) = emulator.sagemaker.search(Resource="TrainingJob", SearchExpression=expression)["Results"]
        job = found["TrainingJob"]
        assert (job["Tags"], job["HyperParameters"]) == ([{"Key": "team", "Value": "vision"}], {"lr": "0.1"})

    def test_a_structure_has_no_order(self, emulator: Emulator) -> None:
        than = {"Name": "ResourceConfig", "Operator": "GreaterThan", "Value": "1"}
        with pytest.raises(ClientError, match="ResourceConfig is a structure") as error:
            self.found(emulator, than)
        assert error.value.response["Error"]["Code"] == "ValidationException"
        with pytest.raises(ClientError, match="SortBy is HyperParameters") as error:
            emulator.sagemaker.search(Resource="TrainingJob", SortBy="HyperParameters")
        assert error.value.response["Error"]["Code"] == "ValidationException"

    def test_other_resources_are_not_emulated(self, emulator: Emulator) -> None:
        with pytest.raises(ClientError, match="not emulated"):
            emulator.sagemaker.search(Resource="Pipeline")


class TestLogFilters:
    def messages(self, logs: Any, **asked: Any) -> list[str]:
        pages = logs.get_paginator("filter_log_events").paginate(logGroupName=GROUP, **asked)
        return [event["message"] for page in pages for event in page["events"]]

    def test_a_prefix(self, logs: Any) -> None:
        assert self.messages(logs, logStreamNamePrefix="job1/algo-2") == [f"job1/algo-2 {n}" for n in range(3)]
        mixed = [f"job1/algo-{host} {n}" for n in range(3) for host in (1, 2)]
        assert self.messages(logs, logStreamNamePrefix="job1/") == mixed
        assert len(self.messages(logs)) == 9

    def test_pages(self, logs: Any) -> None:
        pages = logs.get_paginator("filter_log_events").paginate(
            logGroupName=GROUP, logStreamNamePrefix="job1/", PaginationConfig={"PageSize": 4}
        )
        assert [len(page["events"]) for page in pages] == [4, 2]

    def test_names_times_and_patterns(self, logs: Any) -> None:
        assert len(self.messages(logs, logStreamNames=["job1/algo-1", "job10/algo-1"])) == 6
        assert self.messages(logs, startTime=1_700_000_000_020, endTime=1_700_000_000_021) == [
            "job1/algo-1 2",
            "job1/algo-2 2",
        ]
        assert self.messages(logs, logStreamNamePrefix="job10/", filterPattern='"algo-1 1"') == ["job10/algo-1 1"]

    def test_the_newest_first(self, logs: Any) -> None:
        times = [1_800_000_000_000 + n for n in range(5)]
        logs.create_log_stream(logGroupName=GROUP, logStreamName="new/algo-1")
        events = [{"timestamp": time, "message": str(time)} for time in times]
        logs.put_log_events(logGroupName=GROUP, logStreamName="new/algo-1", logEvents=events)
        chosen = {"logGroupName": GROUP, "logStreamNamePrefix": "new/", "startTime": times[1], "limit": 2}
        first = logs.filter_log_events(**chosen, startFromHead=False)
        assert [event["timestamp"] for event in first["events"]] == [times[4], times[3]]
        second = logs.filter_log_events(**chosen, nextToken=first["nextToken"])  # the token has the direction
        assert [event["timestamp"] for event in second["events"]] == [times[2], times[1]]
        assert "nextToken" not in second

    def test_a_page_has_a_megabyte_at_most_and_may_be_empty(self, logs: Any) -> None:
        logs.create_log_stream(logGroupName=GROUP, logStreamName="long/algo-1")
        for number in range(3):
            events = [{"timestamp": 1_700_000_000_000 + number, "message": f"{number} " + "x" * 200_000}] * 4
            logs.put_log_events(logGroupName=GROUP, logStreamName="long/algo-1", logEvents=events)
        pages = logs.get_paginator("filter_log_events")
        chosen = {"logGroupName": GROUP, "logStreamNamePrefix": "long/"}
        assert [len(page["events"]) for page in pages.paginate(**chosen)] == [5, 5, 2]
        assert [len(page["events"]) for page in pages.paginate(**chosen, filterPattern='"2 xx"')] == [0, 2, 2]

    @pytest.mark.parametrize(
        ("pattern", "matching"),
        [
            ("", True),
            ('""', True),
            ("loss epoch", True),
            ("loss accuracy", False),
            ('"epoch 3"', True),
            ('"epoch 4"', False),
            ("loss -epoch", False),
            ("?accuracy ?loss", True),
            ("%loss=0\\.[0-9]+%", True),
        ],
    )
    def test_patterns(self, pattern: str, matching: bool) -> None:
        assert matches(pattern, "epoch 3: loss=0.25") is matching

    @pytest.mark.parametrize(
        ("asked", "code"),
        [
            ({"logStreamNames": ["job1/algo-1"], "logStreamNamePrefix": "job1/"}, "InvalidParameterException"),
            ({"logStreamNames": ["nobody"]}, "ResourceNotFoundException"),
            ({"nextToken": "nonsense"}, "InvalidParameterException"),
            ({"limit": 10_001}, "InvalidParameterException"),
            ({"startTime": 2, "endTime": 1}, "InvalidParameterException"),
            ({"startFromHead": False}, "InvalidParameterException"),
            ({"filterPattern": "loss %(%"}, "InvalidParameterException"),
            ({"filterPattern": "-%[a%", "logStreamNamePrefix": "nobody/"}, "InvalidParameterException"),
            ({"startFromHead": False, "startTime": 1_704_067_199_999}, "InvalidParameterException"),
        ],
    )
    def test_what_cloudwatch_refuses(self, logs: Any, asked: dict[str, Any], code: str) -> None:
        with pytest.raises(ClientError) as error:
            logs.filter_log_events(logGroupName=GROUP, **asked)
        assert error.value.response["Error"]["Code"] == code


def test_hyperparameters_that_no_environment_takes(emulator: Emulator) -> None:
    """SageMaker takes 250,000 characters of them, and gives them to containers by a file."""
    many = {f"h{number}": "x" * 2500 for number in range(100)}
    script = (
        "import json, os; given = json.load(open(f\"{os.environ['SM_INPUT_CONFIG_DIR']}/hyperparameters.json\"));"
        "print(sum(map(len, given.values())), 'SM_HPS' in os.environ, len(os.environ['SM_HP_H0']))"
    )
    emulator.create("many", "python", "-c", script, HyperParameters=many)
    assert emulator.ended("many")["TrainingJobStatus"] == "Completed"
    lines = emulator.log("many")
    assert "250000 False 2500" in lines
