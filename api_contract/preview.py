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
    """Either a policy or capacities."""

    policy: Annotated[Any, schema(document="Policy")] = UNSET
    """The whole of one that might be applied. Its pools may have more instances than `MaxCapacity` allows."""
    capacity: Union[Mapping[str, Annotated[int, Meta(ge=0, le=MOST_INSTANCES)]], UnsetType] = UNSET
    """Instances that pools of the policy that holds might have, by pool; the others stay as they are. They may be more
    than the stack's parameter `MaxCapacity` allows."""
    hours: Annotated[float, Meta(ge=0, le=LONGEST_HOURS)] = 8
    """How far to look ahead. 0: what happens now alone, which takes the least time."""


class PreviewedStart(Answer, frozen=True):
    """A job that would start now."""

    job: JobName
    """Which one."""
    slots: Slots = {}
    """Where."""


class PreviewedEviction(Answer, frozen=True):
    """A job that would be stopped now, and wait again."""

    job: JobName
    """Which one."""
    claimant: JobName = ""
    """The job that makes it leave."""
    rule: Annotated[str, schema(enum=["preempt", "reclaim", "consolidate"])] = ""
    """As in the evictions of `/plan`."""


class Unstartable(Answer, frozen=True):
    """A waiting job that could not start any more, however idle the fleet."""

    job: JobName
    """Which one."""
    reason: Optional[Reason] = None
    """Why."""


class ChangedWait(Answer, frozen=True):
    """A waiting job that would wait noticeably longer, or less long."""

    job: JobName
    """Which one."""
    start_now: Optional[Time] = None
    """When it is expected to start under the policy that holds; null: later than `until`."""
    start_then: Optional[Time] = None
    """When it would be expected to start; null: later than `until`."""


class ProjectPreview(Answer, frozen=True):
    """A project under both policies."""

    project: str
    """As one of the policies has it."""
    waiting: Count = 0
    """Its waiting jobs that were looked at."""
    known: Count = 0
    """Those of them of which it is known when they start, or that it is later than `until`."""
    wait_now: Optional[float] = None
    """How long these wait from now on, on average, in seconds; who starts later than `until` counts until then."""
    wait_then: Optional[float] = None
    """The same under what is previewed."""
    used_now: Slots = {}
    """What its jobs hold once a cycle has done what it decides now."""
    used_then: Slots = {}
    """The same under what is previewed."""


class PreviewAnswer(Answer, frozen=True):
    """What would change, compared with the policy that holds. Of very long lists the first 200 are given."""

    policy_version: Count = 0
    """Of the policy that holds."""
    at: Optional[Time] = None
    """The moment that all of this is about."""
    until: Optional[Time] = None
    """How far it was looked ahead; the same moment: not at all."""
    starts: tuple[PreviewedStart, ...] = ()
    """Jobs that would start now, and do not under the policy that holds."""
    more_starts: Count = 0
    """How many more there are."""
    kept_waiting: tuple[JobName, ...] = ()
    """Jobs that start now, and would not."""
    evictions: tuple[PreviewedEviction, ...] = ()
    """Jobs that would be stopped now, and are not under the policy that holds."""
    more_evictions: Count = 0
    """How many more there are."""
    unstartable: tuple[Unstartable, ...] = ()
    """Waiting jobs that could start under the policy that holds, and could not any more."""
    more_unstartable: Count = 0
    """How many more there are."""
    sooner: tuple[ChangedWait, ...] = ()
    """Jobs that would wait less long, and do not start now, the greatest difference first."""
    more_sooner: Count = 0
    """How many more there are."""
    later: tuple[ChangedWait, ...] = ()
    """Jobs that would wait longer, the greatest difference first."""
    more_later: Count = 0
    """How many more there are."""
    projects: tuple[ProjectPreview, ...] = ()
    """Those in which anybody runs or waits."""
    in_use: tuple[str, ...] = ()
    """Projects and pools that live jobs use and the policy drops, and quotas that it lowers below running
    non-preemptible jobs. Each takes force to apply the policy."""
    warnings: tuple[str, ...] = ()
    """Why the policy, or the capacities, could not be applied as they are."""
    not_looked_at: tuple[str, ...] = ()
    """What this does not take into account; sentences for people."""
