"""The commands of ``smq`` about drains of pools: ``smq drain`` and ``smq undrain``."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from sagemaker_queue.cli.output import DONE, print_json
from sagemaker_queue.cli.parser import argument, checked, command, json_flag, option, with_queue
from sagemaker_queue.presentation.tables.fleet_tables import drain_sentence, undrain_sentence
from sagemaker_queue.workflows.usage.period import moment_ahead

if TYPE_CHECKING:
    from api_contract.models import DrainedJobs
    from sagemaker_queue.queue.client import QueueClient

_pool = argument("pool", metavar="POOL", help="the name of the pool, as listed by smq status")


@command(
    "drain",
    help="drain a pool: no job starts there, and running jobs move or wait",
    description="Drain a pool now or at a time, for example for maintenance. No job starts there until smq undrain. "
    "Running jobs are stopped as by a preemption: they wait again in their old positions, and resume "
    "from their checkpoints in another pool that they accept, or after smq undrain. Jobs that are not "
    "preemptible run to their ends. Before the time, a job starts there only if its MaxRuntimeInSeconds "
    "ends by then. Only administrators of the queue may drain a pool.",
    examples=["smq drain p5", 'smq drain p5 --at 2026-11-22T18:00 --reason "new disks"', "smq drain p4 --stop all"],
)
@_pool
@option(
    "--at",
    metavar="TIME",
    type=checked(moment_ahead),
    help="the time: 2026-11-22T18:00 (UTC), or 30m, 12h, 7d from now (default: now)",
)
@option("--reason", metavar="TEXT", default="", help="the reason, which users see with their waiting jobs")
@option(
    "--stop",
    "stops",
    type=click.Choice(["none", "preemptible", "all"]),
    default="preemptible",
    help="the running jobs to stop: none, only preemptible jobs (default), or all",
)
@json_flag("print the drain as JSON")
@with_queue
def drain(queue: QueueClient, pool: str, at: datetime | None, reason: str, stops: DrainedJobs, as_json: bool) -> int:
    """Drain a pool, and print what happens to its jobs."""
    answer = queue.drain(pool, at=at, reason=reason, stops=stops)
    if as_json:
        print_json(answer.to_json())
        return DONE
    print(f"{drain_sentence(answer)}; smq undrain {answer.pool} ends the drain")
    return DONE


@command(
    "undrain",
    help="end the drain of a pool",
    description="End the drain of a pool, also a drain in the future: jobs start there again. Only administrators "
    "of the queue may end a drain.",
    examples=["smq undrain p5"],
)
@_pool
@json_flag("print JSON")
@with_queue
def undrain(queue: QueueClient, pool: str, as_json: bool) -> int:
    """End the drain of a pool."""
    answer = queue.undrain(pool)
    if as_json:
        print_json(answer.to_json())
    else:
        print(undrain_sentence(answer))
    return DONE
