"""The queue's own events on EventBridge, for people and programs that follow jobs.

An event is sent in the background, after the reported change is recorded. So a slow or failing EventBridge neither
delays nor fails a cycle or a request. Only refused events are sent again, so that no event arrives twice; events can be
lost. The tables and the API are authoritative. docs/reference/events.md describes the events.
"""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, wait
from threading import Lock
from typing import TYPE_CHECKING, Any

from api_contract import notices
from job_queue.adapters.telemetry import log
from job_queue.domain.access.program_output import without_program_output
from job_queue.domain.domain_events import (
    DomainEvent,
    ForgedAttempt,
    JobEvent,
    JobQueued,
    PolicyApplied,
    PoolDrained,
    PoolUndrained,
    UnsavedJob,
    job_event,
)
from job_queue.domain.failures import FailureClass, remedy_of
from job_queue.domain.job import Job, StartByAction, epoch, iso
from job_queue.domain.names import MAX_NAME, QUEUE_NAME
from job_queue.domain.state_machine import JobTransition, new_failure
from job_queue.scheduler import Drain, duration, time_text

if TYPE_CHECKING:
    from mypy_boto3_events.client import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef as Entry

BATCH = 10  # entries in one call of PutEvents
TRIES = 2  # tries for refused entries; entries without an answer may have been accepted, and are not sent again
LONGEST_TEXT = 1000  # characters
LONGEST_NAME = 100  # characters of an invocation's name


FORGED = "Training Job Forged"  # detail-type of events about forged attempts
POLICY_CHANGED = "Training Job Policy Changed"  # detail-type of events about the policy
POOL_DRAINED = "Training Job Pool Drained"  # detail-types of events about drains
POOL_UNDRAINED = "Training Job Pool Undrained"
WAKE_UP = "Wake Up"  # detail-type of events with which one invocation wakes another


class Notifier:
    """The sender of events to the default event bus, in batches and in the background.

    :param client: a boto3 client of EventBridge with short timeouts.
    :param background: runs functions in another thread.
    :param lost: called with the number of events that could not be sent.
    :param notice_after: shortest time in the queue, in seconds, for which people get a notice about the start.
    """

    def __init__(
        self,
        client: "EventBridgeClient",
        background: Executor,
        lost: Callable[[int], None],
        notice_after: float = 600,
    ) -> None:
        self._client = client
        self._background = background
        self._lost = lost
        self._notice_after = notice_after
        self._lock = Lock()
        self._unsent: list[Entry] = []
        self._sending: Future[None] | None = None  # None: there are no events to send

    def notify(self, event: DomainEvent) -> None:
        """Send an event to the bus if events of its type are published."""
        match event:
            case JobQueued(job):
                self._put(_job_entry(JobEvent.QUEUED, job, {}))
            case JobTransition():
                self._transitioned(event)
            case UnsavedJob(job, has_folder, at):
                ran = at - epoch(job.started or job.since)
                text = notices.unsaved(duration(ran), has_folder=has_folder)
                notice = notices.notice(job.name, job.owner, job.project, text, notices.LONGEST_NOTICE)
                details = {"ranSeconds": round(ran), "checkpointFolder": has_folder, "notice": notice}
                details = {"at": iso(at), "trainingJobName": job.launched, **details}
                self._put(_job_entry(JobEvent.UNSAVED, job, details))
            case PolicyApplied(policy, restored):
                detail = {
                    "version": policy.version,
                    "appliedBy": policy.applied_by,
                    "appliedAt": policy.applied_at,
                    "restored": restored,
                }
                self._put(_entry(POLICY_CHANGED, detail))
            case PoolDrained(pool, drain):
                self._put(_entry(POOL_DRAINED, _drain_detail(pool, drain)))
            case PoolUndrained(pool, drain, by):
                self._put(_entry(POOL_UNDRAINED, {**_drain_detail(pool, drain), "undrainedBy": by}))
            case ForgedAttempt(training_job, claimed):
                self._put(_entry(FORGED, {"trainingJobName": training_job, "job": claimed[:MAX_NAME]}))

    def _transitioned(self, transition: JobTransition) -> None:
        event = job_event(transition)
        # Backoffs repeat while there is no capacity. So backoffs are only counted in the metrics, and not sent.
        if event is not None and event is not JobEvent.BACKED_OFF:
            details = _details(event, transition)
            if (text := _notice_text(event, transition, self._notice_after)) is not None:
                job = transition.new
                details["notice"] = notices.notice(job.name, job.owner, job.project, text, notices.LONGEST_NOTICE)
            self._put(_job_entry(event, transition.new, details))

    def wake_up(self, by: str) -> None:
        """Send the event that starts another invocation of the function, which runs a cycle.

        :param by: the name of the present invocation.
        """
        self._put(_entry(WAKE_UP, {"by": by}))

    def flush(self, seconds: float) -> None:
        """Wait up to `seconds` until all events are sent, because Lambda freezes the process between invocations."""
        with self._lock:
            sending = self._sending
        if sending is not None:
            wait([sending], timeout=seconds)

    def _put(self, entry: "Entry") -> None:
        with self._lock:
            self._unsent.append(entry)
            if self._sending is None:
                self._sending = self._background.submit(self._send_all)

    def _send_all(self) -> None:
        while batch := self._next_batch():
            try:
                self._send(batch)
            except Exception as error:
                log.warning("notifications were not sent", events=len(batch), exc_info=error)
                self._lost(len(batch))

    def _next_batch(self) -> "list[Entry]":
        with self._lock:
            batch, self._unsent = self._unsent[:BATCH], self._unsent[BATCH:]
            if not batch:
                self._sending = None
            return batch

    def _send(self, entries: "list[Entry]") -> None:
        for _ in range(TRIES):
            results = self._client.put_events(Entries=entries)["Entries"]
            refused = [(entry, result) for entry, result in zip(entries, results, strict=True) if "ErrorCode" in result]
            if not refused:
                return
            entries = [entry for entry, _ in refused]
        log.warning("notifications were refused", events=len(refused), why=refused[0][1])
        self._lost(len(refused))


def woken_by(event: Mapping[str, Any]) -> str | None:
    """Return the name of the invocation that has requested this one; None if the event has no valid name."""
    detail = event.get("detail")
    by = detail.get("by") if isinstance(detail, dict) and event.get("detail-type") == WAKE_UP else None
    return by if isinstance(by, str) and len(by) <= LONGEST_NAME else None


def _entry(kind: str, detail: Mapping[str, Any]) -> "Entry":
    return {"Source": QUEUE_NAME, "DetailType": kind, "Detail": json.dumps(detail)}


def _drain_detail(pool: str, drain: Drain) -> dict[str, Any]:
    return {
        "pool": pool,
        "drainedBy": drain.by,
        "requested": iso(drain.requested),
        "at": iso(drain.at),
        "reason": drain.reason,
        "stops": drain.stops.value,
    }


def _job_entry(event: JobEvent, job: Job, details: Mapping[str, Any]) -> "Entry":
    detail = {
        "job": job.name,
        "submission": job.submission,
        "version": job.version,
        "at": job.since,
        "state": job.state.value,
        "project": job.project,
        "priority": job.priority,
        "owner": job.owner,
        **details,
    }
    return _entry(event.value, detail)


def _details(event: JobEvent, transition: JobTransition) -> dict[str, Any]:
    """Return the fields of an event besides those of the job."""
    old, new = transition.old, transition.new
    details: dict[str, Any] = {}
    match event:
        case JobEvent.STARTED:
            waited = epoch(new.since) - epoch(new.entered)
            details = {"slots": dict(new.slots), "waitSeconds": round(waited, 3)}
        case JobEvent.RESUMED:
            details = {"slots": dict(new.slots)}
        case JobEvent.EXPIRING:
            details = {"cutOff": iso(new.cut_off or 0)}
        case JobEvent.PREEMPTED:
            details = {"claimant": old.evicted_for, "rule": old.evicted_by}
        case JobEvent.UNSTOPPABLE:
            details = {"claimant": old.evicted_for}
        case JobEvent.REQUEUED:
            details = {"requeuedBy": old.requeued_by, "held": new.held}
        case JobEvent.DRAINED:
            details = {"drainedBy": old.drained_by, "slots": dict(old.slots)}
        case JobEvent.LATE:
            details = {"startBy": iso(new.start_by or 0), "action": new.start_by_action.value, "pools": list(new.pools)}
        case JobEvent.GPU_RETURNED:
            details = _failure_details(transition)
        case JobEvent.HANGS:
            details = {"silentSince": iso(new.hung or 0), "requeued": new.requeue_hung}
        case JobEvent.HUNG:
            details = {"silentSince": iso(old.hung or 0), "hangs": new.hangs}
        case JobEvent.FINISHED:
            details = {"reason": new.reason and new.reason[:LONGEST_TEXT], **_failure_details(transition)}
    return {"trainingJobName": new.launched or old.launched, **details}


def _failure_details(transition: JobTransition) -> dict[str, Any]:
    if (failure := new_failure(transition)) is None:
        return {}
    covered = {"noticeOf": transition.covered_by} if transition.covered_by else {}
    returned = {"returnedGpus": [gpu.uuid for gpu in failure.returned_gpus]} if failure.returned_gpus else {}
    return {"failureClass": failure.failure_class, "failure": failure.sentence, **returned, **covered}


def _notice_text(event: JobEvent, transition: JobTransition, after: float) -> str | None:
    """Return the text of a notice to people about a transition; None if people get no notice.

    :param after: shortest time in the queue, in seconds, for which people get a notice about the start.
    """
    old, new = transition.old, transition.new
    since_submission = epoch(new.since) - epoch(new.entered)
    text = None
    match event:
        case JobEvent.STARTED if since_submission >= after:
            text = notices.started(duration(since_submission))
        case JobEvent.PREEMPTED:
            text = notices.preempted(old.evicted_for)
        case JobEvent.REQUEUED:
            text = notices.requeued(old.requeued_by or "", held=new.held)
        case JobEvent.DRAINED:
            text = notices.drained(old.drained_by or "")
        case JobEvent.LATE:
            text = _late_notice_text(old, new)
        case JobEvent.GPU_RETURNED if (failure := new_failure(transition)) is not None:
            text = notices.gpu_returned(remedy_of(failure))
        case JobEvent.HANGS:
            text = notices.hangs(duration(transition.at - (new.hung or 0)), requeued=new.requeue_hung)
        case JobEvent.FINISHED if not transition.covered_by:  # else the notice of an earlier job covers this job
            reason = new.reason or ""
            is_output = without_program_output(reason) != reason  # output that not all readers may see
            failure = new_failure(transition)
            known = failure.failure_class if failure and failure.failure_class != FailureClass.UNKNOWN else None
            shown = None if is_output else reason
            remedy = remedy_of(failure) if failure and known else ""
            text = notices.finished(new.state.value, duration(since_submission), new.name, shown, known, remedy)
    return text


def _late_notice_text(old: Job, new: Job) -> str:
    pools = new.pools if new.pools != old.pools else ()
    no_further = new.start_by_action is StartByAction.NEXT_POOL and not pools
    return notices.late(time_text(new.start_by or 0), pools, no_further=no_further)
