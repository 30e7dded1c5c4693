"""Advice: changes that would let a waiting job start. Each change is tested by a plan with only this change."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache

from job_queue.scheduler import (
    LAST_RESORT,
    NOTHING_TO_DO,
    Figure,
    Hold,
    OutOfTimeError,
    Snapshot,
    WaitingJob,
    WaitReason,
    WhatIf,
    WhatIfOutcome,
    duration,
    instances,
    join,
    of_pool,
)

RUNTIMES = (86400, 43200, 21600, 10800, 3600, 1800, 600)  # values of MaxRuntimeInSeconds to try
PROJECT_GONE = (
    "The policy no longer has this project. Submit the job to another project, or ask an admin to add this project."
)
REFUSED = "The queue tries again, but each launch fails. Remove the cause that the reason names, or cancel the job."


def advise(
    snapshot: Snapshot, hold: Hold, *, submitted: bool = True, may_go_on: Callable[[], bool] = lambda: True
) -> list[str]:
    """Return sentences of advice for the owner of a waiting job: first tested remedies, then general advice.

    :param snapshot: contains the waiting job.
    :param hold: the job's hold in the plan of that snapshot.
    :param submitted: whether the job is stored, so that a command can change it.
    :param may_go_on: called before each further plan. A result of False ends the search for remedies.
    """
    job = next(job for job in snapshot.waiting if job.name == hold.job)
    if hold.reason is WaitReason.BACKOFF and job.on_free_slots_only:
        return [REFUSED]
    if hold.reason in NOTHING_TO_DO:
        return [NOTHING_TO_DO[hold.reason]]
    if hold.reason is WaitReason.HELD_BY_USER:
        when = _start_phrase(WhatIf(snapshot, job).with_job_changes(held=False))
        return [f"Release it: smq release {job.name}. {f'It would start {when}.' if when else 'It would still wait.'}"]
    what_if, remedies = WhatIf(snapshot, job, may_go_on), list[str]()
    with suppress(OutOfTimeError):
        for remedy in _remedies(what_if, job, hold.reason, submitted=submitted):
            remedies.append(remedy)  # one by one, so that remedies found in time are kept
    return [*remedies, *filter(None, [LAST_RESORT.get(hold.reason)])]


def _remedies(what_if: WhatIf, job: WaitingJob, reason: WaitReason, *, submitted: bool) -> Iterator[str]:
    if not job.demand:
        return  # no pool can run the job, so its needs in a pool are unknown
    yield from _owner_remedies(what_if, job, submitted=submitted)
    if reason is WaitReason.KEPT_FOR_PATIENT_JOB:
        yield from _shorter_runtime(what_if, "without a delay for the job that comes first")
    if reason is WaitReason.OUTSIDE_TRAINING_PLAN:
        yield from _shorter_runtime(what_if, "because it would end before the plan ends")
    if reason is WaitReason.DRAINED:
        yield from _shorter_runtime(what_if, "because it would end before the pool is drained")
    yield from _administrator_remedies(what_if)


def _owner_remedies(what_if: WhatIf, job: WaitingJob, *, submitted: bool) -> Iterator[str]:
    priorities = what_if.priorities()
    if found := _first(priorities, lambda priority: _start_phrase(what_if.with_job_changes(priority=priority))):
        priority, start = found
        command = f": smq set-priority {job.name} {priority}" if submitted else ""
        yield f"With a priority of {priority} it would start {start}{command}."
    if not job.preemptible and (when := _start_phrase(what_if.if_resubmitted(preemptible=True, interactive=False))):
        tags = "without the tag interactive" if job.interactive else "tag preemptible=true"
        yield f"Submitted as a job that may be stopped ({tags}) it would start {when}."
    if all(len(need) == 1 for need in job.demand):
        yield from _another_pool(what_if, job)
        yield from _fewer_instances(what_if, job)


def _another_pool(what_if: WhatIf, job: WaitingJob) -> Iterator[str]:
    """Yield a remedy with the first other pool in which the job would start. Its instance type may differ."""
    allowed = what_if.pools()
    own = [pool for pool in dict.fromkeys(pool for need in job.demand for pool in need) if pool in allowed]
    count = max(job.demand[0].values())
    for pool in allowed:
        if pool not in own and (when := _start_phrase(what_if.if_resubmitted(demand=(*job.demand, {pool: count})))):
            tag = "+".join([*own, pool])
            yield f"Submitted with the tag pools={tag} it would start {when}, on {instances(count, pool)}."
            return


def _fewer_instances(what_if: WhatIf, job: WaitingJob) -> Iterator[str]:
    """Yield a remedy with the largest smaller number of instances with which the job would start."""
    (pool, _), *_ = job.demand[0].items()
    count = min(need[pool] for need in job.demand if pool in need)

    def with_at_most(most: int) -> str | None:
        demand = tuple({name: min(most, n) for name, n in need.items()} for need in job.demand)
        return _start_phrase(what_if.if_resubmitted(demand=demand))

    if found := _first(range(count - 1, 0, -1), with_at_most):
        most, when = found
        yield f"Submitted with {instances(most, pool)} instead of {count} it would start {when}."


def _shorter_runtime(what_if: WhatIf, gain: str) -> Iterator[str]:
    """Yield a remedy with the longest of RUNTIMES with which the job would start.

    :param gain: the advantage of a shorter runtime, as the end of the sentence.
    """
    if found := _first(RUNTIMES, lambda seconds: _start_phrase(what_if.if_resubmitted(max_runtime=seconds))):
        longest, when = found
        yield (
            f"Submitted with a MaxRuntimeInSeconds of at most {longest} ({duration(longest)}) it would start {when}, "
            f"{gain}."
        )


def _administrator_remedies(what_if: WhatIf) -> Iterator[str]:
    figures: tuple[Figure, ...] = ("limit", "quota")
    for figure in figures:
        policy, raises = what_if.policy_with_room(figure)
        if raises and (when := _start_phrase(what_if.under_policy(policy))):
            changes = [
                f"a {figure} of {change.needed}{of_pool(change.pool)} for {change.queue} (now {change.now})"
                for change in raises
            ]
            yield f"With {join(changes)} in the policy it would start {when}."
            return


def _first(figures: Sequence[int], outcome: Callable[[int], str | None]) -> tuple[int, str] | None:
    """Return the first figure that helps, with its outcome; None if none helps.

    :param figures: sorted for a binary search: if a figure helps, all later figures help.
    :param outcome: returns how the job would start, or None if the figure does not help. Called at most once per
        figure.
    """
    outcome = cache(outcome)
    if not figures or not outcome(figures[-1]):
        return None
    first = figures[bisect_left(figures, True, key=lambda figure: outcome(figure) is not None)]
    return first, outcome(first) or ""


def _start_phrase(outcome: WhatIfOutcome | None) -> str | None:
    """Return a phrase for when the job would start; None if it would still wait."""
    if outcome is None:
        return None
    if outcome.at_once:
        return "at once"
    if not outcome.after:
        return "as soon as the slots that are being freed are free"
    return f"as soon as {join(outcome.after)} {'has' if len(outcome.after) == 1 else 'have'} stopped"
