"""The payloads of events/, one per trigger, and API Gateway events made after them."""

import json
from pathlib import Path
from typing import Any

EVENTS = Path(__file__).parent.parent / "events"


def payload(name: str) -> dict[str, Any]:
    """A file of events/, by its name without the ending."""
    content: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return content


def api_event(
    method: str, path: str, *, body: str | None = None, caller: str | None = None, **query: str
) -> dict[str, Any]:
    """What API Gateway hands to the function for a request."""
    event = payload("api-add-job")
    resource = "/jobs/{name}" if path.startswith("/jobs/") else path
    event |= {
        "httpMethod": method,
        "path": path,
        "resource": resource,
        "body": body,
        "queryStringParameters": query or None,
        "multiValueQueryStringParameters": {name: [value] for name, value in query.items()} or None,
        "pathParameters": {"name": path.removeprefix("/jobs/")} if resource != path else None,
    }
    event["requestContext"] |= {"httpMethod": method, "path": f"/prod{path}", "resourcePath": resource}
    if caller is not None:
        event["requestContext"]["identity"]["userArn"] = caller
    return event
