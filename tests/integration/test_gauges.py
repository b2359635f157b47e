"""The queue's gauges tell of what there is, and come back when it is gone."""

from service.store.database import Database
from service.store.gauges import QueueLook
from tests.support.delivering import Queue


async def test_a_webhook_that_is_deleted_takes_its_open_breaker_with_it(database):
    async with Queue(database) as queue, Database(database, size=1) as db:
        look = QueueLook(db)
        kept, gone = await queue.webhook("http://a.test/"), await queue.webhook("http://b.test/")
        for key in (kept, gone):
            await queue.execute(
                "INSERT INTO webhook_health (webhook_key, health, breaker) VALUES ($1, '{}', 1)"
                " ON CONFLICT (webhook_key) DO UPDATE SET breaker = 1",
                key,
            )
        assert (await look.look())["breakers_open"] == 2
        await queue.execute("UPDATE webhooks SET deleted_at = now() WHERE webhook_key = $1", gone)
        assert (await look.look())["breakers_open"] == 1
