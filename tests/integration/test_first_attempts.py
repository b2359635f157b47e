"""`first_attempt_delay_seconds`, which the objective is about: from commit to first POST, without the webhook's limits."""

import pytest

from service.domain.attempts import Outcome, OutcomeClass
from tests.support.delivering import Queue, deliver, until
from tests.support.scripted import Scripted

OK = Outcome(OutcomeClass.DELIVERED, 204)
FAILED = Outcome(OutcomeClass.HTTP_ERROR, 500)
URL = "http://receiver.test/x"


@pytest.fixture
def sender():
    return Scripted()


def delays(role):
    return [delay for _, _, delay, _ in role.watcher.attempts]


async def test_it_is_known_of_the_first_attempt_alone(database, sender):
    async with Queue(database) as queue, deliver(database, sender=sender) as role:
        await queue.deliveries(await queue.webhook(URL, retry_schedule=[1]))
        for outcome in (FAILED, OK):
            await sender.wait()
            sender.end(outcome)
        await queue.wait("deliveries_done", "state = 4")
    first, second = delays(role)
    assert first >= 0
    assert second is None


@pytest.mark.parametrize("limits", [{"max_in_flight": 1}, {"rate_limit": 1}])
async def test_who_waits_for_the_webhooks_own_limits_is_left_out(database, sender, limits):
    async with Queue(database) as queue, deliver(database, sender=sender) as role:
        hook = await queue.webhook(URL, **limits)
        await queue.deliveries(hook, 3)
        for _ in range(3):
            await sender.wait()
            sender.end(OK)
        await queue.wait("deliveries_done", "state = 4", count=3)
        await until(lambda: len(role.watcher.attempts) == 3)
    assert delays(role)[1:] == [None, None]


async def test_who_waits_for_a_slot_is_counted(database, sender):
    async with Queue(database) as queue, deliver(database, sender=sender, max_in_flight=1) as role:
        await queue.deliveries(await queue.webhook(URL))
        await sender.wait()
        await queue.deliveries(await queue.webhook("http://other.test/x"))
        await until(lambda: role.parts.slots.waiting == 1)
        for _ in range(2):
            await sender.wait()
            sender.end(OK)
        await queue.wait("deliveries_done", "state = 4", count=2)
    assert None not in delays(role)
