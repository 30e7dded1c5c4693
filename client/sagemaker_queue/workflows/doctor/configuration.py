"""Check which queue is configured, and whether its address is plausible."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from sagemaker_queue.errors import ConfigError
from sagemaker_queue.queue.config.queue_config import (
    PROFILE_VARIABLE,
    URL_VARIABLE,
    QueueConfig,
    find_config,
    profile_file,
    read_profiles,
)
from sagemaker_queue.queue.transport import region_of
from sagemaker_queue.workflows.doctor.findings import Finding, failed, ok
from sagemaker_queue.workflows.doctor.network import is_amazons, is_endpoints

CONFIGURATION = "configuration"
_AS_IT_IS = "An address looks like https://<api-id>.execute-api.<region>.amazonaws.com/prod: smq config set url URL"


def check_configuration(
    url: str | None, profile: str | None, environ: Mapping[str, str] | None = None
) -> tuple[Finding, QueueConfig | None]:
    """Find the configured queue. The configuration is None if no queue is set, or if the address cannot be right."""
    environ = os.environ if environ is None else environ
    try:
        config = find_config(url=url, profile=profile, environ=environ)
    except ConfigError as error:
        remedy = "Correct it, or name a queue: smq config set url URL; the operator knows the address."
        return failed(CONFIGURATION, str(error), remedy), None
    source = _source(url, profile, environ)
    for message, remedy in _address_faults(config):
        return failed(CONFIGURATION, f"{config.url} ({source}) {message}", remedy), None
    return ok(CONFIGURATION, f"The queue is {config.url}, from {source}."), config


def _source(url: str | None, profile: str | None, environ: Mapping[str, str]) -> str:
    if url:
        return "--url"
    if not profile and environ.get(URL_VARIABLE):
        return URL_VARIABLE
    path = profile_file(environ)
    if profile:
        return f"the profile {profile} (--profile) of {path}"
    if environ.get(PROFILE_VARIABLE):
        return f"the profile {environ[PROFILE_VARIABLE]} ({PROFILE_VARIABLE}) of {path}"
    return f"the default profile {read_profiles(path, must_exist=True).get('default')} of {path}"


def _address_faults(config: QueueConfig) -> Iterator[tuple[str, str]]:
    """Yield each fault of an API Gateway address with its remedy. Other addresses are not checked."""
    parts = urlsplit(config.url)
    host = parts.hostname or ""
    region = region_of(config.url)
    if ".execute-api." not in host:
        return
    if not is_amazons(host):
        yield "is not an API Gateway address.", _AS_IT_IS
    if not parts.path.strip("/"):
        yield "has no stage at its end.", "Add it: the queue's stage is /prod."
    if is_endpoints(host) and not config.api_id:
        yield (
            "is a VPC endpoint's address, which serves many APIs, and no api_id says which one.",
            "smq config set api_id API-ID (or SAGEMAKER_QUEUE_API_ID); its operator knows it.",
        )
    if config.region and region and config.region != region:
        yield (
            f"is in {region}, and the profile's region is {config.region}.",
            "smq config unset region: the address says it.",
        )
