"""What a cycle intends: the transitions that its plan, and what was decided before, come to."""

from dataclasses import replace

from job_queue.adapters.metadata import Lease
from job_queue.adapters.telemetry import log
from job_queue.controller.launcher import is_unanswered, new_call
from job_queue.domain import state_machine
from job_queue.domain.capacity_backoff import places, tried_again
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.state_machine import Transition
from job_queue.scheduler.decisions import Plan
from job_queue.scheduler.model import JobState


def leftover_moves(cluster: ClusterState, lease: Lease, now: float) -> list[Transition]:
    """Finish what was decided before: stops of cancelled jobs, launches without an answer."""
    moves = []
    for job in cluster.active.values():
        if job.state is JobState.RUNNING and job.cancelled:
            moves.append(state_machine.stop_cancelled(job, now))
        elif is_unanswered(job, now):
            moves.append(state_machine.launch_again(job, new_call(lease, now), now))
    return moves


def eviction_moves(cluster: ClusterState, decided: Plan, now: float) -> list[Transition]:
    """Make room as planned."""
    moves = []
    for eviction in decided.evictions:
        log.info("evict", job=eviction.job, claimant=eviction.claimant, rule=eviction.rule)
        moves.append(state_machine.evict(cluster.active[eviction.job], eviction.claimant, eviction.rule, now))
    return moves


def start_moves(cluster: ClusterState, decided: Plan, lease: Lease, now: float) -> tuple[list[Transition], bool]:
    """Start as planned; where SageMaker lacked instances, one job at a time is tried.

    Gives also whether others were left out. Those may have another place to start in: the next plan knows that this
    one is paused again.
    """
    moves, deferred = [], False
    known, tried = cluster.pauses(now), set[str]()
    for start in decided.starts:
        job = cluster.waiting[start.job]
        taken = places(job, start.slots, cluster.applied.policy)
        pauses = tried_again(known, taken, now)
        if any(pause.place in tried for pause in pauses):
            deferred = True
            continue
        tried |= {pause.place for pause in pauses}
        log.info("start", job=start.job, slots=dict(start.slots))
        moves.append(replace(state_machine.begin(job, start.slots, new_call(lease, now), now), pauses=pauses))
    return moves, deferred
