"""`deliveries_finished_total`: whatever ends a delivery, it is counted once, by the state that it ended in."""

import asyncio
from collections import Counter

import pytest

from service.profiles import load_profiles
from service.store.database import Database
from service.store.deliveries import DeliveryStore
from service.store.replays import advance_replays
from service.upkeep.rescue import CALM, Rescue
from tests.support.api import URL_1, URL_2, running_api
from tests.support.delivering import Queue, ShiftedClock, Watcher, deliver, until
from tests.support.ingest import eventually
from tests.support.scripted import Scripted

HOOK = "/v1/batches/nov/webhook"


@pytest.fixture
def finished():
    return Counter()


@pytest.fixture
async def api(database, finished):
    async with running_api(
        database, finished=lambda state, count: finished.update({state: count} if count else {})
    ) as running:
        yield running


async def test_what_the_api_cancels(api, finished):
    await api.put(HOOK, {"url": URL_1})
    await api.finish("nov")
    (delivery,) = await api.deliveries()
    assert (await api.delete(f"/v1/messages/{delivery['message_id']}/body")).status == 204
    assert finished == {"canceled": 1}
    assert (await api.delete(f"/v1/messages/{delivery['message_id']}/body")).status == 204
    await api.finish("nov", generation=2)
    (delivery, _) = await api.deliveries()
    assert (await api.post(f"/v1/deliveries/{delivery['delivery_id']}/cancel")).status == 200
    assert finished == {"canceled": 2}
    await api.finish("nov", generation=3)
    assert (await api.delete(HOOK)).status == 204
    assert finished == {"canceled": 3}


@pytest.fixture
async def meet_another(api):
    """From when it is awaited, the first write that comes to its audit entry meets another transaction."""

    async def begin():
        await api.connection.execute(
            """CREATE SEQUENCE tries;
            CREATE FUNCTION meet_another() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF nextval('tries') = 1 THEN RAISE EXCEPTION 'the victim' USING ERRCODE = 'deadlock_detected'; END IF;
                RETURN new;
            END $$;
            CREATE TRIGGER meet_another BEFORE INSERT ON audit_log FOR EACH ROW EXECUTE FUNCTION meet_another()"""
        )

    yield begin
    await api.connection.execute("DROP FUNCTION IF EXISTS meet_another CASCADE; DROP SEQUENCE IF EXISTS tries")


async def test_a_write_that_is_run_again_counts_once(api, finished, meet_another):
    await api.put(HOOK, {"url": URL_1})
    await api.finish("nov")
    await meet_another()
    assert (await api.delete(HOOK)).status == 204
    assert await api.value("SELECT last_value FROM tries") == 2
    assert finished == {"canceled": 1}


async def test_what_a_copy_of_a_finish_supersedes(api, finished):
    await api.put(HOOK, {"url": URL_1})
    await api.finish("nov")
    assert (await api.post("/v1/batches/nov/renotify", {"new_id": True, "force": True})).status == 202
    assert finished == {"superseded": 1}


async def test_what_a_registration_supersedes(api, finished):
    """The newest finish was canceled by its webhook's deletion, an older one waits again by hand."""
    await api.put(HOOK, {"url": URL_1})
    await api.finish("nov")
    await api.fetch("UPDATE deliveries SET message_id = 'msg_older', generation = 0")
    assert (await api.put(HOOK, {"url": URL_2})).json["delivery_queued"]
    assert finished == {"superseded": 1}


async def test_what_a_replay_supersedes(api, finished):
    await api.finish("nov")
    await api.put(HOOK, {"url": URL_1, "notify_if_done": False})
    webhook_id = (await api.get(HOOK)).json["webhook_id"]
    await api.finish("nov", generation=2)
    await api.fetch("UPDATE deliveries SET message_id = 'msg_older', generation = 0")
    wanted = {"since": "2000-01-01T00:00:00Z", "which": "missing"}
    assert (await api.post(f"/v1/webhooks/{webhook_id}/replay", wanted)).status == 202
    while await advance_replays(api.database, api.parts.registry, load_profiles()):
        pass
    assert finished == {"superseded": 1}


async def test_flagged_ones_whose_lease_is_rescued(database):
    async with Queue(database) as queue, Database(database, size=2) as db:
        rows = await queue.deliveries(await queue.webhook("http://receiver.test/x"), 3)
        await queue.execute("UPDATE deliveries SET lease_token = 7, lease_until = now() - interval '1 s'")
        for row, flag in zip(rows, (1, 2, 0), strict=True):
            await queue.execute("UPDATE deliveries SET flag = $2 WHERE delivery_id = $1", row, flag)
        watcher, clock = Watcher(), ShiftedClock()
        rescue = Rescue(DeliveryStore(db), clock, watcher)
        await rescue.run_once()
        clock.added = CALM
        await rescue.run_once()
    assert (watcher.expired, watcher.finished) == (3, {"superseded": 1, "canceled": 1})


async def test_flagged_ones_that_a_worker_hands_back(database):
    sender = Scripted()
    async with Queue(database) as queue, deliver(database, sender=sender) as role:
        hook = await queue.webhook("http://receiver.test/x")
        await queue.deliveries(hook, 2)
        await sender.wait()
        await until(lambda: role.parts.slots.waiting == 1)
        await queue.execute("UPDATE deliveries SET flag = 2, flag_reason = 'by_request'")
        await role.end()
        assert await queue.count("deliveries_done", "state = 7") == 2
    assert role.watcher.finished == {"canceled": 2}


async def until_somebody_waits(api):
    async def waits():
        # What a transaction reads of the statistics stays as it first was.
        await api.value("SELECT pg_stat_clear_snapshot()")
        return await api.value(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )

    await eventually(waits)


async def test_a_destination_named_again_while_its_delivery_is_recorded(api):
    """The subscriber has the message; its delivery is on its way from the queue to the history."""
    await api.post("/v1/webhooks", {"url": URL_1, "id": "w", "event_types": ["*"]})
    await api.send(api.event("job.completed", "A", status="succeeded"))
    async with api.connection.transaction():
        await api.conclude()
        naming = asyncio.create_task(api.send(api.event("job.queued", "A", webhook_id="w")))
        await until_somebody_waits(api)
    await naming
    assert [delivery["state"] for delivery in await api.deliveries()] == ["delivered"]
