"""Deliveries, messages and replays: lists, redelivering, canceling, expunging."""

import asyncio
import json

import pytest

from service.profiles import load_profiles
from service.store.replays import advance_replays
from tests.support.api import SEALER, URL_1, running_api
from tests.support.delivering import Queue, deliver
from tests.support.receivers import NO_CONTENT, answering, receive

HOOK = "/v1/batches/nov/webhook"


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running


async def one_delivery(api):
    await api.put(HOOK, {"url": URL_1})
    await api.finish("nov")
    (delivery,) = await api.deliveries()
    return f"/v1/deliveries/{delivery['delivery_id']}"


async def test_redeliver_of_a_waiting_one_keeps_its_schedule(api):
    path = await one_delivery(api)
    await api.connection.execute("UPDATE deliveries SET state = 1, attempts = 2, due_at = now() + interval '1 h'")
    assert (await api.post(path + "/redeliver")).status == 202
    (row,) = await api.fetch("SELECT *, due_at <= now() AS due, resume_due_at > now() AS later FROM deliveries")
    assert (row["due"], row["resume_state"], row["later"], row["attempts"]) == (True, 1, True, 2)
    again = await api.post(path + "/redeliver")
    assert (again.status, again.code) == (409, "in_flight")


@pytest.mark.parametrize(("state", "force"), [(5, False), (4, True), (6, True)])
async def test_redeliver_of_a_finished_one(api, state, force):
    path = await one_delivery(api)
    await api.conclude(state, "exhausted" if state == 5 else None)
    if force:
        assert (await api.post(path + "/redeliver")).status == 409
    reply = await api.post(path + "/redeliver", {"force": force})
    assert (reply.status, reply.json["state"]) == (202, "pending")
    (row,) = await api.fetch("SELECT * FROM deliveries")
    assert (row["resume_state"], row["attempts"], row["delivery_id"]) == (state, 1, int(path.rpartition("_")[2]))
    assert await api.value("SELECT count(*) FROM deliveries_done") == 0
    assert len(await api.deliveries()) == 1
    assert (await api.delete(HOOK)).status == 204
    assert await api.value("SELECT state FROM deliveries_done") == state


async def test_redeliver_is_refused(api):
    path = await one_delivery(api)
    await api.connection.execute("UPDATE deliveries SET lease_token = 1, lease_until = now()")
    assert (await api.post(path + "/redeliver")).code == "in_flight"
    assert (await api.post(path + "/cancel")).code == "in_flight"
    await api.connection.execute("UPDATE deliveries SET lease_token = NULL, lease_until = NULL")
    await api.post(HOOK + "/pause")
    assert (await api.post(path + "/redeliver")).code == "webhook_paused"
    await api.connection.execute("UPDATE webhooks SET state = 2, state_reason = 'failing'")
    assert (await api.post(path + "/redeliver")).code == "webhook_disabled"
    await api.post(HOOK + "/enable")
    canceled = await api.post(path + "/cancel")
    assert (canceled.status, canceled.json["state"], canceled.json["reason"]) == (200, "canceled", "by_request")
    assert (await api.post(path + "/cancel")).code == "finished"
    assert (await api.post(path + "/redeliver", {"force": True})).code == "canceled"
    assert (await api.as_tenant("t2").post(path + "/redeliver")).status == 404
    assert (await api.as_tenant("t2").get(path)).status == 404


async def test_f34_every_redeliver_goes_out(api, database):
    async with receive(answering(NO_CONTENT)) as receiver, Queue(database) as queue, deliver(database, sealer=SEALER):
        await api.put(HOOK, {"url": receiver.url()})
        await api.finish("nov")
        (delivery,) = await api.deliveries()
        path = f"/v1/deliveries/{delivery['delivery_id']}"
        for count in (1, 2, 3):
            await queue.wait("attempts", "true", count=count)
            await queue.wait("deliveries_done", "state = 4")
            if count < 3:
                assert (await api.post(path + "/redeliver", {"force": True})).status == 202
        shown = (await api.get(path)).json
    assert shown["state"] == "delivered" and len(shown["attempts"]) == 3
    assert {request.get("webhook-id") for request in receiver.requests} == {delivery["message_id"]}


async def test_a_destination_that_was_missing_is_redeliverable_once_it_exists(api):
    await api.send(api.event("job.completed", "j1", status="succeeded", webhook_id="wanted"))
    (failed,) = await api.deliveries()
    assert (failed["state"], failed["reason"], failed["webhook_id"]) == ("failed", "destination_missing", "wanted")
    path = f"/v1/deliveries/{failed['delivery_id']}/redeliver"
    assert (await api.post(path)).code == "webhook_missing"
    await api.post("/v1/webhooks", {"url": URL_1, "id": "wanted"})
    assert (await api.post(path)).status == 202
    (row,) = await api.fetch("SELECT resume_state, resume_reason FROM deliveries")
    assert tuple(row) == (5, "destination_missing")


async def test_filters_and_pages(api):
    await api.post("/v1/webhooks", {"url": URL_1, "id": "all", "event_types": ["*"]})
    for name in ("b1", "b2", "b3"):
        await api.finish(name, f"job-{name}")
    await api.conclude(5, "exhausted", "batch_key = (SELECT batch_key FROM batches WHERE name = 'b2')")
    everything = await api.deliveries("?limit=200")
    numbers = [int(d["delivery_id"][4:]) for d in everything]
    assert numbers == sorted(numbers, reverse=True)
    for query, wanted in (
        ("batch=b1", lambda d: d["batch"] == "b1" and d["scope"] == "batch"),
        ("job=job-b2", lambda d: d["job_id"] == "job-b2"),
        ("state=failed", lambda d: d["state"] == "failed"),
        ("state=pending", lambda d: d["state"] == "pending"),
        ("webhook=all", lambda d: True),
        ("webhook=none", lambda d: False),
        ("webhook=all&state=failed", lambda d: d["state"] == "failed"),
        ("type=extraction.completed", lambda d: True),
        ("type=other", lambda d: False),
        ("since=2999-01-01T00:00:00Z", lambda d: False),
        ("until=2000-01-01T00:00:00Z", lambda d: False),
        ("since=2000-01-01T00:00:00Z&until=2999-01-01T00:00:00Z", lambda d: True),
    ):
        found = await api.deliveries(f"?{query}")
        assert [d["delivery_id"] for d in found] == [d["delivery_id"] for d in everything if wanted(d)], query
    seen, cursor = [], ""
    while cursor is not None:
        page = (await api.get("/v1/deliveries?limit=2" + (f"&cursor={cursor}" if cursor else ""))).json
        seen += page["data"]
        cursor = page["next_cursor"]
    assert [d["delivery_id"] for d in seen] == [d["delivery_id"] for d in everything]
    assert await api.as_tenant("t2").deliveries() == []
    assert (await api.get("/v1/jobs/job-b1")).status == 200


async def test_attempts_are_shown_with_escaped_answers(api):
    path = await one_delivery(api)
    await api.connection.execute(
        """INSERT INTO attempts (delivery_id, number, started_at, webhook_key, duration_ms, outcome, status, excerpt, flags,
            origin) SELECT delivery_id, 1, now(), webhook_key, 12, 'http_error', 500, '\\x1b5b31ff00'::bytea, '{body_cut}', 'https://a'
        FROM deliveries"""
    )
    (attempt,) = (await api.get(path)).json["attempts"]
    assert (attempt["status"], attempt["flags"], attempt["answer"]) == (500, ["body_cut"], "\\x1b[1\\xff\\x00")


async def test_expunging_a_body(api):
    path = await one_delivery(api)
    (delivery,) = await api.deliveries()
    message = f"/v1/messages/{delivery['message_id']}"
    assert '"nov"' in (await api.get(message)).json["body"]
    assert (await api.as_tenant("t2").delete(message + "/body")).status == 404
    assert (await api.delete(message + "/body")).status == 204
    shown = (await api.get(message)).json
    assert (shown["body"], shown["size"]) == (None, 0) and shown["expunged_at"]
    assert (await api.get(path)).json["state"] == "canceled"
    assert (await api.delete(message + "/body")).status == 204
    assert (await api.post("/v1/batches/nov/renotify")).code == "body_gone"


async def replay(api, **body):
    return await api.post("/v1/webhooks/all/replay", {"since": "2000-01-01T00:00:00Z", "which": "failed", **body})


async def run_replays(api):
    """Take all steps; return, for each message that was made, whether it is about a rerun."""
    made = []
    while await advance_replays(api.database, api.parts.registry, load_profiles(), made.append):
        await api.connection.execute("UPDATE replays SET next_at = now()")
    return made


async def test_replays_of_failed_held_and_all(api):
    await api.post("/v1/webhooks", {"url": URL_1, "id": "all", "event_types": ["*"], "scopes": ["batch"]})
    for number in range(4):
        await api.finish(f"b{number}", f"j{number}")
    await api.conclude(5, "exhausted", "delivery_id IN (SELECT delivery_id FROM deliveries ORDER BY 1 LIMIT 2)")
    await api.conclude(5, "held_too_long", "delivery_id IN (SELECT delivery_id FROM deliveries ORDER BY 1 LIMIT 1)")
    await api.conclude(4)
    counts = {
        which: (await replay(api, which=which, dry_run=True)).json["matched"] for which in ("failed", "held", "all")
    }
    assert counts == {"failed": 3, "held": 1, "all": 4}
    started = (await replay(api, rate=2)).json["replay"]
    assert (await replay(api)).code == "replay_running"
    await run_replays(api)
    shown = (await api.get(f"/v1/replays/{started['replay_id']}")).json
    assert (shown["state"], shown["queued"], shown["scanned"]) == ("done", 3, 4)
    rows = await api.fetch(
        "SELECT extra, attempts, extract(epoch FROM due_at - min(due_at) OVER ())::float AS at FROM deliveries ORDER BY due_at"
    )
    assert [tuple(row) for row in rows] == [(2, 1, 0.0), (2, 1, 0.5), (2, 1, 1.0)]
    assert await api.value("SELECT count(*) FROM deliveries WHERE attempts_before = 1") == 3
    assert (await api.as_tenant("t2").get(f"/v1/replays/{started['replay_id']}")).status == 404


async def test_a_replay_of_what_is_missing_takes_the_newest_of_each(api):
    await api.finish("b0", "j0")
    await api.finish("b0", "j0", generation=2)
    await api.finish("b1", "j1")
    await api.send(api.event("batch.deleted", "", "b9"))
    await api.post(
        "/v1/webhooks", {"url": URL_1, "id": "all", "event_types": ["*"], "batch_names": ["b0"], "scopes": ["batch"]}
    )
    started = await replay(api, which="missing")
    assert started.status == 202
    await run_replays(api)
    (delivery,) = await api.deliveries()
    assert (delivery["batch"], delivery["generation"], delivery["origin"]) == ("b0", 2, "replay")
    await replay(api, which="missing")
    await run_replays(api)
    assert len(await api.deliveries()) == 1


@pytest.mark.parametrize("which", ["failed", "all", "missing"])
async def test_a_replay_leaves_out_what_has_no_body_any_more(api, which):
    """Bodies and history age by partitions of their own: a row of either may outlive its body."""
    await api.post("/v1/webhooks", {"url": URL_1, "id": "first", "event_types": ["*"]})
    await api.send(api.event("job.completed", "old", status="succeeded"))
    await api.post("/v1/webhooks", {"url": URL_1, "id": "all", "event_types": ["*"]})
    await api.send(api.event("job.completed", "new", status="succeeded"))
    await api.conclude(5, "exhausted")
    before = await api.deliveries("?webhook=all")
    await api.fetch("DELETE FROM message_bodies")
    await api.send(api.event("job.completed", "kept", status="succeeded"))
    await api.conclude(5, "exhausted", "job_id = 'kept'")
    started = (await replay(api, which=which)).json["replay"]
    await run_replays(api)
    queued = await api.fetch("SELECT job_id FROM deliveries")
    assert [row["job_id"] for row in queued] == ([] if which == "missing" else ["kept"])
    assert (await api.get(f"/v1/replays/{started['replay_id']}")).json["queued"] == len(queued)
    old = [d for d in await api.deliveries("?webhook=all") if d["job_id"] != "kept"]
    assert old == before, "what had failed still says so"


async def test_a_replay_makes_the_messages_of_runs_that_nobody_wanted(api):
    await api.finish("b0", "j0", status="failed")
    await api.finish("b0", "j0", generation=2)
    await api.finish("b1", "j1", "j2")
    await api.send(api.event("job.started", "j3", "b1", generation=1))
    await api.as_tenant("t2").finish("b0", "other")
    assert await api.value("SELECT count(*) FROM messages WHERE scope = 1") == 0
    for name, more in {"all": {}, "later": {"batch_names": ["b0"]}}.items():
        await api.post("/v1/webhooks", {"url": URL_1, "id": name, "event_types": ["*"], "scopes": ["job"], **more})
    until = (await api.value("SELECT now()")).isoformat()
    span = {"which": "missing", "until": until}
    assert (await replay(api, **span, dry_run=True)).json["matched"] >= 3
    started = (await replay(api, **span)).json["replay"]["replay_id"]
    assert sorted(await run_replays(api)) == [False, False, True]
    shown = (await api.get(f"/v1/replays/{started}")).json
    assert (shown["state"], shown["queued"]) == ("done", 3)
    made = {d["job_id"]: d for d in await api.deliveries()}
    assert {job: (d["generation"], d["origin"], d["scope"]) for job, d in made.items()} == {
        "j0": (2, "replay", "job"), "j1": (1, "replay", "job"), "j2": (1, "replay", "job"),
    }  # fmt: skip
    body = json.loads((await api.get(f"/v1/messages/{made['j0']['message_id']}")).json["body"])
    assert body["type"] == "extraction.completed" and body["data"]["batch"]["name"] == "b0"
    assert (body["data"]["job"]["generation"], body["data"]["job"]["status"]) == (2, "succeeded")
    await replay(api, **span)
    await run_replays(api)
    assert len(await api.deliveries()) == 3, "once is enough"
    path = "/v1/webhooks/later/replay"
    await api.post(path, {"since": "2000-01-01T00:00:00Z", **span})
    assert await run_replays(api) == []
    (late,) = await api.deliveries("?webhook=later")
    assert late["message_id"] == made["j0"]["message_id"], "made once, for whoever wants it"


async def test_a_message_made_by_a_replay_is_the_one_that_ingest_makes(api):
    await api.send(api.event("job.completed", "j1", status="succeeded"))
    await api.post("/v1/webhooks", {"url": URL_1, "id": "all", "event_types": ["*"]})
    await replay(api, which="missing")
    await run_replays(api)
    (made,) = await api.deliveries()
    again = (await api.get(f"/v1/messages/{made['message_id']}")).json
    await api.post("/v1/webhooks", {"url": URL_1, "id": "named"})
    await api.send(api.event("job.queued", "j1", webhook_id="named"))
    learned = await api.deliveries("?webhook=named")
    assert [d["message_id"] for d in learned] == [made["message_id"]]
    await api.delete(f"/v1/messages/{made['message_id']}/body")
    await api.post("/v1/webhooks", {"url": URL_1, "id": "third", "event_types": ["*"]})
    await api.post("/v1/webhooks/third/replay", {"since": "2000-01-01T00:00:00Z", "which": "all"})
    await run_replays(api)
    assert await api.deliveries("?webhook=third") == [], "an expunged body is not made again"
    assert again["body"] and (await api.get(f"/v1/messages/{made['message_id']}")).json["body"] is None


async def test_replays_over_deleted_batches(api):
    await api.post("/v1/webhooks", {"url": URL_1, "id": "all", "event_types": ["*"], "scopes": ["batch"]})
    await api.finish("b0", "j0")
    await api.conclude(5, "exhausted")
    await api.finish("b1", "j1")
    await api.send(api.event("batch.deleted", "", "b0"), api.event("batch.deleted", "", "b1"))
    await api.post("/v1/webhooks", {"url": URL_1, "id": "new", "event_types": ["*"], "scopes": ["batch"]})
    await api.post("/v1/webhooks/new/replay", {"since": "2000-01-01T00:00:00Z", "which": "missing"})
    await run_replays(api)
    assert await api.deliveries("?webhook=new") == [], "there is nothing to say about a deleted batch"
    started = (await replay(api, which="all")).json["replay"]["replay_id"]
    await run_replays(api)
    states = {d["batch"]: (d["state"], d["reason"], d["origin"]) for d in await api.deliveries("?webhook=all")}
    assert states == {"b0": ("pending", None, "replay"), "b1": ("canceled", "batch_deleted", "ordinary")}
    assert (await api.get(f"/v1/replays/{started}")).json["queued"] == 1
    await api.finish("b0", "j9")
    states = {(d["batch_id"], d["generation"]): d["state"] for d in await api.deliveries("?webhook=all&batch=b0")}
    assert list(states.values()) == ["pending", "pending"], "an incarnation's finish leaves the other's alone"


async def test_a_replay_can_be_stopped_and_ends_with_its_webhook(api):
    await api.post("/v1/webhooks", {"url": URL_1, "id": "all"})
    first = (await replay(api)).json["replay"]["replay_id"]
    assert (await api.delete(f"/v1/replays/{first}")).status == 204
    assert (await api.get(f"/v1/replays/{first}")).json["state"] == "canceled"
    second = (await replay(api)).json["replay"]["replay_id"]
    await api.delete("/v1/webhooks/all")
    await run_replays(api)
    shown = (await api.get(f"/v1/replays/{second}")).json
    assert (shown["state"], shown["reason"]) == ("failed", "webhook_deleted")
    assert (await api.delete("/v1/replays/rpl_77")).status == 404
    assert (await replay(api)).status == 404


async def test_a_large_replay_needs_a_dry_run(api, monkeypatch):
    from service.store import replays

    monkeypatch.setattr(replays, "MANY", 0)
    await api.post("/v1/webhooks", {"url": URL_1, "id": "all", "event_types": ["*"]})
    await api.finish("b0", "j0")
    await api.conclude(5, "exhausted")
    assert (await replay(api, force=True)).code == "replay_too_large"
    assert (await replay(api, dry_run=True)).status == 202
    assert (await replay(api)).code == "replay_too_large"
    assert (await replay(api, force=True)).status == 202


async def test_a_failed_redeliver_leaves_everything_as_it_was(api, database):
    refusing = answering(b"HTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n")
    async with receive(refusing) as receiver, Queue(database) as queue, deliver(database, sealer=SEALER):
        await api.put(HOOK, {"url": receiver.url(), "retry_schedule": [3600]})
        await api.finish("nov")
        await queue.wait("deliveries", "state = 1")
        (waiting,) = await api.deliveries()
        path = f"/v1/deliveries/{waiting['delivery_id']}"
        assert (await api.post(path + "/redeliver")).status == 202
        await queue.wait("attempts", "true", count=2)
        await queue.wait("deliveries", "state = 1 AND lease_token IS NULL AND resume_state IS NULL")
        (again,) = await api.deliveries()
        assert (again["next_attempt_at"], again["attempt_count"]) == (waiting["next_attempt_at"], 2)
        assert await api.value("SELECT attempts - attempts_before FROM deliveries") == 1
        await api.conclude(5, "exhausted")
        assert (await api.post(path + "/redeliver")).status == 202
        await queue.wait("attempts", "true", count=3)
        await queue.wait("deliveries_done", "state = 5 AND reason = 'exhausted'")
    shown = (await api.get(path)).json
    assert (shown["state"], [attempt["number"] for attempt in shown["attempts"]]) == ("failed", [1, 2, 3])


async def test_another_url_reaches_an_attempt_that_is_on_the_wire(api, database):
    """Trace 6: the old receiver's late refusal changes nothing, the delivery goes to the new URL with a fresh schedule."""
    asked, release = asyncio.Event(), asyncio.Event()

    async def late(visit):
        await visit.request()
        asked.set()
        await release.wait()
        await visit.say(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n")

    async with (
        receive(late) as old,
        receive(answering(NO_CONTENT)) as new,
        Queue(database) as queue,
        deliver(database, sealer=SEALER),
    ):
        await api.put(HOOK, {"url": old.url()})
        await api.finish("nov")
        await asyncio.wait_for(asked.wait(), 60)
        assert (await api.put(HOOK, {"url": new.url()})).json["result"] == "url_changed"
        release.set()
        await queue.wait("deliveries_done", "state = 4")
        assert (await api.get(HOOK)).json["state"] == "enabled"
        assert (len(old.requests), len(new.requests)) == (1, 1)
        assert (await api.get(HOOK)).json["last_delivered_generation"] == 1


async def test_a_pause_and_an_enable_beside_a_running_engine(api, database):
    async with receive(answering(NO_CONTENT)) as receiver, Queue(database) as queue, deliver(database, sealer=SEALER):
        await api.put(HOOK, {"url": receiver.url()})
        await api.post(HOOK + "/pause")
        await api.finish("nov")
        await queue.wait("deliveries", "state = 2 AND reason = 'paused'")
        await api.post(HOOK + "/enable")
        await queue.wait("deliveries_done", "state = 4")
        assert len(receiver.requests) == 1


async def test_attempt_numbers_grow_while_the_schedule_starts_over(api, database):
    refusing = answering(b"HTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n")
    async with receive(refusing) as receiver, Queue(database) as queue, deliver(database, sealer=SEALER):
        await api.put(HOOK, {"url": receiver.url(), "retry_schedule": [3600]})
        await api.finish("nov")
        for count in (1, 2, 3):
            await queue.wait("deliveries", "state = 1 AND lease_token IS NULL AND attempts = $1", count)
            assert await api.value("SELECT attempts - attempts_before FROM deliveries") == 1, "one step is spent"
            assert (await api.post("/v1/batches/nov/renotify", {"force": True})).status == 202
        await queue.wait("deliveries", "state = 1 AND lease_token IS NULL AND attempts = 4")
        await api.conclude(5, "exhausted")
        await api.post("/v1/batches/nov/renotify")
        await queue.wait("deliveries", "state = 1 AND lease_token IS NULL AND attempts = 5")
        (delivery,) = await api.deliveries()
        shown = (await api.get(f"/v1/deliveries/{delivery['delivery_id']}")).json
    assert [attempt["number"] for attempt in shown["attempts"]] == [1, 2, 3, 4, 5]
    assert [request.get("webhook-attempt") for request in receiver.requests] == ["1", "2", "3", "4", "5"]
    assert shown["attempt_count"] == 5
