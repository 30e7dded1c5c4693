"""The probes, in the order in which they run; the docstring of each is the line that announces it."""

from collections.abc import Callable

from tests.acceptance.probes.finding import Finding, Lab
from tests.acceptance.probes.network import alarm_topic, endpoint_policy, invoke_rights
from tests.acceptance.probes.training import fifty_tags, pending_time, quota_lag, wildcard_pattern

PROBES: tuple[Callable[[Lab], Finding], ...] = (
    invoke_rights,
    endpoint_policy,
    wildcard_pattern,
    alarm_topic,
    fifty_tags,
    pending_time,
    quota_lag,
)
