"""Metrics stay as many as they are, however many webhooks there are."""

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.bench.queue import fill, register
from tests.support.delivering import Queue
from tests.support.receivers import NO_CONTENT, answering, receive
from tests.support.service import build_settings, eventually

WEBHOOKS = 10_000
ATTEMPTED = 200
FAIL = b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n"
COPIES = """
INSERT INTO webhooks (tenant_id, webhook_id, kind, lane, url, url_hash, origin, secrets)
SELECT tenant_id, webhook_id || '_' || n, kind, -n, url, url_hash, origin, secrets
FROM webhooks, generate_series(1, $2::integer) AS n WHERE webhook_key = $1
"""


async def list_series(service):
    async with aiohttp.ClientSession() as http, http.get(f"{service.ops_url}/metrics") as answer:
        families = text_string_to_metric_families(await answer.text())
        return {(sample.name, *sorted(sample.labels.items())) for family in families for sample in family.samples}


async def test_ten_thousand_webhooks_make_no_series(database, new_service):
    async with (
        receive(answering(NO_CONTENT)) as good,
        receive(answering(FAIL)) as bad,
        Queue(database) as queue,
        new_service(build_settings(database), "deliver") as service,
    ):

        async def counts(webhooks):
            return await service.fetch_metric("webhooks", state="enabled") == webhooks

        await eventually(lambda: counts(0))  # the gauges are there once upkeep leads
        before = await list_series(service)
        keys = await register(queue, [good.url(), bad.url()], ATTEMPTED)
        await queue.connection.execute(COPIES, keys[0], WEBHOOKS - ATTEMPTED)
        await fill(queue.connection, keys, "one-each", ATTEMPTED)
        await queue.wait("deliveries_done", "state = 4", count=ATTEMPTED // 2)
        await queue.wait("deliveries", "state = 1", count=ATTEMPTED // 2)
        await eventually(lambda: counts(WEBHOOKS))
        after = await list_series(service)
    assert before
    assert after == before
