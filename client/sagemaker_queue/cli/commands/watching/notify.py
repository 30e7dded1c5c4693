"""``smq notify``: print and send notices about jobs."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from sagemaker_queue.cli.arguments import JobConditions, filter_options, names_argument
from sagemaker_queue.cli.commands.watching.interval import TRIES, interval_option
from sagemaker_queue.cli.output import DONE
from sagemaker_queue.cli.parser import bundled, command, connection, flag, option
from sagemaker_queue.errors import QueueError, Unavailable
from sagemaker_queue.jobs.formatting import amount, one_line
from sagemaker_queue.queue.config.notice_settings import DEFAULT_AFTER, NOTICE_KINDS, parse_filter
from sagemaker_queue.queue.config.pace import PollingPace
from sagemaker_queue.queue.config.queue_config import find_notices
from sagemaker_queue.workflows.notices.watch import JobWatch, Notice

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient
    from sagemaker_queue.workflows.notices.channels import Channel

SECONDS = 30.0


@command(
    "notify",
    help="send a notice when jobs start, are preempted, fail or finish",
    description="Watch jobs, and send a notice when they start, are preempted, fail or finish. By default, your own "
    "jobs are watched; only changes from now on are reported. Notices go to standard output, and also "
    "to a webhook (Slack, Mattermost, Discord, Teams, Google Chat) or an SNS topic if an option or the "
    "profile names one (smq config set notify_webhook ADDRESS). The command runs until Ctrl-C, or until "
    "the named jobs have finished.",
    examples=[
        "smq notify",
        "smq notify --on started,failed --after 1h",
        "smq notify --topic arn:aws:sns:us-east-1:123456789012:training 'lr-*'",
        "nohup smq notify --everybody --project vision > notices.txt &",
    ],
)
@bundled("conditions", JobConditions, names_argument, *filter_options)
@flag("--everybody", help="jobs of all owners", exclusive_group="owner")
@option(
    "--on", metavar="KINDS", help=f"kinds of notices, separated by commas: {', '.join(NOTICE_KINDS)} (default: all)"
)
@option(
    "--after",
    metavar="TIME",
    help=f"report a start only after a wait of this length, such as 1h; 0: each start (default: {DEFAULT_AFTER})",
)
@option("--webhook", metavar="ADDRESS", help="the webhook address of a chat; a secret, which is safer in the profile")
@option("--topic", metavar="ARN", help="the ARN of an SNS topic in the queue's region")
@interval_option(SECONDS)
def notify(
    conditions: JobConditions,
    everybody: bool,
    on: str | None,
    after: str | None,
    webhook: str | None,
    topic: str | None,
    interval: float,
) -> int:
    """Watch jobs, and print and send a notice about each change."""
    options = connection()
    settings = find_notices(url=options.url, profile=options.profile)
    queue = options.queue(tries=TRIES)
    channels = _channels(queue, webhook or settings.notify_webhook, topic or settings.notify_topic)
    if not (conditions.names or conditions.owners or conditions.projects or conditions.groups or everybody):
        conditions = JobConditions((), True, (), (), ())
    selection = conditions.selection(queue)
    watch = JobWatch(
        queue, selection.__contains__, parse_filter(on or settings.notify_on, after or settings.notify_after)
    )
    watch.poll()  # a wrong address or missing rights raise an error at once
    if conditions.names and not watch.live:
        print("smq: all of these jobs have finished.", file=sys.stderr)
    else:
        print(f"Watching {amount(len(watch.live), 'live job')}, and new ones; Ctrl-C ends it.", file=sys.stderr)
    pace = PollingPace(interval)
    while watch.live or not conditions.names:
        pace.pause()
        for notice in _new_notices(watch):
            _send(notice, channels)
    return DONE


def _channels(queue: QueueClient, webhook: str | None, topic: str | None) -> list[Channel]:
    from sagemaker_queue.workflows.notices.channels import Topic, Webhook  # noqa: PLC0415  # requests is slow to import

    return [*([Webhook(webhook)] if webhook else []), *([Topic(topic, queue)] if topic else [])]


def _new_notices(watch: JobWatch) -> list[Notice]:
    try:
        return watch.poll()
    except Unavailable as error:  # no connection, or an outage: the next poll finds the missed changes
        print(f"smq: {error} The command continues.", file=sys.stderr, flush=True)
        return []


def _send(notice: Notice, channels: list[Channel]) -> None:
    print(f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S} {one_line(notice.text)}", flush=True)
    for channel in channels:
        try:
            channel.send(notice)
        except QueueError as error:
            print(f"smq: {error}", file=sys.stderr, flush=True)
