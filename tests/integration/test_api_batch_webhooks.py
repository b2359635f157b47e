"""The registration rules of a batch webhook, over the wire."""

import asyncio
from urllib.parse import quote

import pytest

from tests.support.api import URL_1, URL_2, running_api

HOOK = "/v1/batches/nov/webhook"


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running


async def test_put_before_the_batch_exists_then_again(api):
    first = await api.put(HOOK, {"url": URL_1})
    assert first.status == 201
    made = first.json
    assert made["secret"].startswith("whsec_") and made["result"] == "created"
    assert (made["all_done"], made["generation"], made["last_delivered_generation"]) == (False, 1, None)
    assert (made["delivery_queued"], made["delivery_reason"]) == (False, "no_finish")
    again = await api.put(HOOK, {"url": URL_1, "retry_schedule": [5, 300, 1800], "timeout_seconds": 15})
    assert (again.status, again.json["result"], again.json["secret"]) == (200, "unchanged", None)
    assert again.json["revision"] == made["revision"]
    same_secret = await api.put(HOOK, {"url": URL_1, "secret": made["secret"]})
    assert (same_secret.status, same_secret.json["result"]) == (200, "unchanged")
    other = await api.put(HOOK, {"url": URL_1, "secret": "whsec_" + "QUJD" * 10})
    assert (other.status, other.code) == (422, "secret_not_live")
    assert other.json["errors"][0]["field"] == "secret"


async def test_it_fires_at_the_finish(api):
    await api.put(HOOK, {"url": URL_1})
    await api.finish("nov")
    (delivery,) = await api.deliveries()
    assert (delivery["state"], delivery["batch"], delivery["generation"]) == ("pending", "nov", 1)
    shown = (await api.get(HOOK)).json
    assert (shown["all_done"], shown["pending_count"], shown["state"]) == (True, 1, "enabled")
    assert "secret" not in shown


async def test_put_after_a_finish_sends_it_once(api):
    await api.finish("nov")
    reply = await api.put(HOOK, {"url": URL_1})
    assert (reply.status, reply.json["delivery_queued"], reply.json["delivery_reason"]) == (
        201,
        True,
        "undelivered_finish",
    )
    again = await api.put(HOOK, {"url": URL_1})
    assert (again.json["delivery_queued"], len(await api.deliveries())) == (False, 1)


async def test_put_after_a_delivered_finish_sends_nothing(api):
    await api.put(HOOK, {"url": URL_1})
    await api.finish("nov")
    await api.conclude()
    assert (await api.put(HOOK, {"url": URL_2})).json["delivery_reason"] == "already_delivered"
    assert (await api.delete(HOOK)).status == 204
    reply = await api.put(HOOK, {"url": URL_1})
    assert (reply.status, reply.json["delivery_queued"]) == (201, False)
    assert reply.json["last_delivered_generation"] == 1


async def test_notify_if_done_false_opts_out(api):
    await api.finish("nov")
    reply = await api.put(HOOK, {"url": URL_1, "notify_if_done": False})
    assert (reply.json["delivery_queued"], reply.json["delivery_reason"]) == (False, "opted_out")
    assert await api.deliveries() == []


async def test_another_url_restarts_what_waits(api):
    await api.put(HOOK, {"url": URL_1})
    await api.finish("nov")
    await api.connection.execute(
        "UPDATE deliveries SET state = 1, attempts = 3, due_at = now() + interval '1 day', first_due_at = now() - interval '1 d'"
    )
    await api.connection.execute(
        "INSERT INTO webhook_health (webhook_key, held_until, last_error, breaker) SELECT webhook_key, now(), 'x', 1 FROM webhooks"
    )
    reply = await api.put(HOOK, {"url": URL_2})
    assert reply.json["result"] == "url_changed" and not reply.json["delivery_queued"]
    (row,) = await api.fetch(
        "SELECT *, due_at <= now() AS due, first_due_at > now() - interval '1 h' AS fresh FROM deliveries"
    )
    assert (row["state"], row["attempts"], row["attempts_before"], row["due"], row["fresh"]) == (0, 3, 3, True, True)
    (health,) = await api.fetch("SELECT * FROM webhook_health")
    assert (health["held_until"], health["last_error"], health["breaker"]) == (None, None, 0)


async def test_another_url_flags_what_is_on_the_wire_and_sends_a_failed_finish(api):
    await api.put(HOOK, {"url": URL_1})
    await api.finish("nov")
    await api.connection.execute("UPDATE deliveries SET lease_token = 1, lease_until = now() + interval '1 min'")
    await api.put(HOOK, {"url": URL_2})
    assert await api.value("SELECT flag FROM deliveries") == 4
    await api.connection.execute("UPDATE deliveries SET lease_token = NULL, lease_until = NULL, flag = 0")
    await api.conclude(5, "exhausted")
    delivery = (await api.deliveries())[0]
    reply = await api.put(HOOK, {"url": URL_1})
    assert (reply.json["delivery_queued"], reply.json["delivery_reason"]) == (True, "failed_at_old_url")
    (again,) = await api.deliveries()
    assert (again["delivery_id"], again["state"], again["attempt_count"]) == (delivery["delivery_id"], "pending", 1)


async def test_a_shorter_settle_window_counts_for_a_batch_that_waits(api):
    await api.put(HOOK, {"url": URL_1, "settle_seconds": 3600})
    await api.connection.execute("UPDATE batches SET settle_due_at = now() + interval '1 hour'")
    await api.put(HOOK, {"url": URL_1, "settle_seconds": 0})
    assert await api.value("SELECT settle_due_at <= now() FROM batches")


@pytest.mark.parametrize("then", ["DELETE", "PUT"])
async def test_without_its_long_settle_window_a_batch_that_waits_has_the_default_one(api, then):
    await api.put(HOOK, {"url": URL_1, "settle_seconds": 3600})
    await api.send(api.event("job.completed", "A", "nov", status="succeeded"))
    assert await api.value("SELECT settle_due_at > now() + interval '59 minutes' FROM batches")
    await api.call(then, HOOK, {"url": URL_1} if then == "PUT" else None)
    assert await api.value("SELECT settle_due_at <= now() + interval '2 seconds' FROM batches")


async def test_a_shorter_settle_window_leaves_the_grace_of_a_cancellation(api):
    """The batch's deletion may be on its way."""
    await api.send(api.event("job.completed", "A", "nov", status="canceled"))
    due = await api.value("SELECT settle_due_at FROM batches")
    assert due is not None
    await api.put(HOOK, {"url": URL_1, "settle_seconds": 0})
    assert await api.value("SELECT settle_due_at FROM batches") == due


async def test_another_setting_restarts_nothing(api):
    await api.put(HOOK, {"url": URL_1})
    await api.finish("nov")
    await api.connection.execute("UPDATE deliveries SET state = 1, attempts = 3")
    version = await api.value("SELECT routing_version FROM tenants WHERE tenant_id = 't1'")
    reply = await api.put(HOOK, {"url": URL_1, "description": "new", "settle_seconds": 7})
    assert reply.json["result"] == "updated" and reply.json["revision"] == 2
    assert await api.value("SELECT attempts FROM deliveries") == 3
    assert await api.value("SELECT settle_seconds FROM batches") == 7
    assert await api.value("SELECT routing_version FROM tenants WHERE tenant_id = 't1'") == version + 1


async def test_delete_cancels_in_the_same_transaction_and_history_stays(api):
    await api.put(HOOK, {"url": URL_1, "settle_seconds": 7})
    await api.finish("nov", "a")
    await api.conclude()
    await api.finish("nov", "a", generation=2)
    await api.connection.execute("UPDATE deliveries SET due_at = now()")
    assert await api.value("SELECT count(*) FROM batches WHERE settle_due_at IS NOT NULL") in (0, 1)
    assert (await api.delete(HOOK)).status == 204
    assert (await api.get(HOOK)).status == 404
    assert (await api.delete(HOOK)).status == 404
    assert {d["state"] for d in await api.deliveries()} <= {"delivered", "canceled"}
    assert await api.value("SELECT settle_seconds FROM batches") is None


async def test_pause_holds_and_enable_releases_with_a_trial(api):
    await api.put(HOOK, {"url": URL_1})
    await api.finish("nov")
    paused = await api.post(HOOK + "/pause")
    assert (paused.status, paused.json["state"]) == (200, "paused")
    (held,) = await api.deliveries()
    assert (held["state"], held["reason"], held["next_attempt_at"]) == ("held", "paused", None)
    again = await api.post(HOOK + "/pause")
    assert again.json["revision"] == paused.json["revision"]
    await api.connection.execute(
        "UPDATE deliveries SET held_at = held_at - interval '1 h', first_due_at = first_due_at - interval '1 h'"
    )
    enabled = await api.post(HOOK + "/enable")
    assert enabled.json["state"] == "enabled" and "Since" in enabled.json["state_detail"]
    (row,) = await api.fetch("SELECT *, first_due_at > now() - interval '1 min' AS kept FROM deliveries")
    assert (row["state"], row["reason"], row["kept"]) == (0, None, True)
    assert await api.value("SELECT breaker FROM webhook_health") == 2


async def test_put_enables_a_disabled_webhook_but_not_a_paused_one(api):
    await api.put(HOOK, {"url": URL_1})
    await api.connection.execute("UPDATE webhooks SET state = 2, state_reason = 'gone'")
    shown = (await api.get(HOOK)).json
    assert (shown["state"], shown["reason"]) == ("disabled", "gone")
    assert (await api.put(HOOK, {"url": URL_1})).json["state"] == "enabled"
    await api.post(HOOK + "/pause")
    assert (await api.put(HOOK, {"url": URL_1})).json["state"] == "paused"


async def test_a_revision_that_is_not_the_current_one_changes_nothing(api):
    missing = await api.put(HOOK, {"url": URL_1}, If_Match="*")
    assert (missing.status, missing.code) == (412, "revision_mismatch")
    assert (await api.get(HOOK)).status == 404
    first = await api.put(HOOK, {"url": URL_1})
    second = await api.put(HOOK, {"url": URL_2}, If_Match=first.headers["ETag"])
    assert second.status == 200 and second.headers["ETag"] != first.headers["ETag"]
    for method, body in (("PUT", {"url": URL_1}), ("DELETE", None)):
        late = await api.call(method, HOOK, body, If_Match=first.headers["ETag"])
        assert (late.status, late.code) == (412, "revision_mismatch")
        assert late.headers["ETag"] == second.headers["ETag"]
    assert (await api.get(HOOK + "?reveal=url")).json["url"] == URL_2
    assert (await api.delete(HOOK, If_Match=second.headers["ETag"])).status == 204


async def test_rotate_and_revoke(api):
    first = (await api.put(HOOK, {"url": URL_1, "signing": "ed25519"})).json
    assert first["public_key"].startswith("whpk_")
    rotated = await api.post(HOOK + "/rotate-secret")
    assert rotated.status == 200 and rotated.json["secret"] != first["secret"]
    assert rotated.json["public_key"] != first["public_key"]
    refused = await api.post(HOOK + "/rotate-secret", {})
    assert (refused.status, refused.code) == (409, "rotation_in_progress")
    assert f"until {rotated.json['previous_valid_until']};" in refused.json["detail"]
    assert (await api.post(HOOK + "/rotate-secret", {"force": True, "overlap_seconds": 0})).status == 200
    assert (await api.put(HOOK, {"url": URL_1, "signing": "ed25519", "secret": first["secret"]})).status in (200, 422)
    assert (await api.post(HOOK + "/revoke-previous-secret")).status == 204
    assert (await api.put(HOOK, {"url": URL_1, "signing": "ed25519", "secret": first["secret"]})).status == 422
    imported = await api.post(HOOK + "/rotate-secret", {"secret": first["secret"]})
    assert imported.json["secret"] == first["secret"]
    plain = await api.put(HOOK, {"url": URL_1})
    assert (plain.json["result"], plain.json["public_key"]) == ("updated", None)


async def test_incarnations(api):
    await api.put(HOOK, {"url": URL_1, "batch_id": "b-1"})
    await api.send(api.event("job.queued", "j", "nov"), api.event("batch.deleted", "", "nov"))
    ended = await api.put(HOOK, {"url": URL_1, "batch_id": "b-1"})
    assert (ended.status, ended.code) == (409, "batch_ended")
    following = await api.put(HOOK, {"url": URL_1})
    assert following.status == 201 and following.json["batch_id"].startswith("bat_")
    third = await api.put(HOOK, {"url": URL_1, "batch_id": "b-2"})
    assert third.json["batch_id"] == "b-2"
    listed = (await api.get("/v1/batches")).json["data"]
    assert [batch["batch_id"] for batch in listed] == ["b-2", "b-1"]
    assert listed[1]["ended_at"] is not None


async def test_names_are_percent_encoded_whatever_they_hold(api):
    names = ["a/b", "ü 😀", "%2F", "x" * 255, "?#&=+;", "a.b", "...", "\"'<>", "é" * 255, "a\\b"]
    for name in names:
        path = f"/v1/batches/{quote(name, safe='')}/webhook"
        assert (await api.put(path, {"url": URL_1})).status == 201, name
        assert (await api.get(path)).json["batch"] == name
    shown = (await api.get("/v1/batches?limit=200")).json["data"]
    assert {batch["name"] for batch in shown} == set(names)
    for bad in ["%00", "%0A", "%2E", "%2E%2E", "x" * 256, "%ED%A0%80", "%FF", "%"]:
        status = (await api.put(f"/v1/batches/{bad}/webhook", {"url": URL_1})).status
        assert status in ((201,) if bad == "%" else (400, 422)), bad


async def test_another_tenants_webhook_is_404(api):
    await api.put(HOOK, {"url": URL_1})
    other = api.as_tenant("t2")
    assert (await other.get(HOOK)).status == 404
    assert (await other.delete(HOOK)).status == 404
    assert (await other.post(HOOK + "/pause")).status == 404
    assert (await other.put(HOOK, {"url": URL_1})).status == 201


async def test_two_puts_at_once_and_a_put_beside_the_last_completion(api):
    for number in range(10):
        path = f"/v1/batches/b{number}/webhook"
        done = api.event("job.completed", f"j{number}", status="succeeded") | {
            "batch": {"name": f"b{number}", "total": 1}
        }
        first, second, _ = await asyncio.gather(
            api.put(path, {"url": URL_1}), api.put(path, {"url": URL_1}), api.send(done)
        )
        assert sorted((first.status, second.status)) == [200, 201]
        assert len(await api.deliveries(f"?batch=b{number}")) == 1


async def test_renotify(api):
    assert (await api.post("/v1/batches/nov/renotify")).status == 404
    await api.put(HOOK, {"url": URL_1})
    refused = await api.post("/v1/batches/nov/renotify")
    assert (refused.status, refused.code) == (409, "no_finish")
    await api.finish("nov")
    assert (await api.post("/v1/batches/nov/renotify")).code == "delivery_pending"
    await api.connection.execute("UPDATE deliveries SET attempts = 3, state = 1")
    assert (await api.post("/v1/batches/nov/renotify", {"force": True})).json["deliveries"] == 1
    (fresh,) = await api.deliveries()
    assert (fresh["state"], fresh["attempt_count"]) == ("pending", 3)
    await api.conclude()
    again = (await api.post("/v1/batches/nov/renotify")).json
    (second,) = await api.deliveries()
    assert (second["delivery_id"], second["message_id"], second["state"]) == (
        fresh["delivery_id"], again["message_id"], "pending",
    )  # fmt: skip
    copied = (await api.post("/v1/batches/nov/renotify", {"new_id": True, "force": True})).json
    states = {d["message_id"]: d["state"] for d in await api.deliveries()}
    assert states == {again["message_id"]: "superseded", copied["message_id"]: "pending"}
    first_body = (await api.get("/v1/messages/" + again["message_id"])).json
    copy = (await api.get("/v1/messages/" + copied["message_id"])).json
    assert copy["body"] == first_body["body"] and copy["renotified"]
