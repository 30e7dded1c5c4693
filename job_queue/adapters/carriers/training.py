"""Training jobs of their own and attempts on carriers, behind one interface: an attempt's address says which it is."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from job_queue.adapters.carriers.mailbox import Heard, Mailboxes
from job_queue.adapters.sagemaker import LaunchResult, SageMakerTraining, StopResult, TrainingJob
from job_queue.scheduler import Seat

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.client import SageMakerClient


class Training(SageMakerTraining):
    """SageMaker's training API, and what is like it for members.

    :param mailboxes: None: the stack has no WorkBucket, and so no members.
    """

    def __init__(
        self,
        client: "SageMakerClient",
        launcher: "SageMakerClient",
        sleep: Callable[[float], None] = lambda seconds: None,
        mailboxes: Mailboxes | None = None,
    ) -> None:
        super().__init__(client, launcher, sleep)
        self.mailboxes = mailboxes

    def assign(self, carrier: str, seat: Seat, request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        """Ask once for an attempt on a carrier; gives the result and a message, if there is one."""
        if self.mailboxes is None:
            return LaunchResult.NOT_NOW, "the stack has no WorkBucket any more"
        return self.mailboxes.assign(carrier, seat, request)

    def stop(self, name: str) -> StopResult:
        """Ask for a stop. An attempt that is stopping or has ended already is no error."""
        if "/" in name:
            return self.mailboxes.stop(name) if self.mailboxes else StopResult.UNKNOWN
        return super().stop(name)

    def describe(self, name: str) -> TrainingJob | None:
        """An attempt with its tags, or None if nobody knows it.

        :raises Unavailable: there was no usable answer.
        """
        if "/" in name:
            return self.mailboxes.describe(name) if self.mailboxes else None
        return super().describe(name)

    def heard_of(self, carrier: str) -> Heard:
        """What a carrier's mailbox says; raises Unavailable."""
        return self.mailboxes.heard_of(carrier) if self.mailboxes else Heard()
