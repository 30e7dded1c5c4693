"""AWS on one machine: its start, the deployment of the real template, and its stop."""

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
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
from local_cloud.aws.session import AccountKeys, RootKey, local_session
from local_cloud.dynamodb.key_throttle import AWS_LIMITS, KeyLimits
from local_cloud.faults.injection import Faults
from local_cloud.sagemaker.account.options import STRICT_TIMES, TIMES, Account, strict_account
from local_cloud.sagemaker.job_processes.log_streams import written_lines
from local_cloud.sagemaker.remote_debug.service import SessionService, write_plugin
from local_cloud.sagemaker.training_service import TrainingService
from local_cloud.sites import satellites
from local_cloud.sites.emulated_site import HOME_ACCOUNT, HOME_REGION, EmulatedSite, all_sites
from local_cloud.sites.other_sites import OtherSites
from local_cloud.sites.questions import EXPIRE, Questions
from local_cloud.user_errors import LocalCloudError
from sagemaker_queue import QueueClient, QueueError

PROJECT = Path(__file__).resolve().parents[2]
REGION = HOME_REGION  # the default home region
ACCOUNT = HOME_ACCOUNT
IMAGE = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/none:1"  # unused: jobs run as processes of this machine
INSTANCE_TYPE = "ml.m5.large"  # the instance type for commands that name none
LONGEST_INVOCATION_SECONDS = 900  # the limit of AWS Lambda; a busy machine may need more than botocore's 60 seconds
MOST_INSTANCES = 100_000  # the largest MaxCapacity of the template
VPC_ENDPOINT = "vpce-00000000000000000"  # the local services ignore it

# These settings keep the SageMaker SDK from calling AWS. By default, the SDK sends telemetry about each call. For the
# name of the default bucket, the SDK also requests the account number from the real STS, whatever endpoint is set.
SDK_CONFIGURATION = """\
SchemaVersion: '1.0'
SageMaker:
  PythonSDK:
    Modules:
      TelemetryOptOut: true
      Session:
        DefaultS3Bucket: sagemaker-{region}-{account}
"""


class LocalCloud:
    """A context manager that runs the queue in its `with` block, and then removes all processes and files.

    Raise LocalCloudError on entry if the cloud cannot be started.

    :param slots: the queue's instances for each site. Policies cannot exceed the sum over all sites, or the capacity of
        `policy` if that is larger.
    :param instances: limits of SageMaker itself: instance type -> instances that the account may use.
    :param policy: a policy document, as `smq policy apply` takes it.
    :param auth: whether the services verify signatures and the permissions of callers.
    :param parameters: further parameters of the template.
    :param faults: faults that begin as soon as all services are up.
    :param key_limits: units a second of each partition key in DynamoDB; None: keys are not throttled.
    :param account: SageMaker's quotas, request rates, training plans and history. With a quota lag, each instance type
        that neither `account` nor `instances` names has a quota: `slots`, or the capacity of `policy` if that is
        larger.
    :param intercept: see `TrainingService`, also for `deliver`, `stop_grace`, `unhandled_grace` and `startup_delay`.
    :param strict: whether to add the limits and times of a new AWS account; None: as `always_strict`.
    :param regions: regions that have SageMaker. The queue is in the first one.
    :param accounts: the number of accounts that have SageMaker. The queue is in the first one, 000000000000; the others
        are 111111111111 and so on. Each pair of account and region is a site. `slots`, `instances` and `account` apply
        to each site.
    :param site_faults: faults of some sites in place of `faults`, such as a throttled region. The faults of all sites
        begin at the same time.
    """

    always_strict = False  # set by pytest --strict-cloud

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
        key_limits: KeyLimits | None = None,
        intercept: Callable[[str, str, dict[str, Any]], None] | None = None,
        deliver: Callable[[dict[str, Any]], None] | None = None,
        stop_grace: float | None = None,
        unhandled_grace: float | None = None,
        startup_delay: float | None = None,
        strict: bool | None = None,
        project: Path = PROJECT,
        regions: Sequence[str] = (HOME_REGION,),
        accounts: int = 1,
        site_faults: Mapping[EmulatedSite, Faults] | None = None,
    ) -> None:
        if self.always_strict if strict is None else strict:
            account, times = strict_account(account or Account()), STRICT_TIMES
            key_limits = key_limits or AWS_LIMITS
        else:
            times = TIMES
        self.sites = all_sites(regions, accounts)
        self.home = self.sites[0]
        self._key_limits = key_limits
        self.slots = slots
        self._slots = max(slots * len(self.sites), _instances(policy))
        self._policy = policy
        self._auth = auth
        # If the account does not limit the rate of launches, the queue need not limit the rate either.
        unpaced = {} if account and account.create_rate else {"CreateRate": "100", "CreateBurst": "100"}
        self._parameters = {**unpaced, **(parameters or {})}
        self.faults = faults or Faults()
        self._site_faults = dict(site_faults or {})
        self._project = project
        self._training_options: dict[str, Any] = {
            "instances": instances,
            "account_options": account and account.with_slots(max(slots, _instances(policy))),
            "intercept": intercept,
            "deliver": deliver,
            "stop_grace": times.stop_grace if stop_grace is None else stop_grace,
            "unhandled_grace": times.unhandled_grace if unhandled_grace is None else unhandled_grace,
            "startup_delay": times.startup_delay if startup_delay is None else startup_delay,
            "deletion": times.deletion,
        }
        self.keys = AccountKeys.random()
        others = sorted({site.account for site in self.sites} - {self.home.account})
        self._account_keys = {self.home.account: self.keys} | {account: AccountKeys.random() for account in others}
        self.external_id = f"local-cloud-{secrets.token_hex(8)}"
        """The external id that the satellites' roles require."""
        self._others: OtherSites | None = None
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
        inside = {account: AccountKeys.random() for account in self._account_keys if len(self.sites) > 1}
        self._ministack = Ministack(
            self.folder,
            auth=self._auth,
            region=self.home.region,
            keys=self.keys,
            crash=crash,
            seed=self.faults.seed,
            key_limits=self._key_limits,
            root_keys=self._root_keys(inside),
        )
        cleanup.callback(self._ministack.close)
        self.training = self._training_service(self.home, self.keys, {})
        self._sessions = SessionService(self.training.instance, self.training.permissions)
        if len(self.sites) > 1:
            self._others = OtherSites(
                self.sites,
                self.training,
                lambda site, options: self._training_service(site, inside[site.account], options),
                Questions(self._ministack.url, self._ministack.token),
                self.faults,
                own_rules=self._training_options["deliver"] is None,
            )
            self._others.share(self._sessions)
        self.training.start()
        cleanup.callback(self.training.stop)
        cleanup.enter_context(self._sessions)
        self._ministack.start({**self.mark, "AWS_ENDPOINT_URL_SAGEMAKER": self.training.url})
        try:
            self._deploy()
        except (BotoCoreError, ClientError):
            self._ministack.check()  # if ministack has ended, its log explains more than this error
            raise
        if self._others:
            self._others.start()
            cleanup.callback(self._others.stop)
        self.ready_after = time.monotonic() - began  # seconds
        for faults in (self.faults, *self._site_faults.values()):
            faults.begin()
        self._ministack.begin_crashes()

    def _training_service(self, site: EmulatedSite, keys: AccountKeys, options: Mapping[str, Any]) -> TrainingService:
        home = site == self.home
        return TrainingService(
            aws_endpoint=self._ministack.url,
            keys=keys,
            token=self._ministack.token,
            workdir=self.folder / "training" if home else self.folder / f"training-{site.account}-{site.region}",
            region=site.region,
            account=site.account,
            faults=self._site_faults.get(site, self.faults),
            job_environment=self.mark,
            auth=self._auth,
            check_roles=True,
            regional=len(self.sites) > 1,
            **{**self._training_options, **options},
        )

    def _root_keys(self, inside: Mapping[str, AccountKeys]) -> list[RootKey]:
        """Return the keys of root users that ministack needs besides `self.keys`."""
        outside = {account: keys for account, keys in self._account_keys.items() if account != self.home.account}
        return [
            *(RootKey(account, keys) for account, keys in outside.items()),
            *(RootKey(account, keys, inside=True) for account, keys in inside.items()),
        ]

    def _deploy(self) -> None:
        self._session = self._new_session()
        self.role = deployment.create_training_role(self.client)
        outputs = deployment.deploy(
            self.client,
            self._project,
            {
                "MaxCapacity": str(self._slots),
                "AllowedRoleArns": ",".join(self._training_roles()),
                # the root user, whose keys are in `environment`
                "AdminArns": f"arn:aws:iam::{self.home.account}:root",
                "VpcEndpointIds": VPC_ENDPOINT,
                "WorkBucket": deployment.create_work_bucket(self.client),
                **self._parameters_of_sites(),
                **self._parameters,
            },
        )
        self.function_name = outputs["FunctionName"]
        self.read_function_name = outputs["ReadFunctionName"]
        self._function = self.client("lambda").get_function_configuration(FunctionName=self.function_name)
        self._read_function = self.client("lambda").get_function_configuration(FunctionName=self.read_function_name)
        self._prepare_sites()
        self.queue_url = f"{self._ministack.url}/restapis/{outputs['ApiId']}/prod/_user_request_"
        (self.folder / "sagemaker.yaml").write_text(
            SDK_CONFIGURATION.format(region=self.home.region, account=self.home.account)
        )
        self._plugin = write_plugin(self.folder / "bin")
        if self._policy is not None:
            self._apply(self._policy)
        self.tick()  # runs the cold start before the first request, and shows errors of the function early

    def _training_roles(self) -> list[str]:
        """Return the roles of training jobs of all accounts, which have the same name in each account."""
        return [self.role.replace(self.home.account, account) for account in self._account_keys]

    def _parameters_of_sites(self) -> dict[str, str]:
        """Return the template's parameters for other sites; none if there is only the home site."""
        others = self.sites[1:]
        accounts = {site.account: None for site in others if site.account != self.home.account}
        regions = {site.region: None for site in others if site.region != self.home.region}
        given = {
            "SatelliteAccounts": ",".join(accounts),
            "SatelliteRoleArns": ",".join(site.role_arn for site in others),
            "SatelliteExternalId": self.external_id if others else "",
            "OtherRegions": ",".join(regions),
        }
        return {name: value for name, value in given.items() if value}

    def _prepare_sites(self) -> None:
        """Make the role of training jobs in each of the other accounts, and a satellite in each of the other sites."""
        roles = {self.home.account: self.role}
        for site in self.sites[1:]:
            client = self.site_session(site).client
            if site.account not in roles:
                roles[site.account] = deployment.create_training_role(client)  # type: ignore[arg-type]
            satellites.prepare(
                client,  # type: ignore[arg-type]
                self._project,
                self.home,
                site,
                self._function["Role"],
                self.external_id,
                roles[site.account],
                self._parameters,
            )

    def _apply(self, policy: Mapping[str, Any]) -> None:
        try:
            QueueClient(url=self.queue_url, boto_session=self._session).apply_policy(policy, version=0)
        except QueueError as error:
            raise LocalCloudError(f"The policy is refused. {error}") from error

    @property
    def log(self) -> Path:
        """The file to which the services write their log."""
        return self._ministack.log

    @property
    def log_group(self) -> str:
        """The log group of the function that changes the queue."""
        return str(self._function["LoggingConfig"]["LogGroup"])

    def check(self) -> None:
        """Raise LocalCloudError if the services have ended by themselves."""
        self._ministack.check()

    def fault_counts(self) -> dict[str, int]:
        """Return how often each of the given kinds of faults has happened."""
        counts = self.faults.counts
        return {kind: self._ministack.crashes if kind == "crash" else count for kind, count in counts.items()}

    @property
    def throttled_calls(self) -> int:
        """The number of DynamoDB calls that were throttled because of a partition key's limit."""
        return self._ministack.throttled

    def remove_at_end(self, *files: Path) -> None:
        """Remove these files when the cloud ends, even if it crashes."""
        for file in files:
            self._cleanup_process.remove_at_end(file)

    def environment(self) -> dict[str, str]:
        """Return environment variables that make AWS tools, the SageMaker SDK and the queue's client use this cloud."""
        nowhere = str(self._nowhere)
        no_proxy = ",".join(filter(None, [os.environ.get("no_proxy", os.environ.get("NO_PROXY")), "127.0.0.1"]))
        return {
            "AWS_ENDPOINT_URL": self._ministack.url,
            "AWS_ENDPOINT_URL_SAGEMAKER": self.training.url,
            "AWS_ENDPOINT_URL_SSM": self._sessions.url,
            "AWS_ACCESS_KEY_ID": self.keys.access,
            "AWS_SECRET_ACCESS_KEY": self.keys.secret,
            "AWS_DEFAULT_REGION": self.home.region,
            "AWS_REGION": self.home.region,
            "AWS_CONFIG_FILE": nowhere,
            "AWS_SHARED_CREDENTIALS_FILE": nowhere,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": no_proxy,
            "no_proxy": no_proxy,
            "SAGEMAKER_USER_CONFIG_OVERRIDE": str(self.folder / "sagemaker.yaml"),
            "SAGEMAKER_QUEUE_URL": self.queue_url,
            "SAGEMAKER_QUEUE_ROLE": self.role,
            "SAGEMAKER_QUEUE_IMAGE": IMAGE.replace(REGION, self.home.region),
            "SAGEMAKER_QUEUE_INSTANCE_TYPE": INSTANCE_TYPE,
            "SAGEMAKER_QUEUE_SESSION_PLUGIN": str(self._plugin),
            **self._sites_variable(),
        }

    def _sites_variable(self) -> dict[str, str]:
        if len(self.sites) == 1:
            return {}
        described = [
            {
                "account": site.account,
                "region": site.region,
                "role": None if site == self.home else site.role_arn,
            }
            for site in self.sites
        ]
        return {"SAGEMAKER_QUEUE_SITES": json.dumps(described)}

    def boto_session(self) -> boto3.Session:
        """Return a session of this process for this cloud; os.environ is neither read nor changed."""
        return self._new_session()

    def site_session(self, site: EmulatedSite) -> boto3.Session:
        """Return a session of the root user of a site's account, in the site's region. Calls fail in an outage."""
        return self._new_session(site)

    def training_of(self, site: EmulatedSite) -> TrainingService:
        """Return the emulator of SageMaker of a site."""
        return self._others.services[site] if self._others else self.training

    def begin_outage(self, site: EmulatedSite, *, silent: bool = False) -> None:
        """Begin an outage: calls do not reach the site. The site's jobs continue, and its events arrive afterwards.

        :param site: any site but the home site, for which ValueError is raised.
        :param silent: whether calls wait for the end of the outage or their own timeout. Otherwise calls lose their
            connection at once.
        """
        if not self._others or site == self.home:
            raise ValueError(f"{site} is not one of the other sites")
        self._others.outages.begin(site, silent=silent)

    def end_outage(self, site: EmulatedSite) -> None:
        """Let a site answer again, and deliver the events of its jobs from the time of the outage."""
        if self._others:
            self._others.outages.end(site)

    def expire_sessions(self) -> None:
        """Let all sessions of assumed roles expire now."""
        Questions(self._ministack.url, self._ministack.token).ask(EXPIRE, {})

    def client(self, service: str, **options: Any) -> Any:
        """Return a boto3 client of this cloud; `options` as for `boto3.Session.client`."""
        with self._making_clients:  # sessions are not thread-safe; clients are
            return self._session.client(service, **options)  # type: ignore[call-overload]

    def invoke(self, event: Mapping[str, Any]) -> Any:
        """Call the queue's function with `event` and return its answer; raise LocalCloudError if the function fails."""
        patient = Config(read_timeout=LONGEST_INVOCATION_SECONDS, retries={"total_max_attempts": 1})
        client = self.client("lambda", config=patient)
        answer = client.invoke(FunctionName=self.function_name, Payload=json.dumps(event))
        payload = json.loads(answer["Payload"].read() or b"null")
        if "FunctionError" in answer:
            log = self.function_logs()[-2000:]
            raise LocalCloudError(f"The queue's function failed: {payload}\nIts log ends with:\n{log}")
        return payload

    def tick(self) -> Any:
        """Call the queue's function now, as its one-minute schedule does."""
        return self.invoke(deployment.scheduled_event(self.client, self._function["FunctionArn"]))

    def function_logs(self) -> str:
        """Return all that the queue's two functions have written so far."""
        pages = self.client("logs").get_paginator("filter_log_events")
        groups = [one["LoggingConfig"]["LogGroup"] for one in (self._function, self._read_function)]
        found = [page for group in groups for page in pages.paginate(logGroupName=group)]
        return "\n".join(event["message"] for page in found for event in page["events"])

    def training_log(self, training_job: str) -> list[str]:
        """Return the lines that a training job has written so far, one instance after the other."""
        return written_lines(self.client("logs"), training_job)

    def lambda_pids(self) -> list[int]:
        """Return the process ids of the workers that run the queue's functions, the child processes of ministack."""
        return [child.pid for child in psutil.Process(self._ministack.pid).children()]

    @property
    def _nowhere(self) -> Path:
        return self.folder / "no-such-file"

    def _new_session(self, site: EmulatedSite | None = None) -> boto3.Session:
        chosen = site or self.home
        return local_session(
            endpoint=self._ministack.url,
            services={"sagemaker": self.training.url, "ssm": self._sessions.url},
            nowhere=self._nowhere,
            region=chosen.region,
            keys=self._account_keys[chosen.account],
        )


def _instances(policy: Mapping[str, Any] | None) -> int:
    """Return the sum of the capacities of a policy's pools, at most MOST_INSTANCES. Invalid parts count as 0."""
    pools = (policy or {}).get("pools")
    sizes = [pool.get("capacity") for pool in pools if isinstance(pool, dict)] if isinstance(pools, list) else []
    return min(sum(size for size in sizes if isinstance(size, int)), MOST_INSTANCES)
