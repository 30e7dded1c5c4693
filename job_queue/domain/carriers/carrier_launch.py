"""Create a carrier (the queue's own job that holds a shared instance): its name, its job and its launch request."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from job_queue.domain.carriers.members import carrier_request
from job_queue.domain.job import Job, iso, waiting_queue
from job_queue.domain.names import CARRIER_PREFIX
from job_queue.domain.requests.training_request import TrainingRequest
from job_queue.scheduler import JobState, Pool

LONGEST_SECONDS = 5 * 24 * 3600  # largest MaxRuntimeInSeconds that SageMaker accepts without a higher quota
# Lengths of the parts of a carrier's name, and of their digests. Names of attempts have at most 63 characters.
PROJECT, PROJECT_DIGEST = 16, 8
OWNER, OWNER_DIGEST = 17, 10
SHARED = "shared"  # replaces the owner; an owner's part always has a digest, so it never equals this word
_PLAIN = re.compile(r"[a-zA-Z0-9](-?[a-zA-Z0-9])*", re.ASCII)
_WITH_DIGEST = re.compile(rf".*-[0-9a-f]{{{PROJECT_DIGEST}}}", re.ASCII)
DEFAULT_VOLUME = 30  # GB
# Folders of the stack's WorkBucket.
MAILBOXES = "carriers"
OUTPUT = "carriers-output"
AGENTS = "carrier-agents"


def carrier_name(project: str, owner: str | None, token: str) -> str:
    """Return the name of a new carrier, `carrier--<project>--<owner>--<token>`.

    With this name, an IAM role can be limited to the mailboxes of one owner in one project:
    `carriers/carrier--<project>--<owner>--*`.

    :param owner: the only owner whose members the carrier takes; None: the carrier takes members of all owners.
    """
    return f"{CARRIER_PREFIX}{project_part(project)}--{owner_part(owner)}--{token}"


def project_part(project: str) -> str:
    """Return a project's part of the names of its carriers: the project's name if possible, else a name with a digest.

    Two projects never have the same part, because a project name that looks like a name with a digest also gets a
    digest.
    """
    plain = len(project) <= PROJECT and _PLAIN.fullmatch(project) and not _WITH_DIGEST.fullmatch(project)
    return project if plain else _with_digest(project, project, PROJECT, PROJECT_DIGEST)


def owner_part(owner: str | None) -> str:
    """Return an owner's part of a carrier's name: the last word and a digest of the ARN; `SHARED` without an owner."""
    if owner is None:
        return SHARED
    return _with_digest(re.split("[:/]", owner)[-1], owner, OWNER, OWNER_DIGEST)


def _with_digest(readable: str, text: str, length: int, digits: int) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()[:digits]
    word = re.sub(r"[^a-zA-Z0-9]+", "-", readable).strip("-")[: length - digits - 1].strip("-")
    return f"{word or 'x'}-{digest}"


def new_carrier_job(
    name: str, leader: Job, first_members: tuple[str, ...], pool: Pool, footprint: str | None, now: float
) -> Job:
    """Return the job of a new carrier for members. The job has the owner, the priority and the demand of the leader.

    The caller must add the submission and the secret, which are random.

    :param leader: the first member.
    :param footprint: footprint of the carrier's own request.
    """
    demand = leader.demand
    return Job(
        name=name,
        submission="",
        state=JobState.PENDING,
        priority=leader.priority,
        entered=iso(now),
        since=iso(now),
        owner=leader.owner,
        demand=demand,
        waiting_queue=waiting_queue(leader.project, demand, leader.pools),
        project=leader.project,
        preemptible=leader.preemptible,
        pools=leader.pools,
        max_runtime=LONGEST_SECONDS,
        plans=leader.plans,
        footprint=footprint,
        kind=leader.kind,
        carries=pool.gpus,
        first_members=first_members,
    )


def launch_request(
    name: str,
    request: TrainingRequest,
    program: str,
    entry_point: list[str],
    settings: Mapping[str, str],
    bucket: str,
    pool: Pool,
    project: str,
) -> dict[str, Any]:
    """Return the CreateTrainingJob request of a carrier.

    :param name: name of the carrier's job.
    :param request: request of the first member.
    :param program: the address in S3 of the folder with the agent.
    :param settings: hyperparameters with which the agent finds its mailbox and verifies orders.
    :param bucket: the stack's WorkBucket.
    """
    common = carrier_request(request)
    channel = {
        "ChannelName": "carrier",
        "DataSource": {
            "S3DataSource": {
                "S3DataType": "S3Prefix",
                "S3Uri": program,
                "S3DataDistributionType": "FullyReplicated",
            }
        },
        "InputMode": "File",
    }
    kind = {"InstanceType": pool.instance_type} if pool.instance_type else {}
    return {
        "TrainingJobName": name,
        **common,
        "AlgorithmSpecification": {
            **common["AlgorithmSpecification"],
            "TrainingInputMode": "File",
            "ContainerEntrypoint": entry_point,
        },
        "HyperParameters": {**settings, "gpus": str(pool.gpus)},
        "InputDataConfig": [channel],
        "OutputDataConfig": {"S3OutputPath": f"s3://{bucket}/{OUTPUT}"},
        "ResourceConfig": {"VolumeSizeInGB": DEFAULT_VOLUME, **common["ResourceConfig"], **kind, "InstanceCount": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": LONGEST_SECONDS},
        "Tags": [{"Key": "project", "Value": project}],
    }
