"""What producers really write, in the orders in which it really arrives."""

from dataclasses import replace

import pytest

from tests.e2e.story import build_event, completed, deleted, now, queued, sealed, started
from tests.support.receiving import Receiver


def removed(job_id, **fields):
    return build_event("job.removed", job_id, **fields)


@pytest.mark.parametrize("no_time", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"])
async def test_the_times_of_programs_that_have_none(tenant, receiver, no_time):
    """Go marshals a zero time as an instant; it is no more than a missing decoration, and the service lives on."""
    batch = tenant.batch("zero")
    secret = (await batch.register(receiver))["secret"]
    times = dict.fromkeys(("created_at", "started_at", "completed_at"), no_time)
    await batch.produce(queued("A", **times), completed("A", **times))
    await receiver.wait_for(1)
    (job,) = receiver.arrivals[0].verify(secret).data["jobs"]
    assert (job["created_at"], job["started_at"]) == (None, None)
    assert job["completed_at"] == receiver.arrivals[0].document["timestamp"] == (await batch.get())["completed_at"]
    assert job["completed_at"][:2] == "20"  # when the event occurred


async def test_a_registration_that_is_to_move_where_another_one_is(tenant, receiver):
    """The batch's deletion comes late: its name has a new life, with an id and a registration of its own."""
    old, new = tenant.batch("again", id="old"), tenant.batch("again", id="new")
    ended_at = now()
    await old.produce(queued("A"))
    await tenant.until_known("A")
    await old.register(receiver)
    await new.produce(queued("B"))
    await tenant.until_known("B")
    async with Receiver() as second:
        secret = (await new.register(second))["secret"]
        await old.produce(deleted(occurred_at=ended_at))
        await new.produce(completed("B"))
        await second.wait_for(1)
        await tenant.quiet()
        assert second.arrivals[0].verify(secret).data["batch"]["id"] == "new"
        assert (len(receiver.arrivals), len(second.arrivals)) == (0, 1)
    assert [batch["batch_id"] for batch in await tenant.api.list("/v1/batches") if batch["ended_at"]] == ["old"]
    assert len(await tenant.api.list("/v1/webhooks", kind="batch")) == 1


async def test_a_registration_that_moves_where_a_finish_is(tenant, receiver):
    """What it finds there is what a registration after the finish finds: the newest finish, at once."""
    old, new = tenant.batch("again", id="old"), tenant.batch("again", id="new", total=1)
    ended_at = now()
    await old.produce(queued("A"))
    await tenant.until_known("A")
    secret = (await old.register(receiver))["secret"]
    await new.produce(completed("B"))
    await tenant.caught_up()  # with all of its jobs it finishes at once
    await old.produce(deleted(occurred_at=ended_at))
    await receiver.wait_for(1)
    await tenant.quiet()
    assert [arrival.verify(secret).data["batch"]["id"] for arrival in receiver.arrivals] == ["new"]


async def test_a_registration_that_moves_past_another_end(tenant, receiver):
    """Two lives of a name have ended, the younger one first; the registration waits for the third."""
    old, new, third = (tenant.batch("again", id=name) for name in ("old", "new", "third"))
    ended_at = now()
    await old.produce(queued("A"))
    await tenant.until_known("A")
    secret = (await old.register(receiver))["secret"]
    await new.produce(queued("B"), deleted())
    await old.produce(deleted(occurred_at=ended_at))
    await third.produce(completed("C"))
    await receiver.wait_for(1)
    await tenant.quiet()
    assert [arrival.verify(secret).data["batch"]["id"] for arrival in receiver.arrivals] == ["third"]


async def test_removals_and_seals_that_come_again(tenant):
    """The whole topic once more: nothing that is known changes, and nobody is told anything."""
    batch = tenant.batch("again")
    events = [
        *(queued("A"), removed("A"), queued("A", generation=2), removed("A"), sealed(), deleted()),
        *(queued("A", generation=3), removed("A"), completed("A", generation=4), queued("B"), completed("B")),
    ]
    await batch.produce(*events)
    await batch.finished(1)
    await tenant.quiet()
    known = await batch.get(), await tenant.api.list(f"{batch.path}/jobs"), await tenant.api.list("/v1/batches")
    assert known[0]["counts"]["total"] == 2
    await batch.produce(*events)
    await tenant.quiet()
    assert known == (
        await batch.get(),
        await tenant.api.list(f"{batch.path}/jobs"),
        await tenant.api.list("/v1/batches"),
    )


async def test_the_kind_of_a_receipt_comes_after_its_end(tenant, receiver):
    oatmilk = replace(tenant, source="oatmilk")
    secret = (await tenant.register(receiver, event_types=["receipt.*"]))["secret"]
    await oatmilk.produce(completed("rcpt_1", "completed"))
    await tenant.quiet()
    assert receiver.arrivals == []
    await oatmilk.produce(queued("rcpt_1", kind="receipt"), queued("rcpt_1", kind="receipt"))
    await tenant.quiet()
    (arrival,) = receiver.arrivals
    told = arrival.verify(secret).document
    assert (told["type"], told["data"]["job"]["kind"]) == ("receipt.processed", "receipt")


@pytest.mark.parametrize("link", [{"subject_id": "art_1"}, {"previous_job_id": "job_1"}], ids=str)
@pytest.mark.parametrize("subscribed", [False, True], ids=["alone", "beside a subscriber"])
async def test_what_a_rerun_follows_comes_after_its_end(tenant, receiver, link, subscribed):
    distillers = replace(tenant, source="datadistillers")
    webhook = await tenant.register(receiver)
    async with Receiver() as other:
        if subscribed:
            await tenant.register(other, event_types=["*"])
        await distillers.produce(completed("job_1", "success", webhook_id=webhook["webhook_id"], subject_id="art_1"))
        await receiver.wait_for(1)
        await distillers.produce(completed("job_2", "success"))
        await tenant.quiet()
        await distillers.produce(*2 * [started("job_2", status="running", **link)])
        await tenant.quiet()
        assert [arrival.data["job"]["job_id"] for arrival in receiver.arrivals] == ["job_1", "job_2"]
        assert len(other.arrivals) == 2 * subscribed
        assert len({arrival.message_id for arrival in (*receiver.arrivals, *other.arrivals)}) == 2


async def test_the_batch_of_a_job_comes_after_its_end(tenant, receiver):
    await tenant.register(receiver, event_types=["*"], scopes=["job"], batch_names="invoices-*")
    await tenant.produce(completed("A"))
    await tenant.quiet()
    await tenant.batch("invoices-nov").produce(queued("A"), started("A"))
    await tenant.quiet()
    assert [arrival.data["batch"]["name"] for arrival in receiver.arrivals] == ["invoices-nov"]


@pytest.mark.parametrize("polls", [1, 3], ids=["in one poll", "one by one"])
@pytest.mark.parametrize("link", ["subject_id", "previous_job_id"])
async def test_a_rerun_that_overtakes_the_rerun_before_it(tenant, receiver, link, polls):
    distillers = replace(tenant, source="datadistillers")
    webhook = await tenant.register(receiver)
    first, second = ({"subject_id": "art_1"},) * 2 if link == "subject_id" else ({link: "job_1"}, {link: "job_2"})
    events = [
        completed("job_1", "success", webhook_id=webhook["webhook_id"], subject_id="art_1"),
        started("job_2", status="running", **first),
        completed("job_3", "success", **second),
    ]
    for number in range(polls):
        await distillers.produce(*events[number::polls], partition=0)
        await tenant.caught_up()
    await tenant.quiet()
    assert [arrival.data["job"]["job_id"] for arrival in receiver.arrivals] == ["job_1", "job_3"]
