"""Run the acceptance suite: python -m tests.acceptance [--stack NAME ...] [-- OPTIONS OF PYTEST]

Without --stack it runs on the queue of the environment, which is meant to be a local cloud's:

    python -m local_cloud exec --slots 2 -- python -m tests.acceptance

With --stack it runs in an account, with the credentials of the environment, from inside the network of the queue's VPC
endpoint. The queue must be empty, and its policy is the suite's own until the end: use a stack of its own.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest

from sagemaker_queue import QueueClient
from tests.acceptance.account import Account, Settings
from tests.acceptance.plan import Cost

HERE = "tests/acceptance"
DEFAULT_TYPE = "ml.m5.large"
LOCAL = ("127.0.0.1", "localhost", "::1")


def main(arguments: Sequence[str]) -> int:
    """Tell what it costs, ask, and run; returns the exit status."""
    own = list(arguments)
    at = own.index("--") if "--" in own else len(own)
    options, more = parser().parse_args(own[:at]), own[at + 1 :]
    if options.stack:
        use_stack(options)
    url = os.environ.get("SAGEMAKER_QUEUE_URL", "")
    local = urlsplit(url).hostname in LOCAL
    if not url:
        parser().error("there is no queue: name a --stack, or run it under python -m local_cloud exec")
    cost = Cost.of_probes() if options.probe else Cost.of_all()
    print(f"The queue at {url}: {cost.sentence(options.instance_type, options.price)}", flush=True)
    if not local and not options.yes and not agreed():
        return 1
    os.environ["ACCEPTANCE_SETTINGS"] = json.dumps(settings(options, local=local))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, so that everything is taken away
    if options.probe:
        return probed(options.stack)
    names = ["-o", "python_files=check_*.py", "-o", "python_functions=check_*", "-p", "no:cacheprovider", "-v"]
    return int(pytest.main([HERE, *names, "-o", "timeout=0", *more]))


def probed(stack: str | None) -> int:
    """Run the probes instead of the checks; return the exit status, 130 after Ctrl-C."""
    from tests.acceptance.probe import run  # noqa: PLC0415  # not needed for the checks

    with TemporaryDirectory() as folder:
        account = Account(Settings.from_environment(), Path(folder))
        account.make_bucket()
        try:
            return run(account, stack)
        except KeyboardInterrupt:
            return 130


def parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    made = argparse.ArgumentParser(prog="python -m tests.acceptance", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--stack", metavar="NAME", help="the CloudFormation stack of the queue; its outputs are read")
    made.add_argument("--url", help="the queue's address, where that of the outputs does not resolve from here")
    made.add_argument("--api-id", metavar="ID", help="with the address of a VPC endpoint")
    made.add_argument("--region", help="of the stack (default: the environment's)")
    made.add_argument("--instance-type", metavar="TYPE", default=DEFAULT_TYPE, help=f"default {DEFAULT_TYPE}")
    made.add_argument("--image", metavar="URI", help="with Python 3 and the SDK's toolkit (default: scikit-learn's)")
    made.add_argument("--role", metavar="ARN", help="of the jobs (default: the first one that the queue passes on)")
    made.add_argument("--bucket", metavar="NAME", help="default: that of the SageMaker SDK")
    made.add_argument("--price", type=float, metavar="AMOUNT", help="of an instance-hour")
    made.add_argument("--patience", type=float, metavar="SECONDS", help="for each thing waited for")
    made.add_argument("--probe", action="store_true", help="measure what only AWS can answer, and print the settings")
    made.add_argument("--yes", action="store_true", help="do not ask before it costs something")
    return made


def use_stack(options: argparse.Namespace) -> None:
    """Let the environment name the stack's queue, and no other."""
    cloudformation: Any = boto3.Session(region_name=options.region).client("cloudformation")
    (stack,) = cloudformation.describe_stacks(StackName=options.stack)["Stacks"]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    for name in [name for name in os.environ if name.startswith("SAGEMAKER_QUEUE_")]:
        del os.environ[name]
    os.environ["SAGEMAKER_QUEUE_URL"] = options.url or outputs["ApiUrl"]
    if options.api_id:
        os.environ["SAGEMAKER_QUEUE_API_ID"] = options.api_id
    os.environ["AWS_DEFAULT_REGION"] = cloudformation.meta.region_name


def settings(options: argparse.Namespace, *, local: bool) -> dict[str, Any]:
    """What the checks need to know."""
    queue = QueueClient()
    account = queue.aws_client("sts").get_caller_identity()["Account"]
    role = options.role or os.environ.get("SAGEMAKER_QUEUE_ROLE") or only_role(queue)
    return {
        "instance_type": options.instance_type,
        "image": options.image or scikit_learn(queue.region, options.instance_type),
        "role": role,
        "bucket": options.bucket or f"sagemaker-{queue.region}-{account}",
        "patience_seconds": options.patience or (300 if local else 1800),
        "look_seconds": 0.3 if local else 5,
    }


def only_role(queue: QueueClient) -> str:
    """The first role that the queue passes on and names in full."""
    named = [role for role in queue.whoami().allowed_role_arns if "*" not in role]
    return named[0] if named else parser().error("the queue names no role in full: give one by --role")


def scikit_learn(region: str, instance_type: str) -> str:
    """AWS's image for scikit-learn: small, and it runs scripts of the SDKs."""
    from sagemaker import image_uris  # noqa: PLC0415  # it takes seconds

    uri: str = image_uris.retrieve("sklearn", region, version="1.2-1", instance_type=instance_type)
    return uri


def agreed() -> bool:
    """Whether a person says so."""
    if not sys.stdin.isatty():
        print("It costs money: say --yes.", file=sys.stderr)
        return False
    return input("Go on? [y/N] ").strip().lower() in ("y", "yes")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
