"""A message has one body: whoever learns of it later, and whichever way it takes to the wire, it is what was stored."""

import pytest

from tests.support.api import URL_1, URL_2, running_api
from tests.support.handing import KeepingEngine


@pytest.fixture
def engine():
    return KeepingEngine()


@pytest.fixture
async def api(database, engine):
    async with running_api(database, handoff=engine) as running:
        await running.post("/v1/signing-keys/rotate")
        yield running


async def learn_late(api):
    """A run ends and is told of; then an event of the same run fills its empty fields and names a URL."""
    await api.post("/v1/webhooks", {"url": URL_1, "event_types": ["*"]})
    await api.send(api.event("job.completed", "a", status="succeeded"))
    (message,) = await api.fetch("SELECT message_id FROM messages")
    return message["message_id"], api.event("job.queued", "a", metadata={"late": True}, webhook_url=URL_2)


async def test_what_is_sent_from_memory_is_what_was_stored(api, engine):
    message_id, late = await learn_late(api)
    (handed,) = engine.handed
    stored = await api.value("SELECT body FROM message_bodies")
    assert handed.body == stored
    await api.send(late)
    assert await api.value("SELECT count(*) FROM deliveries WHERE message_id = $1", message_id) == 2
    assert all(one.body == stored for one in engine.handed)


async def test_a_body_that_was_destroyed_is_not_sent_from_memory(api, engine):
    message_id, late = await learn_late(api)
    engine.handed.clear()
    assert (await api.delete(f"/v1/messages/{message_id}/body")).status == 204
    await api.send(late)
    assert engine.handed == []
