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

# The order of a policy's fields in YAML; other fields follow in alphabetical order.
_FIRST = ["pools", "departments", "projects", "settings", "name", "department", "instance_type", "capacity"]


def read_document(path: str, stdin: TextIO) -> Document:
    """Return the YAML or JSON object in a file; the path ``-`` means ``stdin``.

    Raises InvalidDocument if the file cannot be read or contains no such object.
    """
    name = "standard input" if path == "-" else path
    try:
        text = stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the text is not UTF-8"
        raise InvalidDocument(f"{name} cannot be read: {reason}.") from error
    return document_in(text, name)


def document_in(text: str, name: str) -> Document:
    """Return the YAML or JSON object in a text. Raises InvalidDocument if the text contains no such object.

    The message begins with ``name``, and has the line of a syntax error, of an invalid value or of a duplicate key.
    """
    try:
        plain = json.loads(json.dumps(_parsed(text), allow_nan=False))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise InvalidDocument(f"{name}:{where} {what}.") from error
    except yaml.YAMLError as error:
        raise InvalidDocument(f"{name} is neither YAML nor JSON: {error}.") from error
    except RecursionError as error:
        raise InvalidDocument(f"{name} has too many levels of brackets or indentation.") from error
    except (TypeError, ValueError) as error:
        raise InvalidDocument(
            f"{name} has a value for which JSON has no type ({error}); put dates into quotes."
        ) from error
    if not isinstance(plain, dict):
        raise InvalidDocument(
            f"{name} must contain a mapping of fields, not {'nothing' if plain is None else 'a value'}."
        )
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
    """A YAML loader for plain data that refuses duplicate keys. PyYAML would silently use the last value.

    A value that looks like a number or a date but is not valid, such as 2026-02-30, raises an error with its line.
    """

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (AttributeError, LookupError, ValueError) as error:
            problem = "this is not a valid number, date or Boolean; put text into quotes"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[Hashable] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} is given for the second time", problem_mark=key.start_mark
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
        raise ValueError("a key is given twice")
    return fields


def _ordered(value: object) -> object:
    if isinstance(value, Mapping):
        known = [name for name in _FIRST if name in value]
        return {name: _ordered(value[name]) for name in [*known, *sorted(value.keys() - set(_FIRST))]}
    return [_ordered(item) for item in value] if isinstance(value, list) else value


# --- changes that keep comments ----------------------------------------------------------------------


def with_settings(text: str, settings: Mapping[str, Any], name: str) -> str:
    """Return the text of a policy with other values in its ``settings``; all other text is kept.

    PyYAML cannot write comments, but the nodes that it reads have positions in the text. So the text is changed at
    these positions, and then parsed again. Raises InvalidDocument if the result is not the wanted policy, for example
    because ``settings`` is an alias.
    """
    before = _parsed(text)
    assert isinstance(before, dict)
    wanted = {**before, "settings": {**(before.get("settings") or {}), **settings}}
    changed = text
    try:
        for setting, value in settings.items():
            changed = _with_setting(changed, setting, json.dumps(value), is_json=_is_json(text))
        done = _parsed(changed) == wanted and _is_json(changed) == _is_json(text)
    except yaml.YAMLError:
        done = False
    if not done:
        lines = ", ".join(f"{setting}: {json.dumps(value)}" for setting, value in settings.items())
        raise InvalidDocument(f"{name} cannot be changed by a program; put these settings into it: {lines}.")
    return changed


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _with_setting(text: str, setting: str, value: str, *, is_json: bool) -> str:
    """Return the text with a new value of one setting, or with one more setting. ``value`` is JSON."""
    value = value if is_json else value.strip('"')
    key = json.dumps(setting) if is_json else setting
    root = yaml.compose(text, yaml.SafeLoader)
    own = _value_of(root, "settings")
    if own is None:
        settings = '"settings"' if is_json else "settings"
        return _with_entry(text, root, f"settings:\n  {key}: {value}", f"{settings}: {{{key}: {value}}}")
    if not isinstance(own, yaml.MappingNode):  # `settings:` without a value, or null
        return _between(text, own, f"{{{key}: {value}}}" if own.value else f" {{{key}: {value}}}")
    present = _value_of(own, setting)
    if present is not None:
        return _between(text, present, value)
    return _with_entry(text, own, f"{' ' * own.start_mark.column}{key}: {value}", f"{key}: {value}")


def _with_entry(text: str, mapping: Any, block: str, flow: str) -> str:
    """Return the text with one more entry in a mapping: the lines ``block``, or ``flow`` in a mapping with braces."""
    if mapping.flow_style:
        at = mapping.start_mark.index + 1
        return f"{text[:at]}{flow}{', ' if mapping.value else ''}{text[at:]}"
    last = mapping.value[-1][1].end_mark.index
    # In PyYAML, a nested mapping ends where the next key begins. Insert the new entry above the blank lines before that
    # key.
    last = len(text[:last].rstrip())
    at = text.find("\n", last) + 1 or len(text)
    line_end = "" if text[:at].endswith("\n") else "\n"
    return f"{text[:at]}{line_end}{block}\n{text[at:]}"


def _value_of(mapping: Any, key: str) -> Any:
    return next((value for name, value in mapping.value if name.value == key), None)


def _between(text: str, node: Any, new: str) -> str:
    return text[: node.start_mark.index] + new + text[node.end_mark.index :]
