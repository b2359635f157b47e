"""The secrets of a webhook, or a tenant's default ones, as they lie inside the seal.

Belongs here: their JSON form, for everyone who writes or reads ``webhooks.secrets`` and ``tenants.signing_secrets``,
and the public half of an Ed25519 pair. Does not belong here: the seal (``webhook_seals``) and rotation
(``domain.signing``).

The form is an array, newest first, of ``[base64, created_at, expires_at or null]`` for an HMAC secret and
``[base64 of the 32-byte seed, created_at, expires_at or null, "ed25519"]`` for a key pair; instants are RFC 3339.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from service.domain.signing import Secret
from service.sealing import Sealer
from service.store.webhook_seals import seal_secrets, unseal_secrets

SEED_BYTES = 32
ED25519 = "ed25519"
_HMAC_FIELDS = 3


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """HMAC secrets and Ed25519 seeds, newest first; expired ones may still be among them."""

    hmac: tuple[Secret, ...] = ()
    ed25519: tuple[Secret, ...] = ()


def seal_keys(sealer: Sealer, tenant_id: str, webhook_id: str, keys: SigningKeys) -> bytes:
    """Seal them; ``webhook_id`` is empty for a tenant's default secrets."""
    entries = [_entry(secret) for secret in keys.hmac] + [[*_entry(seed), ED25519] for seed in keys.ed25519]
    return seal_secrets(sealer, tenant_id, webhook_id, orjson.dumps(entries))


def unseal_keys(sealer: Sealer, tenant_id: str, webhook_id: str, sealed: bytes | None) -> SigningKeys:
    """Open them; none for None. Raises Undecryptable."""
    if sealed is None:
        return SigningKeys()
    return load_keys(unseal_secrets(sealer, tenant_id, webhook_id, sealed))


def load_keys(clear: bytes) -> SigningKeys:
    """Read the form that is inside the seal."""
    entries = orjson.loads(clear)
    hmac = tuple(_secret(entry) for entry in entries if len(entry) == _HMAC_FIELDS)
    return SigningKeys(hmac, tuple(_secret(entry) for entry in entries if len(entry) > _HMAC_FIELDS))


def public_key(seed: bytes) -> str:
    """Return the ``whpk_`` text of the public half of an Ed25519 seed."""
    raw = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    return "whpk_" + b64encode(raw).decode()


def _entry(secret: Secret) -> list[Any]:
    return [b64encode(secret.key).decode(), secret.created_at, secret.expires_at]


def _secret(entry: list[Any]) -> Secret:
    expires_at = None if entry[2] is None else datetime.fromisoformat(entry[2])
    return Secret(b64decode(entry[0]), datetime.fromisoformat(entry[1]), expires_at)
