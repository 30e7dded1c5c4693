"""The policy document: plain data -> Policy. Errors name the path, the fault, and the expected value."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from job_queue.scheduler.carriers.instance_gpus import GPUS
from job_queue.scheduler.model import (
    Backfill,
    Department,
    Interactive,
    Order,
    Policy,
    Pool,
    Prices,
    Project,
    Settings,
    Spot,
    TrainingPlan,
)
from job_queue.scheduler.sharing.budget import NAMED_PERIODS, Budget, BudgetKind

OVER_QUOTA_WEIGHTS: Final[Mapping[str, float]] = {"none": 0, "low": 1, "medium": 2, "high": 3}
MARKETS: Final = ("on_demand", "spot", "training_plan")
LARGEST_AMOUNT: Final = 1e18  # largest amount; a whole number in JSON may be too large for a float

Reader = Callable[[object, str], Any]
"""Reads a value at a path of the document; raises DocumentError."""


class DocumentError(ValueError):
    """A fault in a document. Path and message name its location, such as policy.pools[0].capacity."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


def policy_from_document(document: object, path: str = "policy") -> Policy:
    """Read a policy document (pools, projects, and optionally departments, settings, interactive and prices).

    :raises DocumentError: for unknown, missing or mistyped fields, names used twice, and unknown departments.
    """
    readers = {
        "pools": list_of(_pool),
        "projects": list_of(_project),
        "departments": list_of(_department),
        "settings": _settings,
        "interactive": _interactive,
        "prices": mapping_of(_prices, "instance types to prices an hour"),
    }
    policy = Policy(**read_fields(document, path, readers, required=("pools", "projects")))
    _check_unique((pool.name for pool in policy.pools), f"{path}.pools")
    departments = [department.name for department in policy.departments]
    _check_unique([*departments, *(project.name for project in policy.projects)], f"{path}.projects")
    for project in policy.projects:
        if project.department is not None and project.department not in departments:
            raise DocumentError(
                f"{path}.projects", f"{project.name} names the unknown department {project.department!r}"
            )
    return policy


def read_fields(
    document: object, path: str, readers: Mapping[str, Reader], required: Sequence[str] = ("name",)
) -> dict[str, Any]:
    """Return the fields that are present, each read by its reader. Null counts as absent.

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
    for name in document:
        if name not in readers:
            raise DocumentError(path, f"unknown field {shown(name)}; known are {', '.join(sorted(readers))}")
    return fields


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


def _pool(document: object, path: str) -> Pool:
    """Read a pool.

    Its market is `spot: true` or `training_plan: ARN`, else on demand. A training plan has a capacity of its own, so
    the field `capacity` is optional for it.
    """
    readers = {
        "name": text,
        "capacity": count,
        "instance_type": text,
        "spot": boolean,
        "training_plan": text,
        "min_runtime": amount,
        "keep_warm": amount,
        "shared": boolean,
        "gpus": count,
    }
    fields = read_fields(document, path, readers)
    fields["gpus"] = _gpus(fields, path)
    spot, training_plan = fields.pop("spot", False), fields.pop("training_plan", None)
    if "capacity" not in fields and training_plan is None:
        raise DocumentError(path, "the field capacity is missing")
    if spot and training_plan is not None:
        name = fields["name"]
        raise DocumentError(path, f"the pool {name} has both spot and a training_plan: leave out one of them")
    if training_plan is not None:
        fields["market"] = TrainingPlan(training_plan)
    elif spot:
        fields["market"] = Spot()
    return Pool(**fields)


def _gpus(fields: dict[str, Any], path: str) -> int | None:
    """Return the GPUs of an instance whose GPUs jobs may share; None: they may not."""
    shared, given = fields.pop("shared", False), fields.pop("gpus", None)
    if not shared:
        if given is not None:
            raise DocumentError(f"{path}.gpus", "belongs to `shared: true`, which is not there")
        return None
    known = GPUS.get(fields.get("instance_type", ""))
    if given is not None and known is not None and given != known:
        raise DocumentError(f"{path}.gpus", f"an {fields['instance_type']} has {known}, not {given}; leave it out")
    found: int | None = given or known
    if not found:
        raise DocumentError(f"{path}.shared", "how many GPUs an instance has is not known: say it with `gpus`")
    return found


def _department(document: object, path: str) -> Department:
    return Department(**read_fields(document, path, {"name": text, "quota": slots, "limit": slots}))


def _project(document: object, path: str) -> Project:
    readers = {
        "name": text,
        "department": text,
        "quota": slots,
        "limit": slots,
        "over_quota": _weight,
        "pools": list_of(text),
        "interactive_pools": list_of(text),
        "training_pools": list_of(text),
        "min_runtime": amount,
        "members": list_of(text),
        "admins": list_of(text),
        "roles": list_of(text),
        "buckets": list_of(text),
        "priority_ceiling": integer,
        "budget": _budget,
        "owner_budget": _budget,
        "owners_share": boolean,
    }
    return Project(**read_fields(document, path, readers))


def _settings(document: object, path: str) -> Settings:
    readers = {
        "min_runtime": amount,
        "patience": amount,
        "aging": amount,
        "order": _one_of(Order),
        "stretch": amount,
        "backfill": _one_of(Backfill),
        "usage_half_life": amount,
        "idle_after": amount,
        "protect_project_quota": boolean,
        "allow_oversubscription": boolean,
        "window": count,
        "max_waiting": count,
    }
    fields = read_fields(document, path, readers, required=())
    if isinstance(document, Mapping) and "patience" in document:
        fields.setdefault("patience", None)  # null: no free slots are ever kept for a job
    return Settings(**fields)


def _interactive(document: object, path: str) -> Interactive:
    readers = {"first": boolean, "max_per_owner": count, "idle_end": amount}
    fields = read_fields(document, path, readers, required=())
    if isinstance(document, Mapping) and "max_per_owner" in document:
        fields.setdefault("max_per_owner", None)  # null: any number
    return Interactive(**fields)


def _one_of(words: type[StrEnum]) -> Reader:
    """Return a reader of one of these words."""

    def read_word(value: object, path: str) -> StrEnum:
        known = [word.value for word in words]
        if value not in known:
            raise DocumentError(path, f"must be {' or '.join(known)}, not {shown(value)}")
        return words(value)

    return read_word


def _budget(document: object, path: str) -> Budget:
    readers = {"instance_hours": amount, "period": _period, "kind": _one_of(BudgetKind)}
    fields = read_fields(document, path, readers, required=("instance_hours", "period"))
    return Budget(days=fields.pop("period"), **fields)


def _period(value: object, path: str) -> int | None:
    """Read the days of a period; None: a calendar month."""
    if isinstance(value, str) and value in NAMED_PERIODS:
        return NAMED_PERIODS[value]
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise DocumentError(path, f"must be {', '.join(NAMED_PERIODS)} or a number of days, not {shown(value)}")


def _prices(document: object, path: str) -> Prices:
    """Read prices by market; a single number is the price in every market."""
    if not isinstance(document, Mapping):
        price = amount(document, path)
        return Prices(price, price, price)
    return Prices(**read_fields(document, path, dict.fromkeys(MARKETS, amount), required=()))


def _weight(value: object, path: str) -> float:
    if isinstance(value, str):
        if value not in OVER_QUOTA_WEIGHTS:
            raise DocumentError(path, f"must be {', '.join(OVER_QUOTA_WEIGHTS)} or a number, not {shown(value)}")
        return OVER_QUOTA_WEIGHTS[value]
    return amount(value, path)


def _check_unique(names: Iterable[str], path: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DocumentError(path, f"the name {name!r} is used twice")
        seen.add(name)
