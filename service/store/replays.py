"""Replays: past messages sent to one webhook again, a thousand rows at a time, surviving restarts.

Belongs here: starting, stopping and advancing them; upkeep calls ``advance_replays`` in a loop. Does not belong here:
the loop. Queued rows are ordinary deliveries with ``extra`` replay, due one after the other at the replay's rate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from service.domain.profiles import ProfileSet
from service.domain.webhooks import Filters, Scope, matches
from service.ports import NewMessage
from service.store import queueing
from service.store.codes import DoneState, Extra, WebhookKind
from service.store.codes import Scope as ScopeCode
from service.store.database import Database, Row, Session
from service.store.registrations import build_delivery
from service.store.registry import Refused, Registry
from service.store.untold_runs import tell_of_runs, wants_jobs
from service.store.webhooks import StoredWebhook, read_webhook

PAGE = 1_000  # rows that a step looks at
MANY = 100_000  # rows; more need a dry run first, and force
TRIAL_KEPT = timedelta(hours=24)
_FAILED, _DELIVERED = int(DoneState.FAILED), int(DoneState.DELIVERED)
_STATES = {"failed": [_FAILED], "held": [_FAILED], "missing": [], "all": [_FAILED, _DELIVERED]}
_PHASES = {
    "failed": ("finished",),
    "held": ("finished",),
    "missing": ("missing", "untold"),
    "all": ("finished", "missing", "untold"),
}
_SCOPES = {ScopeCode.BATCH: Scope.BATCH, ScopeCode.JOB: Scope.JOB}


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Which past messages, how fast. ``until`` None is now."""

    since: datetime
    until: datetime | None
    which: str
    rate: int
    dry_run: bool
    force: bool

    @property
    def reason(self) -> str | None:
        """The reason that finished deliveries must have."""
        return "held_too_long" if self.which == "held" else None

    @property
    def trial_hash(self) -> bytes:
        """What a dry run and the replay after it have in common."""
        return hashlib.sha256(f"{self.which} {self.since.isoformat()} {self.until}".encode()).digest()


@dataclass(frozen=True, slots=True)
class ReplayStarted:
    """How many rows were found (counted up to 100,001), and the replay unless it was a dry run."""

    matched: int
    replay: Row | None


async def start_replay(
    session: Session, registry: Registry, webhook: StoredWebhook, request: ReplayRequest, key_id: str
) -> ReplayStarted:
    """Start a replay for a locked webhook. Raises Refused: 409 for a second one, or too many rows without a dry run."""
    now = registry.clock.now()
    until = min(request.until or now, now)
    matched = await _count(session, webhook, request, until)
    if request.dry_run:
        await session.execute("replay_trial_insert", webhook.webhook_key, request.trial_hash, now)
        return ReplayStarted(matched, None)
    if matched > MANY:
        await _check_trial(session, webhook, request, now)
    row = await session.find(
        "replay_insert",
        webhook.tenant_id,
        webhook.webhook_key,
        webhook.webhook_id,
        request.which,
        request.since,
        until,
        request.rate,
        _PHASES[request.which][0],
        key_id,
    )
    if row is None:
        raise Refused(409, "replay_running", "A replay to this webhook is running; wait for it or stop it.")
    return ReplayStarted(matched, row)


async def _count(session: Session, webhook: StoredWebhook, request: ReplayRequest, until: datetime) -> int:
    key, states = webhook.webhook_key, _STATES[request.which]
    count: int = 0
    if states:
        count = await session.value(
            "replay_count_finished", key, states, request.reason, request.since, until, MANY + 1
        )
    if "missing" in _PHASES[request.which] and count <= MANY:
        count += await session.value(
            "replay_count_missing", webhook.tenant_id, key, webhook.batch_key, request.since, until, MANY + 1 - count
        )
    if "untold" in _PHASES[request.which] and count <= MANY and wants_jobs(webhook):
        count += await session.value("replay_count_untold", webhook.tenant_id, request.since, until, MANY + 1 - count)
    return count


async def _check_trial(session: Session, webhook: StoredWebhook, request: ReplayRequest, now: datetime) -> None:
    tried = await session.value("replay_trial_find", webhook.webhook_key, request.trial_hash, now - TRIAL_KEPT)
    if not (request.force and tried):
        detail = f"More than {MANY} deliveries: make a dry_run of the same replay first, then repeat with force."
        raise Refused(409, "replay_too_large", detail)


async def find_replay(session: Session, tenant_id: str, replay_id: int) -> Row | None:
    """Return one replay of a tenant."""
    return await session.find("replay_find", replay_id, tenant_id)


async def cancel_replay(session: Session, tenant_id: str, replay_id: int) -> Row | None:
    """Stop a replay; what it has queued already goes out. None when there is none; a finished one stays as it is."""
    return await session.find("replay_cancel", replay_id, tenant_id)


async def advance_replays(
    database: Database, registry: Registry, profiles: ProfileSet, on_made: Callable[[bool], object] = lambda _: None
) -> bool:
    """Take one step of the replay that is due; False when none is. Safe beside other processes.

    ``on_made`` is told of each job message that was made for it, once it is stored: whether it is about a rerun.
    """
    async with database.transaction() as session:
        replay = await session.find("replay_lock_due")
        if replay is None:
            return False
        row = await session.find("replay_lock_webhook", replay["webhook_key"])
        if row is None:
            await session.execute("replay_end", replay["replay_id"], "failed", "webhook_deleted")
            return True
        step = _STEPS[replay["phase"]]
        taken = await step(session, replay, read_webhook(row, registry.sealer), profiles)
        await _save(session, replay, taken)
        await session.execute("deliveries_wake")
    registry.superseded(taken.superseded)
    for message in taken.made:
        on_made(message.generation > 1)
    return True


@dataclass(frozen=True, slots=True)
class _Taken:
    """What one step did: rows looked at, queued, superseded by those, and where the next begins; an empty position ends
    the phase.
    """

    scanned: int
    queued: int
    superseded: int
    position: str
    made: Sequence[NewMessage] = ()


async def _save(session: Session, replay: Row, taken: _Taken) -> None:
    phases = _PHASES[replay["which"]]
    following = phases[phases.index(replay["phase"]) + 1 :]
    phase, position = (replay["phase"], taken.position) if taken.position else (next(iter(following), ""), "")
    wait = taken.queued / replay["rate"]
    await session.execute(
        "replay_advance", replay["replay_id"], phase or replay["phase"], position, taken.scanned, taken.queued, wait
    )
    if not phase:
        await session.execute("replay_end", replay["replay_id"], "done", None)


async def _step_finished(session: Session, replay: Row, webhook: StoredWebhook, profiles: ProfileSet) -> _Taken:
    del profiles
    reason = "held_too_long" if replay["which"] == "held" else None
    row = await session.find(
        "replay_step_finished",
        webhook.webhook_key,
        int(replay["position"] or 0),
        PAGE,
        _STATES[replay["which"]],
        reason,
        replay["since"],
        replay["until"],
        replay["rate"],
    )
    assert row is not None
    position = str(row["last_id"]) if row["scanned"] == PAGE else ""
    return _Taken(row["scanned"], row["queued"], 0, position)


async def _step_missing(session: Session, replay: Row, webhook: StoredWebhook, profiles: ProfileSet) -> _Taken:
    at, _, message_id = replay["position"].partition(" ")
    since = datetime.fromisoformat(at) if at else replay["since"]
    rows = await session.fetch(
        "replay_list_missing",
        webhook.tenant_id,
        webhook.webhook_key,
        webhook.batch_key,
        since,
        message_id,
        replay["until"],
        PAGE,
    )
    wanted = [row for row in rows if row["missing"] and _wants(webhook, row, profiles)]
    queued, superseded = await _enqueue(session, replay, webhook, wanted)
    last = f"{rows[-1]['created_at'].isoformat()} {rows[-1]['message_id']}" if len(rows) == PAGE else ""
    return _Taken(len(rows), queued, superseded, last)


async def _step_untold(session: Session, replay: Row, webhook: StoredWebhook, profiles: ProfileSet) -> _Taken:
    """Runs that ended when nobody wanted their message, in the order of job ids: their messages are made now."""
    if not wants_jobs(webhook):
        return _Taken(0, 0, 0, "")
    span = (replay["since"], replay["until"])
    found = await tell_of_runs(session, profiles, webhook, span, replay["position"], PAGE)
    queued, superseded = await _enqueue(session, replay, webhook, found.messages)
    return _Taken(found.ended, queued, superseded, found.last_job_id, found.made)


async def _enqueue(session: Session, replay: Row, webhook: StoredWebhook, messages: Sequence[Row]) -> tuple[int, int]:
    """Queue deliveries, due one after the other at the replay's rate; return how many, and how many they supersede."""
    superseded: list[int] = []
    deliveries = [build_delivery(webhook, each, Extra.REPLAY) for each in await _hold(session, messages)]
    queued = await queueing.enqueue(session, deliveries, on_superseded=superseded.append)
    await session.execute("replay_space_out", [one.delivery_id for one in queued if one.due], replay["rate"])
    return len(queued), sum(superseded)


async def _hold(session: Session, messages: Sequence[Row]) -> list[Row]:
    """Hold messages, with the place where each body is now; leave out those that were forgotten since they were read."""
    rows = await session.fetch("messages_hold", [each["message_id"] for each in messages]) if messages else []
    places = {row["message_id"]: row["body_at"] for row in rows}
    return [{**each, "body_at": places[each["message_id"]]} for each in messages if each["message_id"] in places]


_STEPS = {"finished": _step_finished, "missing": _step_missing, "untold": _step_untold}


def _wants(webhook: StoredWebhook, row: Row, profiles: ProfileSet) -> bool:
    """Tell whether the webhook would have got this message, had it been there."""
    if webhook.kind is WebhookKind.BATCH:
        return bool(row["batch_key"] == webhook.batch_key and row["scope"] == ScopeCode.BATCH)
    scope = _SCOPES.get(row["scope"])
    if webhook.kind is not WebhookKind.ACCOUNT or scope is None or not profiles.choose(row["source"]).emits(scope):
        return False
    filters: Filters = webhook.settings.filters
    return matches(filters, row["type"], scope, row["batch_name"])
