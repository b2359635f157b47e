"""Answers that are kept for repeated requests.

Belongs here: finding and keeping a sealed answer, in the transaction of the change itself. Does not belong here: which
requests may be repeated (``service.api.dispatch``).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from service.sealing import Sealer, Undecryptable
from service.store.database import Session

KEPT_FOR = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Scope:
    """What a repeat is a repeat of, and a hash of the request."""

    tenant_id: str
    scope_hash: bytes
    request_hash: bytes


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """An answer that was given before. ``same`` is False when it belongs to another request body."""

    status: int
    body: bytes
    same: bool


def build_scope(tenant_id: str, parts: tuple[str, ...], request: bytes) -> Scope:
    """Hash (tenant, key, method, path, Idempotency-Key), and the request's query and body apart from it."""
    content = "".join(f"{len(part)}:{part}" for part in (tenant_id, *parts)).encode("utf-8", "surrogatepass")
    return Scope(tenant_id, hashlib.sha256(content).digest(), hashlib.sha256(request).digest())


async def lock_scope(session: Session, scope: Scope) -> bool:
    """Keep others from answering the same request until the transaction ends; False when somebody does already."""
    number = int.from_bytes(scope.scope_hash[:8], "big", signed=True)
    locked: bool = await session.value("idempotency_lock", number)
    return locked


async def find_answer(session: Session, sealer: Sealer, scope: Scope, now: datetime) -> KeptAnswer | None:
    """Return what was answered within the last 24 hours; an answer that does not open counts as forgotten."""
    row = await session.find("idempotency_find", scope.scope_hash, now - KEPT_FOR)
    if row is None:
        return None
    try:
        body = sealer.unseal(row["answer"], tenant_id=scope.tenant_id, purpose=name_purpose(scope.scope_hash.hex()))
    except Undecryptable:
        return None
    return KeptAnswer(row["status"], body, row["request_hash"] == scope.request_hash)


async def keep_answer(session: Session, sealer: Sealer, scope: Scope, status: int, body: bytes, now: datetime) -> None:
    """Keep an answer, sealed: it may hold a secret that is shown once."""
    sealed = sealer.seal(body, tenant_id=scope.tenant_id, purpose=name_purpose(scope.scope_hash.hex()))
    await session.execute(
        "idempotency_store", scope.scope_hash, scope.request_hash, scope.tenant_id, status, sealed, now
    )


async def prune_answers(session: Session, now: datetime) -> None:
    """Forget answers that have expired, a bounded number at a time."""
    await session.execute("idempotency_prune", now - KEPT_FOR)


def name_purpose(scope_hash: str) -> str:
    """The purpose that an answer is sealed for, by its scope's hash in hexadecimal digits."""
    return f"idempotency:{scope_hash}"
