"""What a cycle intends: the transitions that its plan, and what was decided before, come to."""

from dataclasses import replace

from job_queue import lifecycle
from job_queue.control import Lease
from job_queue.launching import is_unanswered, new_call
from job_queue.lifecycle import Move
from job_queue.pauses import places, tried_again
from job_queue.scheduler import JobState, Plan
from job_queue.telemetry import log
from job_queue.world import World


def leftover_moves(world: World, lease: Lease, now: float) -> list[Move]:
    """Finish what was decided before: stops of cancelled jobs, launches without an answer."""
    moves = []
    for job in world.active.values():
        if job.state is JobState.RUNNING and job.cancelled:
            moves.append(lifecycle.stop_cancelled(job, now))
        elif is_unanswered(job, now):
            moves.append(lifecycle.launch_again(job, new_call(lease, now), now))
    return moves


def eviction_moves(world: World, decided: Plan, now: float) -> list[Move]:
    """Make room as planned."""
    moves = []
    for eviction in decided.evictions:
        log.info("evict", job=eviction.job, claimant=eviction.claimant, rule=eviction.rule)
        moves.append(lifecycle.evict(world.active[eviction.job], eviction.claimant, eviction.rule, now))
    return moves


def start_moves(world: World, decided: Plan, lease: Lease, now: float) -> tuple[list[Move], bool]:
    """Start as planned; where SageMaker lacked instances, one job at a time is tried.

    Gives also whether others were left out. Those may have another place to start in: the next plan knows that this
    one is paused again.
    """
    moves, left_out = [], False
    known, tried = world.pauses(now), set[str]()
    for start in decided.starts:
        job = world.waiting[start.job]
        taken = places(job, start.slots, world.applied.policy)
        pauses = tried_again(known, taken, now)
        if any(pause.place in tried for pause in pauses):
            left_out = True
            continue
        tried |= {pause.place for pause in pauses}
        log.info("start", job=start.job, slots=dict(start.slots))
        moves.append(replace(lifecycle.begin(job, start.slots, new_call(lease, now), now), pauses=pauses))
    return moves, left_out
