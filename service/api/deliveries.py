"""Deliveries: ``/v1/deliveries`` and below."""

from __future__ import annotations

import re

from service.api import answers
from service.api.calls import Answer, Call, Change
from service.api.cursors import read_number, write_number
from service.api.models import DeliveryPage, Redeliver
from service.api.news import tell_delivery
from service.api.problems import not_found
from service.api.views import show_delivery, show_delivery_detail
from service.store import delivery_views, redelivering
from service.store.delivery_views import DeliveryFilter, SeenDelivery

_LIST = "deliveries"
_ID = re.compile(r"dlv_([0-9]{1,18})", re.ASCII)


def delivery_id(call: Call) -> int:
    """Return the number of the delivery in the path. Raises Problem (404) for what is no delivery id."""
    match = _ID.fullmatch(call.path["delivery_id"])
    if match is None:
        raise not_found("delivery")
    return int(match[1])


async def list_(call: Call) -> Answer:
    """List deliveries, newest first."""
    page = call.query(DeliveryPage)
    narrow = DeliveryFilter(page.webhook, page.batch, page.job, page.state, page.type, page.since, page.until)
    before = read_number(_LIST, page.cursor)
    found = await delivery_views.list_deliveries(call.session, call.tenant_id, narrow, before, page.limit)
    more = None if found.next_before is None else write_number(_LIST, found.next_before)
    shown = [show_delivery(seen, operator=call.operator) for seen in found.deliveries]
    return Answer(200, answers.DeliveryList(data=shown, next_cursor=more))


async def _find(call: Call) -> SeenDelivery:
    seen = await delivery_views.find_delivery(call.session, call.tenant_id, delivery_id(call))
    if seen is None:
        raise not_found("delivery")
    return seen


async def get(call: Call) -> Answer:
    """Show a delivery with its attempts."""
    seen = await _find(call)
    attempts = await delivery_views.list_attempts(call.session, seen.delivery_id)
    return Answer(200, show_delivery_detail(seen, attempts, operator=call.operator))


async def redeliver(call: Call) -> Answer:
    """Ask for one extra attempt now."""
    force = call.body(Redeliver).force
    before = await _find(call)
    await redelivering.redeliver(call.session, call.tenant_id, delivery_id(call), force=force)
    after = await _find(call)
    news = (tell_delivery("delivery_redelivered", before, after),)
    change = Change(f"delivery {call.path['delivery_id']}", None, {"force": force}, news=news)
    return Answer(202, show_delivery(after, operator=call.operator), change=change)


async def cancel(call: Call) -> Answer:
    """End a waiting delivery."""
    before = await _find(call)
    await redelivering.cancel(call.session, call.parts.registry, call.tenant_id, before.delivery_id)
    after = await _find(call)
    news = (tell_delivery("delivery_canceled", before, after),)
    target = f"delivery {call.path['delivery_id']}"
    change = Change(target, {"state": before.state}, {"state": "canceled"}, news=news)
    return Answer(200, show_delivery(after, operator=call.operator), change=change)
