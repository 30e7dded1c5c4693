"""AWS on one machine: start it, deploy the real template to it, stop it."""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3
import psutil
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from local_cloud.aws import deployment
from local_cloud.aws.cleanup import Cleanup
from local_cloud.aws.ministack import Ministack
from local_cloud.aws.session import Keys, local_session
from local_cloud.errors import LocalCloudError
from local_cloud.faults.injection import Faults
from local_cloud.sagemaker.account.options import STRICT_TIMES, TIMES, Account, strict_account
from local_cloud.sagemaker.job_processes.logs import written_lines
from local_cloud.sagemaker.remote_debug.service import SessionService, write_plugin
from local_cloud.sagemaker.training_service import TrainingService
from sagemaker_queue import QueueClient, QueueError

PROJECT = Path(__file__).resolve().parents[2]
REGION = "us-east-1"
ACCOUNT = "000000000000"
IMAGE = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/none:1"  # jobs run as processes of this machine, in no image
INSTANCE_TYPE = "ml.m5.large"  # of commands that ask for none
MOST_INSTANCES = 100_000  # that the template takes as MaxCapacity
VPC_ENDPOINT = "vpce-00000000000000000"  # the services here do not look at it

# Without it the SageMaker SDK would leave this machine: to report each call to its makers, and to ask the real STS,
# whatever the configured endpoint, for the account number that the default bucket is named after.
SDK_CONFIGURATION = f"""\
SchemaVersion: '1.0'
SageMaker:
  PythonSDK:
    Modules:
      TelemetryOptOut: true
      Session:
        DefaultS3Bucket: sagemaker-{REGION}-{ACCOUNT}
"""


class LocalCloud:
    """A context manager: inside it, the queue runs; afterwards, nothing of it is left.

    `slots` is the queue's capacity in instances, which no policy exceeds, unless a larger `policy` is given here (a
    document, as `smq policy apply` takes it). `instances` limits SageMaker itself: instance type -> how many the
    account may use. `auth` makes the services verify signatures and the permissions of the Lambda's role. `parameters`
    are more of the template's. `faults` is what goes wrong as soon as all is up.
    `account`: SageMaker's quotas, request rates, training plans and history. `intercept`, `deliver`, `stop_grace`,
    `unheard_grace` and `startup_delay` are handed to the `TrainingService`. `strict` adds what AWS does with an
    ordinary account to what is given.

    Raises LocalCloudError on entry if it cannot be started.
    """

    always_strict = False  # pytest --strict-cloud

    def __init__(
        self,
        slots: int = 2,
        instances: Mapping[str, int] | None = None,
        *,
        policy: Mapping[str, Any] | None = None,
        auth: bool = True,
        parameters: Mapping[str, str] | None = None,
        faults: Faults | None = None,
        account: Account | None = None,
        intercept: Callable[[str, str, dict[str, Any]], None] | None = None,
        deliver: Callable[[dict[str, Any]], None] | None = None,
        stop_grace: float | None = None,
        unheard_grace: float | None = None,
        startup_delay: float | None = None,
        strict: bool | None = None,
        project: Path = PROJECT,
    ) -> None:
        if self.always_strict if strict is None else strict:
            account, times = strict_account(account or Account()), STRICT_TIMES
        else:
            times = TIMES
        self._slots = slots
        self._policy = policy
        self._auth = auth
        # Where the account has no rate, nothing is gained by keeping to one.
        unpaced = {} if account and account.create_rate else {"CreateRate": "100", "CreateBurst": "100"}
        self._parameters = {**unpaced, **(parameters or {})}
        self.faults = faults or Faults()
        self._project = project
        self._training_options: dict[str, Any] = {
            "instances": instances,
            "account_options": account,
            "intercept": intercept,
            "deliver": deliver,
            "stop_grace": times.stop_grace if stop_grace is None else stop_grace,
            "unheard_grace": times.unheard_grace if unheard_grace is None else unheard_grace,
            "startup_delay": times.startup_delay if startup_delay is None else startup_delay,
            "deletion": times.deletion,
        }
        self.keys = Keys.random()
        self._cleanup = ExitStack()
        self._making_clients = threading.Lock()

    def __enter__(self) -> Self:
        with ExitStack() as cleanup:
            try:
                self._start(cleanup)
            except (BotoCoreError, ClientError, OSError) as error:
                raise LocalCloudError(f"The local cloud could not be started: {error}") from error
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def _start(self, cleanup: ExitStack) -> None:
        began = time.monotonic()
        self._cleanup_process = Cleanup()
        cleanup.callback(self._cleanup_process.close)
        self.folder = self._cleanup_process.folder
        self.mark = self._cleanup_process.mark
        crash = self.faults.probabilities.get("crash", 0.0)
        self._ministack = Ministack(
            self.folder, auth=self._auth, region=REGION, keys=self.keys, crash=crash, seed=self.faults.seed
        )
        cleanup.callback(self._ministack.close)
        self.training = TrainingService(
            aws_endpoint=self._ministack.url,
            keys=self.keys,
            token=self._ministack.token,
            workdir=self.folder / "training",
            region=REGION,
            account=ACCOUNT,
            faults=self.faults,
            job_environment=self.mark,
            auth=self._auth,
            check_roles=True,
            **self._training_options,
        )
        self.training.start()
        cleanup.callback(self.training.stop)
        self._sessions = cleanup.enter_context(SessionService(self.training.instance, self.training.permissions))
        self._ministack.start({**self.mark, "AWS_ENDPOINT_URL_SAGEMAKER": self.training.url})
        try:
            self._deploy()
        except (BotoCoreError, ClientError):
            self._ministack.check()  # its end explains more than what followed from it
            raise
        self.ready_after = time.monotonic() - began  # seconds
        self.faults.begin()
        self._ministack.begin_crashes()

    def _deploy(self) -> None:
        self._session = self._new_session()
        self.role = deployment.create_training_role(self.client)
        outputs = deployment.deploy(
            self.client,
            self._project,
            {
                "MaxCapacity": str(max(self._slots, _instances(self._policy))),
                "AllowedRoleArns": self.role,
                "AdminArns": f"arn:aws:iam::{ACCOUNT}:root",  # whoever has the keys of `environment`
                "VpcEndpointIds": VPC_ENDPOINT,
                "WorkBucket": deployment.create_work_bucket(self.client),
                **self._parameters,
            },
        )
        self.function_name = outputs["FunctionName"]
        self.read_function_name = outputs["ReadFunctionName"]
        self._function = self.client("lambda").get_function_configuration(FunctionName=self.function_name)
        self._read_function = self.client("lambda").get_function_configuration(FunctionName=self.read_function_name)
        self.queue_url = f"{self._ministack.url}/restapis/{outputs['ApiId']}/prod/_user_request_"
        (self.folder / "sagemaker.yaml").write_text(SDK_CONFIGURATION)
        self._plugin = write_plugin(self.folder / "bin")
        if self._policy is not None:
            self._apply(self._policy)
        self.tick()  # the first user need not wait for the function's cold start, and what is broken shows here

    def _apply(self, policy: Mapping[str, Any]) -> None:
        try:
            QueueClient(url=self.queue_url, boto_session=self._session).apply_policy(policy, version=0)
        except QueueError as error:
            raise LocalCloudError(f"The policy is refused. {error}") from error

    @property
    def log(self) -> Path:
        """Where the services write what they do."""
        return self._ministack.log

    @property
    def log_group(self) -> str:
        """The log group of the function that changes the queue."""
        return str(self._function["LoggingConfig"]["LogGroup"])

    def check(self) -> None:
        """Raise LocalCloudError if the services have ended by themselves."""
        self._ministack.check()

    def fault_counts(self) -> dict[str, int]:
        """How often each kind of fault has happened, of those that were given."""
        counts = self.faults.counts
        return {kind: self._ministack.crashes if kind == "crash" else count for kind, count in counts.items()}

    def remove_at_end(self, *files: Path) -> None:
        """Have these files removed with the cloud, whatever ends it."""
        for file in files:
            self._cleanup_process.remove_at_end(file)

    def environment(self) -> dict[str, str]:
        """Environment variables that make AWS tools, the SageMaker SDK and the queue's client use this cloud."""
        nowhere = str(self._nowhere)
        no_proxy = ",".join(filter(None, [os.environ.get("no_proxy", os.environ.get("NO_PROXY")), "127.0.0.1"]))
        return {
            "AWS_ENDPOINT_URL": self._ministack.url,
            "AWS_ENDPOINT_URL_SAGEMAKER": self.training.url,
            "AWS_ENDPOINT_URL_SSM": self._sessions.url,
            "AWS_ACCESS_KEY_ID": self.keys.access,
            "AWS_SECRET_ACCESS_KEY": self.keys.secret,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_CONFIG_FILE": nowhere,
            "AWS_SHARED_CREDENTIALS_FILE": nowhere,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": no_proxy,
            "no_proxy": no_proxy,
            "SAGEMAKER_USER_CONFIG_OVERRIDE": str(self.folder / "sagemaker.yaml"),
            "SAGEMAKER_QUEUE_URL": self.queue_url,
            "SAGEMAKER_QUEUE_ROLE": self.role,
            "SAGEMAKER_QUEUE_IMAGE": IMAGE,
            "SAGEMAKER_QUEUE_INSTANCE_TYPE": INSTANCE_TYPE,
            "SAGEMAKER_QUEUE_SESSION_PLUGIN": str(self._plugin),
        }

    def boto_session(self) -> boto3.Session:
        """A session of this process for this cloud; os.environ is neither read nor changed."""
        return self._new_session()

    def client(self, service: str, **options: Any) -> Any:
        """A boto3 client of this cloud; `options` as for `boto3.Session.client`."""
        with self._making_clients:  # sessions are not for several threads at once; clients are
            return self._session.client(service, **options)  # type: ignore[call-overload]

    def invoke(self, event: Mapping[str, Any]) -> Any:
        """Call the queue's function with `event` and return its answer; LocalCloudError if it raises or dies."""
        client = self.client("lambda", config=Config(retries={"total_max_attempts": 1}))
        answer = client.invoke(FunctionName=self.function_name, Payload=json.dumps(event))
        payload = json.loads(answer["Payload"].read() or b"null")
        if "FunctionError" in answer:
            log = self.function_logs()[-2000:]
            raise LocalCloudError(f"The queue's function failed: {payload}\nIts log ends with:\n{log}")
        return payload

    def tick(self) -> Any:
        """Call the queue's function as its one-minute schedule does, now."""
        return self.invoke(deployment.scheduled_event(self.client, self._function["FunctionArn"]))

    def function_logs(self) -> str:
        """Return all that the queue's two functions have written so far."""
        pages = self.client("logs").get_paginator("filter_log_events")
        groups = [one["LoggingConfig"]["LogGroup"] for one in (self._function, self._read_function)]
        found = [page for group in groups for page in pages.paginate(logGroupName=group)]
        return "\n".join(event["message"] for page in found for event in page["events"])

    def training_log(self, training_job: str) -> list[str]:
        """The lines that a training job has written so far, one instance after the other."""
        return written_lines(self.client("logs"), training_job)

    def lambda_pids(self) -> list[int]:
        """Process ids of the workers that run the queue's function."""
        return [child.pid for child in psutil.Process(self._ministack.pid).children()]

    @property
    def _nowhere(self) -> Path:
        return self.folder / "no-such-file"

    def _new_session(self) -> boto3.Session:
        return local_session(
            endpoint=self._ministack.url,
            services={"sagemaker": self.training.url, "ssm": self._sessions.url},
            nowhere=self._nowhere,
            region=REGION,
            keys=self.keys,
        )


def _instances(policy: Mapping[str, Any] | None) -> int:
    """The instances that the pools of a policy have together, so far as it is one."""
    pools = (policy or {}).get("pools")
    sizes = [pool.get("capacity") for pool in pools if isinstance(pool, dict)] if isinstance(pools, list) else []
    return min(sum(size for size in sizes if isinstance(size, int)), MOST_INSTANCES)
