"""Claims while more is due than there is room for in memory: 64 deliveries, of one tenant half as many."""

from datetime import UTC, datetime

from service.domain.attempts import Outcome, OutcomeClass
from service.domain.health import Health
from tests.support.delivering import Queue, deliver, until
from tests.support.receivers import NO_CONTENT, answering, receive
from tests.support.scripted import Scripted
from tests.support.stores import Watched

OK = Outcome(OutcomeClass.DELIVERED, 204)


async def fill(queue, url, webhooks, count):
    """Backlogs of so many receivers that are well, of three tenants."""
    well = Health(datetime.now(UTC), last_success_at=datetime.now(UTC))
    for number in range(webhooks):
        hook = await queue.webhook(url(f"/{number}"), tenant_id=f"t{number % 3}")
        await queue.store_health(hook, well)
        await queue.deliveries(hook, count)


async def test_lanes_that_there_was_no_room_for_come_before_those_that_have_had_some(database):
    async with receive(answering(NO_CONTENT)) as receiver, Queue(database) as queue:
        await fill(queue, receiver.url, 120, 20)
        async with deliver(database, max_in_flight=16):
            await until(lambda: len(receiver.requests) >= 1_200)
            assert len({request.line for request in receiver.requests[:1_200]}) == 120


async def test_nothing_is_planned_while_there_is_no_room(database):
    """What becomes due meanwhile has to wait anyway: there is a claim once something has left."""
    sender = Scripted()
    async with Queue(database) as queue, deliver(database, sender=sender, max_in_flight=2, wrap=Watched) as role:
        await fill(queue, "http://receiver.test{}".format, 80, 2)
        await until(lambda: not role.parts.slots.buffer.free)
        intake = role.parts.intake
        for _ in range(3):
            before, looked_at = role.store.calls["find_wait"], intake.claimed_at
            intake.claim_everywhere()
            await until(lambda then=looked_at: intake.claimed_at > then)
        assert role.store.calls["find_wait"] == before
        for _ in range(160):
            await sender.wait()
            sender.end(OK)
        await queue.wait("deliveries_done", "state = 4", count=160)
