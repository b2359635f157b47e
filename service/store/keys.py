"""API keys as they are stored: an id, a hash, roles.

Belongs here: making, finding, revoking and comparing keys. Does not belong here: reading them from a request
(``service.api.auth``).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from service.store.database import Row, Session

KEY_PREFIX = "whkey_"
TOUCH_EVERY = timedelta(minutes=1)
_NO_HASH = bytes(32)


class Role(StrEnum):
    """What a key may do. ``write`` includes ``read``; ``operator`` includes everything, for any tenant it names."""

    READ = "read"
    WRITE = "write"
    INGEST = "ingest"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class StoredKey:
    """One key as a row. ``tenant_id`` is None for operator keys."""

    key_id: str
    tenant_id: str | None
    roles: tuple[str, ...]
    secret_hash: bytes = field(repr=False)
    description: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    key_seq: int = 0

    def usable(self, now: datetime) -> bool:
        """Tell whether the key is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def should_touch(self, now: datetime) -> bool:
        """Tell whether ``last_used_at`` is old enough to be written again."""
        return self.last_used_at is None or now - self.last_used_at >= TOUCH_EVERY


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to be made: whose, what it may do, until when."""

    tenant_id: str | None
    roles: Sequence[str]
    description: str | None = None
    expires_at: datetime | None = None


def fits_owner(roles: Collection[str], tenant_id: str | None) -> bool:
    """Tell whether a key with these roles may be this tenant's: an operator key has no tenant, every other has one."""
    return (Role.OPERATOR in roles) == (tenant_id is None)


def split_key(key: str) -> tuple[str, str]:
    """Return key id and secret of a whole key ``whkey_<id>.<secret>``; an empty id for any other text."""
    key_id, dot, secret = key.partition(".")
    return (key_id, secret) if dot and key_id.startswith(KEY_PREFIX) else ("", key)


def hash_secret(secret: bytes) -> bytes:
    """Return what is stored instead of the secret."""
    return hashlib.sha256(secret).digest()


def matches(found: StoredKey | None, given: bytes) -> bool:
    """Compare in constant time; ``given`` is the secret alone (Basic) or the whole key (bearer)."""
    key_id = found.key_id.encode() if found else b""
    secret = given.removeprefix(key_id + b".")
    return hmac.compare_digest(hash_secret(secret), found.secret_hash if found else _NO_HASH)


def _stored(row: Row) -> StoredKey:
    values = dict(row)
    return StoredKey(roles=tuple(values.pop("roles")), **values)


async def find_key(session: Session, key_id: str) -> StoredKey | None:
    """Return the key with this id, revoked and expired ones too."""
    if "\0" in key_id or not key_id.isascii():
        return None
    row = await session.find("key_find", key_id)
    return _stored(row) if row else None


async def touch(session: Session, key_id: str, now: datetime) -> None:
    """Remember that the key was used."""
    await session.execute("key_touch", key_id, now)


async def create_key(
    session: Session, new: NewKey, created_by: str, random_bytes: Callable[[int], bytes]
) -> tuple[StoredKey, str]:
    """Make a key; return its row and the whole key, which nobody can read again."""
    key_id = KEY_PREFIX + random_bytes(10).hex()
    secret = random_bytes(32).hex()
    values = (new.tenant_id, list(new.roles), hash_secret(secret.encode()), new.description, created_by, new.expires_at)
    row = await session.find("key_insert", key_id, *values)
    assert row is not None
    return _stored(row), f"{key_id}.{secret}"


async def list_keys(session: Session, before: int, tenant_id: str | None, limit: int) -> list[StoredKey]:
    """Return keys, newest first, that were made before the row ``before``."""
    return [_stored(row) for row in await session.fetch("key_list", before, tenant_id, limit)]


async def revoke_key(session: Session, key_id: str, now: datetime) -> StoredKey | None:
    """Revoke a key for good; None when there is no such key."""
    row = await session.find("key_revoke", key_id, now)
    return _stored(row) if row else None
