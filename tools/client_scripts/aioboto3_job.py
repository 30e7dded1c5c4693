"""A job by aioboto3, whose event loop must not block while the client calls the queue."""

import asyncio
import json
import sys
import time
from pathlib import Path

import aioboto3

request = json.loads(Path(sys.argv[1]).read_text())


async def watch(longest: list[float]) -> None:
    """Record the longest delay of the loop."""
    while True:
        began = time.monotonic()
        await asyncio.sleep(0.01)
        longest[0] = max(longest[0], time.monotonic() - began)


async def main() -> None:
    """Create the job, and wait for its end."""
    longest = [0.0]
    async with aioboto3.Session().client("sagemaker") as client:
        watcher = asyncio.ensure_future(watch(longest))
        await client.create_training_job(**request)
        waiter = client.get_waiter("training_job_completed_or_stopped")
        await waiter.wait(TrainingJobName=request["TrainingJobName"], WaiterConfig={"Delay": 1, "MaxAttempts": 600})
        described = await client.describe_training_job(TrainingJobName=request["TrainingJobName"])
        pages = client.get_paginator("list_training_jobs").paginate(PaginationConfig={"PageSize": 1})
        listed = [job["TrainingJobName"] async for page in pages for job in page["TrainingJobSummaries"]]
        watcher.cancel()
    assert listed.count(request["TrainingJobName"]) == 1, listed
    assert not any("-qstamp-" in name for name in listed), listed
    assert described["TrainingJobStatus"] == "Completed", described
    # The delay is not checked, because it depends more on the load of the machine than on the hooks.
    print(f"The event loop was held up for {longest[0]:.2f} s at most.")


asyncio.run(main())
