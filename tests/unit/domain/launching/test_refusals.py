"""SageMaker's words are read as it says them: the messages stand in public threads, named beside them."""

import pytest

from job_queue.domain.launching.refusals import QuotaExceeded, blames_pool_fields, is_temporary, quota_exceeded

LIMIT = "ResourceLimitExceeded: An error occurred: The account-level service limit "
ASK = "Please use AWS Service Quotas to request an increase for this quota."


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (  # gabehollombe-aws/jupyter-notebooks 1
            f"{LIMIT}'ml.p3.2xlarge for training job usage' is 0 Instances, with current utilization of 0 Instances "
            "and a request delta of 1 Instances. Please contact AWS support to request an increase for this limit.",
            QuotaExceeded("ml.p3.2xlarge for training job usage", 0, 1, "Instances", 0),
        ),
        (  # data-science-on-aws/data-science-on-aws 140: debugger rules
            f"{LIMIT}'Number of instances across all processing jobs' is 4 Instances, with current utilization of 0 "
            f"Instances and a request delta of 11 Instances. {ASK}",
            QuotaExceeded("Number of instances across all processing jobs", 4, 11, "Instances", 0),
        ),
        (
            f"{LIMIT}'Longest run time for a training job' is 432000 Seconds, with current utilization of 0 Seconds "
            f"and a request delta of 2419200 Seconds. {ASK}",
            QuotaExceeded("Longest run time for a training job", 432000, 2419200, "Seconds", 0),
        ),
        (  # aws/amazon-sagemaker-examples 1543: more than the quota, as instances of jobs that have ended count
            f"{LIMIT}'ml.p3.8xlarge for training job usage' is 2 Instances, with current utilization of 3 Instances "
            "and a request delta of 1 Instances.",
            QuotaExceeded("ml.p3.8xlarge for training job usage", 2, 1, "Instances", 3),
        ),
        # aws/sagemaker-python-sdk 35: in 2018 it had other words
        (f"{LIMIT.removesuffix('limit ')}limit for training-job/ml.p2.xlarge is 0 Instances, with ...", None),
        ("ResourceLimitExceeded: Too many.", None),
        (f"{LIMIT}'a' is 1.2.3 Instances, with current utilization of 0 Instances and a request delta of 1 I", None),
    ],
)
def test_a_quota_is_read(message: str, expected: QuotaExceeded | None) -> None:
    assert quota_exceeded(message) == expected


@pytest.mark.parametrize(
    ("name", "limit", "instance_type", "spot", "full"),
    [
        ("ml.p5.48xlarge for training job usage", 2, "ml.p5.48xlarge", False, True),
        ("ml.p5.48xlarge for spot training job usage", 0, "ml.p5.48xlarge", True, False),
        ("ml.p5.48xlarge for training warm pool usage", 0, None, False, False),
        ("ml.p5.48xlarge for processing job usage", 9, None, False, True),
        ("Number of instances across all training jobs", 9, None, False, True),
    ],
)
def test_what_a_quota_is_about(name: str, limit: int, instance_type: str | None, *, spot: bool, full: bool) -> None:
    quota = QuotaExceeded(name, limit, 1, "Instances", 0)
    assert (quota.instance_type, quota.is_for_spot, quota.is_full) == (instance_type, spot, full)


def test_the_sentence_says_what_to_ask_for() -> None:
    none = QuotaExceeded("ml.p5.48xlarge for spot training job usage", 0, 2, "Instances", 0)
    assert none.sentence == (
        "No quota of this account allows the job: 'ml.p5.48xlarge for spot training job usage' is 0 Instances in this "
        "account, and the job requests 2 (ResourceLimitExceeded). Ask AWS for 2 or more (Service Quotas, Amazon "
        "SageMaker), or change the job."
    )


@pytest.mark.parametrize(
    ("message", "of_pool", "passes"),
    [
        ("ValidationException: Training plan arn:... has expired.", True, False),
        ("ValidationException: MaxWaitTimeInSeconds above 0 is required for managed spot training.", True, False),
        ("Value 'ml.x' at 'resourceConfig.instanceType' failed to satisfy constraint.", True, False),
        ("Spot training is not supported for the instance type ml.x in 'us-east-1'.", True, False),
        # words of users
        ("The repository with name 'spotify-train' does not exist in the registry with id '123'.", False, False),
        ("The bucket doesn't have the object 'spot data' and `instance type`.", False, False),
        ("Value 'spot' at 'roleArn' failed to satisfy constraint.", False, False),
        ("No S3 objects found under s3://training-plan/spot given in input data source.", False, False),
        ("The image 123.dkr.ecr.us-east-1.amazonaws.com/spot:1 of arn:aws:iam::1:role/spot is gone.", False, False),
        ("The image ..spot.x/instancetype:1 or a.b..spot/1 is gone.", False, False),
        ("The training job my-spot, spot-run or spotify exists.", False, False),
        # awslabs/predictive-maintenance-using-machine-learning 3
        ("Could not assume role arn:aws:iam::1:role/x. Please ensure that the role exists and allows ...", False, True),
        # aws/amazon-sagemaker-examples 2489
        ('No S3 objects found under S3 URL "s3://b/train" given in input data source.', False, False),
    ],
)
def test_what_a_validation_exception_is_about(message: str, *, of_pool: bool, passes: bool) -> None:
    assert (blames_pool_fields(message), is_temporary(message)) == (of_pool, passes)


def test_a_long_text_that_is_nearly_an_image_takes_no_time() -> None:
    """The time grew with the cube of the length: hours for this text."""
    assert not blames_pool_fields("a." * 10_000)
    assert not blames_pool_fields("a.b:" + "1" * 20_000)
