"""The OpenAPI 3.1 document, made from the operation table and the models that validate requests.

Belongs here: putting together. Does not belong here: serving it (``documents``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from service import __version__
from service.api.answers import Problem
from service.api.calls import Kind, Operation
from service.api.examples import NAMES, list_examples
from service.api.models import NoQuery
from service.ingest.cloudevents import BATCHED, STRUCTURED
from service.store.keys import Role

REF = "#/components/schemas/{model}"
Json = dict[str, Any]
_DESCRIBED = {
    "batch_name": "Percent-encoded, `%2F` included.",
    "job_id": "Percent-encoded, `%2F` included.",
    "webhook_id": "Percent-encoded, `%2F` included.",
}
_WITH_REVISION = {"/v1/webhooks/{webhook_id}", "/v1/batches/{batch_name}/webhook"}
_EVENT_TYPES = ("application/json", STRUCTURED, BATCHED)
_ANY_EVENT: Json = {
    "description": "One job event, an array of up to 500, or a CloudEvent.",
    "type": ["object", "array"],
}


def build_document(operations: Sequence[Operation]) -> Json:
    """Return the document as JSON values."""
    paths: Json = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "webhookd",
            "version": __version__,
            "description": "Tells receivers, by signed webhook, when jobs and batches have finished.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"basic": []}],
        "paths": paths,
        "components": {"securitySchemes": _schemes(), "schemas": _list_schemas(operations)},
    }


def _schemes() -> Json:
    return {
        "bearer": {"type": "http", "scheme": "bearer", "description": "A whole key."},
        "basic": {"type": "http", "scheme": "basic", "description": "Key id and secret."},
    }


def _list_schemas(operations: Iterable[Operation]) -> Json:
    requests = {operation.body for operation in operations if operation.body}
    shown = {operation.answer for operation in operations if operation.answer} | {Problem}
    wanted: list[tuple[type[BaseModel], Any]] = [(model, "validation") for model in requests]
    wanted += [(model, "serialization") for model in shown]
    wanted.sort(key=lambda pair: pair[0].__name__ + pair[1])
    _, schema = models_json_schema(wanted, ref_template=REF)
    definitions: Json = schema["$defs"]
    return definitions


def _ref(model: type[BaseModel]) -> Json:
    return {"$ref": REF.format(model=model.__name__)}


def _describe(operation: Operation) -> Json:
    described: Json = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*_path_parameters(operation), *_query_parameters(operation), *_header_parameters(operation)],
        "responses": _responses(operation),
    }
    if operation.kind is Kind.OPEN:
        described["security"] = []
    else:
        described["description"] = f"Needs the role `{operation.role.value}`."
    body = _request_body(operation)
    return {**described, "requestBody": body} if body else described


def _path_parameters(operation: Operation) -> list[Json]:
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
            "example": NAMES[name],
            **({"description": _DESCRIBED[name]} if name in _DESCRIBED else {}),
        }
        for name in names
    ]


def _query_parameters(operation: Operation) -> list[Json]:
    schema = (operation.query or NoQuery).model_json_schema()
    required = set(schema.get("required", ()))
    given = _example(operation).get("query", {})
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": _without_null(field),
            **({"example": given[name]} if name in given else {}),
        }
        for name, field in schema.get("properties", {}).items()
    ]


def _without_null(field: Json) -> Json:
    """A query parameter is absent, never null."""
    kept = [each for each in field.get("anyOf", ()) if each != {"type": "null"}]
    rest = {name: value for name, value in field.items() if name not in {"anyOf", "default", "title"} or value}
    rest.pop("anyOf", None)
    if rest.get("default", 0) is None:
        del rest["default"]
    return {**rest, **kept[0]} if len(kept) == 1 else ({**rest, "anyOf": kept} if kept else rest)


def _header_parameters(operation: Operation) -> list[Json]:
    headers = []
    if operation.kind is not Kind.OPEN and operation.role is not Role.OPERATOR:
        headers.append(("X-Tenant-ID", "The tenant, for operator keys."))
    if operation.kind is Kind.WRITE and operation.method in {"POST", "PUT"}:
        headers.append(("Idempotency-Key", "A repeat within 24 hours gets the same answer."))
    if _takes_a_revision(operation):
        headers.append(("If-Match", "The revision that the change is meant for."))
    schema = {"type": "string", "minLength": 1, "maxLength": 255}
    return [
        {"name": name, "in": "header", "required": False, "schema": schema, "description": text}
        for name, text in headers
    ]


def _takes_a_revision(operation: Operation) -> bool:
    return operation.path in _WITH_REVISION and operation.kind is Kind.WRITE


def _request_body(operation: Operation) -> Json | None:
    if operation.kind is Kind.EVENTS:
        return {"required": True, "content": {kind: _describe_events(operation, kind) for kind in _EVENT_TYPES}}
    if operation.body is None:
        return None
    kind = "application/merge-patch+json" if operation.method == "PATCH" else "application/json"
    kinds = {kind, "application/json"}
    described = {"schema": _ref(operation.body), **_named(_example(operation), "request")}
    return {"required": operation.body_required, "content": dict.fromkeys(sorted(kinds), described)}


def _describe_events(operation: Operation, kind: str) -> Json:
    examples = {
        name: {"summary": each["summary"], "value": each["value"]}
        for name, each in _example(operation)["requests"].items()
        if each.get("content_type", "application/json") == kind
    }
    return {"schema": _ANY_EVENT, "examples": examples}


def _example(operation: Operation) -> Json:
    return list_examples().get(operation.name, {})


def _named(example: Json, name: str) -> Json:
    return {"example": example[name]} if name in example else {}


def _responses(operation: Operation) -> Json:
    found: Json = {str(status): _success(operation, status) for status in operation.statuses}
    for status in _failures(operation):
        found[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {"application/problem+json": {"schema": _ref(Problem)}},
        }
    return found


def _success(operation: Operation, status: int) -> Json:
    described: Json = {"description": HTTPStatus(status).phrase}
    if operation.answer is not None and status != HTTPStatus.NO_CONTENT:
        shown = _named(_example(operation), "answer") if status == operation.statuses[0] else {}
        described["content"] = {"application/json": {"schema": _ref(operation.answer), **shown}}
    return described


def _failures(operation: Operation) -> list[int]:
    if operation.kind is Kind.OPEN:
        return [404]
    failures = {400, 401, 403, 404, 422, 429, 503}
    if operation.kind is not Kind.READ or operation.path == "/v1/signing-keys":  # whose secrets may not open
        failures |= {409}
    if operation.body or operation.kind is Kind.EVENTS:
        failures |= {408, 413, 415}
    if _takes_a_revision(operation):
        failures |= {412}
    return sorted(failures)
