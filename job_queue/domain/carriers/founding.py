"""A carrier as a job: what the queue launches for members that have no seat."""

import re
from collections.abc import Mapping
from typing import Any

from job_queue.domain.carriers.members import carrier_request
from job_queue.domain.fleet.warm_pools import footprint
from job_queue.domain.job import Job, iso, waiting_queue
from job_queue.domain.names import CARRIER_PREFIX, apply_qstamp
from job_queue.scheduler import JobState, Pool

LONGEST_SECONDS = 5 * 24 * 3600  # SageMaker's MaxRuntimeInSeconds without a higher quota
SLUG = 30  # characters of a project's name
DEFAULT_VOLUME = 30  # GB
# Folders of the stack's WorkBucket.
MAILBOXES = "carriers"
OUTPUT = "carriers-output"
AGENTS = "carrier-agents"


def carrier_name(project: str, token: str) -> str:
    """A new name: it begins with the project's, so that a role may be given the mailboxes of one project alone."""
    slug = re.sub(r"[^a-zA-Z0-9]+", "-", project).strip("-")[:SLUG].strip("-") or "project"
    return f"{CARRIER_PREFIX}{slug}--{token}"


def found(name: str, leader: Job, founders: tuple[str, ...], pool: Pool, request: Mapping[str, Any], now: float) -> Job:
    """The carrier that is launched for members, the first of whom leads.

    It lacks its submission and its secret, which are drawn.

    :param request: the carrier's own.
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
        footprint=footprint(request),
        kind=leader.kind,
        carries=pool.gpus,
        founders=founders,
    )


def launch_request(
    name: str, request: Mapping[str, Any], program: str, entry_point: list[str], bucket: str, pool: Pool, project: str
) -> dict[str, Any]:
    """The CreateTrainingJob request of a carrier. It has one attempt, whose name its mailbox has.

    :param request: of the member that leads.
    :param program: the address in S3 of the folder with the agent.
    :param bucket: with the mailboxes.
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
        "HyperParameters": {"mailbox": f"s3://{bucket}/{MAILBOXES}/{apply_qstamp(name, 1)}", "gpus": str(pool.gpus)},
        "InputDataConfig": [channel],
        "OutputDataConfig": {"S3OutputPath": f"s3://{bucket}/{OUTPUT}"},
        "ResourceConfig": {"VolumeSizeInGB": DEFAULT_VOLUME, **common["ResourceConfig"], **kind, "InstanceCount": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": LONGEST_SECONDS},
        "Tags": [{"Key": "project", "Value": project}],
    }
