"""Conversion of preview requests and previews between the API and the service."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from math import isfinite
from typing import TypeVar

from msgspec import UnsetType

from api_contract.models import Reason
from api_contract.preview import (
    ChangedWait,
    PreviewAnswer,
    PreviewedEviction,
    PreviewedStart,
    PreviewRequest,
    ProjectPreview,
    Unstartable,
)
from job_queue.domain.access.program_output import without_program_output
from job_queue.domain.errors import InvalidRequest
from job_queue.scheduler import Evict
from job_queue.services.preview import Preview, PreviewService
from job_queue.simulation.what_if import comparison as compared

MOST_LISTED = 200  # entries in each list of the answer

Part = TypeVar("Part")
Entry = TypeVar("Entry")


def preview_of(previews: PreviewService, request: PreviewRequest) -> Preview:
    """Compute the preview that a request describes.

    :raises InvalidRequest: the request has neither a policy nor capacities, or both, or one of them is invalid.
    """
    policy, capacity, horizon = request.policy, request.capacity, request.hours * 3600
    if isinstance(capacity, UnsetType):
        if isinstance(policy, UnsetType):
            raise InvalidRequest("The request has neither a policy nor a capacity.", remedy="Give one of them.")
        return previews.of_policy(policy, horizon)
    if not isinstance(policy, UnsetType):
        raise InvalidRequest(
            "The request has both a policy and a capacity.", field="capacity", remedy="Give one of them."
        )
    if not capacity:
        raise InvalidRequest("capacity names no pool.", field="capacity")
    return previews.of_capacity(capacity, horizon)


def preview_answer(preview: Preview) -> PreviewAnswer:
    """Return a preview in the form of the API, with at most MOST_LISTED entries in each list."""
    found = preview.comparison
    starts, more_starts = _first(found.starts, lambda it: PreviewedStart(it.job, it.slots))
    kept_waiting, more_kept_waiting = _first(found.kept_waiting, str)
    evictions, more_evictions = _first(found.evictions, _eviction)
    unstartable, more_unstartable = _first(found.unstartable, _unstartable)
    sooner, more_sooner = _first((it for it in found.waits if it.difference < 0), _wait)
    later, more_later = _first((it for it in found.waits if it.difference > 0), _wait)
    return PreviewAnswer(
        policy_version=preview.applied.version,
        at=_time(preview.now),
        until=_time(preview.until),
        starts=starts,
        more_starts=more_starts,
        kept_waiting=kept_waiting,
        more_kept_waiting=more_kept_waiting,
        evictions=evictions,
        more_evictions=more_evictions,
        unstartable=unstartable,
        more_unstartable=more_unstartable,
        sooner=sooner,
        more_sooner=more_sooner,
        later=later,
        more_later=more_later,
        projects=tuple(_project(it) for it in found.projects if it.waiting or it.used_before or it.used_after),
        in_use=preview.in_use,
        refused_submissions=preview.refused_submissions,
        warnings=preview.warnings,
        not_looked_at=tuple(_limitations(preview)),
    )


def _first(parts: Iterable[Part], to_entry: Callable[[Part], Entry]) -> tuple[tuple[Entry, ...], int]:
    """Return the first MOST_LISTED parts in the form of the API, and the number of the other parts."""
    listed = [to_entry(part) for part in parts]
    return tuple(listed[:MOST_LISTED]), max(0, len(listed) - MOST_LISTED)


def _eviction(evict: Evict) -> PreviewedEviction:
    return PreviewedEviction(evict.job, evict.claimant, evict.rule.value)


def _unstartable(found: compared.UnstartableJob) -> Unstartable:
    return Unstartable(found.job, Reason(found.reason.value, without_program_output(found.message)))


def _wait(found: compared.WaitChange) -> ChangedWait:
    return ChangedWait(found.job, _time(found.before), _time(found.after))


def _project(found: compared.ProjectFigures) -> ProjectPreview:
    return ProjectPreview(
        found.project,
        found.waiting,
        found.known,
        found.wait_before,
        found.wait_after,
        found.used_before,
        found.used_after,
    )


def _limitations(preview: Preview) -> Iterator[str]:
    found = preview.comparison
    if not found.all_examined:
        yield "There was not enough time to check for each waiting job whether it could ever start."
    if not preview.all_read:
        yield "Only the first jobs of each waiting queue were examined (window in the policy)."
    if not preview.horizon:
        return
    if not found.futures:
        yield (
            "No future was simulated: there are too many jobs, or the time was over. Only the decisions of the next "
            "cycle are shown."
        )
        return
    if unknown := found.waiting - found.known:
        jobs = "1 waiting job" if unknown == 1 else f"{unknown} waiting jobs"
        causes = "the runtimes of other jobs are unknown, or SageMaker refuses the launches"
        yield f"The starts of {jobs} are unknown: {causes}."
    if found.futures == 1:
        yield (
            "Only one likely future was simulated: there are too many jobs, or the time was over. Other futures may "
            "differ."
        )


def _time(seconds: float) -> datetime | None:
    return datetime.fromtimestamp(int(seconds), UTC) if isfinite(seconds) else None
