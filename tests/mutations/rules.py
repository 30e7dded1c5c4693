"""The edits: each breaks one scheduling rule in one line."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """One line of a module of the scheduler, and what it is replaced by."""

    rule: str
    module: str
    line: str
    broken: str


MUTATIONS = (
    # Section 1: fair share
    Mutation(
        "external jobs make the pool smaller",
        "fair_share.py",
        "max(0, capacity - external.get(name, 0))",
        "capacity",
    ),
    Mutation(
        "a request is never more than the limit",
        "fair_share.py",
        "asked[node] = min(_limit(node, pool), sum(asked[child] for child in node.children))",
        "asked[node] = sum(asked[child] for child in node.children)",
    ),
    Mutation(
        "entitlement is at least the quota",
        "fair_share.py",
        "max(node.quota.get(name, 0), fair[node])",
        "fair[node]",
    ),
    Mutation(
        "odd slots by largest remainder",
        "sharing/division.py",
        "return (-remainder, place)",
        "return (0, place)",
    ),
    Mutation(
        "who stops for good asks for nothing",
        "candidates.py",
        "if job.state is JobState.STOPPING and not job.comes_back:",
        "if False:",
    ),
    # Section 2: order
    Mutation(
        "highest priority first",
        "ordering.py",
        "return (comes_last, -job.priority - age_bonus, owner_use, is_not_warm, sort_time(job, settings), job.name)",
        "return (comes_last, -age_bonus, owner_use, is_not_warm, sort_time(job, settings), job.name)",
    ),
    Mutation("aging raises the place", "ordering.py", "if settings.aging else 0", "if False else 0"),
    Mutation(
        "who is expected to be shorter goes first",
        "ordering.py",
        "return job.entered + settings.stretch * expected_runtime(job)",
        "return job.entered",
    ),
    Mutation(
        "nobody is passed by who comes later than its stretch",
        "ordering.py",
        "return job.entered + settings.stretch * expected_runtime(job)",
        "return expected_runtime(job)",
    ),
    Mutation(
        "within quota before beyond",
        "fair_share.py",
        "beyond = beyond or held + count > node.quota.get(pool, 0)",
        "beyond = False",
    ),
    Mutation("the worst pool counts", "fair_share.py", "worst = max(worst, (", "worst = min(worst, ("),
    Mutation(
        "departments are compared first",
        "fair_share.py",
        "self._heaps[node.parent], entry)",
        "self._heaps[None if not node.children else node], entry)",
    ),
    Mutation(
        "first phase within entitlement",
        "admission.py",
        "        if self._is_first_phase:\n            in_project_entitlement",
        "        if False:\n            in_project_entitlement",
    ),
    Mutation(
        "nobody preempts past a higher priority",
        "admission.py",
        "if self._is_first_phase and self._passed_over.get(candidate.job.project, rank) > rank:",
        "if False:",
    ),
    Mutation(
        "no start is made only to be evicted",
        "admission.py",
        "            (self._withdraw_lower_starts, free_slots if takes_from_lower else []),\n",
        "",
    ),
    # Section 3: who may start
    Mutation(
        "limits now",
        "plan_state.py",
        "return self.fits(candidate, need, now, freed) and self.fits(candidate, need, later, freed)",
        "return self.fits(candidate, need, later, freed)",
    ),
    Mutation(
        "limits once stops are over",
        "plan_state.py",
        "return self.fits(candidate, need, now, freed) and self.fits(candidate, need, later, freed)",
        "return self.fits(candidate, need, now, freed)",
    ),
    Mutation(
        "non-preemptible jobs use only quota",
        "plan_state.py",
        "return candidate.job.preemptible or self.fits(candidate, need, Bound.NON_PREEMPTIBLE_QUOTA)",
        "return True",
    ),
    Mutation(
        "bounds hold for the department, too",
        "plan_state.py",
        "nodes = (candidate.project,) if project_only else candidate.project.path",
        "nodes = (candidate.project,)",
    ),
    Mutation(
        "a bound may be reached, not passed",
        "fair_share.py",
        "- freed.get(pool, 0) + count > most",
        "- freed.get(pool, 0) + count >= most",
    ),
    # Section 4: who may be made to leave
    Mutation(
        "preempt strictly lower priorities",
        "preemption.py",
        "victim.priority < claim.rank",
        "victim.priority <= claim.rank",
    ),
    Mutation(
        "non-preemptible jobs stay",
        "victims.py",
        "if not job.preemptible or job.stop_denied or job.is_kept or job.state is JobState.STOPPING:",
        "if job.stop_denied or job.is_kept or job.state is JobState.STOPPING:",
    ),
    Mutation(
        "a job that was preempted max_preemptions times is no victim",
        "victims.py",
        "if not job.preemptible or job.stop_denied or job.is_kept or job.state is JobState.STOPPING:",
        "if not job.preemptible or job.stop_denied or job.state is JobState.STOPPING:",
    ),
    Mutation(
        "what SageMaker does not let the queue stop is no victim",
        "victims.py",
        "if not job.preemptible or job.stop_denied or job.is_kept or job.state is JobState.STOPPING:",
        "if not job.preemptible or job.is_kept or job.state is JobState.STOPPING:",
    ),
    Mutation(
        "stopping jobs are no victims",
        "victims.py",
        "if not job.preemptible or job.stop_denied or job.is_kept or job.state is JobState.STOPPING:",
        "if not job.preemptible or job.stop_denied or job.is_kept:",
    ),
    Mutation(
        "a patient job that starts closes no carrier",
        "carriers/shared_plan.py",
        "if self._join_reopened_carriers(decided):",
        "if False:",
    ),
    Mutation(
        "members use an empty carrier in place of a new one",
        "carriers/shared_plan.py",
        "decided if moves else self._with_reused_carriers(decided)",
        "decided",
    ),
    Mutation(
        "the instance that moved members leave is for the job that claims it",
        "carriers/shared_plan.py",
        "decided if moves else self._with_reused_carriers(decided)",
        "self._with_reused_carriers(decided)",
    ),
    Mutation(
        "members that use an empty carrier do not exceed their group together with starts",
        "carriers/shared_plan.py",
        "self._groups.may_start(member, has_place=True)",
        "True",
    ),
    Mutation(
        "members use no empty carrier if they would get no new one",
        "carriers/shared_plan.py",
        "slots.get(it.leader.name, NOTHING)",
        'slots.get(it.leader.name, {"p5"})',
    ),
    Mutation(
        "members use an empty carrier before its agent is ready",
        "carriers/packing.py",
        "if name in carriers and name not in kept and carrier.state is JobState.RUNNING",
        "if name in carriers and name not in kept and carrier.takes_members",
    ),
    Mutation(
        "members use a carrier whose agent is ready first",
        "carriers/packing.py",
        "key=lambda carrier: not carrier.takes_members",
        "key=lambda carrier: carrier.takes_members",
    ),
    Mutation(
        "GPUs are kept only for earlier members",
        "carriers/packing.py",
        "self._kept_before.get(member.name, len(self._kept))",
        "len(self._kept)",
    ),
    Mutation(
        "each preemption doubles the guaranteed runtime",
        "victims.py",
        "self._after_first * 2.0 ** min(preemptions - 1, MOST_DOUBLINGS)",
        "self._after_first",
    ),
    Mutation(
        "the guaranteed runtime after preemptions has a limit",
        "victims.py",
        "return min(self._after_first * 2.0 ** min(preemptions - 1, MOST_DOUBLINGS), self._limit)",
        "return self._after_first * 2.0 ** min(preemptions - 1, MOST_DOUBLINGS)",
    ),
    Mutation(
        "preemptions lower no guaranteed runtime",
        "victims.py",
        "return max(self._min_runtime(project, slots), self._runtime_after(preemptions))",
        "return self._runtime_after(preemptions) or self._min_runtime(project, slots)",
    ),
    Mutation(
        "a carrier is guaranteed the runtime of its members",
        "carriers/as_jobs.py",
        "preemptions=max((job.preemptions for job in staying), default=0)",
        "preemptions=0",
    ),
    Mutation(
        "a carrier that is due to leave takes no preempted member",
        "carriers/shared_plan.py",
        "if any(job.preemptions for job in live):",
        "if False:",
    ),
    Mutation(
        "the start of a preempted job is not withdrawn for a job behind it",
        "plan_state.py",
        "victim.slots, other.job.preemptions)",
        "victim.slots, 0)",
    ),
    Mutation("guaranteed runtime", "victims.py", "return self.ends(job, now) <= now", "return True"),
    Mutation(
        "the project's guarantee comes first",
        "victims.py",
        "        if own is not None:\n            return own\n",
        "",
    ),
    Mutation(
        "least work lost leaves",
        "victims.py",
        "return (works, job.priority, work_lost(job, now), work_done(job, now), -job.entered, job.name)",
        "return (works, job.priority, -job.entered, -job.entered, 0.0, job.name)",
    ),
    Mutation("who is idle leaves first", "victims.py", "works = not is_idle(job, now, idle_after)", "works = True"),
    Mutation(
        "who has been idle for a shorter time than that is as all others",
        "victims.py",
        "now - job.idle_since >= idle_after",
        "job.idle_since <= now",
    ),
    Mutation(
        "who is idle is not preempted by its own priority or a lower one",
        "preemption.py",
        "lower = filter(is_lower, takewhile(lambda victim: victim.idle or is_lower(victim), active))",
        "lower = takewhile(lambda victim: victim.idle or is_lower(victim), active)",
    ),
    Mutation(
        "behind those that are idle and not lower there are others",
        "preemption.py",
        "takewhile(lambda victim: victim.idle or is_lower(victim), active)",
        "takewhile(is_lower, active)",
    ),
    Mutation(
        "who left idle preempts nobody",
        "admission.py",
        "        if candidate.job.left_idle:\n            return False\n",
        "",
    ),
    Mutation(
        "who left idle takes nothing that was set aside for lower priorities",
        "plan_state.py",
        "lowest < candidate.rank and not candidate.job.left_idle",
        "lowest < candidate.rank",
    ),
    Mutation(
        "the freshest checkpoint first",
        "victims.py",
        "saved = max(job.started, job.checkpoint or job.started)",
        "saved = job.started",
    ),
    Mutation(
        "the claimant's side stays within entitlement",
        "preemption.py",
        "{(node, pool): most[pool] for pool in claim.need if pool in most}",
        "{(node, pool): most[pool] + 1 for pool in claim.need if pool in most}",
    ),
    Mutation(
        "project quota is protected",
        "preemption.py",
        "if self._victims.protect_quota and search.projected(project, pool) <= project.quota.get(pool, 0):",
        "if False:",
    ),
    Mutation(
        "the victim's side must be above its entitlement",
        "preemption.py",
        "return search.projected(rival, pool) > rival.entitlement[pool] or self._is_quota_claim(project, pool)",
        "return True",
    ),
    Mutation(
        "for its quota it takes from above quota",
        "preemption.py",
        "return search.projected(rival, pool) > rival.entitlement[pool] or self._is_quota_claim(project, pool)",
        "return search.projected(rival, pool) > rival.entitlement[pool]",
    ),
    Mutation(
        "for its quota it stays within its quota",
        "preemption.py",
        "            self._search.tighten_bound(claimant_node, pool, claimant_node.quota.get(pool, 0))",
        "            pass",
    ),
    Mutation(
        "compare where the paths part",
        "fair_share.py",
        "return (project, other) if project.parent is other.parent else (project.top_ancestor, other.top_ancestor)",
        "return (project, other)",
    ),
    Mutation(
        "a victim must be fair game in each pool",
        "preemption.py",
        "if victim not in self._search.chosen and self._may_lose_other_pools(victim, pool):",
        "if victim not in self._search.chosen:",
    ),
    Mutation(
        "the furthest above its entitlement gives first",
        "preemption.py",
        "heappush(heap, (reclaim_key(project, excess), victim.key, project.policy_index, project))",
        "heappush(heap, (reclaim_key(project, 0), victim.key, project.policy_index, project))",
    ),
    Mutation(
        "no victim more than needed",
        "preemption.py",
        "            if self._is_needless(victim):",
        "            if False:",
    ),
    Mutation(
        "the surplus of others spares a victim",
        "plan_state.py",
        "        while (victim := self._most_valuable_needless_victim(tries)) is not None:",
        "        while False and (victim := self._most_valuable_needless_victim(tries)) is not None:",
    ),
    Mutation(
        "no victim is given back over a bound",
        "plan_state.py",
        "if node.projected[pool] + count > self._bounds.get((node, pool), UNLIMITED):",
        "if False:",
    ),
    Mutation(
        "surplus is for who stays within entitlement",
        "admission.py",
        "        if surplus and not self._within_entitlement(candidate, need):",
        "        if False:",
    ),
    Mutation(
        "own lower priorities first, the rest by reclaim",
        "admission.py",
        "            (partial(self._evict, preemption.preempt_and_reclaim), "
        "in_project_entitlement if may_preempt else []),\n",
        "",
    ),
    Mutation(
        "who is launched is evicted once it runs",
        "admission.py",
        "            (self._wait_for_launches, in_entitlement),\n",
        "",
    ),
    Mutation(
        "migration before reclaim",
        "admission.py",
        "            (partial(self._evict, self._migration.search), in_quota if may_migrate else []),\n"
        "            (self._reclaim, in_project_entitlement),\n",
        "            (self._reclaim, in_project_entitlement),\n"
        "            (partial(self._evict, self._migration.search), in_quota if may_migrate else []),\n",
    ),
    Mutation(
        "who migrates stays within entitlement there",
        "preemption.py",
        "if first is not None and free.within_entitlement(project, target):",
        "if first is not None:",
    ),
    Mutation(
        "two do not migrate to the same place",
        "preemption.py",
        "            self._free[pool] -= count\n",
        "            pass\n",
    ),
    Mutation(
        "the only pool of others is left to them",
        "admission.py",
        "if best is None or self._only_pool_claims.leaves_claims(best):",
        "if True:",
    ),
    Mutation(
        "only who is within entitlement claims its only pool",
        "backfill.py",
        "need = next((need for need in possible if self._is_entitled(job, need, taken)), None)",
        "need = possible[0]",
    ),
    Mutation(
        "sizes come before the only pools of others",
        "admission.py",
        "is_as_good = not has_sizes or sum(need.values()) == sum(best.values())",
        "is_as_good = True",
    ),
    # Section 5: reservations and backfill
    Mutation(
        "only within entitlement takes a reservation over",
        "admission.py",
        "self._total_reserved(holders), (Bound.LIMIT, Bound.ENTITLEMENT)",
        "self._total_reserved(holders), (Bound.LIMIT,)",
    ),
    Mutation(
        "only a higher priority takes a reservation over",
        "plan_state.py",
        "if holder.rank < candidate.rank and self.reservations[name]",
        "if holder.rank <= candidate.rank and self.reservations[name]",
    ),
    Mutation(
        "the fewest reservations are transferred",
        "admission.py",
        "            if suffice(others):\n                holders = others\n",
        "",
    ),
    Mutation(
        "no second eviction while a stop is under way",
        "admission.py",
        "if not needs or candidate.name not in state.awaiting_stops:",
        "if True:",
    ),
    Mutation(
        "evictions fall to who takes the reservation over",
        "plan_state.py",
        "            if eviction.claimant in losers:",
        "            if False:",
    ),
    Mutation(
        "reserved slots are not free",
        "plan_state.py",
        "left = free - max(0, self._reserved[pool] - transferred - victims) - windows",
        "left = free - windows",
    ),
    Mutation(
        "no more is set aside than there is",
        "plan_state.py",
        "return above_zero({pool: min(count, self.available_soon(pool)) for pool, count in slots.items()})",
        "return above_zero(slots)",
    ),
    Mutation(
        "a window opens after patience",
        "candidates.py",
        "waits_long = settings.patience is not None and snapshot.now - job.entered > settings.patience",
        "waits_long = settings.patience is not None",
    ),
    Mutation(
        "nothing is kept for a start that nobody can tell",
        "backfill.py",
        "if self._predicted and window.earliest_start == NEVER:",
        "if False:",
    ),
    Mutation(
        "without the setting nobody passes by what is only expected",
        "candidates.py",
        "if backfill is Backfill.BOUNDED or job.expected is None:",
        "if job.expected is None:",
    ),
    Mutation(
        "a window stays within entitlement",
        "backfill.py",
        "return min(count, self._state.available_now(pool, candidate.name), due)",
        "return min(count, self._state.available_now(pool, candidate.name))",
    ),
    Mutation(
        "a window is for a demand within entitlement",
        "backfill.py",
        "if any(count > node.entitlement[pool] for node in path for pool, count in need.items()):",
        "if False:",
    ),
    Mutation(
        "who ends in time may pass",
        "backfill.py",
        "if name != candidate.name and ends > window.earliest_start and in_the_way:",
        "if name != candidate.name and in_the_way:",
    ),
    Mutation(
        "who is not in the way may pass",
        "backfill.py",
        "if name != candidate.name and ends > window.earliest_start and in_the_way:",
        "if name != candidate.name and ends > window.earliest_start:",
    ),
    Mutation(
        "who passes may be in the way of the next",
        "backfill.py",
        "                    window.spare[pool] -= count\n",
        "                    pass\n",
    ),
    # Pools that refuse
    Mutation("nobody migrates to a pool that refuses", "preemption.py", " and not any(backoff.refusals(need))", ""),
    Mutation(
        "nobody is stopped for a pool that refuses",
        "candidates.py",
        "return [need for need in needs if need not in self.refused_alternatives]",
        "return needs",
    ),
    Mutation(
        "a reservation is kept through a backoff",
        "admission.py",
        "                self._state.settle(candidate.name)\n            return holds",
        "                pass\n            return False",
    ),
    # Calendars and warm instances
    Mutation(
        "a training plan has nothing outside its time",
        "model.py",
        "return self.size(pool) if calendar is None or calendar.is_open(self.now) else 0",
        "return self.size(pool)",
    ),
    Mutation(
        "a training plan cuts nobody off who may not be stopped",
        "candidates.py",
        "return job.preemptible or (job.max_runtime is not None and snapshot.now + job.max_runtime <= calendar.closes)",
        "return True",
    ),
    Mutation(
        "among equals who fits warm instances goes first",
        "ordering.py",
        "is_not_warm = not (isinstance(job, WaitingJob) and job.warm)",
        "is_not_warm = True",
    ),
    Mutation(
        "among equals who has done the least work leaves",
        "victims.py",
        "work_lost(job, now), work_done(job, now), ",
        "work_lost(job, now), 0.0, ",
    ),
    # Interactive jobs (document 002)
    Mutation(
        "interactive jobs come first",
        "ordering.py",
        "comes_last = not (interactive_first and job.interactive)",
        "comes_last = True",
    ),
    Mutation(
        "an interactive job preempts training jobs of any priority",
        "ordering.py",
        "return job.priority + INTERACTIVE_OFFSET if job.interactive and policy.interactive.first else job.priority",
        "return job.priority",
    ),
    Mutation(
        "an interactive job has those leave that lose least",
        "preemption.py",
        "        return (works, lost, priority, done, latest, name)\n",
        "        return (works, priority, lost, done, latest, name)\n",
    ),
    Mutation(
        "an owner has so many interactive jobs at a time",
        "candidates.py",
        "if most is not None and used[candidate.job.owner] >= most:",
        "if False:",
    ),
    Mutation(
        "of an owner's interactive jobs the one with slots set aside is first",
        "candidates.py",
        "for candidate in sorted(limited, key=lambda it: it.name not in snapshot.reserved):",
        "for candidate in limited:",
    ),
    # Past use and budgets
    Mutation(
        "whose owner has held less goes first",
        "ordering.py",
        "owner_use = self._owner_use.get(job.name, 0.0)\n        return",
        "owner_use = 0.0\n        return",
    ),
    # Groups and dependencies
    Mutation(
        "a group has so many places",
        "candidates.py",
        "self._used[group] - has_place < self._most[group]",
        "True",
    ),
    Mutation(
        "the smallest figure of a group counts",
        "candidates.py",
        "limits[group] = min(job.max_parallel, ",
        "limits[group] = max(job.max_parallel, ",
    ),
    Mutation(
        "of a group no more ask than have a place",
        "candidates.py",
        "if self._used[group] + asked[group, pool] < most]",
        "]",
    ),
    Mutation(
        "a group is its owner's",
        "candidates.py",
        "(job.project, job.owner, job.group)",
        '(job.project, "", job.group)',
    ),
    Mutation(
        "slots that are set aside take a place",
        "plan_state.py",
        "self.groups.enter(candidate)\n            self._note_rank",
        "self._note_rank",
    ),
    Mutation(
        "nobody starts before its dependencies have ended", "candidates.py", "    if job.after:\n", "    if False:\n"
    ),
    # Sizes
    Mutation(
        "on no smaller size while others leave for a larger one",
        "admission.py",
        "for need in candidate.startable_alternatives(held)",
        "for need in candidate.alternatives",
    ),
    Mutation(
        "a patient job keeps slots for its smallest size",
        "backfill.py",
        "for need in candidate.smallest_alternatives():",
        "for need in candidate.alternatives:",
    ),
    Mutation(
        "a job is moved to its own size only",
        "victims.py",
        "others = same_size_alternatives(job)",
        "others = job.demand",
    ),
    Mutation(
        "another size has the same pools", "model.py", "one.keys() == other.keys() and one != other", "one != other"
    ),
    # The loop
    Mutation("slots that come free are handed out in the same plan", "planner.py", "MAX_PASSES = 20", "MAX_PASSES = 1"),
)
