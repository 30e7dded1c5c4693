"""Read a policy from plain data: refuse unknown, missing and mistyped fields, and check the bounds of values.

The types of `policy_schema` define fields and bounds. Errors name the path, the fault, and the expected value.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from msgspec import inspect

from job_queue.scheduler.carriers.instance_gpus import GPUS
from job_queue.scheduler.documents.policy_schema import UNLIMITED, Policy, Pool, Prices

LARGEST_AMOUNT: Final = 1e18  # a whole number in JSON may be too large for a float

Reader = Callable[[object, str], Any]
"""A function that reads the value at a path of the document, or raises DocumentError."""


class DocumentError(ValueError):
    """A fault in a document. Path and message name the location, such as policy.pools[0].capacity."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


def policy_from_document(document: object, path: str = "policy") -> Policy:
    """Read a policy document, without a check of bounds (see `out_of_bounds`).

    :raises DocumentError: for unknown, missing or mistyped fields, names used twice, and unknown departments.
    """
    policy: Policy = _READ_POLICY(document, path)
    _check_unique((pool.name for pool in policy.pools), f"{path}.pools")
    departments = [department.name for department in policy.departments]
    _check_unique([*departments, *(project.name for project in policy.projects)], f"{path}.projects")
    for project in policy.projects:
        if project.department is not None and project.department not in departments:
            raise DocumentError(
                f"{path}.projects", f"{project.name} names the unknown department {project.department!r}"
            )
    return policy


def out_of_bounds(policy: Policy) -> Iterator[str]:
    """Yield a fault for each value of a policy that is outside the bounds of its type."""
    return _faults(_POLICY, policy, "", {})


# --- readers ------------------------------------------------------------------------------------------


def read_fields(
    document: object,
    path: str,
    readers: Mapping[str, Reader],
    required: Collection[str] = ("name",),
    nullable: Collection[str] = (),
) -> dict[str, Any]:
    """Return the fields that are present, each read by its reader. Null counts as absent, except in nullable fields.

    :raises DocumentError: the document is not a mapping, or a field is missing, unknown, or of the wrong type.
    """
    if not isinstance(document, Mapping):
        raise DocumentError(path, f"must be a mapping of fields, not {shown(document)}")
    fields = {}
    for name, read in readers.items():
        if (value := document.get(name)) is not None:
            fields[name] = read(value, f"{path}.{name}")
        elif name in required:
            raise DocumentError(path, f"the field {name} is missing")
        elif name in nullable and name in document:
            fields[name] = None
    for name in document:
        if name not in readers:
            meant = next((known for known in sorted(readers) if _is_similar(str(name), known)), None)
            hint = f"did you mean {meant}? Known are" if meant else "known are"
            raise DocumentError(path, f"unknown field {shown(name)}; {hint} {', '.join(sorted(readers))}")
    return fields


def _is_similar(name: str, known: str) -> bool:
    """Return whether two names differ by at most one letter. Case, spaces, hyphens and underscores do not count."""
    wrong, right = (re.sub("[-_ ]", "", text).casefold() for text in (name, known))
    if abs(len(wrong) - len(right)) > 1:
        return False
    same = next((index for index, pair in enumerate(zip(wrong, right, strict=False)) if pair[0] != pair[1]), None)
    if same is None:
        return True
    rests = {
        (wrong[same + 1 :], right[same + 1 :]),
        (wrong[same + 1 :], right[same:]),
        (wrong[same:], right[same + 1 :]),
    }
    return any(one == other for one, other in rests)


def list_of(read: Reader) -> Reader:
    """Return a reader of a list whose entries are read by `read`."""

    def read_list(value: object, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise DocumentError(path, f"must be a list, not {shown(value)}")
        return tuple(read(entry, f"{path}[{place}]") for place, entry in enumerate(value))

    return read_list


def mapping_of(read: Reader, content: str) -> Reader:
    """Return a reader of a mapping by name whose values are read by `read`.

    :param content: keys and values in words, for the error message.
    """

    def read_mapping(value: object, path: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise DocumentError(path, f"must map {content}, not {shown(value)}")
        return {text(name, path): read(entry, f"{path}.{name}") for name, entry in value.items()}

    return read_mapping


def text(value: object, path: str) -> str:
    """Read a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise DocumentError(path, f"must be a text, not {shown(value)}")
    return value


def integer(value: object, path: str) -> int:
    """Read a whole number of any sign."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise DocumentError(path, f"must be a whole number, not {shown(value)}")
    return value


def count(value: object, path: str) -> int:
    """Read a whole number from 0."""
    number = integer(value, path)
    if number < 0:
        raise DocumentError(path, f"must not be negative, but is {number}")
    return number


def amount(value: object, path: str) -> float:
    """Read a number from 0, in the unit of its field."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= LARGEST_AMOUNT:
        raise DocumentError(path, f"must be a number from 0, not {shown(value)}")
    return float(value)


def boolean(value: object, path: str) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise DocumentError(path, f"must be true or false, not {shown(value)}")
    return value


slots = mapping_of(count, "pools to numbers of instances")


def shown(value: object) -> str:
    """Format a value for an error message, cut to 60 characters."""
    quoted = repr(value)
    return quoted if len(quoted) <= 60 else f"{quoted[:57]}..."


# --- the schema ---------------------------------------------------------------------------------------


def _reader_of(kind: inspect.Type, words: Mapping[str, str]) -> Reader:  # noqa: PLR0911 - one for each type
    """Return the reader of a type of the schema.

    :param words: words for error messages (see `policy_schema`).
    """
    match kind:
        case inspect.Metadata():
            return _reader_of(kind.type, kind.extra or {})
        case inspect.BoolType():
            return boolean
        case inspect.StrType():
            return text
        case inspect.IntType(ge=least):
            return count if least is not None and least >= 0 else integer
        case inspect.FloatType():
            return amount
        case inspect.EnumType():
            return _one_of(kind.cls)
        case inspect.VarTupleType():
            return list_of(_reader_of(kind.item_type, {}))
        case inspect.DictType():
            return mapping_of(_reader_of(kind.value_type, {}), words["content"])
        case inspect.DataclassType():
            return _part(kind)
        case inspect.UnionType():
            return _either(kind)
    raise TypeError(f"The schema of the policy has the type {kind}, which no document can have.")


def _part(kind: inspect.DataclassType) -> Reader:
    """Return the reader of a mapping of fields."""
    readers = {field.name: _reader_of(field.type, {}) for field in kind.fields}
    required = {field.name for field in kind.fields if field.required}
    nullable = {it.name for it in kind.fields if isinstance(it.type, inspect.UnionType) and it.type.includes_none}

    def read_part(value: object, path: str) -> Any:
        part = kind.cls(**read_fields(value, path, readers, required, nullable))
        return _pool(part, path) if isinstance(part, Pool) else part

    return read_part


def _either(kind: inspect.UnionType) -> Reader:
    """Return the reader of an optional value, or of a number that may also be a word or a mapping of fields."""
    types = [it for it in kind.types if not isinstance(it, inspect.NoneType)]
    if len(types) == 1:
        return _reader_of(types[0], {})
    words = [word for it in types if isinstance(it, inspect.LiteralType) for word in it.values]
    parts = [_part(it) for it in types if isinstance(it, inspect.DataclassType)]
    (number,) = [it for it in types if isinstance(it, inspect.Metadata)]
    read, expected, bounds = _reader_of(number, {}), (number.extra or {}).get("expected"), number.type
    assert isinstance(bounds, (inspect.IntType, inspect.FloatType))
    least = bounds.ge or 0

    def read_either(value: object, path: str) -> Any:
        if parts and isinstance(value, Mapping):
            return parts[0](value, path)
        if not words:
            return read(value, path)
        if value in words:
            return value
        try:
            found = read(value, path)
        except DocumentError:
            found = None
        if found is None or found < least:
            raise DocumentError(path, f"must be {expected}, not {shown(value)}")
        return found

    return read_either


def _one_of(words: type[Enum]) -> Reader:
    """Return a reader of one of these words."""

    def read_word(value: object, path: str) -> Enum:
        known = [word.value for word in words]
        if value not in known:
            raise DocumentError(path, f"must be {' or '.join(known)}, not {shown(value)}")
        return words(value)

    return read_word


def _pool(pool: Pool, path: str) -> Pool:
    """Check the fields of a pool against each other, and return the pool. A shared pool gets its number of GPUs.

    The field `capacity` is optional only with a training plan, because the plan has a capacity of its own.

    :raises DocumentError: the fields contradict each other, or a field is missing.
    """
    known = GPUS.get(pool.instance_type or "")
    gpus = pool.gpus or known if pool.shared else None
    if pool.gpus is not None and not pool.shared:
        raise DocumentError(f"{path}.gpus", "belongs to `shared: true`, which is not there")
    if pool.shared and pool.gpus is not None and known not in (None, pool.gpus):
        raise DocumentError(f"{path}.gpus", f"an {pool.instance_type} has {known}, not {pool.gpus}; leave it out")
    if pool.shared and not gpus:
        raise DocumentError(f"{path}.shared", "how many GPUs an instance has is not known: say it with `gpus`")
    if pool.capacity == UNLIMITED and pool.training_plan is None:
        raise DocumentError(path, "the field capacity is missing")
    if pool.spot and pool.training_plan is not None:
        raise DocumentError(path, f"the pool {pool.name} has both spot and a training_plan: leave out one of them")
    return replace(pool, gpus=gpus)


def _check_unique(names: Iterable[str], path: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DocumentError(path, f"the name {name!r} is used twice")
        seen.add(name)


def _faults(kind: inspect.Type, value: object, where: str, words: Mapping[str, str]) -> Iterator[str]:
    """Yield the faults of a value, by the bounds of its type in the schema.

    :param where: words for the value's place, such as `capacity of p5`; empty for the policy.
    :param words: words for error messages (see `policy_schema`).
    """
    match kind, value:
        case inspect.Metadata(), _:
            yield from _faults(kind.type, value, where, kind.extra or {})
        case inspect.UnionType(), _:
            for one in kind.types:
                yield from _faults(one, value, where, words)
        case inspect.VarTupleType(), tuple():
            for entry in value:
                yield from _faults(kind.item_type, entry, where, {})
        case inspect.DictType(), Mapping():
            for name, entry in value.items():
                yield from _faults(kind.key_type, name, f"{where} has {shown(name)}, which", {})
                short = shown(name)[1:-1]
                place = f"{words['entry']} {short}" if "entry" in words else f"{short} in the {where}"
                yield from _faults(kind.value_type, entry, place, {})
        case inspect.DataclassType(cls=part), _ if isinstance(value, part):
            yield from _faults_of_fields(kind.fields, value, where)
        case inspect.StrType(pattern=str(pattern)), str() if not re.fullmatch(pattern, value):
            yield f"{where} {words['fault']}"
        case inspect.StrType(max_length=int(most)), str() if len(value) > most:
            yield f"{where} has {len(value)} characters, and may have {most}"
        case ((inspect.IntType() | inspect.FloatType()), (int() | float())):
            yield from (f"{where} {fault}" for fault in _faults_of_number(kind, value, words))


def _faults_of_fields(fields: Iterable[inspect.Field], part: object, where: str) -> Iterator[str]:
    """Yield the faults of a part's fields. UNLIMITED, the value of a missing capacity of a pool, is not checked."""
    for field in fields:
        own = getattr(part, field.name)
        if not (isinstance(part, Pool) and field.name == "capacity" and own == UNLIMITED):
            yield from _faults(field.type, own, _place(field.name, own, part, where), {})


def _place(field: str, value: object, part: object, where: str) -> str:
    """Return words for the place of a field in a part of the policy."""
    if field == "name":
        return shown(value)
    if isinstance(part, Prices) or not where:
        return where or field
    if hasattr(part, "name"):
        return f"{field} of {part.name}"
    return f"{field} in the {where}" if " " in where else f"{where}.{field}"


def _faults_of_number(
    kind: inspect.IntType | inspect.FloatType, value: float, words: Mapping[str, str]
) -> Iterator[str]:
    below = (kind.ge is not None and value < kind.ge) or (kind.gt is not None and value <= kind.gt)
    above = kind.le is not None and value > kind.le
    least = f"at least {kind.ge}" if kind.ge else f"above {kind.gt}" if kind.gt is not None else None
    bounds = f"must be {least}, and at most {kind.le}" if least else f"may be at most {kind.le}"
    if below or above or (kind.multiple_of and value % kind.multiple_of):
        yield words.get("fault") or words.get("below" if below else "above") or bounds


_POLICY = inspect.type_info(Policy)
_READ_POLICY = _reader_of(_POLICY, {})
