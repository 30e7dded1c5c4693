"""The commands `up` and `exec`: run a local cloud until Ctrl-C, or as long as a command runs."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from local_cloud.aws.stack import INSTANCE_TYPE, LocalCloud
from local_cloud.commands.signals import Interrupted, Signals
from local_cloud.user_errors import LocalCloudError

NOT_EXECUTABLE, NOT_FOUND = 126, 127  # exit statuses, as in shells
FROM_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)  # Ctrl-C, Ctrl-\

SHELLS = ("bash", "dash", "fish", "ksh", "sh", "zsh")
WHAT_NEXT = """\

In this shell, smq and the SageMaker SDK use a queue on this machine. For example:

  smq submit --name first -- echo "This is a training job."
  smq logs -f first
  smq ls --all
  python examples/estimator.py

`smq --help` has more. Leave the shell with Ctrl-D or `exit`: the local cloud and all that is in it go with it.
"""


def up(cloud: LocalCloud, env_file: Path | None) -> int:
    """Run `cloud` until a signal ends it; return the exit status."""
    check_env_file(env_file)
    try:
        with Signals() as signals, cloud:
            try:
                write_env_file(cloud, env_file)
                print(usage(cloud, env_file), flush=True)
                while True:
                    cloud.check()
                    time.sleep(1)
            except Interrupted:
                return 0
            finally:
                signals.ignore()
                print("\n".join(["Stopping ...", *fault_lines(cloud)]), flush=True)
    except Interrupted as interrupted:  # before the cloud was up
        return interrupted.status


def execute(cloud: LocalCloud, env_file: Path | None, command: Sequence[str]) -> int:
    """Start `cloud`, run `command` in its environment, stop `cloud`, and return the command's exit status."""
    check_env_file(env_file)
    try:
        with Signals() as signals, cloud:
            try:
                write_env_file(cloud, env_file)
                print(f"local_cloud: up after {cloud.ready_after:.1f} s", file=sys.stderr, flush=True)
                for line in pool_lines(cloud):
                    print(line, file=sys.stderr, flush=True)
                if is_interactive_shell(command):
                    print(WHAT_NEXT, file=sys.stderr, flush=True)
                return run(cloud, command, signals)
            finally:
                signals.ignore()
                for line in fault_lines(cloud):
                    print(f"local_cloud: {line}", file=sys.stderr, flush=True)
    except Interrupted as interrupted:  # before the command ran
        return interrupted.status


def run(cloud: LocalCloud, command: Sequence[str], signals: Signals) -> int:
    """Run `command` in the environment of `cloud`, forward signals to the command, and return its exit status."""
    # Ctrl-C in a terminal reaches all of the terminal's processes, the command included. Without a terminal the
    # command gets its own process group, so that it gets each signal only once: from this process.
    terminal = os.isatty(0)
    early: list[int] = []  # signals that arrive while the command starts
    signals.pass_to(early.append)
    try:
        process = subprocess.Popen(
            command,
            env={**without_account(os.environ), **cloud.environment(), **cloud.mark, "PATH": path_with_smq(os.environ)},
            process_group=None if terminal else 0,
        )
    except FileNotFoundError:
        print(f"local_cloud: there is no command {command[0]}", file=sys.stderr)
        return NOT_FOUND
    except OSError as error:
        print(f"local_cloud: {command[0]} cannot be executed: {error.strerror}", file=sys.stderr)
        return NOT_EXECUTABLE

    def pass_on(number: int) -> None:
        with suppress(ProcessLookupError):
            if not terminal:
                os.killpg(process.pid, number)
            elif number not in FROM_THE_TERMINAL:
                process.send_signal(number)

    signals.pass_to(pass_on)
    for number in early:
        pass_on(number)
    status = process.wait()
    return status if status >= 0 else 128 - status


def is_interactive_shell(command: Sequence[str]) -> bool:
    """Return whether the command is a shell in which a person will type."""
    shell, *options = command
    at_a_terminal = os.isatty(0) and os.isatty(2)
    return at_a_terminal and Path(shell).name in SHELLS and all(option in ("-i", "-l") for option in options)


def path_with_smq(environment: Mapping[str, str]) -> str:
    """Return PATH with the folder of this Python's own programs, which contains `smq`."""
    ours, theirs = str(Path(sys.executable).parent), environment.get("PATH", os.defpath)
    # An activated environment, such as one with the SageMaker SDK v3, comes first, so that its `python` is used.
    chosen = "VIRTUAL_ENV" in environment or "CONDA_PREFIX" in environment
    return os.pathsep.join([theirs, ours] if chosen else [ours, theirs])


def without_account(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` without the variables that lead to a real account or another queue."""
    return {name: value for name, value in environment.items() if not name.startswith(("AWS_", "SAGEMAKER_QUEUE_"))}


def export_lines(cloud: LocalCloud) -> list[str]:
    """Return `cloud.environment()` as lines for a shell."""
    return [f"export {name}={shlex.quote(value)}" for name, value in cloud.environment().items()]


def fault_lines(cloud: LocalCloud) -> list[str]:
    """Return lines about the faults that happened; empty if no faults were configured."""
    if not cloud.faults.probabilities:
        return []
    counts = ", ".join(f"{kind} {count}" for kind, count in cloud.fault_counts().items())
    most = ", ".join(in_use(cloud))
    return [f"faults of seed {cloud.faults.seed}: {counts or 'none'}", f"in use at once at most: {most or 'nothing'}"]


def in_use(cloud: LocalCloud) -> list[str]:
    """Return the largest number of instances in use at once, for each instance type and (if several) each site."""
    several = len(cloud.sites) > 1
    return [
        f"{count} {kind}{f' in {site}' if several else ''}"
        for site in cloud.sites
        for kind, count in cloud.training_of(site).most_in_use.items()
    ]


def pool_lines(cloud: LocalCloud) -> list[str]:
    """Return the YAML of a policy's pools, with one pool in each site; empty if there is only the home site."""
    if len(cloud.sites) == 1:
        return []
    common = f"instance_type: {INSTANCE_TYPE}, capacity: {cloud.slots}"
    pools = [f"  - {{name: home, {common}}}"]
    for site in cloud.sites[1:]:
        place = f"region: {site.region}, role: {site.role_arn}"
        pools.append(f"  - {{name: {site.region}-{site.account}, {common}, {place}}}")
    return ["# A pool in each site, for a policy:", "pools:", *pools]


def read_policy(path: Path) -> dict[str, Any]:
    """Read a policy document in YAML or JSON; the queue validates it."""
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise LocalCloudError(f"The policy {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise LocalCloudError(f"The policy {path} is no YAML: {error}") from error
    if not isinstance(document, dict):
        raise LocalCloudError(f"The policy {path} must be a mapping of pools, projects and so on.")
    return document


def check_env_file(path: Path | None) -> None:
    """Raise LocalCloudError if the file has content, because the file would be overwritten, and removed at the end."""
    if path and path.exists() and path.stat().st_size:
        raise LocalCloudError(f"The environment file {path} exists already: name a new one, or remove it.")


def write_env_file(cloud: LocalCloud, path: Path | None) -> None:
    """Write the export lines to `path`, if given, for the lifetime of the cloud. The file is never incomplete."""
    if not path:
        return
    # These variables would make a shell use a real account again, or break its calls.
    foreign = [name for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN") if name in os.environ]
    lines = ([f"unset {' '.join(foreign)}"] if foreign else []) + export_lines(cloud)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    cloud.remove_at_end(new, path)
    try:
        new.write_text("\n".join(lines) + "\n")
        new.replace(path)
    except OSError as error:
        raise LocalCloudError(f"The environment file {path} cannot be written: {error.strerror}") from error


def usage(cloud: LocalCloud, env_file: Path | None) -> str:
    """Return the instructions for a person who uses `cloud`."""
    exports = "\n".join(f"  {line}" for line in export_lines(cloud))
    smq = "smq" if shutil.which("smq") else shlex.quote(str(Path(sys.executable).with_name("smq")))
    pools = "".join(f"{line}\n" for line in [*pool_lines(cloud), ""]) if len(cloud.sites) > 1 else ""
    shortcut = f"  source {shlex.quote(str(env_file.resolve()))}     # the same\n" if env_file else ""
    return f"""\
The local cloud is up, after {cloud.ready_after:.1f} s. Ctrl-C ends it and removes all that belongs to it.

In the terminal in which you want to use it:
{exports}
{shortcut}
{pools}Then, for example:
  {smq} ls
  python your_script.py    # estimators with sagemaker_session=QueueTrainingJobSession()

Its output:
  services   {cloud.log}
  training   log group /aws/sagemaker/TrainingJobs
  the queue  log group {cloud.log_group}
"""
