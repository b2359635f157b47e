"""Replays: ``POST /v1/webhooks/{id}/replay`` and ``/v1/replays/{id}``."""

from __future__ import annotations

import re

from service.api import answers
from service.api.calls import Answer, Call, Change
from service.api.models import ReplayPost
from service.api.problems import not_found, rule_broken
from service.api.webhook_calls import webhook_id
from service.store import replays, webhooks
from service.store.database import Row
from service.store.replays import MANY, ReplayRequest

_ID = re.compile(r"rpl_([0-9]{1,18})", re.ASCII)


def _replay_id(call: Call) -> int:
    match = _ID.fullmatch(call.path["replay_id"])
    if match is None:
        raise not_found("replay")
    return int(match[1])


def _show(row: Row) -> answers.Replay:
    names = ("webhook_id", "which", "since", "until", "rate", "state", "reason", "scanned", "queued", "skipped")
    times = ("created_at", "finished_at")
    return answers.Replay(replay_id=f"rpl_{row['replay_id']}", **{name: row[name] for name in (*names, *times)})


def _request(body: ReplayPost) -> ReplayRequest:
    if body.until is not None and body.until <= body.since:
        raise rule_broken("until", "empty_span", "until must be after since.")
    return ReplayRequest(body.since, body.until, body.which, body.rate, body.dry_run, body.force)


async def start(call: Call) -> Answer:
    """Start a replay, or count what it would send."""
    body = call.body(ReplayPost)
    request = _request(body)
    webhook = await webhooks.lock_webhook(call.session, call.parts.registry, call.tenant_id, webhook_id(call))
    if webhook is None:
        raise not_found("webhook")
    started = await replays.start_replay(call.session, call.parts.registry, webhook, request, call.caller.key_id)
    answer = answers.ReplayStart(
        dry_run=body.dry_run,
        matched=started.matched,
        capped=started.matched > MANY,
        replay=_show(started.replay) if started.replay else None,
    )
    return Answer(202, answer, change=Change(f"webhook {webhook.webhook_id}", None, body.model_dump(mode="json")))


async def get(call: Call) -> Answer:
    """Show how far a replay is."""
    row = await replays.find_replay(call.session, call.tenant_id, _replay_id(call))
    if row is None:
        raise not_found("replay")
    return Answer(200, _show(row))


async def cancel(call: Call) -> Answer:
    """Stop a replay."""
    row = await replays.cancel_replay(call.session, call.tenant_id, _replay_id(call))
    if row is None:
        raise not_found("replay")
    return Answer(204, change=Change(f"replay {call.path['replay_id']}", None, {"state": row["state"]}))
