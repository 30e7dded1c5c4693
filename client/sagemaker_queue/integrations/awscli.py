"""A plugin of the AWS CLI 1 that sends its training jobs to the queue.

This package must be installed in the environment of the AWS CLI.

Name the plugin in ``~/.aws/config``::

    [plugins]
    queue = sagemaker_queue.integrations.awscli

The AWS CLI 2 contains its own Python, which cannot load the plugin. Use smq proxy with the AWS CLI 2.
"""

from __future__ import annotations

from typing import Any

from sagemaker_queue_startup import hook_lazily


def awscli_initialize(event_hooks: Any) -> None:
    """Register handlers for the events of the running command. The AWS CLI calls this function.

    A command that has nothing to do with the queue loads no further modules.
    """
    hook_lazily(event_hooks)
