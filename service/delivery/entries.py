"""One webhook as an attempt needs it: where to send, how to sign, how often, and whether at all right now.

Belongs here: everything that can be prepared once per revision. Does not belong here: keeping it up to date
(``catalog``), opening sealed columns (``service.store``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from service.delivery.instants import instant
from service.delivery.roster import LaneTerms
from service.domain.deliveries import Reason
from service.domain.headers import list_sendable
from service.domain.health import DEFAULT_RULES, Breaker, Health, HealthRules, build_health, find_allowance
from service.domain.outbound import compile_headers
from service.domain.schedule import Schedule
from service.domain.signing import KeyPair, Secret, Signer, build_signer
from service.domain.targets import Refusal, Target
from service.domain.webhooks import WebhookState

_STOPPED: Final = {WebhookState.PAUSED: Reason.PAUSED, WebhookState.DISABLED: Reason.DISABLED}


@dataclass(frozen=True, slots=True)
class WebhookSource:
    """A webhook's row, opened. ``broken``: it does not decrypt. ``hmac`` and ``ed25519`` are newest first.

    ``held_until`` and ``state_at`` are seconds since 1970.
    """

    webhook_key: int
    webhook_id: str
    tenant_id: str
    one_shot: bool
    lane: int
    state: WebhookState
    state_at: float
    deleted: bool
    revision: int
    origin: str
    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    hmac: tuple[Secret, ...] = field(repr=False)
    ed25519: tuple[Secret, ...] = field(repr=False)
    broken: bool
    retry_schedule: tuple[int, ...] | None
    timeout_seconds: float | None
    max_in_flight: int | None
    rate_limit: int | None
    health: Health | None
    held_until: float | None


@dataclass(frozen=True, slots=True)
class SendingDefaults:
    """The service's own values for what a webhook leaves open, and what every webhook shares.

    ``parse`` judges a URL of a tenant by its form, as the sender will dial it.
    """

    parse: Callable[[str, str], Target | Refusal]
    schedule: Schedule
    timeout: float = 15.0
    max_in_flight: int = 10
    user_agent: str = "webhookd"
    rules: HealthRules = DEFAULT_RULES


@dataclass(slots=True, eq=False)
class Entry:
    """A webhook, ready to use. ``health`` and what follows it change while it is kept; the rest belongs to a revision.

    ``lane`` is where its deliveries are queued: its own, with the number ``webhook_key``, or for a one-shot one that it
    shares with others; while a one-shot is troubled, its deliveries move to the lane ``webhook_key``.
    ``target`` is None when the URL was refused (``refusal``) or does not decrypt. ``fixed_headers`` are the header lines
    that every attempt repeats. ``held_until`` is in seconds since 1970, 0 for no hold. ``plain``: nothing stands in the way
    of sending, and the last attempt was accepted.
    """

    webhook_key: int
    webhook_id: str
    tenant_id: str
    one_shot: bool
    lane: int
    state: WebhookState
    revision: int
    origin: str
    host: str
    target: Target | None
    refusal: Refusal | None
    fixed_headers: bytes
    signer: Signer | None
    schedule: Schedule
    timeout: float
    max_in_flight: int
    rate_limit: int | None
    rules: HealthRules
    obstacle: Reason | None
    health: Health
    held_until: float
    terms: LaneTerms
    success_noted: float = 0.0
    plain: bool = False

    @property
    def troubled(self) -> bool:
        """Whether its breaker is not closed, or its receiver asked for a hold."""
        return self.held_until > 0 or self.health.breaker is not Breaker.CLOSED

    @property
    def stopped(self) -> bool:
        """Paused or disabled."""
        return self.state is not WebhookState.ENABLED

    def find_allowance(self, epoch: float) -> int | None:
        """How many attempts may run now; None: as many as the settings say."""
        if not self.troubled:
            return None
        return 0 if self.held_until > epoch else find_allowance(self.health, instant(epoch), self.rules)

    def adopt_health(self, health: Health, held_until: float | None, epoch: float, processes: int) -> None:
        """Take over health that was read or observed; ``epoch`` is now, in seconds since 1970."""
        self.health = health
        self.held_until = held_until or 0.0
        self.set_terms(epoch, processes)

    def set_terms(self, epoch: float, processes: int) -> None:
        """Work out anew what the lane may do, with so many live deliver processes."""
        self.plain = self.obstacle is None and not self.troubled and not self.health.failures
        self.terms = LaneTerms(
            host=self.host,
            limit=max(1, self.max_in_flight // processes),
            allowance=self.find_allowance(epoch),
            rated=self.rate_limit is not None,
            proven=self.health.last_success_at is not None and not self.health.failures,
        )


def build_entry(source: WebhookSource, defaults: SendingDefaults, epoch: float, processes: int) -> Entry:
    """Prepare everything that attempts of this webhook repeat."""
    target, refusal = _judge(source, defaults)
    signer = None if source.broken or not source.hmac else _build_signer(source)
    rules = defaults.rules
    if source.one_shot:  # nobody registered it, so nobody could enable it again
        rules = replace(rules, disable_after=None)
    entry = Entry(
        webhook_key=source.webhook_key,
        webhook_id=source.webhook_id,
        tenant_id=source.tenant_id,
        one_shot=source.one_shot,
        lane=source.lane,
        state=source.state,
        revision=source.revision,
        origin=source.origin,
        host=target.host if target else source.origin,
        target=target,
        refusal=refusal,
        fixed_headers=_compile_fixed_headers(source, defaults.user_agent),
        signer=signer,
        schedule=_build_schedule(source, defaults.schedule),
        timeout=source.timeout_seconds or defaults.timeout,
        max_in_flight=source.max_in_flight or defaults.max_in_flight,
        rate_limit=source.rate_limit,
        rules=rules,
        obstacle=_find_obstacle(source, signer),
        health=source.health or build_health(instant(source.state_at)),
        held_until=source.held_until or 0.0,
        terms=LaneTerms("", 1),
    )
    entry.set_terms(epoch, processes)
    return entry


def _judge(source: WebhookSource, defaults: SendingDefaults) -> tuple[Target | None, Refusal | None]:
    if source.broken:
        return None, None
    verdict = defaults.parse(source.url, source.tenant_id)
    return (None, verdict) if isinstance(verdict, Refusal) else (verdict, None)


def _find_obstacle(source: WebhookSource, signer: Signer | None) -> Reason | None:
    """Why nothing can be sent to this webhook, whatever the receiver's health."""
    if source.deleted:
        return Reason.WEBHOOK_DELETED
    if source.state is not WebhookState.ENABLED:
        return _STOPPED[source.state]
    if source.broken:
        return Reason.UNDECRYPTABLE
    return Reason.NO_SIGNING_KEY if signer is None else None


def _build_signer(source: WebhookSource) -> Signer:
    """All live pairs sign, like all live secrets: during an overlap a receiver may still know the older one."""
    pairs = [
        KeyPair(
            Ed25519PrivateKey.from_private_bytes(secret.key).sign,
            secret.expires_at.timestamp() if secret.expires_at else math.inf,
        )
        for secret in source.ed25519
    ]
    return build_signer(source.hmac, pairs)


def _compile_fixed_headers(source: WebhookSource, user_agent: str) -> bytes:
    own = (("content-type", "application/json"), ("user-agent", user_agent))
    return compile_headers((*own, *list_sendable(source.headers)))


def _build_schedule(source: WebhookSource, default: Schedule) -> Schedule:
    if source.retry_schedule is None:
        return default
    return Schedule(tuple(timedelta(seconds=step) for step in source.retry_schedule), default.spread)
