"""What a ``PUT`` of a batch webhook or a ``PATCH`` of an account webhook changes: the registration rules of chapter 1.

Belongs here: one decision per request over facts that were read under the batch's lock. Does not belong here: bounds
and states of a webhook (``webhooks``), URL policy (``targets``), writing anything down.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from service.domain.deliveries import State
from service.domain.signing import Secret, is_live_key
from service.domain.webhooks import (
    ENABLED,
    Signing,
    Standing,
    WebhookDefaults,
    WebhookEvent,
    WebhookSettings,
    fill_defaults,
    find_move,
)

if TYPE_CHECKING:
    from datetime import datetime


class PutResult(StrEnum):
    """What became of the registration itself; ``created`` is 201, the others 200."""

    CREATED = "created"
    UNCHANGED = "unchanged"
    UPDATED = "updated"
    URL_CHANGED = "url_changed"


class Newest(StrEnum):
    """What to do about the batch's newest finish."""

    NOTHING = "nothing"
    CREATE = "create"  # no delivery of it for this webhook yet: make one, due now
    REQUEUE = "requeue"  # there is a failed one: fresh schedule, due now


class Why(StrEnum):
    """Why a delivery of the newest finish is queued, or is not."""

    NO_FINISH = "no_finish"
    ALREADY_DELIVERED = "already_delivered"
    OPTED_OUT = "opted_out"
    NOTHING_CHANGED = "nothing_changed"
    DELIVERY_EXISTS = "delivery_exists"
    UNDELIVERED_FINISH = "undelivered_finish"
    FAILED_AT_OLD_URL = "failed_at_old_url"


class KeyPairChange(StrEnum):
    """What happens to the Ed25519 pair of a webhook."""

    KEEP = "keep"
    ADD = "add"
    DROP = "drop"


class PutRefused(StrEnum):
    """Why a request is refused; the value is the machine code of the problem answer."""

    BATCH_ENDED = "batch_ended"  # 409
    SECRET_NOT_LIVE = "secret_not_live"  # noqa: S105  # 422: use rotate-secret


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What is known of the batch, read under its lock.

    ``ended``: the incarnation that the request names is over. ``finished``: there is a finish, whether or not the batch
    is all done now. ``delivered``: some registration of this batch, past or present, delivered the newest finish.
    ``newest_state``: the state of this webhook's delivery of the newest finish, None when it has none.
    """

    ended: bool = False
    finished: bool = False
    delivered: bool = False
    newest_state: State | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """A stored webhook, as far as these rules care."""

    settings: WebhookSettings
    standing: Standing = ENABLED
    secrets: tuple[Secret, ...] = ()


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """A checked request: complete settings (for ``PATCH`` after the merge) and the secret's key bytes if one came."""

    settings: WebhookSettings
    secret: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class PutPlan:
    """What to write, in one transaction.

    ``settings`` and ``standing`` are to be stored; ``new_revision`` when either changed, so that buffered deliveries of
    the old one go back. ``clear_health``: forget breaker, hold and failures.
    ``restart_waiting``: unfinished deliveries get a fresh schedule, due now, at the new URL; one on the wire is
    flagged ``restart``. ``release``: the webhook was enabled, held deliveries go out, starting with one trial.
    ``newest`` and ``why``: the newest finish (``PATCH``: ``requeue`` means the newest failed one of each batch and job).
    """

    result: PutResult
    settings: WebhookSettings
    standing: Standing
    new_revision: bool = False
    key_pair: KeyPairChange = KeyPairChange.KEEP
    clear_health: bool = False
    restart_waiting: bool = False
    release: bool = False
    newest: Newest = Newest.NOTHING
    why: Why = Why.NOTHING_CHANGED

    @property
    def delivery_queued(self) -> bool:
        """What the reply says."""
        return self.newest is not Newest.NOTHING


def plan_put(
    existing: Registered | None, request: WebhookRequest, batch: BatchFacts, defaults: WebhookDefaults, now: datetime
) -> PutPlan | PutRefused:
    """Decide a ``PUT /v1/batches/{batch_name}/webhook``; ``existing`` None when the batch has no registration."""
    if batch.ended:
        return PutRefused.BATCH_ENDED
    if existing is None:
        return _plan_create(request, batch)
    if _foreign_secret(existing, request, now):
        return PutRefused.SECRET_NOT_LIVE
    result = _compare(existing.settings, request.settings, defaults)
    move = find_move(existing.standing, WebhookEvent.PUT)
    newest, why = _judge_newest(result, request.settings, batch)
    return _build_plan(
        existing, request, result, standing=move.to if move else existing.standing, newest=newest, why=why
    )


def plan_patch(
    existing: Registered, request: WebhookRequest, defaults: WebhookDefaults, now: datetime
) -> PutPlan | PutRefused:
    """Decide a ``PATCH /v1/webhooks/{id}``: the same URL rules, but only ``/enable`` enables."""
    if _foreign_secret(existing, request, now):
        return PutRefused.SECRET_NOT_LIVE
    result = _compare(existing.settings, request.settings, defaults)
    moved = result is PutResult.URL_CHANGED
    newest, why = (Newest.REQUEUE, Why.FAILED_AT_OLD_URL) if moved else (Newest.NOTHING, Why.NOTHING_CHANGED)
    return _build_plan(existing, request, result, standing=existing.standing, newest=newest, why=why)


def _plan_create(request: WebhookRequest, batch: BatchFacts) -> PutPlan:
    newest, why = _judge_newest(PutResult.CREATED, request.settings, batch)
    return PutPlan(
        result=PutResult.CREATED,
        settings=request.settings,
        standing=ENABLED,
        new_revision=True,
        key_pair=_plan_key_pair(Signing.HMAC, request.settings.signing),
        newest=newest,
        why=why,
    )


def _build_plan(
    existing: Registered, request: WebhookRequest, result: PutResult, *, standing: Standing, newest: Newest, why: Why
) -> PutPlan:
    moved = result is PutResult.URL_CHANGED
    enabled = standing != existing.standing
    return PutPlan(
        result=result,
        settings=existing.settings if result is PutResult.UNCHANGED else request.settings,
        standing=standing,
        new_revision=enabled or result is not PutResult.UNCHANGED,
        key_pair=_plan_key_pair(existing.settings.signing, request.settings.signing),
        clear_health=moved or enabled,
        restart_waiting=moved,
        release=enabled,
        newest=newest,
        why=why,
    )


def _foreign_secret(existing: Registered, request: WebhookRequest, now: datetime) -> bool:
    return request.secret is not None and not is_live_key(existing.secrets, request.secret, now)


def _compare(old: WebhookSettings, new: WebhookSettings, defaults: WebhookDefaults) -> PutResult:
    """URLs are compared as given; everything else after defaults, so leaving out and spelling out are equal."""
    if old.url != new.url:
        return PutResult.URL_CHANGED
    return PutResult.UNCHANGED if _level(old, defaults) == _level(new, defaults) else PutResult.UPDATED


def _level(settings: WebhookSettings, defaults: WebhookDefaults) -> WebhookSettings:
    """Settings without the differences that mean nothing: left out or spelled out, order of a JSON object."""
    return replace(fill_defaults(settings, defaults), custom_headers=tuple(sorted(settings.custom_headers)))


def _judge_newest(result: PutResult, settings: WebhookSettings, batch: BatchFacts) -> tuple[Newest, Why]:
    """A delivery that waits or is on the wire needs nothing here: it goes out by itself, to the new URL if there is one.

    A canceled one stays canceled: somebody asked for that.
    """
    if (stop := _find_stop(result, settings, batch)) is not None:
        return Newest.NOTHING, stop
    if batch.newest_state is None:
        return Newest.CREATE, Why.UNDELIVERED_FINISH
    if batch.newest_state is State.FAILED and result is PutResult.URL_CHANGED:
        return Newest.REQUEUE, Why.FAILED_AT_OLD_URL
    return Newest.NOTHING, Why.DELIVERY_EXISTS


def _find_stop(result: PutResult, settings: WebhookSettings, batch: BatchFacts) -> Why | None:
    for stops, why in (
        (result is PutResult.UNCHANGED, Why.NOTHING_CHANGED),
        (not batch.finished, Why.NO_FINISH),
        (batch.delivered, Why.ALREADY_DELIVERED),
        (not settings.notify_if_done, Why.OPTED_OUT),
    ):
        if stops:
            return why
    return None


def _plan_key_pair(old: Signing, new: Signing) -> KeyPairChange:
    if old is new:
        return KeyPairChange.KEEP
    return KeyPairChange.ADD if new is Signing.ED25519 else KeyPairChange.DROP
