"""Fourteen bugs to plant, each as near as possible to what a programmer's slip would be.

The simulation has to find every one of them: this is what it is worth.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from boto3.dynamodb.conditions import Attr, ConditionBase

from job_queue import lifecycle
from job_queue.control import Lease
from job_queue.cycle import Scheduler
from job_queue.launching import Launcher
from job_queue.lifecycle import Move
from job_queue.names import JOB_TAG, SUBMISSION_TAG
from job_queue.reconcile import Reconciler
from job_queue.records import Job
from job_queue.scheduler import JobState
from job_queue.store import Store
from job_queue.tables import Update
from job_queue.training import Answer, TrainingJob, is_of_queue

Slip = tuple[str, Any]  # what is replaced, and by what


def _token_not_checked() -> list[Slip]:
    return [("job_queue.store.token_is", lambda token: Attr("token").exists())]


def _token_checked_but_not_moved() -> list[Slip]:
    commit = Store.commit

    def update(*args: Any, **named: Any) -> Update:
        made = Update(*args, **named)
        return replace(made, add={}) if made.key.get("position") == "lease" and not made.set else made

    def commit_without_moving(self: Store, lease: Lease, *args: Any, **named: Any) -> None:
        commit(self, lease, *args, **named)
        lease.token -= 1

    return [("job_queue.store.Update", update), ("job_queue.store.Store.commit", commit_without_moving)]


def _no_intent() -> list[Slip]:
    """The start is written down only when SageMaker has answered."""
    record, settle = Scheduler._record, Launcher.settle
    begun: dict[str, Move] = {}

    def record_the_others(
        self: Scheduler, lease: Lease, world: Any, decided: Any, moves: list[Move], now: float, *, singly: bool
    ) -> tuple[list[Move], bool]:
        starts = [move for move in moves if move.old.state.waits]
        begun.update({move.new.submission: move for move in starts})
        others = [move for move in moves if not move.old.state.waits]
        recorded, unplanned = record(self, lease, world, decided, others, now, singly=singly)
        return [*recorded, *starts], unplanned

    def settle_and_record(self: Launcher, lease: Lease, job: Job, answer: Answer, words: str) -> bool:
        if job.submission in begun:
            self._store.commit(lease, [begun.pop(job.submission)], self._clock())
        return settle(self, lease, job, answer, words)

    return [
        ("job_queue.cycle.Scheduler._record", record_the_others),
        ("job_queue.launching.Launcher.settle", settle_and_record),
    ]


def _intent_given_up() -> list[Slip]:
    refused = lifecycle.refused

    def forgetful(job: Job, asked: int, words: str, **named: Any) -> Move:
        own = tuple(call for call in job.calls if call.asked == asked)
        return replace(refused(replace(job, calls=own), asked, words, **named), old=job)

    return [("job_queue.lifecycle.refused", forgetful)]


def _attempt_raised_after_refusal() -> list[Slip]:
    refused = lifecycle.refused

    def raising(*args: Any, **named: Any) -> Move:
        move = refused(*args, **named)
        return replace(move, new=replace(move.new, attempt=move.new.attempt + 1)) if move.new.state.waits else move

    return [("job_queue.lifecycle.refused", raising)]


def _sdk_retries() -> list[Slip]:
    create = Launcher.create

    def retrying(self: Launcher, *args: Any, **named: Any) -> tuple[Answer, str]:
        answer = create(self, *args, **named)
        for _ in range(2):
            if answer[0] is Answer.UNKNOWN:
                answer = create(self, *args, **named)
        return answer

    return [("job_queue.launching.Launcher.create", retrying)]


def _release_without_looking() -> list[Slip]:
    """The holder looks for news before it gives the lease back, and not after."""
    news, release = Store.news, Store.release
    seen: dict[int, int] = {}

    def looking_first(self: Store, lease: Lease) -> None:
        seen[id(self)] = news(self)
        release(self, lease)

    return [
        ("job_queue.store.Store.release", looking_first),
        ("job_queue.store.Store.news", lambda self: seen[id(self)]),
    ]


def _news_before_it_is_stored() -> list[Slip]:
    add_news, add, move = Store.add_news, Store.add, Store.move

    def counted(write: Callable[..., Any]) -> Callable[..., Any]:
        def counting_first(self: Store, *args: Any) -> Any:
            add_news(self)
            return write(self, *args)

        return counting_first

    return [
        ("job_queue.store.Store.add_news", Store.news),
        ("job_queue.store.Store.add", counted(add)),
        ("job_queue.store.Store.move", counted(move)),
    ]


def _event_of_another_attempt() -> list[Slip]:
    def of_any_attempt(tags: Mapping[str, str], job: Job) -> bool:
        return is_of_queue(tags) and tags.get(JOB_TAG) == job.name and tags.get(SUBMISSION_TAG) == job.submission

    return [("job_queue.training.is_attempt_of", of_any_attempt)]


def _slot_freed_at_stop_request() -> list[Slip]:
    evict = lifecycle.evict

    def freeing(*args: Any) -> Move:
        move = evict(*args)
        return replace(move, new=replace(move.new, slots={}))

    return [("job_queue.lifecycle.evict", freeing)]


def _write_without_version() -> list[Slip]:
    def is_the_same_job(job: Job) -> ConditionBase:
        return Attr("submission").eq(job.submission)

    return [("job_queue.store.is_as_read", is_the_same_job)]


def _cancel_finishes_a_starting_job() -> list[Slip]:
    cancel = lifecycle.cancel

    def finishing(job: Job, by: str, now: float) -> Move:
        if job.state is not JobState.STARTING:
            return cancel(job, by, now)
        waiting = cancel(replace(job, state=JobState.PENDING, launched=None, calls=(), slots={}), by, now)
        return replace(waiting, old=job)

    return [("job_queue.lifecycle.cancel", finishing)]


def _reconciliation_off() -> list[Slip]:
    return [("job_queue.reconcile.Reconciler.reconcile", lambda self, lease, enough_time: None)]


def _external_jobs_ignored() -> list[Slip]:
    count = Reconciler._count

    def ignoring(self: Reconciler, found: TrainingJob) -> None:
        if found.of_queue:
            count(self, found)

    return [("job_queue.reconcile.Reconciler._count", ignoring)]


BUGS: dict[str, Callable[[], list[Slip]]] = {
    "token-not-checked": _token_not_checked,
    "token-not-moved": _token_checked_but_not_moved,
    "no-intent": _no_intent,
    "intent-given-up": _intent_given_up,
    "attempt-raised-after-refusal": _attempt_raised_after_refusal,
    "sdk-retries": _sdk_retries,
    "release-without-looking": _release_without_looking,
    "news-before-stored": _news_before_it_is_stored,
    "event-of-another-attempt": _event_of_another_attempt,
    "slot-freed-at-stop-request": _slot_freed_at_stop_request,
    "write-without-version": _write_without_version,
    "cancel-finishes-starting": _cancel_finishes_a_starting_job,
    "reconciliation-off": _reconciliation_off,
    "external-ignored": _external_jobs_ignored,
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Within it the product has this bug; None: it is as it is."""
    with ExitStack() as stack:
        for target, slip in BUGS[name]() if name else ():
            stack.enter_context(patch(target, slip))
        yield
