"""A plan for a full fleet and a long line takes well under a second; the bound here leaves room for slow machines."""

import time

from job_queue.scheduler import plan
from tests.builders import a_policy, a_snapshot, active, waiting


def test_a_thousand_active_and_four_thousand_waiting() -> None:
    running = [active(f"r{number}", 1 + number % 3, priority=1 + number % 5, ran=number) for number in range(1000)]
    line = [
        waiting(f"w{number}", 1 + number % 4, {"p4": 1 + number % 3}, priority=1 + number % 7, waited=number % 997)
        for number in range(4000)
    ]
    snapshot = a_snapshot(*running, *line, policy=a_policy({"p5": 2100, "p4": 50}))
    began = time.process_time()
    decided = plan(snapshot)
    assert time.process_time() - began < 3
    assert decided.starts
    assert decided.evictions
    assert len(decided.starts) + len(decided.holds) == len(line)
