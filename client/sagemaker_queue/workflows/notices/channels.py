"""Deliver notices through a chat's webhook or an SNS topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import LocationParseError

from sagemaker_queue.errors import ConfigError, QueueError
from sagemaker_queue.workflows.notices.chats import message_for
from sagemaker_queue.workflows.notices.watch import Notice

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient

SECONDS = 10.0
TRIES = 2
LONGEST_SUBJECT = 100  # characters, SNS's limit


class NotSent(QueueError):
    """A notice was not delivered; the message names the channel, without secrets."""


class Channel(Protocol):
    """A way to deliver notices."""

    def send(self, notice: Notice) -> None:
        """Deliver a notice. Raises NotSent."""


class Webhook:
    """A channel to a chat's webhook: Slack, Mattermost, Discord, Teams, Google Chat and similar chats.

    The address is a secret that gives the right to post messages, so no error message contains it.
    """

    def __init__(self, address: str) -> None:
        try:
            parts = urlsplit(address)
        except ValueError:
            raise ConfigError("The address of a webhook is not valid: copy it again from the chat.") from None
        self._address, self._body = message_for(address)
        self._where = f"the webhook at {parts.hostname}"
        here = parts.hostname in ("127.0.0.1", "::1", "localhost")
        if not parts.hostname or parts.scheme != "https" and not (here and parts.scheme == "http"):
            raise ConfigError("The address of a webhook begins with https://.")

    def send(self, notice: Notice) -> None:
        """Post the notice; retry once after a lost connection or a 5xx answer. Raises NotSent."""
        body = self._body(notice.text)
        failure = ""
        for _ in range(TRIES):
            try:
                answer = requests.post(self._address, json=body, timeout=SECONDS, allow_redirects=False)
            except (requests.RequestException, LocationParseError) as error:
                failure = f"cannot be reached ({type(error).__name__})"  # the error's text contains the address
                continue
            if 200 <= answer.status_code < 300:
                return
            failure = f"answers {answer.status_code}"
            if answer.status_code < 500:
                break
        raise NotSent(f"{self._where} {failure}.")


class Topic:
    """A channel to an SNS topic, to which mail, phones and programs can subscribe. ``arn`` is the topic's ARN."""

    def __init__(self, arn: str, queue: QueueClient) -> None:
        if not arn.startswith("arn:") or arn.count(":") != 5 or arn.split(":")[2] != "sns":
            raise ConfigError(f"{arn!r} is not the ARN of an SNS topic: arn:aws:sns:REGION:ACCOUNT:NAME.")
        self._arn = arn
        self._queue = queue
        self._client: Any = None

    def send(self, notice: Notice) -> None:
        """Publish the notice. Raises NotSent."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415  # slow to import

        self._client = self._client or self._queue.aws_client("sns", self._arn.split(":")[3])
        subject = f"{notice.job}: {notice.kind}"[:LONGEST_SUBJECT]
        try:
            self._client.publish(TopicArn=self._arn, Subject=subject, Message=notice.text)
        except (BotoCoreError, ClientError) as error:
            raise NotSent(f"The topic {self._arn} takes nothing: {error}") from error
