"""The slots that projects and owners have held lately on average, in finished attempts and active jobs."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum

from job_queue.scheduler.model import JobState, Snapshot
from job_queue.scheduler.sharing.division import Past
from job_queue.scheduler.sharing.ledger import LN2, decayed

Owner = tuple[str, str]
"""A project, and an owner of jobs in it."""


@dataclass(frozen=True, slots=True)
class Lately:
    """Recent use, as slots held on average.

    The average is decayed instance-seconds / (half-life / ln 2). The divisor is the decayed use of one slot that was
    always held.
    """

    projects: Mapping[tuple[str, str], Past]  # project, pool -> use
    owners: Mapping[Owner, float]  # average slots in all pools, plus slots held now

    def of(self, projects: list[str], pool: str) -> Past:
        """Return the total use of some projects in a pool."""
        found = [self.projects[name, pool] for name in projects if (name, pool) in self.projects]
        return Past(fsum(past.lately for past in found), sum(past.holds for past in found))


def held_lately(snapshot: Snapshot) -> Lately | None:
    """Return the recent use, or None if the policy has no `usage_half_life`."""
    half_life = snapshot.policy.settings.usage_half_life
    if half_life is None:
        return None
    per_slot = half_life / LN2
    used: dict[tuple[str, str], list[float]] = defaultdict(list)
    holds: dict[tuple[str, str], int] = defaultdict(int)
    owners: dict[Owner, list[float]] = defaultdict(list)
    for project, past in snapshot.past_use.items():
        for pool, seconds in past.lately.items():
            used[project, pool].append(seconds / per_slot)
        for owner, seconds in past.lately_by_owner.items():
            owners[project, owner].append(seconds / per_slot)
    for job in snapshot.active:
        since = job.charged_since
        part = 0.0 if since is None else decayed(snapshot.now - since, half_life) / per_slot
        stays = job.state is not JobState.STOPPING
        for pool, count in job.slots.items():
            used[job.project, pool].append(count * part)
            holds[job.project, pool] += count * stays
            owners[job.project, job.owner].append(count * (part + stays))
    # fsum makes the sums independent of the order of the jobs.
    projects = {place: Past(fsum(parts), holds[place]) for place, parts in used.items()}
    return Lately(projects, {owner: fsum(parts) for owner, parts in owners.items()})
