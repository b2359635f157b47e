"""A body that is still needed moves before its partition goes: whoever puts its message to use meanwhile finds it there."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from service.profiles import load_profiles
from service.store.partitions import move_bodies
from service.store.replays import advance_replays
from tests.support.api import URL_1, URL_2, running_api
from tests.support.ingest import eventually

HOOK = "/v1/batches/nov/webhook"
LOST = """SELECT count(*) FROM deliveries AS d
WHERE NOT EXISTS (SELECT FROM message_bodies AS b WHERE b.message_id = d.message_id AND b.body_at = d.body_at)"""


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running


async def move(session):
    now = datetime.now(UTC)
    return await move_bodies(session, now - timedelta(days=1), now + timedelta(days=1), 10)


@asynccontextmanager
async def beside(api, coroutine):
    """Let something run as far as it gets before this transaction ends."""
    async with api.database.transaction() as session:
        yield session
        task = asyncio.ensure_future(coroutine)
        await eventually(
            lambda: True if task.done() else api.value("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")
        )
    await task


async def replay(api):
    await advance_replays(api.database, api.parts.registry, load_profiles())


async def register(api):
    assert (await api.put(HOOK, {"url": URL_1})).json["delivery_queued"]


async def renotify(api):
    assert (await api.post("/v1/batches/nov/renotify")).status == 202


async def learn(api):
    await api.send(api.event("job.queued", "j", webhook_url=URL_2))


@pytest.fixture
async def a_message_in_use(api):
    """A job's, which waits for one webhook, and which a replay to another misses; and a batch's newest finish."""
    await api.post("/v1/webhooks", {"url": URL_1, "id": "one", "event_types": ["*"], "scopes": ["job"]})
    await api.finish("nov", "j")
    await api.post("/v1/webhooks", {"url": URL_1, "id": "two", "event_types": ["*"], "scopes": ["job"]})
    wanted = {"since": "2000-01-01T00:00:00Z", "which": "missing"}
    assert (await api.post("/v1/webhooks/two/replay", wanted)).status == 202


@pytest.mark.parametrize("use", [replay, register, learn])
async def test_whoever_puts_a_message_to_use_while_its_body_moves(api, a_message_in_use, use):
    async with beside(api, use(api)) as session:
        assert await move(session) == 2
    assert await api.value("SELECT count(*) FROM deliveries") == 2
    assert await api.value(LOST) == 0


async def test_who_sends_a_finish_again_while_its_body_moves(api):
    await register_and_finish(api)
    async with beside(api, renotify(api)) as session:
        assert await move(session) == 1
    assert await api.value(LOST) == 0


async def test_a_copy_of_a_finish_whose_body_moves_is_made(api):
    await register_and_finish(api)

    async def copy():
        again = await api.post("/v1/batches/nov/renotify", {"new_id": True, "force": True})
        assert again.status == 202, again.raw

    async with beside(api, copy()) as session:
        assert await move(session) == 1
    assert await api.value(LOST) == 0


async def register_and_finish(api):
    await api.put(HOOK, {"url": URL_1})
    await api.finish("nov", "j")
    await api.conclude()


async def test_a_body_does_not_move_away_from_who_is_putting_its_message_to_use(api, a_message_in_use):
    async def move_alone():
        async with api.database.transaction() as session:
            await move(session)

    async with beside(api, move_alone()) as session:
        held = await session.fetch("messages_hold", [(await api.deliveries())[0]["message_id"]])
        await session.connection.execute(
            """INSERT INTO deliveries (tenant_id, webhook_key, lane, message_id, body_at, type, scope, generation, due_at)
            SELECT d.tenant_id, w.webhook_key, w.lane, d.message_id, $1, d.type, d.scope, 1, now()
            FROM deliveries AS d, webhooks AS w WHERE w.webhook_id = 'two'""",
            held[0]["body_at"],
        )
    assert await api.value("SELECT count(*) FROM deliveries") == 2
    assert await api.value(LOST) == 0


async def test_a_body_that_is_destroyed_while_it_moves_is_gone(api):
    await api.put(HOOK, {"url": URL_1})
    await api.finish("nov", "j")
    (delivery,) = await api.deliveries()

    async def expunge():
        assert (await api.delete(f"/v1/messages/{delivery['message_id']}/body")).status == 204

    async with beside(api, expunge()) as session:
        assert await move(session) == 1
    assert await api.value("SELECT count(*) FROM message_bodies") == 0
