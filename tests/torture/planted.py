"""Fourteen bugs to plant, each as near as possible to what a programmer's slip would be.

The simulation has to find every one of them: this is what it is worth.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from boto3.dynamodb.conditions import Attr, ConditionBase

from job_queue.adapters.dynamodb import Update
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Lease
from job_queue.adapters.sagemaker import LaunchResult, TrainingJob
from job_queue.controller.cycle import Controller
from job_queue.controller.launcher import Launcher
from job_queue.controller.reconciler import Reconciler
from job_queue.domain import state_machine
from job_queue.domain.job import Job
from job_queue.domain.launching.proof import is_of_queue
from job_queue.domain.names import JOB_TAG, SUBMISSION_TAG
from job_queue.domain.state_machine import Transition
from job_queue.scheduler import JobState

Slip = tuple[str, Any]  # what is replaced, and by what


def _token_not_checked() -> list[Slip]:
    return [("job_queue.adapters.job_repository.fencing_token_is", lambda token: Attr("token").exists())]


def _token_checked_but_not_moved() -> list[Slip]:
    commit = JobRepository.commit

    def update(*args: Any, **named: Any) -> Update:
        made = Update(*args, **named)
        return replace(made, add={}) if made.key.get("position") == "lease" and not made.set else made

    def commit_without_moving(self: JobRepository, lease: Lease, *args: Any, **named: Any) -> None:
        commit(self, lease, *args, **named)
        lease.fencing_token -= 1

    return [
        ("job_queue.adapters.job_repository.Update", update),
        ("job_queue.adapters.job_repository.JobRepository.commit", commit_without_moving),
    ]


def _no_intent() -> list[Slip]:
    """The start is written down only when SageMaker has answered."""
    record, settle = Controller._record, Launcher.settle
    begun: dict[str, Transition] = {}

    def record_the_others(
        self: Controller,
        lease: Lease,
        cluster: Any,
        plan: Any,
        transitions: list[Transition],
        now: float,
        **named: bool,
    ) -> tuple[list[Transition], bool]:
        starts = [transition for transition in transitions if transition.old.state.waits]
        begun.update({transition.new.submission: transition for transition in starts})
        others = [transition for transition in transitions if not transition.old.state.waits]
        recorded, unplanned = record(self, lease, cluster, plan, others, now, **named)
        return [*recorded, *starts], unplanned

    def settle_and_record(self: Launcher, lease: Lease, job: Job, answer: LaunchResult, message: str) -> bool:
        if job.submission in begun:
            self._repository.commit(lease, [begun.pop(job.submission)], self._clock())
        return settle(self, lease, job, answer, message)

    return [
        ("job_queue.controller.cycle.Controller._record", record_the_others),
        ("job_queue.controller.launcher.Launcher.settle", settle_and_record),
    ]


def _intent_given_up() -> list[Slip]:
    refused = state_machine.refused

    def forgetful(job: Job, sent_at: int, message: str, **named: Any) -> Transition:
        own = tuple(call for call in job.calls if call.sent_at == sent_at)
        return replace(refused(replace(job, calls=own), sent_at, message, **named), old=job)

    return [("job_queue.domain.state_machine.refused", forgetful)]


def _attempt_raised_after_refusal() -> list[Slip]:
    refused = state_machine.refused

    def raising(*args: Any, **named: Any) -> Transition:
        transition = refused(*args, **named)
        return (
            replace(transition, new=replace(transition.new, attempt=transition.new.attempt + 1))
            if transition.new.state.waits
            else transition
        )

    return [("job_queue.domain.state_machine.refused", raising)]


def _sdk_retries() -> list[Slip]:
    create = Launcher.create

    def retrying(self: Launcher, *args: Any, **named: Any) -> tuple[LaunchResult, str]:
        answer = create(self, *args, **named)
        for _ in range(2):
            if answer[0] is LaunchResult.UNKNOWN:
                answer = create(self, *args, **named)
        return answer

    return [("job_queue.controller.launcher.Launcher.create", retrying)]


def _release_without_looking() -> list[Slip]:
    """The holder looks for news before it gives the lease back, and not after."""
    generation, release = JobRepository.generation, JobRepository.release
    seen: dict[int, int] = {}

    def looking_first(self: JobRepository, lease: Lease) -> None:
        seen[id(self)] = generation(self)
        release(self, lease)

    return [
        ("job_queue.adapters.job_repository.JobRepository.release", looking_first),
        ("job_queue.adapters.job_repository.JobRepository.generation", lambda self: seen[id(self)]),
    ]


def _news_before_it_is_stored() -> list[Slip]:
    raise_generation, add, apply = JobRepository.raise_generation, JobRepository.add, JobRepository.apply

    def counted(write: Callable[..., Any]) -> Callable[..., Any]:
        def counting_first(self: JobRepository, *args: Any) -> Any:
            raise_generation(self)
            return write(self, *args)

        return counting_first

    return [
        ("job_queue.adapters.job_repository.JobRepository.raise_generation", JobRepository.generation),
        ("job_queue.adapters.job_repository.JobRepository.add", counted(add)),
        ("job_queue.adapters.job_repository.JobRepository.apply", counted(apply)),
    ]


def _event_of_another_attempt() -> list[Slip]:
    def of_any_attempt(name: str, tags: Mapping[str, str], job: Job) -> bool:
        return is_of_queue(tags) and tags.get(JOB_TAG) == job.name and tags.get(SUBMISSION_TAG) == job.submission

    return [("job_queue.adapters.sagemaker.is_attempt_of", of_any_attempt)]


def _slot_freed_at_stop_request() -> list[Slip]:
    evict = state_machine.evict

    def freeing(*args: Any) -> Transition:
        transition = evict(*args)
        return replace(transition, new=replace(transition.new, slots={}))

    return [("job_queue.domain.state_machine.evict", freeing)]


def _write_without_version() -> list[Slip]:
    def is_the_same_job(job: Job) -> ConditionBase:
        return Attr("submission").eq(job.submission)

    return [("job_queue.adapters.job_repository.is_as_read", is_the_same_job)]


def _cancel_finishes_a_starting_job() -> list[Slip]:
    cancel = state_machine.cancel

    def finishing(job: Job, by: str, now: float) -> Transition:
        if job.state is not JobState.STARTING:
            return cancel(job, by, now)
        waiting = cancel(replace(job, state=JobState.PENDING, launched=None, calls=(), slots={}), by, now)
        return replace(waiting, old=job)

    return [("job_queue.domain.state_machine.cancel", finishing)]


def _reconciliation_off() -> list[Slip]:
    return [("job_queue.controller.reconciler.Reconciler.compare", lambda self, metadata, enough_time: [])]


def _external_jobs_ignored() -> list[Slip]:
    count = Reconciler.count_external

    def ignoring(self: Reconciler, found: TrainingJob) -> None:
        if found.of_queue:
            count(self, found)

    return [("job_queue.controller.reconciler.Reconciler.count_external", ignoring)]


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug, and where it shows at once.

    The ordinary tests look there first, and everywhere where a change of the product has moved it.
    `python -m tests.torture planted` tells where it is.

    :param seeds: of the first walks that have found it.
    :param scenarios: that find it by search, where walks do not.
    """

    slips: Callable[[], list[Slip]]
    seeds: tuple[int, ...] = ()
    scenarios: tuple[str, ...] = ()


BUGS = {
    "token-not-checked": Bug(_token_not_checked, (39, 77, 151)),
    "token-not-moved": Bug(_token_checked_but_not_moved, (955,)),
    "no-intent": Bug(_no_intent, (0, 1, 2)),
    "intent-given-up": Bug(_intent_given_up, scenarios=("submission-and-tick-in-doubt",)),
    "attempt-raised-after-refusal": Bug(_attempt_raised_after_refusal, (3, 13, 15)),
    "sdk-retries": Bug(_sdk_retries, (369, 710, 910)),
    "release-without-looking": Bug(_release_without_looking, (190, 228, 440)),
    "news-before-stored": Bug(_news_before_it_is_stored, (102, 190)),
    "event-of-another-attempt": Bug(_event_of_another_attempt, (7, 28, 66)),
    "slot-freed-at-stop-request": Bug(_slot_freed_at_stop_request, (0, 6, 7)),
    "write-without-version": Bug(_write_without_version, (5, 43, 50)),
    "cancel-finishes-starting": Bug(_cancel_finishes_a_starting_job, (85, 152, 379)),
    "reconciliation-off": Bug(_reconciliation_off, (0, 1, 2)),
    "external-ignored": Bug(_external_jobs_ignored, (15, 19, 36)),
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Within it the product has this bug; None: it is as it is."""
    with ExitStack() as stack:
        for target, slip in BUGS[name].slips() if name else ():
            stack.enter_context(patch(target, slip))
        yield
