"""Requests to train, and the service model they are made for."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
from botocore.model import ListShape, MapShape, Shape, StructureShape

Request = dict[str, Any]
EVENTS = Path(__file__).parents[1] / "events"


@cache
def shape() -> StructureShape:
    """CreateTrainingJob's input."""
    found = botocore.session.Session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    assert found is not None
    return found


def sdk_request() -> Request:
    """What SageMaker's Python SDK sends for a PyTorch estimator."""
    event = json.loads((EVENTS / "api-add-job.json").read_text())
    return json.loads(event["body"])  # type: ignore[no-any-return]


def changed(path: str, value: object) -> Request:
    """The SDK's request with one field, as `ResourceConfig/InstanceCount`, set."""
    request: Request = sdk_request()
    *parents, last = path.split("/")
    place: Any = request
    for step in parents:
        place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
    place[int(last) if isinstance(place, list) else last] = value
    return request


def without(*names: str) -> Request:
    """The SDK's request less some fields."""
    request = sdk_request()
    for name in names:
        del request[name]
    return request


def every_shape(root: Shape) -> list[Shape]:
    """A shape and all that it holds."""
    inner: list[Shape] = []
    if isinstance(root, StructureShape):
        inner = list(root.members.values())
    elif isinstance(root, ListShape):
        inner = [root.member]
    elif isinstance(root, MapShape):
        inner = [root.key, root.value]
    return [root, *(found for part in inner for found in every_shape(part))]
