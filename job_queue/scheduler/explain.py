"""Why each job waits: a reason, and a sentence with the figures, for whoever looks at the queue at night."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from job_queue.scheduler.decisions import Hold, Reason
from job_queue.scheduler.draft import Draft
from job_queue.scheduler.eligibility import Candidate, PoolsOfProjects
from job_queue.scheduler.ledger import covers
from job_queue.scheduler.model import Slots, Snapshot, WaitingJob
from job_queue.scheduler.ordering import line_order
from job_queue.scheduler.pausing import Pausing
from job_queue.scheduler.places import Places
from job_queue.scheduler.reasons import Reasons
from job_queue.scheduler.scene import Pools, Scene, pools_in_order
from job_queue.scheduler.sentences import demand, instances, join, of_pool
from job_queue.scheduler.stayers import Stayers

AHEAD = 20  # how many of the jobs ahead a hold names


def explain(
    snapshot: Snapshot,
    candidates: Sequence[Candidate],
    refused: Mapping[str, Reason],
    *,
    draft: Draft,
) -> tuple[Hold, ...]:
    """A hold for each waiting job that does not start, in the order in which they would be served.

    :param candidates: the jobs that start as soon as there is room.
    :param refused: jobs that cannot be served whatever is free, and why.
    :param draft: the plan; explaining is the last that is done with it.
    """
    known = {candidate.name: candidate for candidate in candidates}
    settings = snapshot.policy.settings
    waiting = [job for job in snapshot.waiting if job.name not in draft.started]
    waiting.sort(key=lambda job: line_order(job, snapshot.now, settings.aging))
    told = _Told(snapshot, known, refused, draft)
    everyone = _Lacking()
    holds: dict[str, Hold] = {job.name: told.hold(job) for job in waiting}
    ordered: list[Hold] = []
    for job in Places(draft, known).in_order(waiting):
        hold = holds[job.name]
        if job.name in known:
            pools = known[job.name].pools
            hold = Hold(hold.job, hold.reason, hold.message, everyone.first(pools), told.scene.blockers(pools))
            everyone.add(job, pools)
        ordered.append(hold)
    return tuple(ordered)


class _Lacking:
    """The jobs seen so far that lack slots, by the pools they want."""

    def __init__(self) -> None:
        self._jobs: dict[Pools, list[tuple[int, WaitingJob]]] = defaultdict(list)
        self._seen = 0
        self._first: dict[Pools, tuple[str, ...]] = {}

    def add(self, job: WaitingJob, pools: Pools) -> None:
        """Enter a job; they come in the order in which they would be served."""
        self._jobs[pools].append((self._seen, job))
        self._seen += 1

    def first(self, pools: Pools) -> tuple[str, ...]:
        """The names of the first of those that want one of these pools, at most AHEAD."""
        full = self._first.get(pools)
        if full is None:
            full = tuple(job.name for _, job in self._among(pools))
            if len(full) == AHEAD:  # and so it stays
                self._first[pools] = full
        return full

    def head(self, pools: Pools) -> WaitingJob | None:
        """The first of those that want one of these pools."""
        firsts = [jobs[0] for wanted, jobs in self._jobs.items() if wanted & pools]
        return min(firsts, key=lambda entry: entry[0])[1] if firsts else None

    def count(self, pools: Pools) -> int:
        """How many want one of these pools."""
        return sum(len(jobs) for wanted, jobs in self._jobs.items() if wanted & pools)

    def _among(self, pools: Pools) -> list[tuple[int, WaitingJob]]:
        found = [entry for wanted, jobs in self._jobs.items() if wanted & pools for entry in jobs[:AHEAD]]
        return sorted(found, key=lambda entry: entry[0])[:AHEAD]


class _Told:
    """Reason and sentence of one job after the other, in line order."""

    def __init__(
        self,
        snapshot: Snapshot,
        known: Mapping[str, Candidate],
        refused: Mapping[str, Reason],
        draft: Draft,
    ) -> None:
        self.scene = Scene(snapshot, draft)
        self._stayers = Stayers(snapshot, draft)
        self._snapshot = snapshot
        self._known = known
        self._refused = refused
        self._draft = draft
        self._reasons = Reasons(draft)
        self._allowed = PoolsOfProjects(snapshot.policy)
        self._pausing = Pausing(snapshot)
        self._of_project: dict[str, _Lacking] = defaultdict(_Lacking)
        self._needs: dict[tuple[tuple[tuple[str, int], ...], ...], str] = {}

    def hold(self, job: WaitingJob) -> Hold:
        """Why this job waits."""
        if job.name in self._refused:
            reason = self._refused[job.name]
            return Hold(job.name, reason, self._refusal(job, reason))
        candidate = self._known[job.name]
        ahead = self._of_project[job.project]
        first = ahead.head(candidate.pools)
        reason = self._reasons.of(candidate, others_ahead=first is not None)
        message = self._sentence(candidate, reason, first, ahead.count(candidate.pools))
        if reason not in (Reason.OVER_LIMIT, Reason.OVER_QUOTA_NON_PREEMPTIBLE):
            ahead.add(job, candidate.pools)
        return Hold(job.name, reason, message)

    def _sentence(self, candidate: Candidate, reason: Reason, first: WaitingJob | None, count: int) -> str:
        if reason is Reason.OVER_LIMIT:
            return self._over_limit(candidate)
        if reason is Reason.OVER_QUOTA_NON_PREEMPTIBLE:
            return self._over_fixed_quota(candidate)
        needs = self._need(candidate.alternatives)
        if reason is Reason.KEPT_FOR_PATIENT_JOB:
            return f"N{needs}. {self.scene.kept(candidate)}"
        if reason is Reason.WAITING_FOR_CAPACITY:
            return f"N{needs}. {self._stayers.why(candidate, self._draft.projects[candidate.name])}"
        if reason is Reason.WAITING_FOR_STOPPING:
            why = self._set_aside(candidate)
        elif reason is Reason.BEHIND_FAIR_SHARE:
            why = self._behind_fair_share(candidate)
        else:
            why = _behind(first, count)
        return f"{why} It n{needs}."

    def _need(self, alternatives: tuple[Slots, ...]) -> str:
        """`eeds 2 instances of p5; 1 of 4 is free, ...`, to follow an n of either size."""
        key = tuple(tuple(need.items()) for need in alternatives)
        if key not in self._needs:
            pools = pools_in_order(alternatives)
            figures = [(f"{pool}: " if len(pools) > 1 else "") + self.scene.figures(pool) for pool in pools]
            self._needs[key] = f"eeds {demand(alternatives)}; {'; '.join(figures)}"
        return self._needs[key]

    def _refusal(self, job: WaitingJob, reason: Reason) -> str:
        pools = self._allowed[job.project]
        if reason is Reason.HELD_BY_USER:
            return "It is held: it keeps its place in the line and starts only once it is released."
        if reason is Reason.BACKOFF:
            return self._pausing.why(job)
        if reason is Reason.NO_SUCH_POOL:
            unknown = sorted({pool for need in job.demand for pool in need} - pools.keys())
            asked = f"Asks for {join(unknown)}" if unknown else "Asks for no instances"
            return f"{asked}, but the pools that its project may use are {join(sorted(pools)) or 'none'}."
        sizes = join([f"{pools[pool].capacity}{of_pool(pool)}" for pool in pools_in_order(job.demand) if pool in pools])
        return f"Needs {demand(job.demand)}, and there are only {sizes} in all: it can never start."

    def _set_aside(self, candidate: Candidate) -> str:
        """What is set aside for a job and what it waits for."""
        claim = self._draft.ledger.claims[candidate.name]
        aside = f"{demand([claim]).capitalize()} {'is' if sum(claim.values()) == 1 else 'are'} set aside for it"
        if not any(covers(claim, need) for need in candidate.alternatives):
            return f"{aside}; the rest is held by jobs that cannot be stopped yet."
        leaving = self.scene.leaving(frozenset(claim))
        have = "has" if len(leaving) == 1 else "have"
        return f"{aside}; it starts when {join(leaving) or 'they'} {have} stopped."

    def _over_limit(self, candidate: Candidate) -> str:
        queue, pool, held = self._reasons.at_its_limit(candidate)
        return (
            f"Needs {demand(candidate.alternatives)}; {self.scene.kind(queue)} {queue.name} holds "
            f"{instances(held, pool)} and may never hold more than {queue.limit[pool]}, which is its limit."
        )

    def _over_fixed_quota(self, candidate: Candidate) -> str:
        queue, pool = self._reasons.at_its_fixed_quota(candidate)
        return (
            f"Needs {demand(candidate.alternatives)} and is not preemptible, so it may use nothing but quota; "
            f"{self.scene.kind(queue)} {queue.name} has a quota of {instances(queue.quota.get(pool, 0), pool)}, "
            f"and jobs that are not preemptible hold {queue.fixed[pool]} of it."
        )

    def _behind_fair_share(self, candidate: Candidate) -> str:
        found = self._reasons.at_its_share(candidate, candidate.alternatives[0])
        if found is None:
            found = next(it for need in candidate.alternatives if (it := self._reasons.at_its_share(candidate, need)))
        queue, pool = found
        return (
            f"{self.scene.kind(queue).capitalize()} {queue.name} holds {instances(queue.held[pool], pool)} and is due "
            f"{queue.entitlement[pool]} (quota {queue.quota.get(pool, 0)}), so nobody has to give way to it; "
            f"{self.scene.others(queue, pool)}."
        )


def _behind(first: WaitingJob | None, count: int) -> str:
    """Who of its project comes first."""
    name = f"{first.name} (priority {first.priority})" if first else "another"
    if count > 1:
        return f"Waits behind {name} and {count - 1} more, which lack slots, too."
    return f"Waits behind {name}, which lacks slots, too."
