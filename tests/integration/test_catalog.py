"""What a process knows of how webhooks fare: what is read of it, and how soon a change elsewhere arrives."""

from dataclasses import replace
from datetime import timedelta

from service.domain.health import Breaker, Health
from service.store.catalog import WebhookCatalog
from service.store.database import Database
from service.store.health import dump_health
from tests.support.delivering import SEALER, Queue, deliver, until

LONG_AGO = "now() - interval '1 hour'"
URL = "http://receiver.test/x"


async def make_health(queue, probe_in=600):
    now = await queue.now()
    return Health(
        now, failures=10, first_failure_at=now, breaker=Breaker.OPEN, probe_at=now + timedelta(seconds=probe_in)
    )


async def look(dsn, troubled=(), back=15.0, *, first=False):
    async with Database(dsn, size=1) as database:
        found = await WebhookCatalog(database, SEALER).read_changes(back, troubled, first=first)
    return {each.webhook_key for each in found.troubles}


async def test_health_is_read_where_it_was_written_since_the_last_look(database):
    async with Queue(database) as queue:
        health = await make_health(queue)
        well = replace(health, breaker=Breaker.CLOSED)
        opened, resting, old, recovered, old_well = [await queue.webhook(URL) for _ in range(5)]
        await queue.store_health(opened, health)
        await queue.store_health(resting, well, held_until="now() + interval '1 minute'")
        await queue.store_health(old, health, LONG_AGO)
        await queue.store_health(recovered, well)
        await queue.store_health(old_well, well, LONG_AGO)
    assert await look(database) == {opened, resting}
    assert await look(database, [old, recovered, old_well]) == {opened, resting, recovered}
    assert await look(database, back=7_200.0) == {opened, resting, old}
    assert await look(database, first=True) == {opened, resting, old}


async def test_every_writer_of_health_says_when(database):
    """All but the rate limit's draws, which say nothing about how a webhook fares."""
    async with Queue(database) as queue, Database(database, size=1) as opened, opened.session() as session:
        hook = await queue.webhook(URL)
        health = await make_health(queue)
        saved = ([hook], [dump_health(health)], [None], [1], [None], [None], [None], [None])
        for statement, args in (
            ("health_save", saved),
            ("webhook_clear_health", (hook, dump_health(health), 2, False)),
            ("webhook_clear_hold", (hook,)),
        ):
            await queue.store_health(hook, health, LONG_AGO)
            await session.execute(statement, *args)
            assert await queue.count("webhook_health", f"updated_at > {LONG_AGO} + interval '1 minute'") == 1, statement


async def test_a_change_by_another_process_arrives_both_ways(database):
    async with Queue(database) as queue, deliver(database) as role:
        catalog = role.parts.catalog
        hook = await queue.webhook(URL)
        await catalog.reload([hook])
        health = await make_health(queue)
        await queue.store_health(hook, health)
        await until(lambda: catalog.unwell_lanes == {hook})
        assert catalog.find(hook).health == health
        await queue.store_health(hook, replace(health, breaker=Breaker.CLOSED))
        await until(lambda: not catalog.unwell_lanes)
        assert not catalog.find(hook).troubled


async def test_time_goes_on_for_a_webhook_of_which_nothing_was_written(database):
    """A probe becomes due, and a rest ends, without a new row."""
    async with Queue(database) as queue, deliver(database) as role:
        catalog = role.parts.catalog
        probed, rested = await queue.webhook(URL), await queue.webhook(URL)
        await queue.store_health(probed, await make_health(queue, probe_in=1.5), LONG_AGO)
        well = replace(await make_health(queue), breaker=Breaker.CLOSED)
        await queue.store_health(rested, well, LONG_AGO, held_until="now() + interval '1.5 s'")
        await catalog.reload([probed, rested])
        assert [catalog.find(hook).terms.allowance for hook in (probed, rested)] == [0, 0]
        await until(lambda: [catalog.find(hook).terms.allowance for hook in (probed, rested)] == [1, None])
        assert not catalog.unwell_lanes


async def test_a_step_of_the_databases_clock_hides_nothing(database):
    """What was written just before the clock went forward is an hour old when it is looked for."""
    async with Queue(database) as queue, deliver(database) as role:
        catalog, instants = role.parts.catalog, role.parts.instants
        await until(role.parts.engine.may_send)
        hook = await queue.webhook(URL)
        await catalog.reload([hook])
        await queue.store_health(hook, await make_health(queue), LONG_AGO)
        instants.measure(instants.epoch() - 3_600, role.clock.monotonic(), role.clock.monotonic())  # as it was before
        await until(lambda: catalog.find(hook).health.breaker is Breaker.OPEN)
