"""Find obstacles to running a request in another region or account, and adapt the request to that site.

A region has its own buckets, images, networks and keys. The queue copies no data. The policy names the project's bucket
in each region (`bucket_by_region`). Users must put the data at the same addresses in each of these buckets.
"""

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any

from job_queue.domain.access.places import bucket_and_key
from job_queue.domain.fleet.sites import Site
from job_queue.domain.job import Portability
from job_queue.domain.requests.training_request import NAMED_BY_USERS, TrainingRequest

ADDRESSES = frozenset({"S3Uri", "S3OutputPath"})  # fields of CreateTrainingJob with an address in S3
# Fields with a resource that only one region has: keys, file systems, training plans, algorithms, and the images of
# Debugger's rules, which belong to another account of AWS in each region.
_REGIONAL = frozenset(
    {
        *("KmsKeyId", "VolumeKmsKeyId", "FileSystemId", "TrainingPlanArn", "TrainingPlanArns", "AlgorithmName"),
        "RuleEvaluatorImage",
    }
)
_S3 = "s3://"
_IMAGE = re.compile(r"^(\d{12}\.dkr\.ecr(?:-fips)?\.)([a-z0-9-]+)(\.amazonaws\.com(?:\.cn)?/.+)$", re.ASCII)
_ROLE = re.compile(r"^(arn:aws[a-z-]*:iam::)\d{12}(:role/.+)$", re.ASCII)


def portability_of(request: TrainingRequest) -> Portability:
    """Return the parts of a request that decide whether its job can run in other regions and accounts."""
    buckets = dict.fromkeys(bucket_and_key(address)[0] for _, address in request.texts_under(ADDRESSES))
    return Portability(tuple(sorted(buckets)), request.checkpoints is not None, _obstacle(request), request.role)


def _obstacle(request: TrainingRequest) -> str | None:
    """Return the first field with a resource of one region; None if there is none."""
    if request.vpc_config is not None:
        return "VpcConfig"
    regional = (field for field, text in request.texts_under(_REGIONAL) if text)
    by_host = (field for field, text in request.texts_under(ADDRESSES) if not text.startswith(_S3))
    return next(chain(regional, by_host), None)


def localized(content: Mapping[str, Any], site: Site, bucket_by_region: Mapping[str, str]) -> dict[str, Any]:
    """Return a request as it is sent to another region or account.

    Replace the project's buckets by its bucket in the region. Replace the training image by the image of the same name
    in the region. Replace the execution role by the role of the same name in the account. Keep the fields in
    `NAMED_BY_USERS` unchanged.

    :param content: a CreateTrainingJob request that `policy.why_not_there` permits at the site.
    """
    there = bucket_by_region.get(site.region or "")
    buckets = dict.fromkeys(bucket_by_region.values(), there) if there else {}

    def changed(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: changed(key, below) for key, below in value.items()}
        if isinstance(value, list):
            return [changed(name, below) for below in value]
        return _text_there(name, value, site, buckets) if isinstance(value, str) else value

    kept = {name: content[name] for name in NAMED_BY_USERS if name in content}
    return {**{name: changed(name, value) for name, value in content.items()}, **kept}


def role_there(role: str, site: Site) -> str:
    """Return the ARN of the execution role that a job has at a site: the role of the same name in its account."""
    return _ROLE.sub(rf"\g<1>{site.account}\g<2>", role) if site.account else role


def _text_there(name: str, text: str, site: Site, buckets: Mapping[str, str]) -> str:
    """Return the text of a field as it is sent to a site."""
    if name in ADDRESSES:
        return _in_bucket(text, buckets)
    if name == "TrainingImage" and site.region:
        return _IMAGE.sub(rf"\g<1>{site.region}\g<3>", text)
    return role_there(text, site) if name == "RoleArn" else text


def _in_bucket(address: str, buckets: Mapping[str, str]) -> str:
    """Return an address with its bucket replaced, if `buckets` has a replacement."""
    bucket, key = bucket_and_key(address)
    return f"{_S3}{buckets[bucket]}/{key}" if bucket in buckets else address
