"""The acceptance traces of the specification: a producer writes to Kafka, receivers are told."""

import asyncio
import itertools
import random
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime

import asyncpg
import pytest

from tests.e2e.story import (
    LATER,
    Tenant,
    completed,
    create_topic,
    deleted,
    generations_of,
    new_tenant,
    opened_topic,
    queued,
    sealed,
    started,
)
from tests.support.receiving import Receiver
from tests.support.service import build_settings, eventually, expire_leases

REPETITIONS = 1000


async def test_trace_01_a_batch_of_a_success_and_a_failure_is_one_message(tenant, receiver):
    batch = tenant.batch("invoices-nov")
    secret = (await batch.register(receiver))["secret"]
    earlier, later = "2026-11-30T09:00:00.000000Z", "2026-11-30T09:00:01.500000Z"
    await batch.produce(queued("A"), queued("B"))
    await batch.produce(completed("A", completed_at=later), completed("B", "failed", completed_at=earlier))

    await receiver.wait_for(1)
    await tenant.quiet()
    (arrival,) = receiver.arrivals
    data = arrival.verify(secret).data
    assert (arrival.type, data["scope"], data["tenant_id"]) == ("extraction.completed", "batch", tenant.tenant_id)
    assert data["counts"] == {"total": 2, "succeeded": 1, "failed": 1, "canceled": 0}
    assert {name: data["batch"][name] for name in ("name", "generation", "status", "all_done", "completed_at")} == {
        "name": "invoices-nov", "generation": 1, "status": "succeeded", "all_done": True, "completed_at": later,
    }  # fmt: skip


# --- Trace 2 ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def two_consumers(new_database, broker, topic, new_service):
    """A tenant of two processes that each consume one of two partitions, and deliver."""
    database = await new_database()
    await create_topic(broker, topic, 2)
    kafka = {"kafka_bootstrap_servers": broker, "kafka_topics": topic, "kafka_group_id": topic}
    services = [new_service(build_settings(database, **kafka)) for _ in range(2)]
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(service) for service in services))
        opened = await stack.enter_async_context(opened_topic(broker, topic, 2))
        tenant = await stack.enter_async_context(new_tenant(services[0], opened))
        await eventually(lambda: share_partitions(database))
        yield tenant
        applied = [await each.fetch_metric("job_events_total", outcome="applied") for each in services]
        assert min(applied) > 0, "one of them did all the work"


async def share_partitions(database):
    """Whether two processes hold one partition each: the offsets carry their fences."""
    connection = await asyncpg.connect(database)
    try:
        owners = [row["owner"].partition(":")[0] for row in await connection.fetch("SELECT owner FROM kafka_offsets")]
    finally:
        await connection.close()
    return len(set(owners)) == len(owners) == 2


async def test_trace_02_two_last_jobs_that_finish_at_once_are_one_message(two_consumers, receiver):
    tenant = two_consumers
    await tenant.register(receiver, event_types=["*"], scopes=["batch"], max_in_flight=100)
    batches = [tenant.batch(f"b{number}", total=2) for number in range(REPETITIONS)]
    await write_to_both(tenant, batches, queued)
    await write_to_both(tenant, batches, completed)
    await assert_each_is_told_once(tenant, receiver, batches, {"A": 1, "B": 1})


async def test_trace_02_a_put_beside_the_last_completion_is_one_message(two_consumers, receiver):
    tenant = two_consumers
    batches = [tenant.batch(f"b{number}", total=2) for number in range(REPETITIONS)]
    await write_to_both(tenant, batches, queued)
    for chunk in in_chunks(batches, 25):
        puts = (batch.register(receiver) for batch in chunk)
        await asyncio.gather(write_to_both(tenant, chunk, completed), *puts)
    await assert_each_is_told_once(tenant, receiver, batches, {"A": 1, "B": 1})


async def write_to_both(tenant, batches, build):
    """Job A of every batch to one partition, job B at the same time to the other."""
    for chunk in in_chunks(batches, 50):
        await asyncio.gather(
            *(
                tenant.produce(*(batch.complete(build(f"{batch.name}-{job}")) for batch in chunk), partition=partition)
                for partition, job in enumerate("AB")
            )
        )


async def assert_each_is_told_once(tenant, receiver, batches, jobs):
    await receiver.wait_for(lambda: len(receiver.arrivals) >= len(batches), within=180)
    await tenant.quiet()
    assert len(receiver.arrivals) == len(batches) == len(receiver.message_ids)
    told = {arrival.data["batch"]["name"]: arrival.data for arrival in receiver.arrivals}
    assert told.keys() == {batch.name for batch in batches}
    for name, data in told.items():
        assert data["batch"]["generation"] == 1
        assert generations_of(data["jobs"]) == {f"{name}-{job}": finish for job, finish in jobs.items()}


def in_chunks(items, size):
    return (items[start : start + size] for start in range(0, len(items), size))


# --- Traces 3 to 6 ------------------------------------------------------------------------------------------------


async def finish_with_two(batch):
    await batch.produce(queued("A"), queued("B"), completed("A"), completed("B", "failed"))


async def test_trace_03_a_job_added_after_the_finish_makes_the_next(tenant, receiver):
    batch = tenant.batch("invoices-nov")
    secret = (await batch.register(receiver))["secret"]
    await finish_with_two(batch)
    await receiver.wait_for(1)

    await batch.produce(queued("C"))
    await tenant.caught_up()
    reopened = await batch.get()
    assert (reopened["all_done"], reopened["completed_at"], reopened["generation"]) == (False, None, 2)

    await batch.produce(completed("C"))
    await receiver.wait_for(2)
    await tenant.quiet()
    first, second = receiver.arrivals
    assert first.message_id != second.message_id
    data = second.verify(secret).data
    assert data["batch"]["generation"] == 2
    assert generations_of(data["jobs"]) == {"A": 1, "B": 1, "C": 2}


@pytest.mark.parametrize(
    "kinds",
    [(queued, completed), (completed, queued), (completed,)],
    ids=["queued and completed together", "in reverse", "only completed"],
)
async def test_trace_03_the_same_however_its_events_come(tenant, receiver, kinds):
    batch = tenant.batch("invoices-nov")
    await batch.register(receiver)
    await finish_with_two(batch)
    await receiver.wait_for(1)
    await batch.produce(*(kind("C") for kind in kinds))
    await receiver.wait_for(2)
    await tenant.quiet()
    assert [arrival.data["batch"]["generation"] for arrival in receiver.arrivals] == [1, 2]
    assert receiver.arrivals[-1].job_ids == ["A", "B", "C"]


async def test_trace_04_a_receiver_that_was_down_gets_the_newest_finish_only(tenant, receiver):
    batch = tenant.batch("invoices-nov")
    await batch.register(receiver)
    await receiver.close()
    await finish_with_two(batch)
    await batch.delivery("retrying")
    await batch.produce(queued("C"), completed("C"))
    await batch.delivery("superseded")
    await receiver.open()

    await receiver.wait_for(1)
    await tenant.quiet()
    (arrival,) = receiver.arrivals
    assert arrival.data["batch"]["generation"] == 2
    assert generations_of(arrival.data["jobs"]) == {"A": 1, "B": 1, "C": 2}, "all of it is above 0, the last accepted"
    states = {each["generation"]: each["state"] for each in await batch.deliveries()}
    assert states == {1: "superseded", 2: "delivered"}


async def test_trace_05_a_late_registration_gets_the_newest_finish_once(tenant, receiver):
    await finish_with_two(tenant.batch("invoices-nov", total=2, version=1))
    batch = tenant.batch("invoices-nov", total=3, version=2)
    await batch.finished(1)
    await batch.produce(completed("C"))
    await batch.finished(2)

    created = await batch.register(receiver)
    assert (created["all_done"], created["generation"], created["delivery_queued"]) == (True, 2, True)
    await receiver.wait_for(1)
    repeated = await batch.register(receiver)
    assert (repeated["delivery_queued"], repeated.get("secret")) == (False, None)
    await tenant.quiet()
    (arrival,) = receiver.arrivals
    assert arrival.verify(created["secret"]).data["batch"]["generation"] == 2
    assert (await batch.get())["last_delivered_generation"] == 2


async def test_trace_06_after_another_url_nothing_goes_to_the_old_one(tenant, receiver):
    batch = tenant.batch("invoices-nov")
    old_secret = (await batch.register(receiver))["secret"]
    receiver.answer(500)
    late = receiver.hold()
    await finish_with_two(batch)
    await receiver.wait_for(2)  # the second attempt is on the wire

    async with Receiver() as successor:
        secret = (await batch.post("webhook/rotate-secret", {"overlap_seconds": 0}))["secret"]
        changed = await batch.register(successor)
        assert changed["result"] == "url_changed"
        late.release(410)
        await successor.wait_for(1)
        await tenant.quiet()
        (arrival,) = successor.arrivals
    assert arrival.verifies(secret) and not arrival.verifies(old_secret)
    assert arrival.message_id == receiver.arrivals[0].message_id
    assert arrival.body == receiver.arrivals[0].body
    assert len(receiver.arrivals) == 2
    assert (await batch.webhook())["state"] == "enabled"


# --- Trace 7 ------------------------------------------------------------------------------------------------------

CANCELED_AND_DELETED = {
    "cancel 1": lambda: completed("1", "canceled"),
    "cancel 2": lambda: completed("2", "canceled"),
    "delete": deleted,
}


async def test_trace_07_a_canceled_and_deleted_batch_tells_nothing_in_any_order(tenant, receiver):
    control = tenant.batch("kept")
    batches = {order: tenant.batch(", ".join(order)) for order in itertools.permutations(CANCELED_AND_DELETED)}
    for batch in (*batches.values(), control):
        await batch.register(receiver)
        await batch.produce(*(with_jobs_of(batch, each) for each in (queued("1"), queued("2"), completed("3"))))
    for order, batch in batches.items():
        await batch.produce(*(with_jobs_of(batch, CANCELED_AND_DELETED[each]()) for each in order))
    await control.produce(*(with_jobs_of(control, CANCELED_AND_DELETED[each]()) for each in ("cancel 1", "cancel 2")))

    await receiver.wait_for(1)  # what is not deleted is told of, when the grace of those before it is over
    await tenant.quiet()
    (arrival,) = receiver.arrivals
    assert (arrival.data["batch"]["name"], arrival.data["counts"]["canceled"]) == ("kept", 2)
    for batch in batches.values():
        assert await batch.webhook() is None
        assert await batch.deliveries() == []
        await assert_name_starts_anew(batch)
    await tenant.quiet()
    assert len(receiver.arrivals) == 1


async def assert_name_starts_anew(batch):
    """The same name is another incarnation, without registration; events of the old one do nothing to it."""
    await batch.produce(*(with_jobs_of(batch, each) for each in (queued("new"), completed("new"))))
    await batch.tenant.caught_up()
    anew = await batch.get()
    assert (anew["ended_at"], anew["generation"], anew["counts"]["total"]) == (None, 1, 1)
    await batch.produce(with_jobs_of(batch, completed("1", "succeeded")))
    await batch.tenant.caught_up()
    assert await batch.get() == anew
    assert await batch.webhook() is None


def with_jobs_of(batch, event):
    """Jobs are the tenant's, not the batch's: each batch has its own."""
    return event if event.get("job_id") is None else {**event, "job_id": f"{batch.name}/{event['job_id']}"}


async def test_trace_07_pending_deliveries_of_a_deleted_batch_are_canceled(tenant, receiver):
    batch = tenant.batch("invoices-nov")
    receiver.otherwise = 503
    await batch.register(receiver, retry_schedule=LATER)
    await batch.produce(completed("3"))
    await batch.delivery("retrying")
    await batch.produce(queued("1"), queued("2"), completed("1", "canceled"), completed("2", "canceled"), deleted())
    canceled = await batch.delivery("canceled")
    await tenant.quiet()
    assert canceled["reason"] == "batch_deleted"
    assert len(receiver.arrivals) == 1


# --- Traces 8 to 10: the sources' own words ------------------------------------------------------------------------


async def test_trace_08_the_first_end_of_a_run_holds(tenant, receiver):
    distillers = replace(tenant, source="datadistillers")
    webhook = await tenant.register(receiver)
    job = {"webhook_id": webhook["webhook_id"]}
    await distillers.produce(queued("job_1", **job, status="queued_for_processing"))
    await distillers.produce(completed("job_1", "cancelled", **job), completed("job_1", "success", **job))

    await receiver.wait_for(1)
    await tenant.quiet()
    (arrival,) = receiver.arrivals
    told = arrival.verify(webhook["secret"]).data["job"]
    assert (told["status"], told["source_status"]) == ("canceled", "cancelled")


@pytest.mark.parametrize("one_shot", [False, True], ids=["by id", "beside a one-shot"])
async def test_trace_09_a_rerun_goes_where_the_job_before_it_went(tenant, receiver, one_shot):
    distillers = replace(tenant, source="datadistillers")
    webhook = await tenant.register(receiver)
    await tenant.make_default_secret()
    async with Receiver() as once:
        destinations = {"webhook_id": webhook["webhook_id"], "webhook_url": once.url if one_shot else None}
        await distillers.produce(completed("job_1", "success", subject_id="art_1", **destinations))
        await (once if one_shot else receiver).wait_for(1)
        expected = [*([] if one_shot else ["job_1"]), "job_2", "job_3"]
        await distillers.produce(completed("job_2", "success", subject_id="art_1"))
        await receiver.wait_for(len(expected) - 1)
        await distillers.produce(completed("job_3", "success", subject_id="art_1", previous_job_id="job_2"))
        await receiver.wait_for(len(expected))
        await tenant.quiet()
        assert [arrival.data["job"]["job_id"] for arrival in once.arrivals] == (["job_1"] if one_shot else [])
    told = [arrival.verify(webhook["secret"]).data["job"] for arrival in receiver.arrivals]
    assert [job["job_id"] for job in told] == expected
    assert {job["subject_id"] for job in told} == {"art_1"}
    assert [job["previous_job_id"] for job in told[-2:]] == [None, "job_2"]


async def test_trace_10_each_run_of_a_receipt_is_told_once(tenant, receiver):
    oatmilk = replace(tenant, source="oatmilk")
    webhook = await tenant.register(receiver, event_types=["receipt.processed"])
    await oatmilk.produce(completed("rcpt_1", "failed", kind="receipt", error_code="unreadable"))
    await receiver.wait_for(1)
    await oatmilk.produce(queued("rcpt_1", kind="receipt", generation=2))
    await oatmilk.produce(completed("rcpt_1", "completed", kind="receipt", generation=2))
    await receiver.wait_for(2)
    await oatmilk.produce(completed("rcpt_1", "failed", kind="receipt", error_code="unreadable"))

    await tenant.quiet()
    assert [arrival.type for arrival in receiver.arrivals] == ["receipt.processed"] * 2
    failed, succeeded = (arrival.verify(webhook["secret"]).data["job"] for arrival in receiver.arrivals)
    assert (failed["generation"], failed["status"], failed["error_code"]) == (1, "failed", "unreadable")
    assert (succeeded["generation"], succeeded["status"], succeeded["error_code"]) == (2, "succeeded", None)


async def test_trace_10_a_run_that_is_still_retried_is_superseded_by_the_next(tenant, receiver):
    oatmilk = replace(tenant, source="oatmilk")
    receiver.answer(500)
    await tenant.register(receiver, event_types=["receipt.processed"], retry_schedule=LATER)
    await oatmilk.produce(completed("rcpt_1", "failed", kind="receipt", error_code="unreadable"))
    await tenant.delivery("retrying", job="rcpt_1")
    await oatmilk.produce(completed("rcpt_1", "completed", kind="receipt", generation=2))

    await receiver.wait_for(lambda: receiver.accepted)
    await tenant.quiet()
    states = {each["generation"]: each["state"] for each in await tenant.deliveries(job="rcpt_1")}
    assert states == {1: "superseded", 2: "delivered"}
    assert [arrival.data["job"]["generation"] for arrival in receiver.arrivals] == [1, 2]


# --- Traces 11 and 12: faults --------------------------------------------------------------------------------------


@pytest.fixture
async def own_service(new_database, broker, topic, new_service):
    """A service of this test's own, which it may end; with its database."""
    database = await new_database()
    await create_topic(broker, topic, 2)
    settings = build_settings(database, kafka_bootstrap_servers=broker, kafka_topics=topic, kafka_group_id=topic)
    async with new_service(settings) as service:
        yield service, database


@pytest.fixture
async def own_tenant(own_service, broker, topic):
    async with opened_topic(broker, topic, 2) as opened, new_tenant(own_service[0], opened) as tenant:
        yield tenant


async def test_trace_11_a_topic_that_is_read_again_sends_nothing(own_service, own_tenant, receiver):
    service, database = own_service
    await own_tenant.make_default_secret()
    await own_tenant.register(receiver, event_types=["*"])
    batch = own_tenant.batch("invoices-nov")
    await batch.register(receiver)
    await finish_with_two(batch)
    await own_tenant.produce(completed("single", webhook_url=receiver.url))
    await receiver.wait_for(lambda: count_finishes(receiver, 1) == 2)
    await batch.produce(queued("C"), completed("A", generation=2), completed("C"))
    await receiver.wait_for(lambda: count_finishes(receiver, 2) == 2)
    await own_tenant.quiet()
    before = len(receiver.arrivals)

    assert await service.stop() == 0
    connection = await asyncpg.connect(database)
    await connection.execute("DELETE FROM kafka_offsets")
    await connection.close()
    await service.start()
    await own_tenant.quiet()
    assert len(receiver.arrivals) == before


def count_finishes(receiver, generation):
    """How many webhooks were told of the batch's finish."""
    told = [arrival.data for arrival in receiver.accepted]
    return sum(data["scope"] == "batch" and data["batch"]["generation"] == generation for data in told)


async def test_trace_12_a_crash_before_the_record_repeats_the_same_bytes(own_service, own_tenant, receiver):
    service, database = own_service
    batch = own_tenant.batch("invoices-nov")
    secret = (await batch.register(receiver))["secret"]
    unanswered = receiver.hold()
    await finish_with_two(batch)
    await receiver.wait_for(1)
    await service.kill()
    service.change_group()
    unanswered.release(200)  # nobody hears it
    await expire_leases(database)
    await eventually(lambda: has_passed(receiver.arrivals[0].timestamp + 1))
    await service.start()

    await receiver.wait_for(2)
    await own_tenant.quiet()
    first, second = receiver.arrivals
    assert (first.message_id, first.body) == (second.message_id, second.body)
    assert first.timestamp < second.timestamp
    assert first.signatures != second.signatures
    first.verify(secret)
    second.verify(secret)


async def has_passed(instant):
    return time.time() >= instant


# --- Traces 13 to 17 -----------------------------------------------------------------------------------------------


async def test_trace_13_both_secrets_verify_during_the_overlap_and_one_after_it(tenant, receiver):
    batch = tenant.batch("invoices-nov")
    old = (await batch.register(receiver))["secret"]
    await finish_with_two(batch)
    await receiver.wait_for(1)
    rotated = await batch.post("webhook/rotate-secret", {"overlap_seconds": 10})
    new = rotated["secret"]
    await tell_again(batch, receiver)
    overlap_ends = datetime.fromisoformat(rotated["previous_valid_until"]).timestamp()
    await eventually(lambda: has_passed(overlap_ends + 1))  # a timestamp is its second's beginning
    await tell_again(batch, receiver)

    before, during, after = receiver.arrivals
    assert (before.verifies(old), before.verifies(new), len(before.signatures)) == (True, False, 1)
    assert (during.verifies(old), during.verifies(new), len(during.signatures)) == (True, True, 2)
    assert (after.verifies(old), after.verifies(new), len(after.signatures)) == (False, True, 1)
    assert len(receiver.message_ids) == 1


async def tell_again(batch, receiver):
    await batch.tenant.idle()
    await batch.post("renotify")
    await receiver.wait_for(len(receiver.arrivals) + 1)


async def test_trace_14_ten_thousand_jobs_stay_below_the_cap(tenant, receiver):
    batch = tenant.batch("archive", total=10_000)
    secret = (await batch.register(receiver))["secret"]
    await batch.produce(*(completed(f"doc_{number:05}") for number in range(10_000)))
    await receiver.wait_for(1, within=180)
    await tenant.quiet()
    (arrival,) = receiver.arrivals
    data = arrival.verify(secret).data
    assert len(arrival.body) <= 256_000
    assert data["counts"] == {"total": 10_000, "succeeded": 10_000, "failed": 0, "canceled": 0}
    assert data["jobs_truncated"] is True
    assert 0 < len(data["jobs"]) < 10_000


async def test_trace_15_an_empty_batch_is_not_done_and_a_canceled_one_is_canceled(tenant, receiver):
    batch = tenant.batch("invoices-nov")
    await batch.register(receiver)
    await batch.produce(sealed())
    await tenant.quiet()
    assert (await batch.get())["all_done"] is False
    assert receiver.arrivals == []

    await batch.produce(queued("A"), completed("A", "canceled"))
    await receiver.wait_for(1)
    await tenant.quiet()
    (arrival,) = receiver.arrivals
    assert (arrival.data["batch"]["status"], arrival.data["batch"]["generation"]) == ("canceled", 1)


async def test_trace_16_a_destination_that_is_learned_after_the_end_gets_its_delivery(tenant, receiver):
    secret = await tenant.make_default_secret()
    await tenant.produce(completed("A"))
    await tenant.caught_up()
    assert receiver.arrivals == []
    await tenant.produce(queued("A", webhook_url=receiver.url))
    await receiver.wait_for(1)
    await tenant.quiet()
    (arrival,) = receiver.arrivals
    assert arrival.verify(secret).data["job"]["job_id"] == "A"


async def test_trace_17_shuffled_events_end_in_the_same_message(new_database, broker, topic, new_service, receiver):
    """Two services with databases of their own read one topic: their last messages have the same ids."""
    await create_topic(broker, topic, 1)
    async with AsyncExitStack() as stack, Receiver() as other:
        opened = await stack.enter_async_context(opened_topic(broker, topic, 1))
        one = await stack.enter_async_context(new_tenant(await start(new_service, new_database, broker, topic), opened))
        service = await start(new_service, new_database, broker, topic, kafka_group_id=f"{topic}-2")
        two = replace(one, api=one.api.of_service(service))
        for tenant, where in ((one, receiver), (two, other)):
            await tenant.register(where, event_types=["*"], scopes=["batch"])
        batches = [one.batch(f"b{seed}") for seed in range(8)]
        for seed, batch in enumerate(batches):
            await write_shuffled(batch, random.Random(seed))
        last = [await last_messages(tenant, where, batches) for tenant, where in ((one, receiver), (two, other))]
    assert last[0] == last[1]


async def start(new_service, new_database, broker, topic, **own):
    kafka = {"kafka_bootstrap_servers": broker, "kafka_topics": topic, "kafka_group_id": topic}
    service = new_service(build_settings(await new_database(), **{**kafka, **own}))
    await service.start()
    return service


async def write_shuffled(batch, chance):
    jobs = [f"{batch.name}-{job}" for job in "ABC"]
    events = [event for job in jobs for event in (queued(job), started(job), completed(job))]
    chance.shuffle(events)
    for few in in_chunks(events, chance.choice([1, 2, 9])):
        await batch.produce(*few)


async def last_messages(tenant: Tenant, receiver: Receiver, batches) -> dict[str, str]:
    """The id of every batch's last message, which tells of all three jobs."""

    def all_told():
        told = {arrival.data["batch"]["name"] for arrival in receiver.accepted if len(arrival.data["jobs"]) == 3}
        return told == {batch.name for batch in batches}

    await receiver.wait_for(all_told)
    await tenant.quiet()
    newest = sorted(receiver.arrivals, key=lambda arrival: arrival.data["batch"]["generation"])
    assert all(
        arrival.job_ids == [f"{name}-A", f"{name}-B", f"{name}-C"]
        for name, arrival in {arrival.data["batch"]["name"]: arrival for arrival in newest}.items()
    )
    return {arrival.data["batch"]["name"]: arrival.message_id for arrival in newest}
