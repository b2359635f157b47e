"""Errors as RFC 9457 problem documents.

Belongs here: the exception that carries one, and the translation of every other exception into one.
Does not belong here: when a rule is broken; handlers and use cases decide that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson
import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import ValidationError

from service.ports import Conflict, StoreUnavailable

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CONTENT_TYPE = "application/problem+json"
AWAY_RETRY_AFTER = "2"
SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Strict-Transport-Security": "max-age=31536000",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FieldError:
    """One broken field: a dotted path into the body or query, a machine word and a sentence."""

    field: str
    code: str
    detail: str


class Problem(Exception):
    """An answer that is an error. ``code`` is stable and for machines, ``detail`` is for people."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})


def not_found(what: str) -> Problem:
    """Say that there is no such object, or that it is another tenant's: callers cannot tell which."""
    return Problem(404, "not_found", f"There is no such {what}.")


def rule_broken(field: str, code: str, detail: str) -> Problem:
    """Say that one field of the body breaks a rule (422)."""
    return Problem(422, code, detail, errors=[FieldError(field, code, detail)])


def unavailable() -> Problem:
    """Say that the database is away (503); the client is to come back."""
    detail = "The database cannot be reached at the moment; repeat the request."
    return Problem(503, "database_unavailable", detail, headers={"Retry-After": AWAY_RETRY_AFTER})


def from_validation(error: ValidationError) -> Problem:
    """Turn what pydantic found into one 422 with a field path per error; input values are not repeated."""
    errors = [
        FieldError(
            ".".join(str(part) for part in e["loc"]) or "body", e["type"], e["msg"].removeprefix("Value error, ")
        )
        for e in error.errors(include_url=False, include_context=False, include_input=False)
    ][:50]
    first = errors[0]
    return Problem(422, "invalid_request", f"{first.field}: {first.detail}", errors=errors)


def render(problem: Problem) -> web.Response:
    """Make the response of a problem."""
    content: dict[str, Any] = {
        "type": f"urn:webhookd:problem:{problem.code}",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
    }
    if problem.errors:
        content["errors"] = [{"field": e.field, "code": e.code, "detail": e.detail} for e in problem.errors]
    body = orjson.dumps(content, default=str)
    return web.Response(status=problem.status, body=body, content_type=CONTENT_TYPE, headers=problem.headers)


def _from_http(error: web.HTTPException) -> Problem:
    phrase = HTTPStatus(error.status).phrase
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
    return Problem(error.status, phrase.lower().replace(" ", "_"), f"{phrase}.", headers=headers)


def to_problem(error: Exception) -> Problem:
    """Find the problem that an exception stands for; what nobody expected is logged and is 500."""
    match error:
        case Problem():
            return error
        case ValidationError():
            return from_validation(error)
        case web.HTTPException():
            return _from_http(error)
        case StoreUnavailable():
            return unavailable()
        case Conflict():
            detail = "Other requests changed the same objects at the same time; repeat the request."
            return Problem(503, "busy", detail, headers={"Retry-After": "1"})
        case HttpProcessingError() | web.RequestPayloadError():
            return Problem(400, "malformed_request", "The request's body could not be read.")
    _log.error("internal_error", where="api", exc_info=error)
    return Problem(500, "internal_error", "Something went wrong here; it has been logged.")


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every exception with a problem document, and every response with the security headers."""
    try:
        response = await handler(request)
    except Exception as error:  # noqa: BLE001 - the edge: whatever it is, the client gets an answer
        response = render(to_problem(error))
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
    return response
