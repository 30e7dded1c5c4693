"""Interactive jobs in the cycle, behind more jobs than it reads (document 002)."""

from typing import Any

import pytest

from tests.queue_harness import Harness
from tests.unit.controller.test_groups import WINDOW, a_queue, running

BOB = "arn:aws:iam::123456789012:user/bob"


def lab(queue: Harness, name: str, **changes: Any) -> None:
    queue.accept(name, None, Tags=[{"Key": "interactive", "Value": "true"}], **changes)


def test_it_is_seen_however_many_training_jobs_wait() -> None:
    queue = a_queue(slots=1)
    queue.submit("busy", 50)
    for number in range(5 * WINDOW):
        queue.accept(f"t{number}", 50)
    lab(queue, "lab")
    queue.wake()
    assert queue.state("busy") == "stopping"
    queue.end("busy-qstamp-1", "Stopped")
    assert running(queue) == {"lab"}
    queue.end("lab-qstamp-1")
    assert running(queue) == {"busy"}, "it resumes"
    assert queue.job("busy").attempt == 2


@pytest.mark.attack
def test_many_of_one_owner_leave_the_window_to_others() -> None:
    queue = a_queue(slots=2)
    for number in range(5 * WINDOW):
        lab(queue, f"mine{number}")
    queue.wake()
    lab(queue, "other", owner=BOB)
    queue.wake()
    assert running(queue) == {"mine0", "other"}
    queue.end("mine0-qstamp-1")
    assert running(queue) == {"mine1", "other"}, "the next of the owner has stayed in the window"


def test_it_is_not_preempted_and_a_cancelled_one_makes_room() -> None:
    queue = a_queue(slots=1)
    lab(queue, "lab")
    queue.wake()
    queue.submit("urgent", 999)
    assert running(queue) == {"lab"}
    queue.cancel("lab")
    queue.end("lab-qstamp-1", "Stopped")
    assert running(queue) == {"urgent"}
