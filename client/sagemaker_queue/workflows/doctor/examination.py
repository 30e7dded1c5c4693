"""Run all steps of ``smq doctor`` in order. A step that depends on a failed step is skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sagemaker_queue.errors import ConfigError
from sagemaker_queue.queue.config.job_defaults import JobDefaults
from sagemaker_queue.queue.config.queue_config import find_defaults
from sagemaker_queue.queue.transport import region_of
from sagemaker_queue.workflows.doctor.caller import (
    ACCESS,
    CREDENTIALS,
    VERSION,
    check_access,
    check_credentials,
    check_version,
)
from sagemaker_queue.workflows.doctor.configuration import CONFIGURATION, check_configuration
from sagemaker_queue.workflows.doctor.findings import FAILED, NOT_CHECKED, Finding, failed, ok, skipped
from sagemaker_queue.workflows.doctor.identity_step import IDENTITY, check_identity
from sagemaker_queue.workflows.doctor.job_steps import BUCKET, ROLE, check_bucket, check_role
from sagemaker_queue.workflows.doctor.network import (
    CLOCK,
    CONNECTION,
    DNS,
    Address,
    check_clock,
    check_connection,
    check_dns,
)
from sagemaker_queue.workflows.remote_shell.plugin import PROGRAM, find_plugin

SHELL = "shell"
CHECKS = (CONFIGURATION, DNS, CONNECTION, CLOCK, CREDENTIALS, ACCESS, IDENTITY, VERSION, ROLE, BUCKET, SHELL)


def examine(url: str | None, profile: str | None) -> Iterator[Finding]:
    """Yield one finding for each of CHECKS, in this order, as soon as the finding is known."""
    finding, config = check_configuration(url, profile)
    yield finding
    if config is None:
        without_queue = {CREDENTIALS: lambda: check_credentials()[0], SHELL: check_shell}
        for check in CHECKS[1:]:
            run_check = without_queue.get(check)
            yield run_check() if run_check else skipped(check, _skip_message(CONFIGURATION))
        return
    address = Address.of(config.url)
    network_checks: tuple[tuple[str, Callable[[], Finding]], ...] = (
        (DNS, lambda: check_dns(address)),
        (CONNECTION, lambda: check_connection(address)),
        (CLOCK, lambda: check_clock(config.url)),
    )
    failed_check = None
    for check, run_check in network_checks:
        finding = skipped(check, _skip_message(failed_check)) if failed_check else run_check()
        yield finding
        failed_check = check if finding.status == FAILED else failed_check
    finding, session = check_credentials(config)
    yield finding
    identity = None
    if session and failed_check in (None, CLOCK):
        finding, identity = check_access(config, session)
        yield finding
        failed_check = ACCESS if finding.status == FAILED else failed_check
    else:
        yield skipped(ACCESS, _skip_message(failed_check or CREDENTIALS))
    yield (
        check_identity(identity.owner, session)
        if identity
        else skipped(IDENTITY, _skip_message(failed_check or CREDENTIALS))
    )
    yield check_version(identity) if identity else skipped(VERSION, _skip_message(failed_check or CREDENTIALS))
    try:
        defaults = find_defaults(url=url, profile=profile)
    except ConfigError as error:
        yield failed(ROLE, str(error), "Correct the profile: smq config show")
        defaults = JobDefaults()
    else:
        yield check_role(defaults, identity, session)
    region = config.region or region_of(config.url) or (session.region_name if session else None)
    yield check_bucket(defaults, session, region, config)
    yield check_shell()


def check_shell() -> Finding:
    """Find the Session Manager plugin. Other conditions of a shell depend on the job, so `smq shell` checks them."""
    try:
        plugin = find_plugin()
    except ConfigError as error:
        return skipped(SHELL, f"Only smq shell needs it: {error}")
    return ok(SHELL, f"{PROGRAM} {plugin.version or '(of an unknown version)'} is here, for smq shell.")


def _skip_message(failed_check: str) -> str:
    return f"{NOT_CHECKED} {failed_check} failed."
