"""What a handler is given and what it gives back.

Belongs here: the caller, one call, one answer, and the entry of the operation table that joins them.
Does not belong here: how HTTP becomes a call (``dispatch``) and what any one call does (the handlers by topic).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel

from service.api.parts import Parts
from service.api.problems import Problem
from service.store.database import Session
from service.store.keys import Role

M = TypeVar("M", bound=BaseModel)
KIB = 1024


class Kind(StrEnum):
    """How a call is run and which limit counts it."""

    OPEN = "open"  # no key: health, documents
    READ = "read"
    WRITE = "write"  # one transaction: the change, its audit entry and its idempotent answer
    TEST = "test"  # waits for a receiver, so it makes its own transactions
    EVENTS = "events"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. ``tenant_id`` is the key's own, the one an operator named, or None for an operator that named none."""

    key_id: str
    tenant_id: str | None
    roles: frozenset[Role]

    def may(self, role: Role) -> bool:
        """Tell whether one of the caller's roles includes ``role``."""
        if role in self.roles or Role.OPERATOR in self.roles:
            return True
        return role is Role.READ and Role.WRITE in self.roles


@dataclass(frozen=True, slots=True)
class News:
    """A change of state for the log: an event's name and its fields."""

    event: str
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Change:
    """The audit entry of a write: what was changed, and how it looked before and after, without secrets.

    ``news`` are told once the write is committed.
    """

    target: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    tenant_id: str | None = None
    news: tuple[News, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client gets. ``body`` is a model, plain JSON values, or bytes as they are; None is an empty body."""

    status: int = 200
    body: BaseModel | Mapping[str, Any] | bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One authenticated, validated request. ``tenant_id`` is empty for operator calls that name no tenant."""

    parts: Parts
    caller: Caller
    path: Mapping[str, str]
    query_model: BaseModel | None
    body_model: BaseModel | None
    raw_body: bytes
    request: web.Request
    session_now: Session | None = None

    @property
    def tenant_id(self) -> str:
        """The tenant that the call is about."""
        return self.caller.tenant_id or ""

    @property
    def operator(self) -> bool:
        """Tell whether an operator calls, who sees more."""
        return Role.OPERATOR in self.caller.roles

    def reveals(self, wish: str | None) -> bool:
        """Tell whether URLs are shown in full. Raises Problem (403) for a wish that the key may not have."""
        if wish is not None and not self.caller.may(Role.WRITE):
            raise Problem(403, "missing_role", "reveal needs a key with the role write.")
        return wish is not None

    @property
    def session(self) -> Session:
        """The call's own connection; inside a transaction for writes."""
        if self.session_now is None:
            msg = "this kind of call makes its own transactions"
            raise RuntimeError(msg)
        return self.session_now

    def body(self, model: type[M]) -> M:
        """Return the validated body as the model that the operation names."""
        assert isinstance(self.body_model, model)
        return self.body_model

    def query(self, model: type[M]) -> M:
        """Return the validated query as the model that the operation names."""
        assert isinstance(self.query_model, model)
        return self.query_model


Handle = Callable[[Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of the API: the router, the checks and the OpenAPI document read it from here.

    ``path`` has ``{names}``. ``body_required`` is false where every field has a default. ``statuses`` are the
    successful ones, the first with ``answer``.
    """

    method: str
    path: str
    name: str
    summary: str
    handle: Handle
    role: Role = Role.READ
    kind: Kind = Kind.READ
    body: type[BaseModel] | None = None
    body_required: bool = True
    body_limit: int = 256 * KIB
    query: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    statuses: tuple[int, ...] = (200,)
    tenant: bool = True
    tag: str = "webhooks"
