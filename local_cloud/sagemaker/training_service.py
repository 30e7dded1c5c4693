"""SageMaker's training API on this machine: the real wire protocol, real states, and real processes for each job."""

import itertools
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from botocore.config import Config

from local_cloud.aws.permissions import Permissions
from local_cloud.aws.session import KNOWN_KEYS, AccountKeys, local_session
from local_cloud.faults.injection import STRIKES, Faults
from local_cloud.sagemaker.account.capacity import Capacity
from local_cloud.sagemaker.account.emulated_plans import EmulatedPlans
from local_cloud.sagemaker.account.lookups import AccountLookups
from local_cloud.sagemaker.account.options import Account
from local_cloud.sagemaker.account.past_jobs import PastJob, past_jobs
from local_cloud.sagemaker.account.throttling import Throttle
from local_cloud.sagemaker.events import Event, EventWorker, RuleTargets, Target, state_change
from local_cloud.sagemaker.job_processes.container import image
from local_cloud.sagemaker.job_processes.execution import Grace
from local_cloud.sagemaker.job_processes.instance import Instance
from local_cloud.sagemaker.job_processes.process import can_mount
from local_cloud.sagemaker.job_processes.runner import SHUTDOWN_GRACE, JobRunner, Machine
from local_cloud.sagemaker.job_processes.storage import stay_in_region
from local_cloud.sagemaker.listing import list_jobs
from local_cloud.sagemaker.registry import AnyJob, JobRegistry
from local_cloud.sagemaker.search_operation import search
from local_cloud.sagemaker.training_job import EmulatedTrainingJob
from local_cloud.sagemaker.validation import check_request, check_tags, check_training_job, invalid, service_model
from local_cloud.sagemaker.wire import Api, AwsJsonServer, ConnectionAbort, EmulatedError

__all__ = ["ConnectionAbort", "EmulatedError", "TrainingService"]

Request = dict[str, Any]


class TrainingService:
    """SageMaker's training API on 127.0.0.1, between `start` and `stop`; a context manager does both.

    :param aws_endpoint: the address of S3, CloudWatch Logs, EventBridge, Lambda, SQS and IAM.
    :param workdir: a private folder for the jobs.
    :param instances: the number of instances of each type that may be in use at once. A request beyond the number is
        answered with ResourceLimitExceeded. A type that is not named has no limit.
    :param account_options: quotas, request rates, training plans and history.
    :param stop_grace: seconds between SIGTERM and SIGKILL.
    :param unhandled_grace: the same for a job whose first process does not handle SIGTERM; at most `stop_grace`. AWS
        makes no such difference.
    :param startup_delay: seconds that a job stays in Starting, unless a warm pool has its instances.
    :param deletion: seconds for which a deleted job has the status Deleting and keeps its name.
    :param intercept: `intercept(phase, operation, request)` is called with the phase "before", and after a successful
        operation with the phase "after", before the answer is sent. The function may block. An EmulatedError from the
        function becomes the answer, and ConnectionAbort closes the connection without an answer.
    :param deliver: `deliver(event)` receives each event in place of the targets of the rules that match the event.
    :param faults: the faults to inject at random.
    :param job_environment: environment variables for every job.
    :param auth: whether to refuse requests that the caller's IAM policies at `aws_endpoint` do not allow.
    :param check_roles: whether a job's role must exist at `aws_endpoint`.
    :param front: the server of another site's service, which passes the calls for this site on. By default the service
        has its own server.
    :param buses: the event buses of other sites, as for `RuleTargets`.
    :param regional: whether buckets and images have to be in the region of the job, as on AWS.
    """

    def __init__(
        self,
        *,
        aws_endpoint: str,
        keys: AccountKeys = KNOWN_KEYS,
        token: str = "",
        workdir: Path,
        instances: Mapping[str, int] | None = None,
        account_options: Account | None = None,
        region: str = "us-east-1",
        account: str = "000000000000",
        stop_grace: float = 10.0,
        unhandled_grace: float = 0.5,
        startup_delay: float = 0.0,
        deletion: float = 0.5,
        intercept: Callable[[str, str, Request], None] | None = None,
        deliver: Callable[[dict[str, Any]], None] | None = None,
        faults: Faults | None = None,
        job_environment: Mapping[str, str] | None = None,
        auth: bool = False,
        check_roles: bool = False,
        front: AwsJsonServer | None = None,
        buses: Mapping[str, Callable[[Event, Target], None]] | None = None,
        regional: bool = False,
    ) -> None:
        self._region = region
        self._account = account
        self._workdir = workdir / "training"
        self._intercept = intercept or (lambda phase, operation, request: None)
        self._faults = faults or Faults()
        options = account_options or Account()
        prefix = f"arn:aws:sagemaker:{region}:{account}"
        self._plans = EmulatedPlans(options.plans, prefix, time.time)
        past = past_jobs(options.history, f"{prefix}:training-job/", time.time())
        capacity = Capacity(instances or {}, options.quotas, self._plans, options.quota_per_type)
        self._registry = JobRegistry(capacity, past, options.quota_lag or 0.0, deletion)
        self._throttle = Throttle({"CreateTrainingJob": options.create_rate, "ListTrainingJobs": options.list_rate})
        self._runners: list[JobRunner] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._operations: dict[str, Callable[[Request], dict[str, Any]]] = {
            "CreateTrainingJob": self._create,
            "DescribeTrainingJob": self._describe,
            "DescribeTrainingPlan": self._describe_plan,
            "ListTrainingJobs": self._list,
            "Search": self._search,
            "StopTrainingJob": self._stop_job,
            "UpdateTrainingJob": self._update,
            "DeleteTrainingJob": self._delete,
            "AddTags": self._add_tags,
            "DeleteTags": self._delete_tags,
            "ListTags": self._list_tags,
        }
        service_model()  # loaded now, because the model is large and the first request would wait
        self.permissions = Permissions(aws_endpoint, region, account, self._tags_of, token) if auth else None
        self.api = Api(self._handle, self.permissions.check) if self.permissions else Api(self._handle)
        self.server = front or AwsJsonServer(self.api)
        self.url = self.server.url
        self._has_server = front is None
        self._serving = threading.Thread(target=self.server.serve_forever, args=(0.05,), name="sagemaker", daemon=True)
        self._started = False
        clients = _clients(aws_endpoint, region, self._workdir / "no-such-file", keys)
        if regional:
            stay_in_region(clients["s3"])
        rules = RuleTargets(clients["events"], clients["lambda"], clients["sqs"], buses)
        self.deliver: Callable[[Event], None] = deliver or rules.deliver
        self._events = EventWorker(self.deliver)
        self._lookups = AccountLookups(
            clients["s3"], clients["iam"] if check_roles else None, region, regional=regional
        )
        wrappers = self._workdir / "bin"
        self._machine = Machine(
            workdir=self._workdir,
            s3=clients["s3"],
            logs=clients["logs"],
            environment=_environment(wrappers, aws_endpoint, self.url, region, keys) | dict(job_environment or {}),
            grace=Grace(stop_grace, unhandled_grace),
            startup_delay=startup_delay,
            faults=self._faults,
        )

    @property
    def most_in_use(self) -> dict[str, int]:
        """The largest number of instances of each type that were ever in use at once."""
        return self._registry.most_in_use

    def instance(self, training_job: str, host: str) -> Instance | None:
        """Return an instance of a training job if a remote debug session can be opened on it now, else None.

        The job must allow remote debugging, and its role must allow the SSM agent to connect.
        """
        with self._lock:
            runners = [runner for runner in self._runners if runner.name == training_job and runner.alive]
        found = runners[-1].instance(host) if runners else None
        return found if found and self._lookups.may_connect_agent(found.cluster.request["RoleArn"]) else None

    def backdate(self, training_job: str, seconds: float) -> None:
        """Move the creation time of a training job back by `seconds`."""
        if isinstance(job := self._registry.get(training_job), EmulatedTrainingJob):
            job.backdate(seconds)

    def strike(self, training_job: str, kind: str, host: str = "algo-1") -> None:
        """Let a fault happen to an instance of a training job that has not ended; see `injection.STRIKES`.

        Raise ValueError if there is no such fault or no such job.
        """
        if kind not in STRIKES:
            raise ValueError(f"there is no fault {kind!r} of a job that trains; known are {', '.join(STRIKES)}")
        with self._lock:
            runners = [runner for runner in self._runners if runner.name == training_job and not runner.job_ended]
        if not runners:
            raise ValueError(f"no training job {training_job!r} is running")
        runners[-1].strike(kind, host)

    def start(self) -> None:
        """Start to answer requests and deliver events. Return at once."""
        image.write_programs(self._workdir / "bin")
        self._machine = replace(self._machine, mounted=can_mount(self._workdir / "probe"))
        self._events.start()
        if self._has_server:
            self._serving.start()
        self._started = True

    def stop(self) -> None:
        """Stop the server, kill all processes of all jobs and remove their folders."""
        if not self._started:
            if self._has_server:
                self.server.server_close()
            return
        if self._has_server:
            self.server.stop()
        with self._lock:
            runners = list(self._runners)
        for runner in runners:
            runner.shut_down()
        for runner in runners:
            runner.join(SHUTDOWN_GRACE + 5)
        self._events.stop(timeout=1.0)
        shutil.rmtree(self._workdir, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _handle(self, operation: str, request: Request) -> dict[str, Any]:
        if operation not in self._operations:
            raise EmulatedError("UnknownOperationException", f"{operation} is not emulated in the local cloud.")
        self._throttle.check(operation)
        self._faults.refuse(operation, request)
        self._intercept("before", operation, request)
        answer = self._operations[operation](check_request(operation, request))
        self._intercept("after", operation, request)
        self._faults.answer()
        return answer

    def _create(self, request: Request) -> dict[str, Any]:
        check_training_job(request)
        self._lookups.check(request)
        name = request["TrainingJobName"]
        arn = f"arn:aws:sagemaker:{self._region}:{self._account}:training-job/{name}"
        job = self._registry.add(
            request,
            lambda placement: EmulatedTrainingJob(
                request,
                arn,
                placement.groups,
                placement.plan,
                self._publish,
                self._registry.may_retain,
                warm_start=placement.warm is not None,
            ),
        )
        runner = JobRunner(job, self._machine, next(self._numbers))
        runner.start()
        with self._lock:
            self._runners = [*(other for other in self._runners if other.alive), runner]
        return {"TrainingJobArn": arn}

    def _describe(self, request: Request) -> dict[str, Any]:
        return self._registry.get(request["TrainingJobName"]).describe()

    def _describe_plan(self, request: Request) -> dict[str, Any]:
        return self._plans.named(request["TrainingPlanName"]).describe()

    def _list(self, request: Request) -> dict[str, Any]:
        return list_jobs(self._registry, request)

    def _search(self, request: Request) -> dict[str, Any]:
        return search(self._registry, request)

    def _stop_job(self, request: Request) -> dict[str, Any]:
        self._live(request["TrainingJobName"]).request_stop()
        return {}

    def _update(self, request: Request) -> dict[str, Any]:
        job = self._live(request["TrainingJobName"])
        job.update(request)
        return {"TrainingJobArn": job.arn}

    def _delete(self, request: Request) -> dict[str, Any]:
        self._registry.delete(request["TrainingJobName"])
        return {}

    def _add_tags(self, request: Request) -> dict[str, Any]:
        check_tags(request["Tags"])
        job = self._registry.by_arn(request["ResourceArn"])
        if not isinstance(job, PastJob):
            job.add_tags(request["Tags"])
        return {"Tags": _tag_list(job)}

    def _delete_tags(self, request: Request) -> dict[str, Any]:
        job = self._registry.by_arn(request["ResourceArn"])
        if not isinstance(job, PastJob):
            job.delete_tags(request["TagKeys"])
        return {}

    def _list_tags(self, request: Request) -> dict[str, Any]:
        # A job has at most 50 tags and a page has at least 50, so there is only one page.
        return {"Tags": _tag_list(self._registry.by_arn(request["ResourceArn"]))}

    def _tags_of(self, name: str) -> Mapping[str, str]:
        job = self._registry.find(name)
        return job.tags if job else {}

    def _live(self, name: str) -> EmulatedTrainingJob:
        """Return a job that the emulator runs or ran. Raise a ValidationException if the job is a PastJob."""
        job = self._registry.get(name)
        if isinstance(job, PastJob):
            raise invalid(f"The request was rejected because the training job is in status {job.status}.")
        return job

    def _publish(self, job: EmulatedTrainingJob) -> None:
        event = state_change(job, self._region, self._account)
        for delay in self._faults.deliveries():
            self._events.put(event, delay)


def _tag_list(job: AnyJob) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in job.tags.items()]


def _clients(endpoint: str, region: str, nowhere: Path, keys: AccountKeys) -> dict[str, Any]:
    session = local_session(endpoint=endpoint, services={}, nowhere=nowhere, region=region, keys=keys)
    config = Config(
        connect_timeout=2,
        read_timeout=30,
        max_pool_connections=50,
        request_checksum_calculation="when_required",
        s3={"addressing_style": "path"},
    )
    create: Any = session.client
    return {name: create(name, config=config) for name in ("s3", "logs", "events", "lambda", "sqs", "iam")}


def _environment(
    wrappers: Path, aws_endpoint: str, own_endpoint: str, region: str, keys: AccountKeys
) -> dict[str, str]:
    path = [str(wrappers), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    return {
        "PATH": os.pathsep.join(path),
        "AWS_ENDPOINT_URL": aws_endpoint,
        "AWS_ENDPOINT_URL_SAGEMAKER": own_endpoint,
        "AWS_ACCESS_KEY_ID": keys.access,
        "AWS_SECRET_ACCESS_KEY": keys.secret,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
    }
