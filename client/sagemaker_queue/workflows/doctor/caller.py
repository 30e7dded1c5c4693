"""Check the local credentials, the rights that the credentials have in the queue, and the queue's version."""

from __future__ import annotations

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from api_contract import VERSION as CLIENT_VERSION
from api_contract.models import Identity
from sagemaker_queue.errors import ConfigError, Forbidden, NotAuthenticated, QueueError
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.queue.config.queue_config import QueueConfig
from sagemaker_queue.queue.transport import region_of
from sagemaker_queue.workflows.doctor.findings import Finding, failed, ok, skipped
from sagemaker_queue.workflows.doctor.network import SECONDS

CREDENTIALS, ACCESS, VERSION = "credentials", "access", "version"
_ONE_QUESTION = Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries={"total_max_attempts": 1})
_LOG_IN = "Log in to AWS again (aws sso login), or set AWS_PROFILE to a profile that has credentials."
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})


def check_credentials(config: QueueConfig | None = None) -> tuple[Finding, boto3.Session | None]:
    """Find credentials, and get their identity from STS.

    The session is None if the credentials are missing or expired, cannot be loaded, or are refused by STS.
    """
    try:
        session = boto3.Session(profile_name=config.aws_profile if config else None)
        found = session.get_credentials()
        if found:
            found.get_frozen_credentials()
    except (BotoCoreError, ClientError) as error:
        return failed(CREDENTIALS, f"The AWS credentials cannot be loaded: {error}", _LOG_IN), None
    if not found:
        return failed(CREDENTIALS, "There are no AWS credentials.", _LOG_IN), None
    where = f"credentials ({found.method})" if found.method else "credentials"
    try:
        sts = session.client("sts", region_name=_region(config, session), config=_ONE_QUESTION)
        arn = sts.get_caller_identity()["Arn"]
    except ClientError as error:
        code = error.response["Error"]["Code"]
        what = "have expired" if code in _EXPIRED else f"are refused by AWS (STS: {code})"
        return failed(CREDENTIALS, f"The {where} {what}.", _LOG_IN), None
    except BotoCoreError as error:
        reason = f"AWS (STS) does not answer from here ({type(error).__name__}), which the queue does not need"
        return skipped(CREDENTIALS, f"There are {where}, but their identity is not known: {reason}."), session
    return ok(CREDENTIALS, f"The {where} are those of {arn}."), session


def _region(config: QueueConfig | None, session: boto3.Session) -> str:
    configured = (config.region or region_of(config.url)) if config else None
    return configured or session.region_name or "us-east-1"


def check_access(config: QueueConfig, session: boto3.Session) -> tuple[Finding, Identity | None]:
    """Read the caller's identity from the queue. The identity is None if the request to the queue fails."""
    try:
        queue = QueueClient(config, boto_session=session, tries=2, timeout_seconds=(SECONDS, 30.0))
        identity = queue.whoami()
    except QueueError as error:
        return _refused(config, session, error), None
    rights = "an administrator" if identity.admin else "an owner of jobs"
    policy = "" if identity.applies_policies else ", who may not apply policies"
    part = f" Your part in the names of carriers is {identity.carrier_owner}." if identity.carrier_owner else ""
    return ok(ACCESS, f"The queue knows you as {identity.owner}, {rights}{policy}.{part}"), identity


def _refused(config: QueueConfig, session: boto3.Session, error: QueueError) -> Finding:
    said = str(error).partition("\n")[0]  # further lines may contain the session token
    if isinstance(error, Forbidden) and error.errors:
        return failed(ACCESS, f"The queue refuses you: {said}", "Ask the operator of the queue.")
    if isinstance(error, Forbidden) and "explicit deny" in said:
        return failed(
            ACCESS,
            f"API Gateway refuses you: {said}",
            "Either you do not come through a VPC endpoint that the queue knows (its parameter VpcEndpointIds), or a"
            " policy of your account denies execute-api:Invoke.",
        )
    if isinstance(error, Forbidden):
        return failed(
            ACCESS,
            f"API Gateway refuses you: {said}",
            f"Your role needs, in IAM: Allow execute-api:Invoke on {_resource(config)}",
        )
    if isinstance(error, NotAuthenticated):
        return failed(ACCESS, said, "Are the credentials of the queue's account, and is the clock right?")
    if isinstance(error, ConfigError) and _is_older(config, session):
        return failed(
            ACCESS,
            "The queue answers, but cannot tell your identity: its version is older than this client.",
            "Ask its operator to upgrade it, or install the client of its version.",
        )
    return failed(ACCESS, said, "See docs/operate/runbook.md if others meet it too; else correct the queue's address.")


def _resource(config: QueueConfig) -> str:
    api = config.api_id or (config.url.partition("://")[2].partition(".")[0].partition("-vpce-")[0])
    return f"arn:aws:execute-api:*:*:{api}/*" if ".execute-api." in config.url else "the queue's API"


def _is_older(config: QueueConfig, session: boto3.Session) -> bool:
    """Return whether the queue answers a request that all versions know, and so lacks only the newer request."""
    try:
        QueueClient(config, boto_session=session, tries=1).policy()
    except QueueError:
        return False
    return True


def check_version(identity: Identity) -> Finding:
    """Compare the client's version with the queue's. Versions with the same first number work with one another."""
    ours, theirs = CLIENT_VERSION, identity.queue_version
    if theirs is None:
        return skipped(VERSION, f"The client is {ours}; the queue does not say what it is.")
    if ours == theirs:
        return ok(VERSION, f"The client is {ours}, the queue {theirs}.")
    if ours.split(".")[0] == theirs.split(".")[0]:
        return ok(VERSION, f"The client is {ours}, the queue {theirs}. They work together; the newer one can do more.")
    return failed(
        VERSION,
        f"The client is {ours}, the queue {theirs}: each may lack what the other has.",
        f"Install the client from the checkout that the queue was deployed from (version {theirs}).",
    )
