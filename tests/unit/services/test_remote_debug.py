"""The queue enables remote debugging in running attempts, for those who may, and in no other training job."""

from dataclasses import replace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from job_queue.adapters.sagemaker import SageMakerTraining, UpdateResult
from job_queue.domain.errors import InvalidRequest, Unavailable
from job_queue.services.job_commands import JobCommands, RemoteDebugService
from tests.jobs import OWNER
from tests.queue_harness import Harness
from tests.unit.controller.test_carriers import carrier, share, submit
from tests.unit.queue_api import ADMIN, STRANGER, Api

ENABLE = '{"remoteDebug": true}'


def patch(api: Api, name: str, body: str = ENABLE, caller: str = OWNER) -> tuple[int, dict[str, Any]]:
    return api.call("PATCH", f"/jobs/{name}", body, caller=caller)


def running(**changes: Any) -> Api:
    api = Api(slots=1)
    api.add("job", **changes)
    assert api.queue.state("job") == "running"
    trains(api)
    return api


def trains(api: Api, secondary: str = "Training", name: str = "job-qstamp-1") -> None:
    api.queue.training.jobs[name] = replace(api.queue.training.jobs[name], secondary=secondary)


def causes(api: Api, name: str = "job") -> list[str]:
    return [entry.cause for entry in api.queue.record(name).history if "remote" in entry.cause]


def enabled(api: Api) -> set[str]:
    return api.queue.training.debugged


@pytest.mark.parametrize("secondary", ["Downloading", "Training"])
@pytest.mark.parametrize("caller", [OWNER, ADMIN])
def test_it_is_enabled_in_the_running_attempt_and_recorded_once(caller: str, secondary: str) -> None:
    api = running()
    trains(api, secondary)
    for _ in range(2):
        status, answer = patch(api, "job", caller=caller)
        assert (status, answer["state"]) == (200, "running")
    assert enabled(api) == {"job-qstamp-1"}
    assert causes(api) == [f"remote debugging enabled by {caller}"]


def test_the_next_attempt_does_not_have_it() -> None:
    api = running()
    patch(api, "job")
    patch(api, "job", '{"requeue": true}')
    api.queue.end("job-qstamp-1", "Stopped")
    assert api.queue.state("job") == "running"
    trains(api, name="job-qstamp-2")
    assert enabled(api) == {"job-qstamp-1"}
    patch(api, "job")
    assert enabled(api) == {"job-qstamp-1", "job-qstamp-2"}
    assert len(causes(api)) == 2


def test_strangers_enable_nothing() -> None:
    api = running()
    status, answer = patch(api, "job", caller=STRANGER)
    assert (status, answer["code"]) == (403, "Forbidden")
    assert "may enable a shell in it" in answer["message"]
    assert not enabled(api)
    assert not causes(api)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ('{"remoteDebug": true, "priority": 3}', 400, "must be the only change"),
        ('{"remoteDebug": true, "requeue": true}', 400, "must be the only change"),
        ('{"remoteDebug": 1}', 400, "remoteDebug cannot be 1"),
        ('{"remoteDebug": false}', 200, ""),
    ],
)
def test_other_requests_enable_nothing(body: str, status: int, says: str) -> None:
    api = running()
    found, answer = patch(api, "job", body)
    assert (found, says in answer.get("message", "")) == (status, True), answer
    assert not enabled(api)


@pytest.mark.attack
def test_a_caller_has_one_request_answered_at_a_time() -> None:
    """Each request calls SageMaker three times, and a flood would leave no calls for the launches of others."""
    api = running()
    describe = api.queue.training.describe
    answers: list[tuple[int, dict[str, Any]]] = []

    def describe_then(name: str) -> Any:
        api.queue.training.describe = describe  # type: ignore[method-assign]
        answers.extend(patch(api, "job", caller=caller) for caller in (OWNER, ADMIN))
        return describe(name)

    api.queue.training.describe = describe_then  # type: ignore[method-assign]
    assert patch(api, "job")[0] == 200
    (refused, answer), (other, _) = answers
    assert (refused, answer["code"], answer["remedy"]) == (429, "Busy", "Try again in a few seconds.")
    assert other == 200, "other callers do not wait"
    assert patch(api, "job")[0] == 200, "the permit is free again"


def test_a_job_without_a_running_attempt_has_a_clear_answer() -> None:
    api = running()
    api.add("waits")
    assert patch(api, "waits")[1]["message"] == "waits does not run: it is pending."
    trains(api, "Starting")
    status, answer = patch(api, "job")
    assert (status, "Downloading or Training" in answer["remedy"]) == (409, True)
    api.call("DELETE", "/jobs/job")
    assert patch(api, "job")[0] == 409
    api.queue.end("job-qstamp-1", "Stopped")
    assert patch(api, "job")[1]["message"] == "job has finished (stopped), so no shell can be opened in it."
    assert patch(api, "gone")[0] == 404
    assert not enabled(api)


def test_an_isolated_job_is_never_entered() -> None:
    api = running(EnableNetworkIsolation=True)
    assert patch(api, "job")[0] == 400
    assert not enabled(api)


def test_a_training_job_that_took_the_name_is_left_alone() -> None:
    """The attempt was deleted, and a stranger copied its tags and proof: the caller must not get into that job."""
    api = running()
    taken = api.queue.training.jobs["job-qstamp-1"]
    api.queue.training.jobs["job-qstamp-1"] = replace(taken, created=api.queue.now + 3600)
    assert patch(api, "job")[0] == 409
    api.queue.training.jobs["job-qstamp-1"] = replace(taken, tags={"queue-name": "sagemaker-queue"})
    assert patch(api, "job")[0] == 409
    assert not enabled(api)


def test_a_denied_update_names_the_permission_and_can_be_repeated() -> None:
    api = running()
    api.queue.training.untagged.add("job-qstamp-1")
    status, answer = patch(api, "job")
    assert (status, "sagemaker:EnableRemoteDebug" in answer["remedy"]) == (403, True)
    assert not causes(api)
    api.queue.training.untagged.clear()
    assert patch(api, "job")[0] == 200
    assert len(causes(api)) == 1


def test_neither_a_member_nor_its_carrier_is_entered() -> None:
    queue = Harness()
    share(queue)
    submit(queue, "member")
    commands = JobCommands(queue.repository, queue.policies, queue.settings, queue.clock)
    service = RemoteDebugService(commands, queue.repository, queue.training, queue.clock)
    for job in (queue.job("member"), carrier(queue)):
        with pytest.raises(InvalidRequest, match="shares an instance with other jobs"):
            service.enable(job.name, job.owner)
    assert not queue.training.debugged


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (None, UpdateResult.UPDATED),
        ("ValidationException", UpdateResult.REFUSED),
        ("ResourceNotFound", UpdateResult.REFUSED),
        ("AccessDeniedException", UpdateResult.DENIED),
    ],
)
def test_the_answers_of_sagemaker(code: str | None, result: UpdateResult) -> None:
    assert training(code).enable_remote_debug("a")[0] is result


def test_no_usable_answer_of_sagemaker() -> None:
    with pytest.raises(Unavailable, match="Rate exceeded"):
        training("ThrottlingException").enable_remote_debug("a")


def training(code: str | None) -> SageMakerTraining:
    class Client:
        def update_training_job(self, **request: Any) -> None:
            assert request == {"TrainingJobName": "a", "RemoteDebugConfig": {"EnableRemoteDebug": True}}
            if code:
                raise ClientError({"Error": {"Code": code, "Message": "Rate exceeded"}}, "UpdateTrainingJob")

    return SageMakerTraining(cast(Any, Client()), cast(Any, None))
