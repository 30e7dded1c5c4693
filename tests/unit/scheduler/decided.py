"""What a plan decides, in the words that tests compare."""

from job_queue.scheduler import Plan, Slots, Snapshot, WaitReason, plan
from job_queue.scheduler.documents.scenario_run import ScenarioRun


def started(decided: Plan) -> dict[str, Slots]:
    return {start.job: start.slots for start in decided.starts}


def evicted(decided: Plan) -> dict[str, str]:
    """Victim and claimant."""
    return {eviction.job: eviction.claimant for eviction in decided.evictions}


def evicted_by(decided: Plan) -> dict[str, tuple[str, str]]:
    """Victim, claimant and rule."""
    return {eviction.job: (eviction.claimant, eviction.rule.value) for eviction in decided.evictions}


def reasons(decided: Plan) -> dict[str, WaitReason]:
    return {hold.job: hold.reason for hold in decided.holds}


def next_snapshot(snapshot: Snapshot) -> Snapshot:
    """After one plan is carried out."""
    run = ScenarioRun(snapshot)
    run.apply(plan(snapshot))
    return run.snapshot


def final(snapshot: Snapshot) -> set[str]:
    """Who runs in the stable state."""
    run = ScenarioRun(snapshot)
    for _ in range(50):
        if not run.apply(plan(run.snapshot)):
            return {job.name for job in run.snapshot.active}
    raise AssertionError("not stable")
