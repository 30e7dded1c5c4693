"""The command line: python -m local_cloud demo | up | exec."""

import argparse
import os
import random
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from local_cloud.dynamodb.key_throttle import AWS_LIMITS, parse_limits
from local_cloud.faults import injection
from local_cloud.sagemaker.account.options import (
    Account,
    parse_history,
    parse_plan,
    parse_quota,
    parse_rate,
    parse_seconds,
)
from local_cloud.sites.emulated_site import HOME_REGION, parse_accounts, parse_regions
from local_cloud.user_errors import LocalCloudError

Parsed = TypeVar("Parsed")


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status, 1 if the local cloud fails. Wrong usage exits with status 2."""
    open_standard_streams()
    own, command = split(arguments)
    options = parser().parse_args(own)
    if options.action == "exec" and not command:
        parser().error("exec needs a command: python -m local_cloud exec [options] -- COMMAND ...")
    if options.action != "exec" and command:
        parser().error(f"{options.action} takes no command.")
    if options.action != "demo" and options.seed is not None and not options.faults:
        parser().error("--seed is for --faults.")
    if options.action != "demo" and "partition" in (options.faults or {}) and one_site(options):
        parser().error("The fault partition needs another site: add --regions or --accounts.")
    try:
        return act(options, command)
    except LocalCloudError as error:
        print(f"local_cloud: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        print(
            f"local_cloud: the package {error.name} is missing. In the checkout: pip install -e '.[local]'",
            file=sys.stderr,
        )
    return 1


def open_standard_streams() -> None:
    """Open /dev/null for each closed standard stream (as under cron), so that no other file gets its number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def act(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Carry out the parsed command and return its exit status. `command` is the command line that `exec` runs.

    The imports below need the packages of the extra [local]. `main` reports a missing package to the user.
    """
    account = account_of(options)
    if options.action == "demo":
        from local_cloud.commands import demo  # noqa: PLC0415

        return demo.main(account, {**timing(options), **sites(options)}, several=not one_site(options))
    from local_cloud.aws.stack import LocalCloud  # noqa: PLC0415
    from local_cloud.commands import up_and_exec  # noqa: PLC0415

    policy = up_and_exec.read_policy(options.policy) if options.policy else None
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    faults = injection.Faults(options.faults, seed)
    cloud = LocalCloud(
        options.slots,
        dict(options.instances) or None,
        policy=policy,
        faults=faults,
        account=account,
        key_limits=options.throttle_keys,
        **timing(options),
        **sites(options),
    )
    if options.action == "up":
        return up_and_exec.up(cloud, options.env_file)
    return up_and_exec.execute(cloud, options.env_file, command)


def account_of(options: argparse.Namespace) -> Account:
    """Return the account that the options describe. Raise LocalCloudError if two training plans have the same name."""
    plans = [plan.name for plan in options.plan]
    if twice := sorted({name for name in plans if plans.count(name) > 1}):
        raise LocalCloudError(f"The training plan {twice[0]} is given twice.")
    return Account(
        dict(options.quota),
        options.create_rate,
        options.list_rate,
        options.history,
        tuple(options.plan),
        options.quota_lag,
    )


def timing(options: argparse.Namespace) -> dict[str, Any]:
    """Return LocalCloud's arguments for the delay of a start and the grace of a stop. Options not given are left out.

    The argument `strict` is always included, because LocalCloud's defaults depend on it.
    """
    times: dict[str, Any] = {"strict": options.strict}
    if options.provisioning is not None:
        times["startup_delay"] = options.provisioning
    if options.stop_grace is not None:
        times |= {"stop_grace": options.stop_grace, "unhandled_grace": options.stop_grace}
    return times


def sites(options: argparse.Namespace) -> dict[str, Any]:
    """Return LocalCloud's arguments for regions and accounts."""
    return {"regions": options.regions, "accounts": options.accounts}


def one_site(options: argparse.Namespace) -> bool:
    """Return whether the cloud has only the home site."""
    return len(options.regions) * int(options.accounts) == 1


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return our own arguments and, separately, the command that follows the first `--`."""
    own = list(arguments)
    if "--" not in own:
        return own, []
    at = own.index("--")
    return own[:at], own[at + 1 :]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    aws = argparse.ArgumentParser(add_help=False)
    group = aws.add_argument_group("the AWS account", "Limits of SageMaker; by default there are none.")
    group.add_argument(
        "--quota", type=checked(parse_quota), action="append", default=[], metavar="NAME=LIMIT",
        help="a quota by SageMaker's own name, such as 'ml.p5.48xlarge for spot training job usage=0'; repeatable",
    )  # fmt: skip
    group.add_argument(
        "--quota-lag", type=checked(parse_seconds), metavar="SECONDS",
        help="count instances toward quotas for this time after the end of a job or a warm pool. Types that neither "
        "--quota nor --instances names then have a quota of --slots instances, on demand and spot. AWS: some minutes",
    )  # fmt: skip
    group.add_argument(
        "--create-rate", type=checked(parse_rate), metavar="CALLS/BURST",
        help="CreateTrainingJob calls a second, and at once after a rest; more are throttled. AWS: 1/10 or so",
    )  # fmt: skip
    group.add_argument(
        "--list-rate", type=checked(parse_rate), metavar="CALLS/BURST", help="the same for ListTrainingJobs. AWS: 2/2"
    )
    group.add_argument(
        "--history",
        type=checked(parse_history),
        default=0,
        metavar="N",
        help="number of earlier training jobs in the history",
    )
    group.add_argument(
        "--plan", type=checked(parse_plan), action="append", default=[], metavar="NAME=COUNT,START,END[,TYPE]",
        help="a training plan, of any instance type unless TYPE is given; times are ISO, or seconds from now such as "
        "+60; its instances are taken back 30 minutes before END; targets after a comma, such as endpoint+studio-apps, "
        "make a plan for these instead of training jobs; repeatable",
    )  # fmt: skip
    group.add_argument(
        "--provisioning", type=checked(parse_seconds), metavar="SECONDS",
        help="how long a job waits for its instances, unless a warm pool has them (default 0)",
    )  # fmt: skip
    group.add_argument(
        "--stop-grace", type=checked(parse_seconds), metavar="SECONDS",
        help="time from SIGTERM to SIGKILL. AWS: 120. Default: 10, but half a second where the first process of the "
        "container does not handle SIGTERM",
    )  # fmt: skip
    group.add_argument(
        "--strict", action="store_true",
        help="behave like a new AWS account, unless other options differ: default quotas and rates, a history, and "
        "instances that take a while",
    )  # fmt: skip
    group = aws.add_argument_group(
        "several sites",
        "Each pair of account and region has its own SageMaker. All other options apply to each of them.",
    )
    group.add_argument(
        "--regions", type=checked(parse_regions), default=(HOME_REGION,), metavar="NAME,...",
        help=f"regions; the queue is in the first one (default {HOME_REGION})",
    )  # fmt: skip
    group.add_argument(
        "--accounts", type=checked(parse_accounts), default=1, metavar="N",
        help="number of accounts: the queue's is 000000000000, the others are 111111111111 and so on (default 1)",
    )  # fmt: skip
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument(
        "--slots",
        type=slots,
        default=2,
        metavar="N",
        help="instances that the queue may use under any policy, for each site (default 2)",
    )
    options.add_argument("--policy", type=Path, metavar="FILE", help="the policy to apply at the start, YAML or JSON")
    options.add_argument(
        "--instances", type=instances, nargs="+", action="extend", default=[], metavar="TYPE=N",
        help="instances of a type that SageMaker has for the account, such as ml.m5.large=2 (default: no limit)",
    )  # fmt: skip
    options.add_argument(
        "--faults", type=checked(injection.parse), metavar="KIND=P,...",
        help=f"faults to inject, each with a probability from 0 to 1: {', '.join(injection.KINDS)}",
    )  # fmt: skip
    options.add_argument(
        "--throttle-keys", type=checked(parse_limits), nargs="?", const=AWS_LIMITS, metavar="READS/WRITES",
        help="DynamoDB throttles each partition key above these read and write units a second (AWS: 3000/1000, also "
        "with --strict)",
    )  # fmt: skip
    options.add_argument("--seed", type=int, metavar="N", help="makes the decisions about faults repeatable")
    options.add_argument(
        "--env-file",
        type=Path,
        metavar="FILE",
        help="write `export NAME=VALUE` lines to this file while the cloud is up",
    )
    whole = argparse.ArgumentParser(prog="python -m local_cloud", description=__doc__)
    actions = whole.add_subparsers(dest="action", required=True, metavar="demo|up|exec")
    actions.add_parser(
        "demo", parents=[aws], help="four training jobs go through the queue, one of them is preempted and resumed"
    )
    actions.add_parser("up", parents=[options, aws], help="run the local cloud until Ctrl-C")
    actions.add_parser(
        "exec", parents=[options, aws], help="run a command in a local cloud that lives as long as the command",
        usage="%(prog)s [--slots N] [--instances TYPE=N ...] [--faults KIND=P,...] [--seed N] [--strict] "
        "[--regions NAME,...] [--accounts N] [...] "
        "-- COMMAND ...",
    )  # fmt: skip
    return whole


def slots(text: str) -> int:
    """Parse a number of instances from 1 to 99999."""
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 99999")
    return int(text)


def instances(text: str) -> tuple[str, int]:
    """Parse `TYPE=N` into the instance type and the number of instances."""
    if not (match := re.fullmatch(r"(ml\.[a-z0-9-]+\.[a-z0-9]+)=([0-9]{1,5})", text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form TYPE=N, such as ml.m5.large=2")
    return match[1], int(match[2])


def checked(parse: Callable[[str], Parsed]) -> Callable[[str], Parsed]:
    """Wrap `parse` for argparse, which shows the message of an ArgumentTypeError but not that of a ValueError."""

    def parsed(text: str) -> Parsed:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
