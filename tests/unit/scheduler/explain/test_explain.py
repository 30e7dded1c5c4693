"""Explaining a plan reads the plan state and leaves it as it is."""

from typing import Any

from hypothesis import given, settings

from job_queue.scheduler import Snapshot
from job_queue.scheduler.admission import Admission
from job_queue.scheduler.candidates import Groups, find_candidates, requests
from job_queue.scheduler.explain.holds import explain
from job_queue.scheduler.fair_share import ShareNode, ShareTree
from job_queue.scheduler.ordering import WaitingOrder
from job_queue.scheduler.plan_state import PlanState
from job_queue.scheduler.sharing.spending import Spending
from tests.builders import a_policy, a_snapshot, active, line, project
from tests.unit.scheduler.snapshots import snapshots


@settings(deadline=None)
@given(snapshots())
def test_explaining_changes_nothing(snapshot: Snapshot) -> None:
    tree, spending = ShareTree(snapshot.policy), Spending(snapshot)
    order = WaitingOrder(snapshot, None, spending)
    candidates, refused = find_candidates(snapshot, tree, order, spending)
    groups = Groups(snapshot.active, candidates)
    tree.divide(
        {pool.name: pool.capacity for pool in snapshot.policy.pools},
        snapshot.external,
        requests(snapshot, candidates, tree, groups),
    )
    state = PlanState(snapshot, candidates, tree, groups)
    admission = Admission(snapshot, state)
    for first in (True, False):
        admission.begin(is_first=first)
        for candidate in candidates:
            if candidate.name not in state.settled:
                admission.admit(candidate)
    before = everything(state)
    holds = explain(snapshot, candidates, refused, state, order, spending)
    assert everything(state) == before
    assert explain(snapshot, candidates, refused, state, order, spending) == holds


def test_the_order_of_the_holds_follows_what_jobs_ahead_would_hold() -> None:
    # Both hold nothing: the jobs are served in turn, though nothing can start.
    policy = a_policy(2, [project("a", 1), project("b", 1), project("c", 0)])
    busy = active("busy", 2, project="c", preemptible=False)
    snapshot = a_snapshot(busy, *line(2, "a", project="a"), *line(2, "b", project="b"), policy=policy)
    tree, spending = ShareTree(policy), Spending(snapshot)
    order = WaitingOrder(snapshot, None, spending)
    candidates, refused = find_candidates(snapshot, tree, order, spending)
    groups = Groups(snapshot.active, candidates)
    asked = requests(snapshot, candidates, tree, groups)
    tree.divide({pool.name: pool.capacity for pool in policy.pools}, {}, asked)
    state = PlanState(snapshot, candidates, tree, groups)
    assert [hold.job for hold in explain(snapshot, candidates, refused, state, order, spending)] == [
        "a0",
        "b0",
        "a1",
        "b1",
    ]


def everything(state: PlanState) -> Any:
    """All that is known of a state, as text that two states can be compared by; slots of 0 count as none."""
    own = {name: plain(value) for name, value in vars(state).items() if name not in ("queues", "victims", "guarantees")}
    tree = [
        (
            node.name,
            plain(node.projected),
            plain(node.current),
            plain(node.non_preemptible),
            plain(node.entitlement),
        )
        for top in state.tree.top_nodes
        for node in (top, *top.children)
    ]
    return own, tree, [(victim.name, victim.is_evicted) for victim in state.victims.all]


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {repr(plain(key)): plain(entry) for key, entry in value.items() if entry != 0}
    if isinstance(value, ShareNode):
        return value.name
    if isinstance(value, list | tuple | set | frozenset):
        entries = [plain(entry) for entry in value]
        return entries if isinstance(value, list | tuple) else sorted(map(repr, entries))
    return value
