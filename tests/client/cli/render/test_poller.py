"""A view of the queue that is kept up to date: what is said of trouble, and what ends it."""

import threading
from collections.abc import Iterator
from typing import Union

import pytest

from api_contract.models import QueueStatus
from sagemaker_queue.errors import Forbidden, QueueError, Unavailable
from sagemaker_queue.workflows.poller import Poller
from tests.waiting import until

Answer = Union[QueueStatus, Exception]


class Queue:
    """Gives an answer at a time, as soon as the test has it."""

    def __init__(self) -> None:
        self.answer: Answer = QueueStatus(policy_version=1)
        self.may_answer = threading.Event()
        self.may_answer.set()

    def ask(self) -> QueueStatus:
        self.may_answer.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def queue() -> Iterator[Queue]:
    """A queue that ends the poller's thread at last."""
    queue = Queue()
    yield queue
    queue.answer = KeyError("the test is over")
    queue.may_answer.set()


@pytest.mark.parametrize("trouble", [Unavailable("cannot be reached"), Forbidden("no"), QueueError("cannot be read")])
def test_trouble_with_the_queue_is_told_and_endured(queue: Queue, trouble: QueueError) -> None:
    poller = Poller(queue.ask, seconds=0.01)
    queue.answer = trouble
    until(lambda: "No news since " in str(poller.outage))  # on a slow machine, after "No answer for"
    assert str(poller.outage).startswith("No news since ") and str(trouble) in str(poller.outage)
    assert poller.latest.policy_version == 1
    queue.answer = QueueStatus(policy_version=2)
    until(lambda: poller.latest.policy_version == 2)
    until(lambda: poller.outage is None)


def test_silence_is_told(queue: Queue) -> None:
    poller = Poller(queue.ask, seconds=0.01)
    until(lambda: poller.outage is None)
    queue.may_answer.clear()
    until(lambda: poller.outage)
    assert str(poller.outage).startswith("No answer for ")


def test_without_a_first_answer_there_is_no_view(queue: Queue) -> None:
    queue.answer = Forbidden("no")
    with pytest.raises(Forbidden):
        Poller(queue.ask, seconds=0.01)


def test_any_other_error_is_raised_where_it_is_seen(queue: Queue) -> None:
    poller = Poller(queue.ask, seconds=0.01)
    queue.answer = ZeroDivisionError()

    def raised() -> bool:
        try:
            return not poller.latest
        except ZeroDivisionError:
            return True

    until(raised)
