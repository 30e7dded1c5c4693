"""The preview: its request, and its answer.

A preview shows the effect that another policy, or other capacities, would have on the queue.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Optional, Union

from msgspec import UNSET, Meta, UnsetType

from api_contract.models import Reason
from api_contract.shape import Answer, Body, Count, JobName, Slots, Time, schema

LONGEST_HOURS = 48
MOST_INSTANCES = 1_000_000


class PreviewRequest(Body, frozen=True):
    """The change to preview: either a policy or capacities."""

    policy: Annotated[Any, schema(document="Policy")] = UNSET
    """The complete policy to preview. The pools of this policy may have more instances than `MaxCapacity` allows."""
    capacity: Union[Mapping[str, Annotated[int, Meta(ge=0, le=MOST_INSTANCES)]], UnsetType] = UNSET
    """The capacities to preview: instances by pool of the policy in force. Other pools are unchanged. Capacities may be
    larger than the stack's parameter `MaxCapacity` allows."""
    hours: Annotated[float, Meta(ge=0, le=LONGEST_HOURS)] = 8
    """The number of hours to look ahead. 0 shows only the decisions of the next cycle, which is fastest."""


class PreviewedStart(Answer, frozen=True):
    """A job that would start now."""

    job: JobName
    """The name of the job."""
    slots: Slots = {}
    """The slots in which the job would start."""


class PreviewedEviction(Answer, frozen=True):
    """A job that would be stopped now, and wait again."""

    job: JobName
    """The name of the job."""
    claimant: JobName = ""
    """The job for which this job would be stopped."""
    rule: Annotated[str, schema(enum=["preempt", "reclaim", "consolidate"])] = ""
    """The rule, as in the evictions of `/plan`."""


class Unstartable(Answer, frozen=True):
    """A waiting job that could never start under the preview, even in an idle fleet."""

    job: JobName
    """The name of the job."""
    reason: Optional[Reason] = None
    """The reason why the job could not start."""


class ChangedWait(Answer, frozen=True):
    """A waiting job whose wait would be noticeably longer or shorter."""

    job: JobName
    """The name of the job."""
    start_now: Optional[Time] = None
    """The expected start under the policy in force; null if it is later than `until`."""
    start_then: Optional[Time] = None
    """The expected start under the preview; null if it is later than `until`."""


class ProjectPreview(Answer, frozen=True):
    """A project under the policy in force and under the preview."""

    project: str
    """The name of the project, which may exist in only one of the two policies."""
    waiting: Count = 0
    """The number of the project's waiting jobs that were read."""
    known: Count = 0
    """The number of these jobs whose expected start is known, or is certainly later than `until`."""
    wait_now: Optional[float] = None
    """The average wait of the `known` jobs from now on, in seconds. A start later than `until` counts as `until`."""
    wait_then: Optional[float] = None
    """The average wait under the preview."""
    used_now: Slots = {}
    """The slots that the project's jobs hold after the decisions of the next cycle."""
    used_then: Slots = {}
    """The slots that the project's jobs hold after the decisions of the next cycle under the preview."""


class PreviewAnswer(Answer, frozen=True):
    """The changes compared with the policy in force. A list is cut after 200 entries."""

    policy_version: Count = 0
    """The version of the policy in force."""
    at: Optional[Time] = None
    """The time of the comparison."""
    until: Optional[Time] = None
    """The end of the simulated time. If this time equals `at`, only the next cycle was simulated."""
    starts: tuple[PreviewedStart, ...] = ()
    """Jobs that would start now under the preview, but not under the policy in force."""
    more_starts: Count = 0
    """The number of further such jobs."""
    kept_waiting: tuple[JobName, ...] = ()
    """Jobs that start now under the policy in force, but not under the preview."""
    more_kept_waiting: Count = 0
    """The number of further such jobs."""
    evictions: tuple[PreviewedEviction, ...] = ()
    """Jobs that would be stopped now under the preview, but not under the policy in force."""
    more_evictions: Count = 0
    """The number of further such jobs."""
    unstartable: tuple[Unstartable, ...] = ()
    """Waiting jobs that could start under the policy in force, but never under the preview."""
    more_unstartable: Count = 0
    """The number of further such jobs."""
    sooner: tuple[ChangedWait, ...] = ()
    """Jobs that would start sooner, the largest difference first, without the jobs in `starts`."""
    more_sooner: Count = 0
    """The number of further such jobs."""
    later: tuple[ChangedWait, ...] = ()
    """Jobs that would start later, the largest difference first."""
    more_later: Count = 0
    """The number of further such jobs."""
    projects: tuple[ProjectPreview, ...] = ()
    """The projects that have active or waiting jobs."""
    in_use: tuple[str, ...] = ()
    """The conflicts of the policy with live jobs, such as removed projects and pools in use; sentences for people. Each
    conflict requires `force` to apply the policy."""
    refused_submissions: tuple[str, ...] = ()
    """New submissions that only the previewed policy would refuse, such as those without a project or with the instance
    type of a removed pool; sentences for people."""
    warnings: tuple[str, ...] = ()
    """Reasons why the policy, or the capacities, could not be applied unchanged."""
    not_looked_at: tuple[str, ...] = ()
    """Facts that the preview does not take into account; sentences for people."""
