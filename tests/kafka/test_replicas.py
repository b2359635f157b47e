"""Three processes, one PostgreSQL, one Kafka: rollouts, settings that all follow, clocks that disagree.

The long forms are in `tests/survive`.
"""

import pytest

from tests.e2e.fleet import agent_of, assert_only_ended_repeated, running_fleet
from tests.e2e.load import Load
from tests.support.faketime import shift_clock
from tests.support.receiving import Answer, Held, Receiver
from tests.support.service import Refused, eventually

pytestmark = pytest.mark.timeout(400)

SIZE = 3
INJECTED = {  # what Kubernetes sets for Services called webhookd and webhookd-ops
    "WEBHOOKD_PORT": "tcp://10.0.0.1:8080",
    "WEBHOOKD_PORT_8080_TCP": "tcp://10.0.0.1:8080",
    "WEBHOOKD_PORT_8080_TCP_ADDR": "10.0.0.1",
    "WEBHOOKD_SERVICE_HOST": "10.0.0.1",
    "WEBHOOKD_SERVICE_PORT": "8080",
    "WEBHOOKD_OPS_PORT_9090_TCP": "tcp://10.0.0.2:9090",
    "WEBHOOKD_OPS_SERVICE_HOST": "10.0.0.2",
}


async def test_a_rolling_restart_loses_and_repeats_nothing(settings, opened, new_service, receiver):
    receiver.otherwise = Answer(delay=0.05)
    async with running_fleet(new_service, settings, opened, SIZE) as fleet:
        await fleet.register(receiver)
        load = Load(fleet.tenant)
        async with load.over_kafka():
            await fleet.until_all_send(receiver)
            await fleet.roll()
            await fleet.until_all_send(receiver)
        (await fleet.settled(receiver, load)).assert_no_duplicates()


async def test_what_a_stopping_process_gives_up_others_send_without_waiting_for_its_lease(
    settings, opened, new_service, receiver
):
    """A drain that is shorter than the receiver is slow: attempts are cut, and start again elsewhere."""
    async with running_fleet(new_service, {**settings, "WEBHOOKD_DRAIN_TIMEOUT": "1s"}, opened, 2) as fleet:
        await fleet.register(receiver)
        one, other = fleet.members
        fleet.tenant = fleet.at(1)  # the other one is going to stop
        load = Load(fleet.tenant)
        async with load.over_kafka():
            await fleet.until_all_send(receiver)
            receiver.otherwise = slow = Held()
            await receiver.wait_for(lambda: {one.agent, other.agent} <= unanswered(receiver).keys())
            one.mark_end()
            await one.stop()
        cut = unanswered(receiver)[one.agent]
        slow.release()
        await receiver.wait_for(lambda: cut <= sent_by(receiver, other.agent), within=90)
        assert await other.service.fetch_metric("leases_expired_total") == 0
        assert_only_ended_repeated(await fleet.settled(receiver, load), fleet.ends)


def sent_by(receiver, agent):
    return {arrival.message_id for arrival in receiver.arrivals if agent_of(arrival) == agent}


def unanswered(receiver):
    """The messages that hang at the receiver, by who sent them."""
    hanging = {}
    for arrival in receiver.arrivals:
        if arrival.answered is None:
            hanging.setdefault(agent_of(arrival), set()).add(arrival.message_id)
    return hanging


async def test_what_is_changed_at_one_process_holds_for_all_whatever_their_clocks_say(
    settings, opened, new_service, receiver
):
    """Two processes are an hour wrong; Kubernetes' variables for Services of the same name are in every environment."""
    clocks = ({**INJECTED, **shift_clock("+3600")}, {**INJECTED, **shift_clock("-3600")}, INJECTED)
    async with running_fleet(new_service, settings, opened, SIZE, *clocks, fork=False) as fleet, Receiver() as moved:
        webhook = await fleet.register(receiver)
        load = Load(fleet.tenant)
        async with load.over_kafka():
            await fleet.until_all_send(receiver)
            await skews_are_seen(fleet)
            await a_new_url_is_used_by_all(fleet, webhook, receiver, moved)
            await a_new_secret_is_used_by_all(fleet, webhook, moved)
            await a_pause_holds_for_all(fleet, webhook, moved)
            await a_key_is_good_until_it_is_revoked_anywhere(fleet)
        moved.arrivals[:0] = receiver.arrivals
        (await fleet.settled(moved, load)).assert_no_duplicates()
        assert all(abs(arrival.timestamp - arrival.received_at) < 60 for arrival in moved.arrivals)
        assert [await service.stop() for service in fleet.services] == [0, 0, 0]


async def skews_are_seen(fleet):
    async def are_seen():
        skews = [await service.fetch_metric("clock_skew_seconds") for service in fleet.services]
        return sorted(abs(round(skew or 0, -2)) for skew in skews) == [0, 3600, 3600]

    await eventually(are_seen)


async def a_new_url_is_used_by_all(fleet, webhook, receiver, moved):
    await fleet.at(0).api.patch(f"/v1/webhooks/{webhook['webhook_id']}", {"url": moved.url})
    await fleet.until_all_send(moved)
    await fleet.until_all_send(moved, len(moved.arrivals))  # what was under way to the old one has come there
    already = len(receiver.arrivals)
    await moved.wait_for(len(moved.arrivals) + 50)
    assert len(receiver.arrivals) == already


async def a_new_secret_is_used_by_all(fleet, webhook, receiver):
    path = f"/v1/webhooks/{webhook['webhook_id']}"
    new = (await fleet.at(1).api.post(f"{path}/rotate-secret", {"overlap_seconds": 60}))["secret"]
    agents = {member.agent for member in fleet.members}

    def all_sign_with_it():
        newest = {agent_of(arrival): arrival for arrival in receiver.arrivals}
        return newest.keys() == agents and all(arrival.verifies(new) for arrival in newest.values())

    await receiver.wait_for(all_sign_with_it)
    newest = {agent_of(arrival): arrival for arrival in receiver.arrivals}
    assert all(arrival.verifies(webhook["secret"]) for arrival in newest.values())  # the overlap


async def a_pause_holds_for_all(fleet, webhook, receiver):
    path = f"/v1/webhooks/{webhook['webhook_id']}"
    await fleet.at(2).api.post(f"{path}/pause")
    await eventually(lambda: fleet.at(0).deliveries(state="held", limit=1))
    await eventually(fleet.tenant._is_idle)  # all of them know: who does not would still send what it makes
    await eventually(fleet.nothing_in_flight)
    already = len(receiver.arrivals)
    known = await fleet.sum_metric("job_events_total", outcome="applied")

    async def more_is_ingested():
        return await fleet.sum_metric("job_events_total", outcome="applied") > known + 50

    await eventually(more_is_ingested)
    assert len(receiver.arrivals) == already
    await fleet.at(1).api.post(f"{path}/enable")
    await fleet.until_all_send(receiver, already)


async def a_key_is_good_until_it_is_revoked_anywhere(fleet):
    made = await fleet.at(0).api.post("/v1/keys", {"roles": ["read"], "tenant_id": fleet.tenant.tenant_id})
    holders = [fleet.at(number).api.with_key(made["key"]) for number in range(SIZE)]
    for holder in holders:
        await holder.get("/v1/webhooks")
    await fleet.at(1).api.delete(f"/v1/keys/{made['key_id']}")
    for holder in holders:
        with pytest.raises(Refused, match="401"):
            await holder.get("/v1/webhooks")
