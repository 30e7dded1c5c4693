"""Checks of CreateTrainingJob in other services: whether the role exists in IAM, and the input data in S3."""

import re
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from local_cloud.sagemaker.validation import invalid

SSM_AGENT_ACTIONS = [
    f"ssmmessages:{action}"
    for action in ("CreateControlChannel", "CreateDataChannel", "OpenControlChannel", "OpenDataChannel")
]

Request = Mapping[str, Any]
_ECR = re.compile(r"[0-9]{12}\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.(?P<suffix>amazonaws\.com(\.cn)?)/")


class AccountLookups:
    """Checks of a request against S3 and IAM. `s3` and `iam` are boto3 clients; roles are not checked without `iam`.

    :param regional: whether the image has to be in this region.
    """

    def __init__(self, s3: Any, iam: Any | None, region: str, *, regional: bool = False) -> None:
        self._s3 = s3
        self._iam = iam
        self._region = region
        self._regional = regional

    def check(self, request: Request) -> None:
        """Raise a ValidationException if the role or a channel's data is missing, or the image is in another region.

        The region is checked only if `regional`. The messages are SageMaker's.
        """
        self._check_image(request["AlgorithmSpecification"].get("TrainingImage", ""))
        self._check_role(request["RoleArn"])
        for channel in request.get("InputDataConfig", []):
            source = channel["DataSource"].get("S3DataSource", {})
            if source.get("S3DataType") == "S3Prefix":
                self._check_data(source["S3Uri"], request["RoleArn"])

    def may_connect_agent(self, role: str) -> bool:
        """Return whether the role allows the SSM agent of a container to connect to Session Manager."""
        if self._iam is None:
            return True
        answer = self._iam.simulate_principal_policy(PolicySourceArn=role, ActionNames=SSM_AGENT_ACTIONS)
        return all(result["EvalDecision"] == "allowed" for result in answer["EvaluationResults"])

    def _check_image(self, image: str) -> None:
        found = _ECR.match(image)
        if self._regional and found and found["region"] != self._region:
            # aws-samples/mlops-amazon-sagemaker issue 9
            raise invalid(
                f"Invalid DNS suffix '{found['suffix']}' for region '{found['region']}' in training image. Please "
                f"provide the valid <region>.<dns-suffix>: '{self._region}.{found['suffix']}'"
            )

    def _check_role(self, arn: str) -> None:
        if self._iam is None:
            return
        try:
            known = self._iam.get_role(RoleName=arn.rpartition("/")[2])["Role"]["Arn"]
        except ClientError:
            known = None
        if known != arn:
            raise invalid(
                f"Could not assume role {arn}. Please ensure that the role exists and allows principal "
                "'sagemaker.amazonaws.com' to assume the role."
            )

    def _check_data(self, uri: str, role: str) -> None:
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        try:
            found = self._s3.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1).get("KeyCount", 0)
        except ClientError:
            found = 0
        if not found:
            raise invalid(
                f'No S3 objects found under S3 URL "{uri}" given in input data source. Please ensure that the bucket '
                f"exists in the selected region ({self._region}), that objects exist under that S3 prefix, and that "
                f'the role "{role}" has "s3:ListBucket" permissions on bucket "{bucket}".'
            )
