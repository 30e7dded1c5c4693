"""Find AWS's session-manager-plugin, the program that connects to the container, and build its command line.

The plugin is started with the same arguments as by the AWS CLI. Its protocol with AWS is not part of this project.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sagemaker_queue.errors import ConfigError

PROGRAM = "session-manager-plugin"
VARIABLE = "SAGEMAKER_QUEUE_SESSION_PLUGIN"
"""The path of AWS's session-manager-plugin, for `smq shell`. Default: the one in `PATH`."""
INSTALL = (
    "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"
)
_RESPONSE_VARIABLE = "AWS_SSM_START_SESSION_RESPONSE"
_LAST_WITHOUT_THE_VARIABLE = (1, 2, 497, 0)  # the last version that does not read _RESPONSE_VARIABLE
_SECONDS = 20.0  # timeout for printing the version


@dataclass(frozen=True)
class Plugin:
    """The path of the plugin, and the version that the plugin prints; the version is empty if it is not known."""

    path: str
    version: str

    def command(
        self,
        response: Mapping[str, Any],
        request: Mapping[str, Any],
        *,
        region: str,
        profile: str | None,
        endpoint: str,
    ) -> tuple[list[str], dict[str, str]]:
        """Return the plugin's arguments and environment for a session.

        ``response`` is StartSession's answer to ``request``, with a token that gives access to the session. Other users
        of this machine can read arguments. So the token is in the environment, if the plugin's version reads the
        variable.
        """
        opened = json.dumps({name: response[name] for name in ("SessionId", "TokenValue", "StreamUrl")})
        environment = dict(os.environ)
        if _numbers(self.version) > _LAST_WITHOUT_THE_VARIABLE:
            environment[_RESPONSE_VARIABLE], opened = opened, _RESPONSE_VARIABLE
        arguments = [self.path, opened, region, "StartSession", profile or "", json.dumps(dict(request)), endpoint]
        return arguments, environment


def find_plugin(environ: Mapping[str, str] | None = None) -> Plugin:
    """Return the plugin of this machine.

    Raises ConfigError, with the address of the installation guide, if there is no plugin or the plugin cannot be run.
    """
    environ = os.environ if environ is None else environ
    named = environ.get(VARIABLE)
    path = shutil.which(named or PROGRAM, path=environ.get("PATH"))
    if path is None:
        where = f"{VARIABLE} names {named}, which is no program." if named else f"{PROGRAM} is not on this machine."
        raise ConfigError(f"{where} A shell in a job goes through it; AWS has it for every system: {INSTALL}")
    try:
        asked = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{path} cannot be run: {error}. Install it again: {INSTALL}") from error
    return Plugin(path, asked.stdout.strip() if _numbers(asked.stdout) else "")


def _numbers(version: str) -> tuple[int, ...]:
    found = re.fullmatch(r"\s*(\d+)\.(\d+)\.(\d+)(?:\.(\d+))?\s*", version)
    return tuple(int(number or 0) for number in found.groups()) if found else ()
