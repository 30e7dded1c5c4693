"""Rewrite messages about a request: name the options of ``smq submit`` instead of the request's fields and tags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from api_contract.error_codes import Error
from sagemaker_queue.errors import QueueError
from sagemaker_queue.jobs.checkpoint_warning import with_remedy
from sagemaker_queue.jobs.packaging.job_options import JOB_OPTIONS

_TAGS = {row.tag: row.names[0] for row in JOB_OPTIONS.values() if row.tag} | {"interactive": "--interactive"}
_PHRASES = {
    "smq submit --no-preflight, or preflight=False in Python": "--no-preflight",
}
_FIELDS = {  # option -> pattern of the field; parts of the field in [brackets] are optional
    name: re.escape(row.field).replace(r"\[", "(?:").replace(r"\]", ")?")
    for name, row in JOB_OPTIONS.items()
    if row.field
}
_FIELD = re.compile(rf"(?<![\w.])(?:{'|'.join(f'(?P<{name}>{field})' for name, field in _FIELDS.items())})(?![\w\[])")
_TAG = re.compile(rf"[Tt]he tag ({'|'.join(_TAGS)})\b|a tag `({'|'.join(_TAGS)})`")
_CHANNEL = re.compile(r"InputDataConfig\[(\d+)\][\w.]*")


@contextmanager
def errors_with_options(request: Mapping[str, Any]) -> Iterator[None]:
    """Rewrite the messages of QueueErrors in the block by ``with_options``; ``request`` must come from a CommandJob."""
    try:
        yield
    except QueueError as error:
        if not error.errors:
            raise
        rewritten = [
            Error(
                one.code,
                with_options(one.message, request),
                one.field,
                one.remedy and with_options(one.remedy, request),
            )
            for one in error.errors
        ]
        raise type(error).of(rewritten) from error


def with_options(text: str, request: Mapping[str, Any]) -> str:
    """Return a sentence about a request, with options of ``smq submit`` in place of the request's fields and tags."""
    text = with_remedy(text, "add --checkpoint, or: smq config set checkpoint true")
    for phrase, replacement in _PHRASES.items():
        text = text.replace(phrase, replacement)
    text = _CHANNEL.sub(lambda found: _channel(int(found[1]), request), text)
    text = _TAG.sub(lambda found: _TAGS[found[1] or found[2]], text)
    return _FIELD.sub(lambda found: JOB_OPTIONS[str(found.lastgroup)].names[0], text)


def _channel(index: int, request: Mapping[str, Any]) -> str:
    """Return the --data option that created the request's channel with this index."""
    name = request["InputDataConfig"][index]["ChannelName"]
    try:
        paths = json.loads(request["HyperParameters"]["data"])  # path -> channel, or channel/file
        path = next((path for path, where in paths.items() if where.partition("/")[0] == name), name)
    except (KeyError, ValueError):  # no value, or a very long value, which is split into several hyperparameters
        path = name
    return f"--data {path}"
