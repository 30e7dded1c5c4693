"""The operations on attempts of both kinds: SageMaker's API for training jobs, the carrier's mailbox for members."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from job_queue.adapters.carriers.mailbox import AgentActivity, Introduction, Mailboxes
from job_queue.adapters.sagemaker import LaunchResult, SageMakerTraining, StopResult, TrainingJob
from job_queue.adapters.sites.clients import SiteClients
from job_queue.domain.fleet.sites import Site
from job_queue.domain.job import Job

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.client import SageMakerClient


class Training(SageMakerTraining):
    """SageMaker's training API, and the same operations for members.

    :param mailboxes: the mailboxes of carriers; None if the stack has no WorkBucket, and so no members.
    :param clients: the clients of other sites.
    """

    def __init__(
        self,
        client: "SageMakerClient",
        launcher: "SageMakerClient",
        sleep: Callable[[float], None] = lambda seconds: None,
        mailboxes: Mailboxes | None = None,
        clients: SiteClients | None = None,
    ) -> None:
        super().__init__(client, launcher, sleep)
        self.mailboxes = mailboxes
        self._clients = clients

    def at(self, site: Site | None) -> SageMakerTraining:
        """Return the training API of a site. None means the home site."""
        if site is None or self._clients is None:
            return self
        reading, launching = (self._clients.client("sagemaker", site, launching=it) for it in (False, True))
        return SageMakerTraining(reading, launching, self._sleep, site)

    def assign(self, job: Job, request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        """Assign the attempt of a member. Return the result and a message, which may be empty."""
        if self.mailboxes is None:
            return LaunchResult.NOT_NOW, "the stack has no WorkBucket any more"
        return self.mailboxes.assign(job, request)

    def stop_attempt(self, job: Job) -> StopResult:
        """Request a stop of a job's recorded attempt. An attempt that is stopping or has ended is not an error."""
        if job.carrier_attempt is None:
            return self.at(job.site).stop(job.launched or "")
        return self.mailboxes.stop(job) if self.mailboxes else StopResult.UNKNOWN

    def describe_attempt(self, job: Job) -> TrainingJob | None:
        """Return a job's recorded attempt with its tags; None: neither SageMaker nor a carrier has it.

        :raises Unavailable: there was no usable answer.
        """
        if job.carrier_attempt is None:
            return self.at(job.site).describe(job.launched or "")
        return self.mailboxes.describe(job) if self.mailboxes else None

    def forget_attempt(self, job: Job) -> None:
        """Remove the remaining orders about a member's attempt that has ended."""
        if job.carrier_attempt is not None and self.mailboxes is not None:
            self.mailboxes.forget(job)

    def introduction(self, carrier: str) -> Introduction | None:
        """Return the key that a carrier's agent has published (see `Mailboxes.introduction`).

        :raises Unavailable: the mailbox cannot be read.
        """
        return self.mailboxes.introduction(carrier) if self.mailboxes else None

    def agent_activity(self, carrier: Job) -> AgentActivity:
        """Return the last authentic heartbeat of a carrier's agent, or an empty one.

        :raises Unavailable: the mailbox cannot be read.
        """
        return self.mailboxes.agent_activity(carrier) if self.mailboxes else AgentActivity()
