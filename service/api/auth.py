"""Who is calling: bearer keys, HTTP Basic with key id and secret, and the operator key of the settings.

Belongs here: reading the header and checking it. Does not belong here: how keys are stored (``store.keys``) and which
role a call needs (the operation table).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass

from aiohttp import web

from service.api.calls import Caller
from service.api.parts import Parts
from service.api.problems import Problem
from service.domain.names import is_name
from service.store import keys
from service.store.keys import Role

SETTINGS_KEY_ID = "operator"
CHALLENGE = 'Bearer realm="webhookd", Basic realm="webhookd", charset="UTF-8"'


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the header said: a key id (empty when there is none in it) and the secret text."""

    key_id: str
    secret: bytes


def _unauthorized(detail: str) -> Problem:
    return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": CHALLENGE})


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _read_basic(text: str) -> Credentials:
    try:
        key_id, colon, secret = base64.b64decode(_raw(text), validate=True).partition(b":")
    except (ValueError, binascii.Error):
        raise _unauthorized("The Basic credentials are not base64.") from None
    if not colon:
        raise _unauthorized("Basic credentials are a key id, a colon and a secret.")
    return Credentials(key_id.decode("utf-8", "replace"), secret)


def read_credentials(header: str | None) -> Credentials:
    """Read an ``Authorization`` header. Raises Problem (401)."""
    if not header:
        raise _unauthorized("A key is needed: Authorization: Bearer <key>, or Basic with key id and secret.")
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "basic":
        return _read_basic(rest.strip())
    if scheme.lower() != "bearer" or not rest.strip():
        raise _unauthorized("The authorization scheme is Bearer or Basic.")
    key_id, _ = keys.split_key(rest.strip())
    return Credentials(key_id, _raw(rest.strip()))


def _is_operator_key(given: Credentials, operator_key: str) -> bool:
    """Compare in constant time, whatever the lengths; Basic carries the operator key with the id ``operator``."""
    digests = (hashlib.sha256(text).digest() for text in (given.secret, _raw(operator_key)))
    return (
        hmac.compare_digest(*digests)
        and bool(operator_key)
        and given.key_id in {"", SETTINGS_KEY_ID, _prefix(operator_key)}
    )


def _prefix(operator_key: str) -> str:
    return keys.split_key(operator_key)[0]


async def _find_stored(parts: Parts, given: Credentials) -> tuple[str, str | None, frozenset[Role]]:
    now = parts.clock.now()
    async with parts.database.session() as session:
        found = await keys.find_key(session, given.key_id)
        if not keys.matches(found, given.secret) or found is None or not found.usable(now):
            raise _unauthorized("The key is unknown, expired or revoked.")
        if found.should_touch(now):
            await keys.touch(session, found.key_id, now)
    return found.key_id, found.tenant_id, frozenset(Role(role) for role in found.roles)


def _named_tenant(request: web.Request) -> str | None:
    headers = request.headers.getall("X-Tenant-ID", [])
    if not headers:
        return None
    try:
        tenant_id = _raw(headers[0]).decode() if len(headers) == 1 else ""
    except UnicodeDecodeError:
        tenant_id = ""
    if not is_name(tenant_id):
        raise Problem(400, "bad_tenant", "X-Tenant-ID comes once, with 1 to 255 characters and no control characters.")
    return tenant_id


async def authenticate(parts: Parts, request: web.Request) -> Caller:
    """Find the caller. Raises Problem: 401 without a good key, 403 for a tenant that is not the key's own."""
    given = read_credentials(request.headers.get("Authorization"))
    if _is_operator_key(given, parts.operator_key()):
        return Caller(SETTINGS_KEY_ID, _named_tenant(request), frozenset({Role.OPERATOR}))
    key_id, own, roles = await _find_stored(parts, given)
    named = _named_tenant(request)
    if own is not None and named not in {None, own}:
        raise Problem(403, "wrong_tenant", "This key belongs to one tenant; X-Tenant-ID names another.")
    return Caller(key_id, own if own is not None else named, roles)
