"""The routes: answers, statuses, errors, who may do what."""

import json

import pytest

from api_contract import VERSION
from tests.jobs import OWNER, ROLE, a_body, a_request
from tests.payloads import api_event
from tests.unit.queue_api import ADMIN, Api


def test_a_caller_is_told_who_they_are_and_what_they_may_do() -> None:
    api = Api()
    api.queue.tables.rows.clear()
    status, answer = api.call("GET", "/whoami", caller=OWNER)
    assert status == 200
    assert answer == {
        **{"owner": OWNER, "admin": False, "appliesPolicies": False},
        **{"allowedRoleArns": [ROLE], "queueVersion": VERSION, "carrierOwner": None},
    }
    status, answer = api.call("GET", "/whoami", caller=ADMIN)
    assert (answer["owner"], answer["admin"], answer["appliesPolicies"]) == (ADMIN, True, True)


def test_a_submission_is_answered_with_its_job() -> None:
    api = Api(slots=1)
    status, first = api.add("job1", 5)
    assert status == 202
    assert (first["state"], first["position"], first["reason"]) == ("running", None, None)
    assert first["trainingJobName"] == "job1-qstamp-1"
    assert first["warnings"] == []
    status, second = api.add("job2", 1)
    assert (status, second["state"], second["position"]) == (202, "pending", 1)
    assert second["reason"]["code"] == "WAITING_FOR_CAPACITY"
    assert "job1" in second["reason"]["message"]


def test_a_job_that_never_fits_is_refused_and_without_preflight_warned_about() -> None:
    api = Api(slots=2)
    status, answer = api.add("huge", 1, instances=99)
    assert (status, answer["code"], answer["field"]) == (400, "InvalidRequest", "ResourceConfig.InstanceCount")
    assert "--no-preflight" in answer["remedy"]
    status, answer = api.add("huge", 1, preflight="false", instances=99)
    assert status == 202
    assert (answer["state"], answer["position"], answer["reason"]["code"]) == ("pending", None, "NEVER_FITS")
    (warning,) = answer["warnings"]
    assert answer["reason"]["message"] in warning
    assert "--no-preflight" not in warning


def test_a_drained_fleet_takes_jobs_and_says_that_they_cannot_start() -> None:
    status, answer = Api(slots=0).add("patient", 1)
    assert (status, answer["reason"]["code"]) == (202, "NEVER_FITS")
    (warning,) = answer["warnings"]
    assert "cannot start" in warning


def test_a_known_request_is_not_judged_again() -> None:
    """A client whose answer was lost asks again; meanwhile the policy may have changed."""
    api = Api(slots=2)
    first, _ = api.add("huge", 1, preflight="false", instances=99)
    again, answer = api.add("huge", 1, instances=99)
    assert (first, again, answer["state"]) == (202, 200, "pending")
    status, answer = api.add("huge", 2, instances=99)  # another request under that name
    assert (status, answer["field"]) == (400, "ResourceConfig.InstanceCount")


def test_a_plan_tells_what_preflight_would_refuse() -> None:
    status, answer = Api(slots=2).call("POST", "/plan", a_body("huge", instances=99))
    assert (status, answer["wouldStart"], answer["reason"]["code"]) == (200, False, "NEVER_FITS")
    assert any("cannot be met" in warning for warning in answer["warnings"])


def test_gpus_that_no_pool_shares_are_refused_by_their_tag_with_a_remedy_that_helps() -> None:
    algorithm = {"TrainingImage": "train:1", "TrainingInputMode": "File", "ContainerEntrypoint": ["train"]}
    tags = [{"Key": "gpus", "Value": "1"}]
    status, answer = Api(slots=2).add("part", 1, AlgorithmSpecification=algorithm, Tags=tags)
    assert (status, answer["field"]) == (400, "Tags[0].Value")
    message = answer["errors"][0]["message"]
    assert message.startswith("The tag gpus cannot be met under the present policy.")
    assert "Leave it out to get whole instances" in message and "InstanceCount" not in message


def test_without_preflight_sagemakers_own_rules_hold() -> None:
    status, answer = Api().add("job1", 1, preflight="false", EnableManagedSpotTraining=True)
    assert (status, answer["field"]) == (400, "StoppingCondition.MaxWaitTimeInSeconds")


def test_preflight_is_true_or_false() -> None:
    status, answer = Api().add("job1", 1, preflight="no")
    assert (status, answer["field"]) == (400, "preflight")


def test_a_job_is_shown_with_its_attempts_and_transitions() -> None:
    api = Api(slots=1)
    api.add("low", 1)
    api.add("high", 2)
    api.queue.end("low-qstamp-1", "Stopped")
    status, job = api.call("GET", "/jobs/low")
    assert status == 200
    assert job["state"] == "preempted"
    assert job["attempt"] == 2
    assert [entry["state"] for entry in job["history"]] == ["pending", "starting", "running", "stopping", "preempted"]
    assert [(a["trainingJobName"], a["outcome"]) for a in job["attempts"]] == [("low-qstamp-1", "preempted")]
    assert job["request"] == a_request("low", 1)
    assert job["position"] == 1
    _, high = api.call("GET", "/jobs/high")
    assert [(a["attempt"], a["ended"]) for a in high["attempts"]] == [(1, None)]


def test_the_group_of_a_job_is_shown() -> None:
    api = Api()
    api.add("job1", Tags=[{"Key": "group", "Value": "layers 2-4"}])
    assert [job["group"] for job in api.call("GET", "/jobs")[1]["jobs"]] == ["layers 2-4"]


def test_jobs_are_listed_in_the_order_of_the_article() -> None:
    api = Api(slots=2)
    for name, priority in [("job1", 1), ("job2", 2), ("job3", 1)]:
        api.add(name, priority)
    _, answer = api.call("GET", "/jobs")
    rows = [(job["job"], job["state"], job["priority"]) for job in answer["jobs"]]
    assert rows == [("job2", "running", 2), ("job1", "running", 1), ("job3", "pending", 1)]
    assert answer["next"] is None


def test_lists_come_in_pages_live_jobs_first_and_each_job_once() -> None:
    api = Api(slots=2)
    for number in range(9):
        api.add(f"job{number}", -number % 3)
    for _ in range(2):
        running = [name for name, state in api.queue.states().items() if state == "running"]
        api.queue.end(f"{running[0]}-qstamp-1")
    names: list[str] = []
    token: dict[str, str] = {}
    while True:
        status, answer = api.call("GET", "/jobs", state="all", limit="2", **token)
        assert status == 200
        assert len(answer["jobs"]) <= 2
        names += [job["job"] for job in answer["jobs"]]
        if answer["next"] is None:
            break
        token = {"next": answer["next"]}
    assert sorted(names) == sorted({f"job{number}" for number in range(9)})
    live = [job["job"] for job in api.call("GET", "/jobs")[1]["jobs"]]
    assert names[: len(live)] == live


@pytest.mark.parametrize(
    ("states", "expected"),
    [("running", ["b"]), ("completed", ["a"]), ("finished", ["a"]), ("pending,running", ["b", "c"])],
)
def test_lists_are_filtered_by_state(states: str, expected: list[str]) -> None:
    api = Api(slots=1)
    for name in "abc":
        api.add(name)
    api.queue.end("a-qstamp-1")
    assert [job["job"] for job in api.call("GET", "/jobs", state=states)[1]["jobs"]] == expected


def test_cancelling_a_waiting_job_a_running_one_and_a_finished_one() -> None:
    api = Api(slots=1)
    api.add("run")
    api.add("wait")
    assert api.call("DELETE", "/jobs/wait")[1]["state"] == "stopped"
    status, answer = api.call("DELETE", "/jobs/run")
    assert (status, answer["state"], answer["cancelRequested"]) == (202, "stopping", True)
    assert api.call("DELETE", "/jobs/run")[0] == 202
    api.queue.end("run-qstamp-1", "Stopped")
    status, answer = api.call("DELETE", "/jobs/run")
    assert (status, answer["state"]) == (200, "stopped")
    assert OWNER in api.call("GET", "/jobs/wait")[1]["reason"]["message"]


def test_an_admin_cancels_anybodys_job() -> None:
    api = Api()
    api.add("job1")
    assert api.call("DELETE", "/jobs/job1", caller=ADMIN)[0] == 202
    assert api.queue.state("job1") == "stopping"


def test_the_queue_shows_pools_and_who_waits_in_order() -> None:
    api = Api(slots=3)
    api.add("a", 1, instances=2)
    api.add("b", 9)
    api.add("c", 3)
    api.add("d", 1)
    _, status = api.call("GET", "/queue")
    pool = {"name": "default", "capacity": 3, "used": 3, "external": 0, "stopping": 2, "free": 0, "instanceType": None}
    market = {"warm": 0, "market": "on_demand", "trainingPlan": None, "opens": None, "closes": None}
    assert status["pools"] == [
        pool | market | {"gpus": None, "gpusUsed": 0.0, "drain": None, "region": None, "account": None}
    ]
    assert [(job["job"], job["state"]) for job in status["active"]] == [("b", "running"), ("a", "stopping")]
    assert [(job["job"], job["position"]) for job in status["waiting"]] == [("c", 1), ("d", 2)]
    assert all(job["reason"]["message"] for job in status["waiting"])


@pytest.mark.parametrize("jobs", [2, 3])
def test_jobs_beyond_the_window_are_counted_and_not_promised_a_start(jobs: int) -> None:
    api = Api(slots=1)
    policy = {
        "pools": [{"name": "all", "capacity": 1}],
        "projects": [{"name": "default", "quota": {"all": 1}}],
        "settings": {"window": 2},
    }
    answer = api.call("PUT", "/policy", json.dumps({"policy": policy, "version": 0}), ADMIN)
    assert answer[0] == 200
    api.add("runs")
    for number in range(jobs):
        api.add(f"waits-{number}")
    more = jobs > 2
    _, status = api.call("GET", "/queue")
    assert [job["job"] for job in status["waiting"]] == ["waits-0", "waits-1"]
    assert (status["moreWaiting"], status["projects"][0]["moreWaiting"]) == (more, more)
    assert status["projects"][0]["waiting"] == 2
    _, last = api.call("GET", f"/jobs/waits-{jobs - 1}")
    assert last["reason"]["code"] == ("BEYOND_WINDOW" if more else "BEHIND_OTHERS")
    assert not more or "first 2 jobs" in last["reason"]["message"]


def test_an_error_of_the_queues_own_shows_no_trace() -> None:
    api = Api()

    def broken(name: str) -> None:
        raise KeyError("secret detail")

    api.queue.repository.record = broken  # type: ignore[method-assign]
    status, error = api.call("GET", "/jobs/job1")
    assert status == 500
    assert "secret" not in error["message"]


def test_a_request_without_a_caller_is_refused() -> None:
    api = Api()
    event = api_event("POST", "/add-job", body=a_body())
    event["requestContext"]["identity"] |= {"userArn": None, "caller": None}
    answer = api.resolver.resolve(event, {})  # type: ignore[arg-type]
    assert answer["statusCode"] == 403
    assert api.queue.states() == {}


SESSIONS = "arn:aws:sts::123456789012:assumed-role/Research"


def test_what_one_run_submits_the_next_may_cancel_though_a_library_names_its_session_anew() -> None:
    api = Api()
    caller, later = f"{SESSIONS}/botocore-session-1791092141", f"{SESSIONS}/botocore-session-1791099999"
    assert api.call("POST", "/add-job", a_body("mine"), caller=caller)[0] == 202
    assert api.call("GET", "/jobs/mine")[1]["owner"] == "arn:aws:iam::123456789012:role/Research"
    other_role = later.replace("Research", "Search")
    assert api.call("DELETE", "/jobs/mine", caller=other_role)[0] == 403
    assert api.call("DELETE", "/jobs/mine", caller=later)[0] == 202


def test_a_job_of_a_named_session_is_of_nobody_else() -> None:
    api = Api()
    assert api.call("POST", "/add-job", a_body("anns"), caller=f"{SESSIONS}/ann")[0] == 202
    assert api.call("GET", "/jobs/anns")[1]["owner"] == f"{SESSIONS}/ann"
    for stranger in (f"{SESSIONS}/bob", f"{SESSIONS}/botocore-session-1791092141"):
        assert api.call("DELETE", "/jobs/anns", caller=stranger)[0] == 403
    assert api.call("DELETE", "/jobs/anns", caller=f"{SESSIONS}/ann")[0] == 202


def test_a_job_that_is_recorded_under_such_a_session_is_of_its_role() -> None:
    """As it was recorded before owners were told apart so."""
    api = Api()
    api.add("old")
    (row,) = (row for row in api.queue.tables.rows.values() if row.get("jobName") == "old" and "jobDetails" in row)
    row["owner"] = f"{SESSIONS}/botocore-session-1700000000"
    assert api.call("GET", "/jobs/old")[1]["owner"] == "arn:aws:iam::123456789012:role/Research"
    assert api.call("DELETE", "/jobs/old", caller=f"{SESSIONS}/botocore-session-1791092141")[0] == 202
