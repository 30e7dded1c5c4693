"""Check whether this machine can open shells in jobs, which only `smq shell` needs."""

from __future__ import annotations

from sagemaker_queue.doctor.findings import Finding, ok, skipped
from sagemaker_queue.errors import ConfigError
from sagemaker_queue.remote_shell.plugin import PROGRAM, find_plugin

SHELL = "shell"


def check_shell() -> Finding:
    """Look for the Session Manager plugin. Access to a job depends on the job, and `smq shell` checks it."""
    try:
        plugin = find_plugin()
    except ConfigError as error:
        return skipped(SHELL, f"Only smq shell needs it: {error}")
    return ok(SHELL, f"{PROGRAM} {plugin.version or '(of an unknown version)'} is here, for smq shell.")
