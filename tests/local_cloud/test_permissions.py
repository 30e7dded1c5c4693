"""Which permissions a call to the emulator of SageMaker needs, and that wrong signatures are refused."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from local_cloud.aws.ministack import Ministack
from local_cloud.aws.permissions import Permissions
from local_cloud.sagemaker.training_service import TrainingService
from local_cloud.sagemaker.wire import EmulatedError, SignedCall

PREFIX = "arn:aws:sagemaker:us-east-1:000000000000"
ROLE = "arn:aws:iam::000000000000:role/training"
PLAN = f"{PREFIX}:training-plan/reserved"


def needed(operation: str, tags: dict[str, str] | None = None, **request: Any) -> list[tuple[str, str, dict[str, Any]]]:
    permissions = Permissions("http://127.0.0.1:1", "us-east-1", "000000000000", lambda name: tags or {})
    return [(one.action, one.resource, dict(one.context)) for one in permissions.needed(operation, request)]


def test_when_they_cannot_be_checked_the_call_may_be_tried_again() -> None:
    permissions = Permissions("http://127.0.0.1:1", "us-east-1", "000000000000", lambda name: {})
    with pytest.raises(EmulatedError) as raised:
        permissions.check(SignedCall([], b"{}"), "ListTrainingJobs", {})
    assert (raised.value.code, raised.value.status) == ("ServiceUnavailable", 503)


def test_a_launch_needs_the_launch_the_tags_the_plan_and_the_role() -> None:
    asked = {"aws:RequestTag/queue-name": "q", "aws:TagKeys": ["queue-name"]}
    assert needed(
        "CreateTrainingJob",
        TrainingJobName="a-qstamp-1",
        RoleArn=ROLE,
        Tags=[{"Key": "queue-name", "Value": "q"}],
        ResourceConfig={"TrainingPlanArn": PLAN},
    ) == [
        ("sagemaker:CreateTrainingJob", f"{PREFIX}:training-job/a-qstamp-1", asked),
        (
            "sagemaker:AddTags",
            f"{PREFIX}:training-job/a-qstamp-1",
            {**asked, "sagemaker:TaggingAction": "CreateTrainingJob"},
        ),
        ("sagemaker:CreateTrainingJob", PLAN, {}),
        ("iam:PassRole", ROLE, {"iam:PassedToService": "sagemaker.amazonaws.com"}),
    ]


def test_without_tags_there_is_no_tagging() -> None:
    assert [action for action, *_ in needed("CreateTrainingJob", TrainingJobName="a", Tags=[])] == [
        "sagemaker:CreateTrainingJob"
    ]


@pytest.mark.parametrize("operation", ["StopTrainingJob", "DescribeTrainingJob", "DeleteTrainingJob"])
def test_what_is_done_to_a_job_depends_on_its_tags(operation: str) -> None:
    assert needed(operation, {"queue-name": "q"}, TrainingJobName="a") == [
        (f"sagemaker:{operation}", f"{PREFIX}:training-job/a", {"aws:ResourceTag/queue-name": "q"})
    ]


def test_resources_may_be_named_by_their_arn() -> None:
    arn = f"{PREFIX}:training-job/a"
    ((action, resource, _),) = needed("ListTags", ResourceArn=arn)
    assert (action, resource) == ("sagemaker:ListTags", arn)


def test_a_list_names_no_resource() -> None:
    assert needed("ListTrainingJobs") == [("sagemaker:ListTrainingJobs", "*", {})]


@pytest.mark.parametrize("request_", [{"Tags": "x"}, {"Tags": [1]}, {"ResourceConfig": 5}, {"TrainingJobName": 7}])
def test_a_malformed_request_is_left_to_the_validation(request_: dict[str, Any]) -> None:
    assert needed("CreateTrainingJob", **request_)


# --- asking ministack --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sagemaker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The emulator's URL, with ministack behind it."""
    folder = tmp_path_factory.mktemp("cloud")
    ministack = Ministack(folder, auth=True, region="us-east-1")
    try:
        ministack.start({})
        with TrainingService(aws_endpoint=ministack.url, token=ministack.token, workdir=folder, auth=True) as training:
            yield training.url
    finally:
        ministack.close()


def refusal(url: str, key: str = "test", secret: str = "test", **options: Any) -> str:
    """The code with which a list of training jobs is refused; empty: it is not."""
    client = boto3.client(
        "sagemaker",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}, **options),
    )
    try:
        client.list_training_jobs()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def test_the_accounts_root_may_do_anything(sagemaker: str) -> None:
    assert refusal(sagemaker) == ""


@pytest.mark.attack
def test_the_accounts_root_is_nobody_without_its_secret(sagemaker: str) -> None:
    assert refusal(sagemaker, secret="guessed") in {"InvalidSignatureException", "SignatureDoesNotMatch"}
    assert refusal(sagemaker, key="123456789012") in {"InvalidClientTokenId", "UnrecognizedClientException"}


def test_an_unknown_key_is_refused(sagemaker: str) -> None:
    assert refusal(sagemaker, key="AKIAIOSFODNN7EXAMPLE", secret="x") in {
        "InvalidClientTokenId",
        "UnrecognizedClientException",
    }


def test_an_unsigned_request_is_refused(sagemaker: str) -> None:
    assert refusal(sagemaker, signature_version=UNSIGNED) in {
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
    }
