"""Requests that hypothesis makes from the service model, and their parts with faults."""

import string
from functools import cache
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.training_requests import Request, shape

WORDS = string.ascii_letters + string.digits


def texts(found: Shape) -> st.SearchStrategy[str]:
    if values := found.metadata.get("enum"):
        return st.sampled_from(list(values))
    least, most = found.metadata.get("min", 0), min(found.metadata.get("max", 20), 300)
    if pattern := found.metadata.get("pattern"):
        if pattern in PLAIN:
            least = max(least, 1)  # the model's minimum may be 0 where its pattern wants one
            return st.text(PLAIN[pattern], min_size=least, max_size=min(most, least + 10))
        return st.sampled_from(EXAMPLES[pattern])
    return st.text(max_size=most)


PLAIN = {
    ".*": WORDS + " é/*",
    ".+": WORDS + " é/*",
    r"[a-zA-Z0-9:/_-]*": WORDS + ":/_-",
    r"[-0-9a-zA-Z]+": WORDS + "-",
    r"[A-Za-z0-9\.\-_]+": WORDS + ".-_",
    r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)": WORDS + "é研 _.:/=+-@",
    r"[a-zA-Z_][a-zA-Z0-9_]*": string.ascii_letters + "_",
    r"[\S\s]*": WORDS + "\n\t é",
}
ACCOUNT = "us-east-1:123456789012"
HUB = "arn:aws:sagemaker:us-east-1:aws:hub-content/Public"
EXAMPLES = {
    r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}": ["a", "job-1", "a--b"],
    r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,119}": ["a", "trial-1"],
    r"(arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:[a-z\-]*\/)?([a-zA-Z0-9]([a-zA-Z0-9-]){0,62})(?<!-)": [
        "algorithm-1",
        f"arn:aws:sagemaker:{ACCOUNT}:algorithm/a1",
    ],
    r"arn:[\p{Alnum}\-]+:lambda:[\p{Alnum}\-]+:[0-9]{12}:function:.*": [f"arn:aws:lambda:{ACCOUNT}:function:f"],
    r"arn:aws[a-z\-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+": ["arn:aws:iam::123456789012:role/a/b"],
    r"(https|s3)://([^/]+)/?(.*)": ["s3://bucket", "s3://bucket/a/b", "https://host/x"],
    r"(fs-[0-9a-f]{8,})": ["fs-0123abcd"],
    r"(arn:[a-z0-9-\.]{1,63}:sagemaker:\w+(?:-\w+)+:(\d{12}|aws):hub-content\/)[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
    r"\/DataSet\/[a-zA-Z0-9](-*[a-zA-Z0-9]){0,63}(\/\d{1,4}.\d{1,4}.\d{1,4})?": [f"{HUB}/DataSet/a/1.0.0"],
    r"(arn:[a-z0-9-\.]{1,63}:sagemaker:\w+(?:-\w+)+:(\d{12}|aws):hub-content\/)[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
    r"\/Model\/[a-zA-Z0-9](-*[a-zA-Z0-9]){0,63}(\/\d{1,4}.\d{1,4}.\d{1,4})?": [f"{HUB}/Model/a"],
    r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:training-plan/.*": [
        f"arn:aws:sagemaker:{ACCOUNT}:training-plan/p"
    ],
    r"\d+K": ["4K"],
    r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:mlflow-[a-zA-Z-]*/.*": [
        f"arn:aws:sagemaker:{ACCOUNT}:mlflow-app/a"
    ],
    r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]{9,16}:[0-9]{12}:model-package-group/[\S]{1,2048}": [
        f"arn:aws:sagemaker:{ACCOUNT}:model-package-group/g"
    ],
    r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]{9,16}:[0-9]{12}:model-package/[\S]{1,2048}": [
        f"arn:aws:sagemaker:{ACCOUNT}:model-package/g/1"
    ],
}


def valid(found: Shape) -> st.SearchStrategy[Any]:
    """Values that fit a shape."""
    data = found.metadata
    if isinstance(found, StructureShape):
        parts = {name: valid(part) for name, part in found.members.items()}
        needed = {name: parts.pop(name) for name in found.required_members}
        return st.fixed_dictionaries(needed, optional=parts)
    if isinstance(found, ListShape):
        least = data.get("min", 0)
        return st.lists(valid(found.member), min_size=least, max_size=max(least, min(data.get("max", 2), 2)))
    if isinstance(found, MapShape):
        return st.dictionaries(valid(found.key), valid(found.value), min_size=data.get("min", 0), max_size=2)
    if found.type_name == "boolean":
        return st.booleans()
    if found.type_name == "string":
        return texts(found)
    bits = 31 if found.type_name == "integer" else 63
    return st.integers(data.get("min", -(2**bits)), data.get("max", 2**bits - 1))


@cache
def some_members() -> st.SearchStrategy[Request]:
    """Valid requests with a few of the optional fields: enough to reach all, small enough to draw fast."""
    parts = {name: valid(part) for name, part in shape().members.items()}
    needed = {name: parts.pop(name) for name in shape().required_members}
    chosen = st.lists(st.sampled_from(sorted(parts)), max_size=4, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({**needed, **{name: parts[name] for name in names}}))


generated = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def parts_of(value: Any, found: Shape, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], Shape]]:
    """Every part of a valid request: the path to it, and its shape."""
    inner: list[tuple[tuple[str | int, ...], Shape]] = []
    if isinstance(found, StructureShape):
        inner = [part for name in value for part in parts_of(value[name], found.members[name], (*path, name))]
    elif isinstance(found, ListShape):
        inner = [part for n, item in enumerate(value) for part in parts_of(item, found.member, (*path, n))]
    elif isinstance(found, MapShape):
        inner = [part for name in value for part in parts_of(value[name], found.value, (*path, name))]
    return [(path, found), *inner] if path else inner


def spoilt(found: Shape) -> list[Any]:
    """Values that do not fit a shape, each in its own way."""
    data = found.metadata
    wrong: list[Any] = [None, 1.5, object()]
    if isinstance(found, StructureShape):
        return [*wrong, [], {"NoSuchField": 1}]
    if isinstance(found, ListShape):
        return [*wrong, {}, "x", *([[None] * (data["max"] + 1)] if "max" in data else [])]
    if isinstance(found, MapShape):
        return [*wrong, [], {f"k{n}": "v" for n in range(data["max"] + 1)}]
    if found.type_name == "boolean":
        return [*wrong, 0, "true"]
    if found.type_name == "string":
        long = ["x" * (data["max"] + 1)] if "max" in data else []
        odd = ["no such value"] if "enum" in data else []
        lines = ["a\nb" * 20] if data.get("pattern", r"[\S\s]*") != r"[\S\s]*" else []
        return [*wrong, 1, True, ["x"], *long, *odd, *lines]
    return [*wrong, "1", True, 2**64, data.get("min", -(2**63)) - 1]


def field_of(path: tuple[str | int, ...]) -> str:
    words = ""
    for step in path:
        plain = isinstance(step, str) and set(step) <= set(WORDS + "_-") and step
        words += f".{step}" if plain else f"[{step!r}]"
    return words.removeprefix(".")
