"""What operators find and stop: ``/v1/operator``."""

from __future__ import annotations

from service.api import answers
from service.api.calls import Answer, Call, Change
from service.api.models import PauseDelete, PausePost, Top
from service.api.news import tell_pause
from service.api.problems import Problem, not_found, rule_broken
from service.domain.targets import Refusal, parse_host
from service.store import operator_pauses, top_webhooks
from service.store.codes import WebhookStateCode
from service.store.database import Row
from service.store.operator_pauses import PauseTarget


def _target(call: Call, body: PausePost | PauseDelete) -> PauseTarget:
    """Return what is paused. Raises Problem (422) unless exactly one thing is named, as webhooks name it."""
    if (body.tenant_id is not None) + (body.host is not None) + body.all != 1:
        raise Problem(422, "one_target", "Name exactly one of tenant_id, host and all.")
    if body.all:
        return PauseTarget("all")
    if body.tenant_id is not None:
        return PauseTarget("tenant", tenant_id=body.tenant_id)
    host = parse_host(body.host or "", call.parts.registry.policy())
    if isinstance(host, Refusal):
        raise rule_broken("host", host.reason, "Name the host as a URL does, without scheme, port and path.")
    return PauseTarget("host", host=host)


def _show(row: Row) -> answers.Pause:
    names = ("scope", "tenant_id", "host", "reason", "created_by", "created_at")
    return answers.Pause(pause_id=f"pse_{row['pause_id']}", **{name: row[name] for name in names})


async def top(call: Call) -> Answer:
    """List the webhooks that stand out."""
    query = call.query(Top)
    found = await top_webhooks.list_top(call.session, query.by, query.limit)
    rows = [
        answers.TopRow(
            tenant_id=row["tenant_id"],
            webhook_id=row["webhook_id"],
            origin=row["origin"],
            state=WebhookStateCode(row["state"]).word,
            value=float(row["value"] or 0),
            capped=row["capped"],
            last_error=row["last_error"],
        )
        for row in found
    ]
    return Answer(200, answers.TopList(by=query.by, data=rows))


async def list_pauses(call: Call) -> Answer:
    """List operator pauses."""
    rows = await operator_pauses.list_pauses(call.session)
    return Answer(200, answers.PauseList(data=[_show(row) for row in rows]))


async def create_pause(call: Call) -> Answer:
    """Stop claims; a repeat changes nothing."""
    body = call.body(PausePost)
    target = _target(call, body)
    row, new = await operator_pauses.create_pause(call.session, target, body.reason, call.caller.key_id)
    news = (tell_pause("operator_paused", target, row["reason"]),) if new else ()
    change = Change(f"pause {target.label}", None, {"reason": row["reason"]}, target.tenant_id, news)
    return Answer(201 if new else 200, _show(row), change=change)


async def delete_pause(call: Call) -> Answer:
    """Let claims go on; the pause is named in the query or in a body."""
    asked = call.body(PauseDelete) if call.raw_body else call.query(PauseDelete)
    target = _target(call, asked)
    row = await operator_pauses.end_pause(call.session, target)
    if row is None:
        raise not_found("pause")
    news = (tell_pause("operator_pause_ended", target, row["reason"]),)
    return Answer(204, change=Change(f"pause {target.label}", {"reason": row["reason"]}, None, target.tenant_id, news))
