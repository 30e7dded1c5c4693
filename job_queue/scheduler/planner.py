"""plan(snapshot) -> Plan: what to start, whom to evict, and why the rest waits. Pure and deterministic."""

from job_queue.scheduler.decisions import Plan
from job_queue.scheduler.eligibility import sort_out
from job_queue.scheduler.explain import explain
from job_queue.scheduler.ledger import Ledger
from job_queue.scheduler.model import Snapshot
from job_queue.scheduler.service import Service


def plan(snapshot: Snapshot) -> Plan:
    """Decide one cycle. The order of `active` and `waiting` does not matter."""
    # 1. Set apart who cannot be served whatever is free; the others stand in line.
    line, refused = sort_out(snapshot)
    # 2. Count what is free and being freed, and set aside what is reserved.
    ledger = Ledger(snapshot, line)
    # 3. Serve the line: start, wait, or make others leave.
    service = Service(snapshot, line, ledger)
    service.serve()
    # 4. Tell everyone else why it waits.
    starts, evictions = service.starts(), service.evictions()
    holds = explain(snapshot, line, refused, ledger=ledger, starts=starts, evictions=evictions)
    return Plan(starts, evictions, holds, reservations=dict(sorted(ledger.claims.items())))
