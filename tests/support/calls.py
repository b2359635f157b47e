"""The calls of the OpenAPI document with their examples, ready to be sent.

Belongs here: from the document to requests. Does not belong here: what is expected of the answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from service.api.openapi import build_document
from service.api.operations import OPERATIONS
from tests.support.api import Api, Reply

DOCUMENT = build_document(OPERATIONS)
ORIGIN = "https://receiver.example"


def list_calls() -> dict[str, dict[str, Any]]:
    """Every call of the document by its id, with its path and method."""
    return {
        call["operationId"]: {**call, "path": path, "method": method.upper()}
        for path, methods in DOCUMENT["paths"].items()
        for method, call in methods.items()
    }


def list_requests(call: Mapping[str, Any]) -> list[tuple[str | None, Any]]:
    """Content type and body of each example of a call; one without a body if it takes none."""
    contents = call.get("requestBody", {}).get("content", {})
    shown = [
        (kind, {"example": {"value": content["example"]}} if "example" in content else content.get("examples", {}))
        for kind, content in contents.items()
    ]
    bodies = [(kind, each["value"]) for kind, examples in shown for each in examples.values()]
    return bodies or [(None, None)]


async def send_example(
    api: Api,
    call: Mapping[str, Any],
    request: tuple[str | None, Any],
    named: Mapping[str, str],
    origin: str = ORIGIN,
) -> Reply:
    """Send one of ``list_requests``; ``named`` are the ids that the service made, ``origin`` is where the receiver is."""
    path, parameters = call["path"], call["parameters"]
    for each in parameters:
        if each["in"] == "path":
            value = quote(named.get(each["name"], each["example"]), safe="")
            path = path.replace("{" + each["name"] + "}", value)
    query = urlencode(
        {each["name"]: each["example"] for each in parameters if each["in"] == "query" and "example" in each}
    )
    kind, body = request
    data = None if body is None else json.dumps(body).replace(ORIGIN, origin).encode()
    headers = {} if kind is None else {"Content_Type": kind}
    return await api.call(call["method"], path + ("?" + query if query else ""), data=data, **headers)
