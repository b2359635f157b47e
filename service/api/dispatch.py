"""One request from arrival to answer: find the operation, the caller, the body; run it; keep and send the answer.

Belongs here: the order of the checks, and the one transaction that holds a change, its audit entry and its idempotent
answer. Does not belong here: what any call does.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, replace
from datetime import timedelta
from http import HTTPStatus
from typing import Any, TypeVar

import orjson
from aiohttp import web
from pydantic import BaseModel

from service.api.auth import authenticate
from service.api.calls import Answer, Call, Caller, Change, Kind, Operation
from service.api.deadlines import Deadlines
from service.api.limits import RateLimiter, WrongKeys
from service.api.parts import Parts
from service.api.problems import FieldError, Problem
from service.api.reading import parse_body, parse_query, read_body
from service.api.routes import Match, Routes
from service.ports import Conflict
from service.store import audit, idempotency
from service.store.database import Session
from service.store.registry import Counts, Refused

T = TypeVar("T")
TRIES = 5
MAX_IDEMPOTENCY_KEY = 255
_REPEATABLE = {"POST", "PUT"}


@dataclass(frozen=True, slots=True)
class Encoded:
    """An answer as bytes."""

    status: int
    body: bytes
    headers: dict[str, str]


class Dispatcher:
    """Answers every request under the API's port."""

    def __init__(self, parts: Parts, routes: Routes) -> None:
        self._parts = parts
        self._routes = routes
        self._limiter = RateLimiter()
        self._wrong_keys = WrongKeys(self._limiter)
        self._deadlines = Deadlines()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request. Raises Problem and whatever ``problems.to_problem`` knows."""
        match = self._routes.match(request.method, request.raw_path)
        operation = match.operation
        if operation.kind is Kind.OPEN:
            return _respond(_encode(await operation.handle(_open_call(self._parts, match, request))))
        caller = await self._within(self._authenticate(request))
        self._check(operation, caller)
        body = await read_body(request, operation.body_limit)
        call = Call(
            parts=self._parts,
            caller=caller,
            path=match.path,
            query_model=parse_query(operation, request),
            body_model=parse_body(operation, request, body),
            raw_body=body,
            request=request,
        )
        return _respond(await self._within(self._run(operation, call), operation.kind))

    async def _within(self, work: Coroutine[Any, Any, T], kind: Kind = Kind.READ) -> T:
        limits = self._parts.limits
        longest = limits.answer_within + (limits.test_wait if kind is Kind.TEST else timedelta())
        return await self._deadlines.keep(work, longest.total_seconds())

    async def _authenticate(self, request: web.Request) -> Caller:
        try:
            return await authenticate(self._parts, request)
        except Problem as problem:
            if problem.status == HTTPStatus.UNAUTHORIZED and "Authorization" in request.headers:
                await self._wrong_keys.meet(request.remote or "", self._parts.clock.monotonic())
            raise

    def _check(self, operation: Operation, caller: Caller) -> None:
        if not caller.may(operation.role):
            raise Problem(403, "missing_role", f"This needs a key with the role {operation.role.value}.")
        if operation.tenant and caller.tenant_id is None:
            raise Problem(400, "tenant_needed", "An operator key names the tenant in X-Tenant-ID.")
        self._limit(operation.kind, caller)

    def _limit(self, kind: Kind, caller: Caller) -> None:
        limits = self._parts.limits
        rates = {Kind.READ: limits.reads, Kind.WRITE: limits.writes}
        if kind in rates:
            name = (kind.value, caller.key_id, caller.tenant_id or "")
            self._limiter.check(name, rates[kind], self._parts.clock.monotonic())

    def limit_tests(self, tenant_id: str, webhook_id: str) -> None:
        """Count a test send. Raises Problem (429)."""
        now, rate = self._parts.clock.monotonic(), self._parts.limits.tests_per_webhook
        self._limiter.check(("test", tenant_id, webhook_id), rate, now)
        self._limiter.check(("test", tenant_id), 2 * rate, now)

    async def _run(self, operation: Operation, call: Call) -> Encoded:
        if operation.kind is Kind.WRITE:
            return await self._write(operation, call)
        if operation.kind is Kind.READ:
            async with self._parts.database.session() as session:
                return _encode(await _answer(operation, replace(call, session_now=session)))
        if operation.kind is Kind.TEST:
            self.limit_tests(call.tenant_id, ":".join(call.path.values()))
        return _encode(await _answer(operation, call))

    async def _write(self, operation: Operation, call: Call) -> Encoded:
        """Run a write in its transaction, again when another transaction came between."""
        scope = _find_scope(operation, call)
        for left in reversed(range(TRIES)):
            counts = Counts(self._parts.registry)
            parts = replace(self._parts, registry=counts.registry)
            try:
                async with self._parts.database.transaction() as session:
                    running = replace(call, parts=parts, session_now=session)
                    encoded, change = await self._write_once(operation, running, scope)
            except Conflict:
                if not left:
                    raise
            else:
                counts.tell()
                self._tell(call.caller, change)
                return encoded
        raise AssertionError

    def _tell(self, caller: Caller, change: Change | None) -> None:
        """What a committed write has changed."""
        if change is None:
            return
        tenant_id = change.tenant_id or caller.tenant_id
        for each in change.news:
            self._parts.tell(each.event, **each.fields, tenant_id=tenant_id, key_id=caller.key_id)

    async def _write_once(
        self, operation: Operation, call: Call, scope: idempotency.Scope | None
    ) -> tuple[Encoded, Change | None]:
        """Run it once; the answer, and what was changed: nothing where the answer was kept from before."""
        if scope is not None and (kept := await self._find_kept(call.session, scope)) is not None:
            return kept, None
        answer = await _answer(operation, call)
        await self._audit(call.session, operation, call.caller, answer)
        encoded = _encode(answer)
        if scope is not None:
            content = orjson.dumps({"headers": encoded.headers, "body": encoded.body.decode()})
            now = self._parts.clock.now()
            sealer = self._parts.registry.sealer
            await idempotency.keep_answer(call.session, sealer, scope, encoded.status, content, now)
        return encoded, answer.change

    async def _find_kept(self, session: Session, scope: idempotency.Scope) -> Encoded | None:
        if not await idempotency.lock_scope(session, scope):
            detail = "The same request is being answered at this moment."
            raise Problem(409, "in_progress", detail, headers={"Retry-After": "1"})
        now = self._parts.clock.now()
        kept = await idempotency.find_answer(session, self._parts.registry.sealer, scope, now)
        if kept is None:
            return None
        if not kept.same:
            raise Problem(409, "idempotency_key_reused", "This Idempotency-Key belongs to another request.")
        content = orjson.loads(kept.body)
        headers = {**content["headers"], "Idempotent-Replayed": "true"}
        return Encoded(kept.status, content["body"].encode(), headers)

    async def _audit(self, session: Session, operation: Operation, caller: Caller, answer: Answer) -> None:
        change = answer.change
        assert change is not None, f"{operation.name} writes without an audit entry"
        tenant_id = change.tenant_id or caller.tenant_id
        now = self._parts.clock.now()
        entry = audit.Entry(now, tenant_id, caller.key_id, operation.name, change.target, change.before, change.after)
        await audit.write_entry(session, entry)


def _open_call(parts: Parts, match: Match, request: web.Request) -> Call:
    return Call(
        parts=parts,
        caller=Caller("", None, frozenset()),
        path=match.path,
        query_model=None,
        body_model=None,
        raw_body=b"",
        request=request,
    )


async def _answer(operation: Operation, call: Call) -> Answer:
    try:
        return await operation.handle(call)
    except Refused as refused:
        errors = [FieldError(refused.field, refused.code, refused.detail)] if refused.field else []
        raise Problem(refused.status, refused.code, refused.detail, errors=errors) from None


def _find_scope(operation: Operation, call: Call) -> idempotency.Scope | None:
    key = call.request.headers.get("Idempotency-Key")
    if key is None or operation.method not in _REPEATABLE:
        return None
    if not (1 <= len(key) <= MAX_IDEMPOTENCY_KEY and key.isascii() and key.isprintable()):
        raise Problem(400, "bad_idempotency_key", "Idempotency-Key is 1 to 255 printable ASCII characters.")
    raw_path, _, query = call.request.raw_path.partition("?")
    parts = (call.caller.key_id, operation.method, raw_path, key)
    return idempotency.build_scope(
        call.tenant_id, parts, query.encode("utf-8", "surrogateescape") + b"\0" + call.raw_body
    )


def _default(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError


def _encode(answer: Answer) -> Encoded:
    body = answer.body
    if not isinstance(body, bytes):
        body = b"" if body is None else orjson.dumps(body, default=_default, option=orjson.OPT_UTC_Z)
    return Encoded(answer.status, body, dict(answer.headers))


def _respond(encoded: Encoded) -> web.Response:
    headers = dict(encoded.headers)
    if encoded.body:
        headers.setdefault("Content-Type", "application/json")
    return web.Response(status=encoded.status, body=encoded.body or None, headers=headers)
