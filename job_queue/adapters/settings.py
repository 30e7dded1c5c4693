"""The settings of a deployment, from the environment. No other module of the Lambda functions reads the environment.

template.yaml has the bounds of the stack's parameters.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from job_queue.domain import identity
from job_queue.domain.access.rights import Rights


@dataclass(frozen=True)
class DeploymentSettings:
    """The settings of a deployment. ARN patterns may contain `*`."""

    max_capacity: int = 2  # instances that the queue may use under any policy
    allowed_role_arns: tuple[str, ...] = ()  # roles that jobs may have; empty: no job is accepted
    admin_arns: tuple[str, ...] = ()  # callers that may change all jobs and the policy; a role includes its sessions
    finished_job_days: int = 30  # retention of finished jobs
    attempt_history_days: int = 400  # retention of attempt records
    create_rate: float = 1.0  # calls of CreateTrainingJob a second, on average
    create_burst: int = 5  # calls of CreateTrainingJob at once
    checkpoint_buckets: tuple[str, ...] = ()  # names or patterns of buckets in which the queue looks up checkpoints
    satellite_external_id: str = ""  # external ID for AssumeRole at other sites; empty: none is sent
    work_bucket: str = ""  # for carriers' mailboxes; empty: no shared instances
    order_key: str = ""  # ARN of the KMS key that signs orders to agents
    idle_minutes: int = 30  # time after which a job whose GPUs do nothing counts as idle; 0: utilization is not read
    failure_logs: bool = True  # whether the function may read the log lines of failed attempts
    notice_after_minutes: int = 10  # a start gives a notice only if the job was in the queue for at least this time
    jobs_table: str = "sagemaker-queue"
    lines_table: str = "sagemaker-queue-lines"
    history_table: str = "sagemaker-queue-history"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "DeploymentSettings":
        """Read the Lambda's environment. Missing variables keep their default.

        :raises ValueError: a pattern in ADMIN_ARNS is not valid (`identity.pattern_issue`). The template refuses such a
            pattern too.
        """
        for arn in _split(environment.get("ADMIN_ARNS", "")):
            if issue := identity.pattern_issue(arn):
                raise ValueError(f"The stack's parameter AdminArns (ADMIN_ARNS) is wrong: {arn} {issue}.")
        return cls(
            max_capacity=int(environment.get("MAX_CAPACITY", cls.max_capacity)),
            allowed_role_arns=_split(environment.get("ALLOWED_ROLE_ARNS", "")),
            admin_arns=_split(environment.get("ADMIN_ARNS", "")),
            finished_job_days=int(environment.get("FINISHED_JOB_DAYS", cls.finished_job_days)),
            attempt_history_days=int(environment.get("ATTEMPT_HISTORY_DAYS", cls.attempt_history_days)),
            create_rate=float(environment.get("CREATE_RATE", cls.create_rate)),
            create_burst=int(environment.get("CREATE_BURST", cls.create_burst)),
            checkpoint_buckets=_split(environment.get("CHECKPOINT_BUCKETS", "")),
            satellite_external_id=environment.get("SATELLITE_EXTERNAL_ID", cls.satellite_external_id),
            work_bucket=environment.get("WORK_BUCKET", cls.work_bucket),
            order_key=environment.get("ORDER_KEY", cls.order_key),
            idle_minutes=int(environment.get("IDLE_MINUTES", cls.idle_minutes)),
            failure_logs=environment.get("FAILURE_LOGS", "true") == "true",
            notice_after_minutes=int(environment.get("NOTICE_AFTER_MINUTES", cls.notice_after_minutes)),
            jobs_table=environment.get("JOBS_TABLE", cls.jobs_table),
            lines_table=environment.get("LINES_TABLE", cls.lines_table),
            history_table=environment.get("HISTORY_TABLE", cls.history_table),
        )

    def allows_role(self, arn: str) -> bool:
        """Return whether a job may run under this role."""
        return any(fnmatchcase(arn, pattern) for pattern in self.allowed_role_arns)

    @property
    def rights(self) -> Rights:
        """The rights of callers in this deployment."""
        return Rights(self.admin_arns)


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
