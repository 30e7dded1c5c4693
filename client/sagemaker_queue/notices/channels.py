"""Where notices go to: a webhook of a chat, a topic of SNS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import requests

from sagemaker_queue.errors import ConfigError, QueueError
from sagemaker_queue.notices.chats import message_for
from sagemaker_queue.notices.watch import Notice

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient

SECONDS = 10.0
TRIES = 2
LONGEST_SUBJECT = 100  # characters that SNS takes


class NotSent(QueueError):
    """A notice has not reached its channel; the message says which, and tells no secret."""


class Channel(Protocol):
    """A way to tell somebody something."""

    def send(self, notice: Notice) -> None:
        """Tell it. Raises NotSent."""


class Webhook:
    """An address where a chat takes messages: Slack, Mattermost, Discord, Teams, Google Chat and the like.

    The address is a secret that gives the right to write there, so no message of ours has it.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._address, self._body = message_for(address)
        self._where = f"the webhook at {parts.hostname}"
        here = parts.hostname in ("127.0.0.1", "::1", "localhost")
        if not parts.hostname or parts.scheme != "https" and not (here and parts.scheme == "http"):
            raise ConfigError("The address of a webhook begins with https://.")

    def send(self, notice: Notice) -> None:
        """As ``Channel`` says."""
        body = self._body(notice.text)
        failure = ""
        for _ in range(TRIES):
            try:
                answer = requests.post(self._address, json=body, timeout=SECONDS, allow_redirects=False)
            except requests.RequestException as error:
                failure = f"cannot be reached ({type(error).__name__})"  # its words have the address in them
                continue
            if 200 <= answer.status_code < 300:
                return
            failure = f"answers {answer.status_code}"
            if answer.status_code < 500:
                break
        raise NotSent(f"{self._where} {failure}.")


class Topic:
    """A topic of SNS, to which mail, telephones and programs may be subscribed. ``arn`` is its ARN."""

    def __init__(self, arn: str, queue: QueueClient) -> None:
        if not arn.startswith("arn:") or arn.count(":") != 5 or arn.split(":")[2] != "sns":
            raise ConfigError(f"{arn!r} is not the ARN of an SNS topic: arn:aws:sns:REGION:ACCOUNT:NAME.")
        self._arn = arn
        self._queue = queue
        self._client: Any = None

    def send(self, notice: Notice) -> None:
        """As ``Channel`` says."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415  # it takes its time

        self._client = self._client or self._queue.aws_client("sns")
        subject = f"{notice.job}: {notice.kind}"[:LONGEST_SUBJECT]
        try:
            self._client.publish(TopicArn=self._arn, Subject=subject, Message=notice.text)
        except (BotoCoreError, ClientError) as error:
            raise NotSent(f"The topic {self._arn} takes nothing: {error}") from error
