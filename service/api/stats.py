"""How a webhook does: ``/v1/webhooks/{id}/stats``."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from service.api import answers
from service.api.calls import Answer, Call
from service.api.problems import not_found
from service.api.webhook_calls import webhook_id
from service.domain.attempts import name_for_tenants
from service.store import stats, webhooks
from service.store.stats import BUCKET, Window


def _show(window: Window) -> answers.StatsWindow:
    return answers.StatsWindow(
        attempts=window.attempts,
        outcomes=window.outcomes,
        success_ratio=window.success_ratio,
        mean_ms=window.mean_ms,
        p50_ms=window.quantile_ms(0.5),
        p95_ms=window.quantile_ms(0.95),
        p99_ms=window.quantile_ms(0.99),
    )


def merge_unreachable(window: Window) -> Window:
    """Add up the outcomes that have one name for tenants."""
    merged: dict[str, int] = {}
    for outcome, count in window.outcomes.items():
        name = name_for_tenants(outcome)
        merged[name] = merged.get(name, 0) + count
    return replace(window, outcomes=merged)


async def get(call: Call) -> Answer:
    """Show counts and latencies of the last hour and day, in steps of five minutes."""
    webhook = await webhooks.find_webhook(call.session, call.parts.registry, call.tenant_id, webhook_id(call))
    if webhook is None:
        raise not_found("webhook")
    windows = []
    for hours in (1, 24):
        since = call.parts.clock.now() - timedelta(hours=hours) - BUCKET
        window = await stats.read_window(call.session, webhook.webhook_key, since)
        windows.append(window if call.operator else merge_unreachable(window))
    return Answer(
        200, answers.Stats(webhook_id=webhook.webhook_id, last_hour=_show(windows[0]), last_day=_show(windows[1]))
    )
