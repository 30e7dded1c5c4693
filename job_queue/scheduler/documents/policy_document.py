"""The policy document: plain data -> Policy. What it finds wrong it names: where, what, and what would be right."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from job_queue.scheduler.model import (
    Department,
    Market,
    OnDemand,
    Policy,
    Pool,
    Project,
    Settings,
    Slots,
    Spot,
    TrainingPlan,
)

OVER_QUOTA: Final[Mapping[str, float]] = {"none": 0, "low": 1, "medium": 2, "high": 3}
MOST: Final = 1e18  # of an amount; a whole number in JSON may be too large for a float

T = TypeVar("T")


class DocumentError(ValueError):
    """Something in a document is not as it must be; the message says where."""


def policy_from_document(document: object, path: str = "policy") -> Policy:
    """Read a policy document (pools, projects, and optionally departments and settings).

    :raises DocumentError: for unknown, missing or mistyped fields, names used twice, and unknown departments.
    """
    fields = Fields(document, path)
    policy = Policy(
        pools=fields.list_of("pools", _pool),
        projects=fields.list_of("projects", _project),
        departments=fields.list_of("departments", _department, default=()),
        settings=fields.one("settings", _settings, default=Settings()),
    )
    fields.end()
    _once((pool.name for pool in policy.pools), f"{path}.pools")
    departments = [department.name for department in policy.departments]
    _once([*departments, *(project.name for project in policy.projects)], f"{path}.projects")
    for project in policy.projects:
        if project.department is not None and project.department not in departments:
            raise DocumentError(f"{path}.projects: {project.name} names the unknown department {project.department!r}")
    return policy


class Fields:
    """A mapping that is read field by field.

    :raises DocumentError: where the document is no mapping, or a field is missing or of another type.
    """

    def __init__(self, document: object, path: str) -> None:
        if not isinstance(document, Mapping):
            raise DocumentError(f"{path}: must be a mapping of fields, not {shown(document)}")
        self.path = path
        self._document = document
        self._known: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._document

    def one(self, name: str, read: Callable[[object, str], T], **default: T) -> T:
        """One field, read by `read(value, path)`; without a default it must be there. Null counts as absent."""
        self._known.add(name)
        value = self._document.get(name)
        if value is not None:
            return read(value, f"{self.path}.{name}")
        if "default" in default:
            return default["default"]
        raise DocumentError(f"{self.path}: the field {name} is missing")

    def list_of(self, name: str, read: Callable[[object, str], T], **default: tuple[T, ...]) -> tuple[T, ...]:
        """A list, each entry read by `read(value, path)`."""

        def read_list(value: object, path: str) -> tuple[T, ...]:
            if not isinstance(value, list):
                raise DocumentError(f"{path}: must be a list, not {shown(value)}")
            return tuple(read(entry, f"{path}[{place}]") for place, entry in enumerate(value))

        return self.one(name, read_list, **default)

    def end(self) -> None:
        """Refuse fields that nobody asked for."""
        for name in self._document:
            if name not in self._known:
                known = ", ".join(sorted(self._known))
                raise DocumentError(f"{self.path}: unknown field {shown(name)}; known are {known}")


def text(value: object, path: str) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise DocumentError(f"{path}: must be a text, not {shown(value)}")
    return value


def whole(value: object, path: str) -> int:
    """A whole number, of any sign."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise DocumentError(f"{path}: must be a whole number, not {shown(value)}")
    return value


def count(value: object, path: str) -> int:
    """A whole number from 0."""
    if whole(value, path) < 0:
        raise DocumentError(f"{path}: must not be negative, but is {value}")
    return whole(value, path)


def amount(value: object, path: str) -> float:
    """A number from 0, in what unit the field says."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MOST:
        raise DocumentError(f"{path}: must be a number from 0, not {shown(value)}")
    return float(value)


def truth(value: object, path: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise DocumentError(f"{path}: must be true or false, not {shown(value)}")
    return value


def slots(value: object, path: str) -> Slots:
    """Numbers of instances by pool."""
    if not isinstance(value, Mapping):
        raise DocumentError(f"{path}: must map pools to numbers of instances, not {shown(value)}")
    return {text(pool, path): count(number, f"{path}.{pool}") for pool, number in value.items()}


def shown(value: object) -> str:
    """A value as an error quotes it."""
    quoted = repr(value)
    return quoted if len(quoted) <= 60 else f"{quoted[:57]}..."


def _pool(document: object, path: str) -> Pool:
    fields = Fields(document, path)
    pool = Pool(
        name=fields.one("name", text),
        capacity=fields.one("capacity", count),
        instance_type=fields.one("instance_type", text, default=None),
        market=_market(fields),
        min_runtime=fields.one("min_runtime", amount, default=None),
    )
    fields.end()
    return pool


def _market(fields: Fields) -> Market:
    """`spot: true` or `training_plan: ARN`; neither is on demand."""
    spot = fields.one("spot", truth, default=False)
    training_plan = fields.one("training_plan", text, default=None)
    if spot and training_plan is not None:
        name = fields.one("name", text)
        raise DocumentError(f"{fields.path}: the pool {name} has both spot and a training_plan: leave out one of them")
    if training_plan is not None:
        return TrainingPlan(training_plan)
    return Spot() if spot else OnDemand()


def _department(document: object, path: str) -> Department:
    fields = Fields(document, path)
    department = Department(
        name=fields.one("name", text),
        quota=fields.one("quota", slots, default={}),
        limit=fields.one("limit", slots, default={}),
    )
    fields.end()
    return department


def _project(document: object, path: str) -> Project:
    fields = Fields(document, path)
    project = Project(
        name=fields.one("name", text),
        department=fields.one("department", text, default=None),
        quota=fields.one("quota", slots, default={}),
        limit=fields.one("limit", slots, default={}),
        over_quota=fields.one("over_quota", _weight, default=None),
        pools=fields.list_of("pools", text, default=()),
        min_runtime=fields.one("min_runtime", amount, default=None),
        members=fields.list_of("members", text, default=()),
        priority_ceiling=fields.one("priority_ceiling", whole, default=None),
    )
    fields.end()
    return project


def _settings(document: object, path: str) -> Settings:
    fields, usual = Fields(document, path), Settings()
    settings = Settings(
        min_runtime=fields.one("min_runtime", amount, default=usual.min_runtime),
        patience=fields.one("patience", amount, default=None if "patience" in fields else usual.patience),
        aging=fields.one("aging", amount, default=None),
        protect_project_quota=fields.one("protect_project_quota", truth, default=usual.protect_project_quota),
        allow_oversubscription=fields.one("allow_oversubscription", truth, default=usual.allow_oversubscription),
        window=fields.one("window", count, default=usual.window),
    )
    fields.end()
    return settings


def _weight(value: object, path: str) -> float:
    if isinstance(value, str):
        if value not in OVER_QUOTA:
            raise DocumentError(f"{path}: must be {', '.join(OVER_QUOTA)} or a number, not {shown(value)}")
        return OVER_QUOTA[value]
    return amount(value, path)


def _once(names: Iterable[str], path: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DocumentError(f"{path}: the name {name!r} is used twice")
        seen.add(name)
