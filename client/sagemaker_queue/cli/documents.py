"""Read policy documents and requests from YAML or JSON, write policies as YAML, and compare two policies."""

import difflib
import json
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, TextIO

import yaml

from api_contract.models import PolicyAnswer
from sagemaker_queue.errors import InvalidDocument

Document = dict[str, Any]

# The order of a policy's fields in YAML; other fields follow by name.
_FIRST = ["pools", "departments", "projects", "settings", "name", "department", "instance_type", "capacity"]


def read_document(path: str, stdin: TextIO) -> Document:
    """Return the YAML or JSON object in a file; ``-`` is ``stdin``.

    Raises InvalidDocument with the line of the error; a duplicate key in a mapping is an error.
    """
    name = "standard input" if path == "-" else path
    try:
        text = stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidDocument(f"{name} cannot be read: {reason}.") from error
    try:
        content = _parsed(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise InvalidDocument(f"{name}:{where} {what}.") from error
    except yaml.YAMLError as error:
        raise InvalidDocument(f"{name} holds neither YAML nor JSON: {error}.") from error
    try:
        plain = json.loads(json.dumps(content, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InvalidDocument(
            f"{name} holds something that JSON has no type for ({error}); put dates into quotes."
        ) from error
    if not isinstance(plain, dict):
        raise InvalidDocument(f"{name} must hold a mapping of fields, not {'nothing' if plain is None else 'a value'}.")
    return plain


def policy_text(document: Mapping[str, Any]) -> str:
    """Return a policy as YAML in a canonical form: the same policy gives the same text."""
    return yaml.safe_dump(_ordered(document), sort_keys=False, default_flow_style=None, allow_unicode=True, width=120)


def policy_difference(applied: PolicyAnswer, document: Mapping[str, Any], name: str) -> str:
    """Return the unified diff from the applied policy to the document; empty if both are equal."""
    lines = difflib.unified_diff(
        policy_text(applied.policy).splitlines(),
        policy_text(document).splitlines(),
        f"applied (version {applied.version})",
        name,
        lineterm="",
    )
    return "\n".join(lines)


class _Loader(yaml.SafeLoader):
    """A YAML loader for plain data that refuses duplicate keys. PyYAML would silently use the last value."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[Hashable] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} stands here for the second time", problem_mark=key.start_mark
                    )
                seen.add((key.tag, key.value))
        return node


def _parsed(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_unique_fields)  # YAML would refuse JSON that is indented by tabs
    except ValueError:
        return yaml.load(text, _Loader)  # noqa: S506  (a SafeLoader)


def _unique_fields(pairs: list[tuple[str, object]]) -> Document:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key stands twice; the YAML reader says where")
    return fields


def _ordered(value: object) -> object:
    if isinstance(value, Mapping):
        known = [name for name in _FIRST if name in value]
        return {name: _ordered(value[name]) for name in [*known, *sorted(value.keys() - set(_FIRST))]}
    return [_ordered(item) for item in value] if isinstance(value, list) else value
