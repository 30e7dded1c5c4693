"""Cost of the hooks for programs that do not need them: `python benchmarks/hooks.py [--calls 400] [--rounds 15]`.

An S3 call by a client without hooks is compared with one by a client that `install(everywhere=True)` has hooked. First,
two clients without hooks are compared, as a check of the measurement. S3 answers inside the process, so only botocore's
work is measured. Rounds alternate between the clients, and the least processor time of each client counts. Finally, the
time of the `.pth` file in a Python that starts without SAGEMAKER_QUEUE_INSTALL is compared with the time of the whole
start.
"""

import argparse
import gc
import os
import resource
import statistics
import subprocess
import sys
import sysconfig
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from sagemaker_queue import QueueClient, install, uninstall

NOWHERE = "http://127.0.0.1:9/prod"  # no call reaches this address


class _Body:
    def stream(self, *_: object, **__: object) -> list[bytes]:
        return [b""]

    def read(self, *_: object) -> bytes:
        return b""


def s3_client() -> Any:
    """Return an S3 client with its own session, whose requests are answered at once without a connection."""
    client: Any = boto3.Session("AKIDEXAMPLE", "none", region_name="eu-west-1").client("s3")
    client.meta.events.register(
        "before-send.s3", lambda request, **_: AWSResponse(request.url, 200, HTTPHeaders(), _Body())
    )
    return client


def seconds(client: Any, calls: int) -> float:
    """Return the processor seconds of one call, averaged over `calls`."""
    began = time.process_time()
    for _ in range(calls):
        client.head_object(Bucket="bucket", Key="key")
    return (time.process_time() - began) / calls


def compared(one: Any, other: Any, calls: int, rounds: int) -> tuple[float, float]:
    """Return the least processor seconds of one call in all rounds, for each client."""
    measured: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for client, times in sorted(zip((one, other), measured, strict=True), key=lambda _: 0, reverse=number % 2 == 1):
            times.append(seconds(client, calls))
    return min(measured[0]), min(measured[1])


def starts(variables: dict[str, str], rounds: int) -> float:
    """Return the median processor milliseconds of a Python that starts and ends."""
    times = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", ""], env={**os.environ, **variables}, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times) * 1000


def microseconds(action: Callable[[], object], repeated: int = 2000) -> float:
    """Return the least microseconds of one execution in five measurements."""
    return min(timeit.repeat(action, number=repeated, repeat=5)) / repeated * 1e6


def main() -> None:
    """Measure and print all times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    gc.disable()
    bare, twin = s3_client(), s3_client()
    without, same = compared(bare, twin, options.calls, options.rounds)
    print(
        f"S3 call, two clients without hooks: {without * 1e6:.0f} and {same * 1e6:.0f} µs, ratio {same / without:.3f}"
    )
    gc.freeze()  # hides the first client from install(), so that the client stays without hooks
    install(everywhere=True, queue=QueueClient(url=NOWHERE, region="eu-west-1"))
    hooked = s3_client()
    without, same = compared(bare, hooked, options.calls, options.rounds)
    print(
        f"S3 call, without hooks and with:    {without * 1e6:.0f} and {same * 1e6:.0f} µs, ratio {same / without:.3f}"
    )
    uninstall()

    line = Path(sysconfig.get_path("purelib"), "sagemaker_queue_startup.pth").read_text()
    os.environ.pop("SAGEMAKER_QUEUE_INSTALL", None)
    took = microseconds(lambda: exec(line))  # noqa: S102  # as Python executes the line at each start
    print(f"the .pth file without the variable: {took:.0f} µs of a start,", end=" ")
    print(f"which takes {starts({}, options.rounds):.0f} ms;", end=" ")
    print(f"with it {starts({'SAGEMAKER_QUEUE_INSTALL': '1'}, options.rounds):.0f} ms")


if __name__ == "__main__":
    main()
