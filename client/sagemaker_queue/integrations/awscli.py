"""A plugin of the AWS CLI 1 in whose environment this package is: its training jobs go through the queue.

In ``~/.aws/config``::

    [plugins]
    queue = sagemaker_queue.integrations.awscli

The AWS CLI 2 has a Python of its own, which cannot load it: smq proxy is for that.
"""

from __future__ import annotations

from typing import Any

from sagemaker_queue_startup import hook_lazily


def awscli_initialize(event_hooks: Any) -> None:
    """Hook the events of the command that runs; the AWS CLI calls this. Other commands load nothing more."""
    hook_lazily(event_hooks)
