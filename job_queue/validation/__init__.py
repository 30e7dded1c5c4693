"""Checks of whether SageMaker would accept a request, so that the request does not fail after hours in the queue.

There are two checks, in this order. `against_model` compares the request with the CreateTrainingJob shape of
SageMaker's service model. `against_sagemaker` applies the rules that the model cannot express. `against_sagemaker`
expects a request in which the first check has found no issues. Both checks are pure, never raise, and return at most
`MOST_ISSUES` issues.
"""

from job_queue.domain.errors import ValidationIssue
from job_queue.validation.issue import MOST_ISSUES
from job_queue.validation.rules import against_sagemaker
from job_queue.validation.service_model import ServiceShape, against_model

__all__ = ["MOST_ISSUES", "ValidationIssue", "ServiceShape", "against_model", "against_sagemaker"]
