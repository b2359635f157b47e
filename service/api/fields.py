"""Field types of request models: texts, names, URLs, headers, secrets, schedules.

Belongs here: what one field may hold, by the domain's own bounds. Does not belong here: which call takes which fields
(``models``), and the URL policy, which depends on settings (``service.store.registry``).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)

from service.api.names import check_bytes, check_name, check_text
from service.domain.headers import MAX_HEADERS, find_header_problems
from service.domain.instants import clamp
from service.domain.messages import format_instant
from service.domain.schedule import MAX_STEPS, parse_seconds
from service.domain.signing import parse_secret
from service.domain.webhooks import (
    IN_FLIGHT_BOUNDS,
    MAX_DESCRIPTION_BYTES,
    MAX_GLOB_CHARACTERS,
    MAX_GLOBS,
    MAX_URL_BYTES,
    RATE_BOUNDS,
    SETTLE_BOUNDS,
    TIMEOUT_BOUNDS,
)

MAX_INSTANT = 64
DeliveryState = Literal["pending", "in_flight", "retrying", "held", "delivered", "failed", "superseded", "canceled"]


class Request(BaseModel):
    """A request body or query: unknown fields and wrong types are errors, nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class Query(BaseModel):
    """A query string: values arrive as text and are read as what the field says."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def _check_url(url: str) -> str:
    return check_bytes(MAX_URL_BYTES, url)


def _check_description(text: str) -> str:
    return check_bytes(MAX_DESCRIPTION_BYTES, text)


def _check_headers(headers: dict[str, Any]) -> dict[str, Any]:
    problems = find_header_problems(headers)
    if problems:
        raise ValueError("; ".join(f"{p.name!r}: {p.reason}" if p.name else p.reason for p in problems))
    return headers


def _check_patched_headers(headers: dict[str, Any]) -> dict[str, Any]:
    _check_headers({name: value for name, value in headers.items() if value is not None})
    return headers


def _check_secret(text: str) -> str:
    parse_secret(text)
    return text


def _check_schedule(steps: list[int]) -> list[int]:
    parse_seconds(steps)
    return steps


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _parse_instant(value: Any) -> Any:
    if not isinstance(value, str) or len(value) > MAX_INSTANT or "T" not in value.upper():
        raise ValueError("must be an RFC 3339 instant with a zone, such as 2026-11-30T09:00:00Z")
    return value


def _utc(value: datetime) -> datetime:
    instant = clamp(value)
    if instant is None:
        raise ValueError("is outside the years 1 to 9999")
    return instant


_INSTANT = {"type": "string", "format": "date-time"}
Name = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(check_name)]
Text = Annotated[str, AfterValidator(check_text)]
Url = Annotated[
    str, Field(min_length=1, max_length=MAX_URL_BYTES, description="https URL."), AfterValidator(_check_url)
]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION_BYTES), AfterValidator(_check_description)]
CustomHeaders = Annotated[
    dict[str, Any],
    AfterValidator(_check_headers),
    WithJsonSchema({"type": "object", "maxProperties": MAX_HEADERS, "additionalProperties": {"type": "string"}}),
]
PatchedHeaders = Annotated[
    dict[str, Any],
    AfterValidator(_check_patched_headers),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"type": ["string", "null"]},
            "description": "Merged into the headers that are there, in whatever case: what is not named stays, null removes.",
        }
    ),
]
Secret = Annotated[
    str,
    Field(max_length=128, description="`whsec_` and padded base64 of 24 to 64 bytes."),
    AfterValidator(_check_secret),
]
Steps = Annotated[
    list[Annotated[int, Field(ge=1, le=2_592_000)]],
    Field(min_length=1, max_length=MAX_STEPS, description="Seconds between attempts, 30 days together at most."),
    AfterValidator(_check_schedule),
]
Timeout = Annotated[float, Field(ge=TIMEOUT_BOUNDS[0], le=TIMEOUT_BOUNDS[1])]
InFlight = Annotated[int, Field(ge=IN_FLIGHT_BOUNDS[0], le=IN_FLIGHT_BOUNDS[1])]
RateLimit = Annotated[int, Field(ge=RATE_BOUNDS[0], le=RATE_BOUNDS[1], description="Attempts a second.")]
Settle = Annotated[int, Field(ge=SETTLE_BOUNDS[0], le=SETTLE_BOUNDS[1])]
Glob = Annotated[str, Field(min_length=1, max_length=MAX_GLOB_CHARACTERS), AfterValidator(check_text)]
Globs = Annotated[list[Glob], Field(max_length=MAX_GLOBS)]
NameGlobs = Annotated[
    list[Glob],
    BeforeValidator(_as_list),
    Field(max_length=MAX_GLOBS),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": MAX_GLOB_CHARACTERS},
                {
                    "type": "array",
                    "maxItems": MAX_GLOBS,
                    "items": {"type": "string", "minLength": 1, "maxLength": MAX_GLOB_CHARACTERS},
                },
            ],
            "description": "Globs on the batch's name; any one suffices. A single glob may be written as a string.",
        }
    ),
]
InstantIn = Annotated[
    AwareDatetime, BeforeValidator(_parse_instant), Field(strict=False), AfterValidator(_utc), WithJsonSchema(_INSTANT)
]
Instant = Annotated[datetime, PlainSerializer(format_instant), WithJsonSchema(_INSTANT)]
