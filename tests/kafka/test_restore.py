"""An older backup and Kafka together are the whole: what has finished since is made, and delivered, again."""

import pytest

from tests.e2e.load import Ledger
from tests.e2e.story import completed, new_tenant, queued
from tests.support.dumping import dump, restore
from tests.support.receiving import Answer, Receiver
from tests.support.service import eventually, expire_leases

pytestmark = pytest.mark.timeout(400)

TENANT_JOBS = {"event_types": ["*"], "scopes": ["job"], "max_in_flight": 20}
SINCE = {*(f"after-{number}" for number in range(20)), "before-1", "batch-0-C", "batch-1-B", "batch-2-B"}
"""Jobs that finish after the backup."""
FINISHED_BEFORE = 9  # five of no batch, an A of each batch, and a B


@pytest.fixture
async def down():
    """A receiver that refuses everything until it is told otherwise."""
    async with Receiver() as receiver:
        receiver.otherwise = 503
        yield receiver


async def test_a_restored_backup_delivers_every_finish_since_under_the_ids_that_are_known(
    settings, opened, new_service, new_database, receiver, down, tmp_path
):
    backup = tmp_path / "backup"
    async with new_service.fork(settings) as service, new_tenant(service, opened) as tenant:
        told = await tenant.register(receiver, **TENANT_JOBS)
        await tenant.register(down, **{**TENANT_JOBS, "retry_schedule": [5] * 30})
        batches = [tenant.batch(f"batch-{number}") for number in range(3)]
        for batch in batches:
            await batch.register(receiver)
        await before_the_backup(tenant, batches, told, down)
        await dump(settings["WEBHOOKD_DATABASE_URL"], backup)
        known_before = set(Ledger(receiver).by_message)
        await after_the_backup(tenant, batches)
        await receiver.wait_for(
            lambda: len(Ledger(receiver).by_message) == len(known_before) + len(SINCE) + len(batches)
        )
        known = Ledger(receiver)
        newest = [(await batch.get())["generation"] for batch in batches]
        await service.stop()
        await tenant.produce(completed("while-it-was-down"))
        already = len(receiver.arrivals)

        settings["WEBHOOKD_DATABASE_URL"] = service.settings["WEBHOOKD_DATABASE_URL"] = await new_database(
            migrated=False
        )
        await restore(settings["WEBHOOKD_DATABASE_URL"], backup)
        await expire_leases(settings["WEBHOOKD_DATABASE_URL"])
        down.otherwise = Answer()
        refused = list(down.arrivals)
        await service.start()
        await tenant.quiet()
        again = Ledger(receiver, since=already)
        assert again.jobs == {*SINCE, "while-it-was-down"}
        assert [(await batch.get())["generation"] for batch in batches] == newest
        told = {message_id for message_id in again.by_message if message_id in known.by_message}
        assert told == known.by_message.keys() - known_before, "what is known comes again under its own id"
        assert len(again.by_message) == len(told) + 1
        again.assert_no_duplicates()
        assert await service.fetch_metric("event_anomalies_total", kind="missed_records") == 0
    what_was_pending_is_sent_with_the_same_bytes(down, refused)


async def before_the_backup(tenant, batches, told, down):
    """Some have finished, one is to run again, two batches are half done; and one receiver has refused everything."""
    await tenant.produce(*(completed(f"before-{number}") for number in range(5)))
    for batch in batches:
        await batch.produce(completed(f"{batch.name}-A"), queued(f"{batch.name}-B"))
    await batches[0].produce(completed(f"{batches[0].name}-B"))
    await tenant.caught_up()
    await batches[0].delivery("delivered", webhook=(await batches[0].webhook())["webhook_id"])

    async def all_are_recorded():
        deliveries = await tenant.deliveries(webhook=told["webhook_id"])
        return [each["state"] for each in deliveries] == ["delivered"] * FINISHED_BEFORE

    await eventually(all_are_recorded)
    await down.wait_for(5)
    await tenant.until_known("batch-2-B")


async def after_the_backup(tenant, batches):
    """Jobs finish, a finished one runs again, and every batch finishes (the first one once more)."""
    await tenant.produce(*(completed(f"after-{number}") for number in range(20)))
    await tenant.produce(queued("before-1", generation=2), completed("before-1", "failed", generation=2))
    await batches[0].produce(completed(f"{batches[0].name}-C"))
    for batch in batches[1:]:
        await batch.produce(completed(f"{batch.name}-B"))


def what_was_pending_is_sent_with_the_same_bytes(receiver, refused):
    """All but the run that has a successor by now, which may have superseded it."""
    accepted = {arrival.message_id: arrival.body for arrival in receiver.accepted}
    pending = {arrival.message_id: arrival.body for arrival in refused if not is_first_run_of(arrival, "before-1")}
    assert pending
    assert {message_id: accepted.get(message_id) for message_id in pending} == pending


def is_first_run_of(arrival, job_id):
    job = arrival.data["job"]
    return (job["job_id"], job["generation"]) == (job_id, 1)
