"""What is sealed of a webhook, and under which purposes: the one place that everybody who reads or writes it uses.

The associated data of every seal names the tenant, what is sealed, and the webhook's public id. Custom headers are a
JSON array of ``[name, value]``; the form of secrets is ``signing_keys``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import orjson

from service.sealing import Sealer

Headers = tuple[tuple[str, str], ...]


def seal_url(sealer: Sealer, tenant_id: str, webhook_id: str, url: str) -> bytes:
    """Return what ``webhooks.url`` holds."""
    return sealer.seal(url.encode(), tenant_id=tenant_id, purpose=f"url:{webhook_id}")


def unseal_url(sealer: Sealer, tenant_id: str, webhook_id: str, sealed: bytes) -> str:
    """Return the URL. Raises Undecryptable."""
    return sealer.unseal(sealed, tenant_id=tenant_id, purpose=f"url:{webhook_id}").decode()


def seal_headers(sealer: Sealer, tenant_id: str, webhook_id: str, headers: bytes) -> bytes:
    """Return what ``webhooks.custom_headers`` holds, of a JSON array of pairs."""
    return sealer.seal(headers, tenant_id=tenant_id, purpose=f"headers:{webhook_id}")


def unseal_headers(sealer: Sealer, tenant_id: str, webhook_id: str, sealed: bytes) -> bytes:
    """Return the JSON array of pairs. Raises Undecryptable."""
    return sealer.unseal(sealed, tenant_id=tenant_id, purpose=f"headers:{webhook_id}")


def store_headers(sealer: Sealer, tenant_id: str, webhook_id: str, headers: Sequence[tuple[str, str]]) -> bytes | None:
    """Return what ``webhooks.custom_headers`` holds of these headers; null for none."""
    return seal_headers(sealer, tenant_id, webhook_id, orjson.dumps(list(headers))) if headers else None


def open_headers(sealer: Sealer, tenant_id: str, webhook_id: str, sealed: bytes | None) -> Headers:
    """Return the headers that ``webhooks.custom_headers`` holds.

    Raises Undecryptable; ValueError or TypeError for what opens and is no array of pairs.
    """
    if sealed is None:
        return ()
    return tuple((name, value) for name, value in orjson.loads(unseal_headers(sealer, tenant_id, webhook_id, sealed)))


def seal_secrets(sealer: Sealer, tenant_id: str, webhook_id: str, secrets: bytes) -> bytes:
    """Return what ``webhooks.secrets`` holds (``tenants.signing_secrets`` with an empty webhook id)."""
    return sealer.seal(secrets, tenant_id=tenant_id, purpose=f"secrets:{webhook_id}")


def unseal_secrets(sealer: Sealer, tenant_id: str, webhook_id: str, sealed: bytes) -> bytes:
    """Return the JSON array of secrets. Raises Undecryptable."""
    return sealer.unseal(sealed, tenant_id=tenant_id, purpose=f"secrets:{webhook_id}")


def hash_url(tenant_id: str, url: str) -> bytes:
    """Return what ``webhooks.url_hash`` holds: equality of URLs within a tenant, without the clear text."""
    return sha256(f"{len(tenant_id)}:{tenant_id}:{url}".encode("utf-8", "surrogatepass")).digest()
