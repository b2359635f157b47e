"""What one tenant's destinations do to the sending of the others: nothing, whatever it is that fails about them."""

import asyncio
from dataclasses import replace

import pytest

from service.domain.attempts import OutcomeClass
from service.domain.targets import parse_url
from service.sender import HttpSender, build_tls_context
from service.sender.proxy import Proxy
from service.sender.resolver import Found
from tests.support.delivering import POLICY, Queue, build_defaults, deliver, until
from tests.support.receivers import NO_CONTENT, answering, receive
from tests.support.senders import Names, loopback_policy, open_client


@pytest.fixture(autouse=True)
def _a_rest_would_be_long(monkeypatch):
    """If everybody rested, nothing would arrive before the test's patience ends."""
    monkeypatch.setattr("service.delivery.attempting.COOL_OFF", 600.0)


class Silence(Names):
    """A name server that never answers for any name."""

    async def __call__(self, name: str) -> Found:
        self.asked.append(name)
        await asyncio.Event().wait()
        raise AssertionError


async def see_arrive(queue, receiver) -> None:
    await queue.deliveries(await queue.webhook(receiver.url(), tenant_id="quiet"), 1)
    await until(lambda: receiver.requests)


@pytest.mark.parametrize("hooks", [10, 40])
async def test_names_that_are_never_answered_do_not_hold_up_another_tenant(database, hooks):
    async with (
        HttpSender(POLICY, Silence(), build_tls_context()) as sender,
        receive(answering(NO_CONTENT)) as receiver,
        Queue(database) as queue,
    ):
        for number in range(hooks):  # all are due before anything is sent, so that all names are asked for at once
            hook = await queue.webhook(f"http://h{number}.silent.example/", tenant_id="loud", timeout_seconds=1)
            await queue.deliveries(hook, 1)
        async with deliver(database, sender=sender) as role:
            await until(lambda: role.watcher.attempts)
            if hooks > 32:  # look-ups a tenant
                await until(lambda: "tenant_busy" in [event for event, _ in role.watcher.events])
            await see_arrive(queue, receiver)
    assert role.watcher.faults == []


def tunnelling(status: int):
    """A proxy whose rules forbid 127.0.0.2, and that is the receiver of everything else itself."""

    async def script(visit):
        request = await visit.request()
        if b" 127.0.0.2:" in request.line:
            await visit.say(b"HTTP/1.1 %d No\r\ncontent-length: 0\r\n\r\n" % status)
        else:
            await visit.say(b"HTTP/1.1 200 Connected\r\n\r\n")
            await answering(NO_CONTENT)(visit)

    return script


@pytest.mark.parametrize("status", [502, 403, 404, 429])
async def test_a_destination_that_the_proxy_refuses_does_not_hold_up_another_tenant(database, status):
    policy = loopback_policy(allow=" 127.0.0.2")
    defaults = replace(build_defaults(), parse=lambda url, tenant: parse_url(url, policy, tenant))
    async with receive(tunnelling(status)) as proxy:
        via = Proxy("127.0.0.1", proxy.port)
        async with (
            HttpSender(policy, Names(), build_tls_context(), proxy=lambda: via) as sender,
            Queue(database) as queue,
            deliver(database, sender=sender, defaults=defaults) as role,
        ):
            (refused,) = await queue.deliveries(await queue.webhook("http://127.0.0.2:9/", tenant_id="loud"))
            await until(lambda: role.watcher.faults or role.watcher.attempts)
            await queue.deliveries(await queue.webhook("http://127.0.0.1:9/", tenant_id="quiet"))
            await until(lambda: OutcomeClass.DELIVERED in {outcome.kind for outcome, *_ in role.watcher.attempts})
            await queue.wait("attempts", "delivery_id = $1", refused)
            assert await queue.count("attempts", "delivery_id = $1", refused) == 1


@pytest.mark.parametrize("status", [400, 403, 404, 429, 451, 502, 503, 504])
async def test_a_destination_that_the_proxy_cannot_reach_is_its_own_failure(status):
    policy = loopback_policy(allow=" 127.0.0.2")
    async with (
        receive(tunnelling(status)) as proxy,
        open_client(policy=policy, proxy=Proxy("127.0.0.1", proxy.port)) as client,
    ):
        failed = await client.post("http://127.0.0.2:9/")
        reached = await client.post("http://127.0.0.1:9/")
    assert (failed.kind is OutcomeClass.DELIVERED, reached.kind) == (False, OutcomeClass.DELIVERED)
