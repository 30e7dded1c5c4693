"""Store texts of ``smq submit`` in hyperparameters, and read them; a long text becomes ``name``, ``name_2`` and so on.

The job's start program, ``packaging/container/run.py``, has its own code that joins the pieces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_LONGEST_VALUE = 2500  # characters of a hyperparameter's value
_MOST_PIECES = 99


def in_pieces(name: str, text: str) -> dict[str, str]:
    """Split a long text into several hyperparameters: name, name_2, name_3."""
    pieces = [text[start : start + _LONGEST_VALUE] for start in range(0, len(text), _LONGEST_VALUE)]
    return {_name(name, number): piece for number, piece in enumerate(pieces, start=1)}


def json_in(request: Mapping[str, Any], name: str) -> Any:
    """Join the pieces of a hyperparameter of a request, and return their JSON value.

    Return None if the value is not JSON, because the request is of another program, or because the queue hides the
    value from this user. Also return None for JSON that is nested too deeply.
    """
    values = request.get("HyperParameters", {})
    pieces = (values.get(_name(name, number)) for number in range(1, _MOST_PIECES + 1))
    try:
        return json.loads("".join(piece for piece in pieces if piece))
    except (ValueError, RecursionError):
        return None


def command_of(request: Mapping[str, Any]) -> list[str] | None:
    """Return the words of the command of ``smq submit``; None if the request has none."""
    words = json_in(request, "command")
    return [str(word) for word in words] if isinstance(words, list) else None


def _name(name: str, number: int) -> str:
    return name if number == 1 else f"{name}_{number}"
