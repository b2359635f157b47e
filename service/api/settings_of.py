"""Request models as domain settings.

Belongs here: ``PUT``, ``POST`` and merge-patch bodies to ``WebhookSettings``. Does not belong here: what they change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from service.api.models import BatchWebhookPut, WebhookPatch, WebhookPost
from service.api.problems import rule_broken
from service.domain.headers import merge_headers
from service.domain.registrations import WebhookRequest
from service.domain.signing import parse_secret
from service.domain.webhooks import Filters, Scope, Signing, WebhookSettings


def _headers(headers: dict[str, Any] | None) -> tuple[tuple[str, str], ...]:
    return tuple((headers or {}).items())


def _steps(steps: list[int] | None) -> tuple[int, ...] | None:
    return None if steps is None else tuple(steps)


def _shared(body: BatchWebhookPut | WebhookPost) -> WebhookSettings:
    return WebhookSettings(
        url=body.url,
        description=body.description or "",
        custom_headers=_headers(body.custom_headers),
        retry_schedule=_steps(body.retry_schedule),
        timeout_seconds=body.timeout_seconds,
        max_in_flight=body.max_in_flight,
        rate_limit=body.rate_limit,
        signing=Signing(body.signing),
    )


def _secret(text: str | None) -> bytes | None:
    return None if text is None else parse_secret(text)


def put_request(body: BatchWebhookPut) -> WebhookRequest:
    """Return what a ``PUT`` asks for."""
    settings = replace(_shared(body), settle_seconds=body.settle_seconds, notify_if_done=body.notify_if_done)
    return WebhookRequest(settings, _secret(body.secret))


def post_request(body: WebhookPost) -> WebhookRequest:
    """Return what a ``POST`` asks for."""
    filters = _filters(body.event_types, body.scopes, body.batch_names)
    return WebhookRequest(replace(_shared(body), filters=filters), _secret(body.secret))


def _filters(event_types: list[str] | None, scopes: list[Any] | None, batch_names: list[str] | None) -> Filters:
    return Filters(
        tuple(event_types or ()), frozenset(Scope(scope) for scope in scopes or ()), tuple(batch_names or ())
    )


def patch_request(settings: WebhookSettings, body: WebhookPatch) -> WebhookRequest:
    """Merge a patch into settings (RFC 7396): absent stays, null takes the default. Raises Problem for a null URL."""
    changes = {name: getattr(body, name) for name in body.model_fields_set - {"secret"}}
    if "url" in changes and changes["url"] is None:
        raise rule_broken("url", "url_missing", "A webhook needs a URL.")
    filters = _filters(
        changes.pop("event_types", list(settings.filters.event_types)),
        changes.pop("scopes", list(settings.filters.scopes)),
        changes.pop("batch_names", list(settings.filters.batch_names)),
    )
    if (headers := changes.get("custom_headers")) is not None:
        changes["custom_headers"] = dict(merge_headers(settings.custom_headers, headers))
    for name, convert in _CONVERTED.items():
        if name in changes:
            changes[name] = convert(changes[name])
    return WebhookRequest(replace(settings, filters=filters, **changes), _secret(body.secret))


_CONVERTED: dict[str, Any] = {
    "description": lambda value: value or "",
    "custom_headers": _headers,
    "retry_schedule": _steps,
    "signing": lambda value: Signing(value or "hmac"),
}
