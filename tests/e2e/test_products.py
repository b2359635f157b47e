"""The three products, as their documentation tells what happens: what they send, what their customers receive."""

from dataclasses import replace

from tests.e2e.story import LATER, completed, generations_of, now, queued, started
from tests.support.receiving import Receiver
from tests.support.service import Refused, eventually


async def test_imagetotable(tenant, receiver):
    """A customer uploads documents in a named batch, and is told when all of them are processed."""
    batch = replace(tenant, source="imagetotable").batch("invoices 11/2026 – naïve")

    # The customer registers one URL for the batch, at any time, and keeps the secret, which is shown once.
    registration = await batch.register(receiver)
    secret = registration["secret"]
    assert secret.startswith("whsec_")
    assert "secret" not in await batch.webhook()

    # Documents are uploaded and processed. Who prefers to poll sees each of the five statuses.
    documents = [f"doc_{number}" for number in range(1, 6)]
    await batch.produce(*(queued(document, metadata={"page": document}) for document in documents))
    await tenant.until_known("doc_5")
    assert (await batch.get())["status"] == "queued"
    await batch.produce(started("doc_2"), completed("doc_3"), completed("doc_4", "failed", error_code="unreadable"))
    await batch.produce(completed("doc_5", "canceled"))
    await eventually(lambda: has_statuses(batch, ["queued", "processing", "succeeded", "failed", "canceled"]))
    polled = await batch.get()
    assert (polled["status"], polled["all_done"], polled["completed_at"]) == ("processing", False, None)

    # When the last one is done, one signed message tells of all.
    await batch.produce(completed("doc_1", result_url="https://imagetotable.example/doc_1"), completed("doc_2"))
    await receiver.wait_for(1)
    message = receiver.arrivals[0].verify(secret)
    assert message.type == "extraction.completed"
    assert message.data["batch"]["status"] == "succeeded"
    assert message.data["counts"] == {"total": 5, "succeeded": 3, "failed": 1, "canceled": 1}
    told = {job["job_id"]: job for job in message.data["jobs"]}
    assert (told["doc_4"]["status"], told["doc_4"]["error_code"]) == ("failed", "unreadable")
    assert told["doc_1"]["result_url"] == "https://imagetotable.example/doc_1"
    assert told["doc_1"]["metadata"] == {"page": "doc_1"}

    # A document that failed is processed again: the batch opens, and closes with a message of generation 2.
    await batch.produce(queued("doc_4", generation=2))
    reopened = await eventually(lambda: has_reopened(batch))
    assert (reopened["generation"], reopened["last_delivered_generation"]) == (2, 1)
    await batch.produce(completed("doc_4", generation=2))
    await receiver.wait_for(2)
    await tenant.quiet()
    again = receiver.arrivals[1].verify(secret)
    assert again.message_id != message.message_id
    assert (again.data["batch"]["generation"], again.data["counts"]["failed"]) == (2, 0)
    assert generations_of(again.data["jobs"]) == {**dict.fromkeys(documents, 1), "doc_4": 2}

    # The same by polling.
    polled = await batch.get()
    assert (polled["all_done"], polled["status"], polled["generation"]) == (True, "succeeded", 2)
    assert polled["last_delivered_generation"] == 2
    assert len(receiver.arrivals) == 2


async def has_statuses(batch, statuses):
    jobs = await batch.tenant.api.list(f"{batch.path}/jobs")
    return [job["status"] for job in sorted(jobs, key=lambda job: job["job_id"])] == statuses


async def has_reopened(batch):
    seen = await batch.get()
    return None if seen["all_done"] else seen


async def test_oatmilk(tenant, receiver):
    """An app turns photographed receipts into data; its customers subscribe to `receipt.processed`."""
    oatmilk = replace(tenant, source="oatmilk")
    subscriber = await tenant.register(receiver, event_types=["receipt.*"])
    async with Receiver() as named:
        # A job may name a webhook, which is told whatever its filters say.
        named_webhook = await tenant.register(named)
        job = {"kind": "receipt", "webhook_id": named_webhook["webhook_id"], "metadata": {"shop": "Kiosk"}}

        # Oatmilk speaks CloudEvents, and in its own words.
        await oatmilk.topic.write_cloud_event(oatmilk_event(tenant, "job.queued", {"status": "queued", **job}))
        await oatmilk.topic.write_cloud_event(
            oatmilk_event(
                tenant,
                "job.finished",
                {"status": "failed", "error_code": "BLURRED", "attempts": 3, "stage": "ocr", **job},
            )
        )
        await receiver.wait_for(1)
        await named.wait_for(1)

        # The producer tries again as the next generation, and this time it works.
        await oatmilk.topic.write_cloud_event(
            oatmilk_event(tenant, "job.finished", {"status": "completed", "generation": 2, "attempts": 1, **job})
        )
        await receiver.wait_for(2)
        await named.wait_for(2)
        await tenant.quiet()

        failed, succeeded = (arrival.verify(subscriber["secret"]) for arrival in receiver.arrivals)
        assert [arrival.verify(named_webhook["secret"]).body for arrival in named.arrivals] == [
            failed.body,
            succeeded.body,
        ]
    assert {failed.type, succeeded.type} == {"receipt.processed"}
    assert failed.message_id != succeeded.message_id
    told = failed.data["job"]
    assert {name: told[name] for name in ("status", "source_status", "error_code", "generation", "attempts")} == {
        "status": "failed", "source_status": "failed", "error_code": "BLURRED", "generation": 1, "attempts": 3,
    }  # fmt: skip
    assert (told["kind"], told["stage"], told["metadata"]) == ("receipt", "ocr", {"shop": "Kiosk"})
    assert failed.data["links"] == {"self": "https://app.oatmilk.example/jobs/rcpt_1"}
    told = succeeded.data["job"]
    assert (told["status"], told["source_status"], told["error_code"]) == ("succeeded", "completed", None)
    assert told["generation"] == 2


def oatmilk_event(tenant, event_type, data):
    return {
        "specversion": "1.0",
        "id": f"oat-{event_type}-{data.get('generation', 1)}",
        "source": "https://oatmilk.example/jobs",
        "type": event_type,
        "time": now(),
        "data": {"tenant_id": tenant.tenant_id, "job_id": "rcpt_1", **data},
    }


async def test_datadistillers(tenant, receiver):
    """A customer's program registers a webhook, names it in its jobs, and extracts the same artifact again."""
    distillers = replace(tenant, source="datadistillers")

    # The customer has a key, used as user and password.
    key = await tenant.api.post("/v1/keys", {"tenant_id": tenant.tenant_id, "roles": ["read", "write"]})
    assert (await tenant.api.with_key(key["key"]).list("/v1/webhooks")) == []
    customer = tenant.api.with_password(key["key_id"], key["secret"])
    webhook = await customer.post("/v1/webhooks", {"url": receiver.url})
    webhook_id, secret = webhook["webhook_id"], webhook["secret"]
    assert [each["webhook_id"] for each in await customer.list("/v1/webhooks")] == [webhook_id]
    assert await is_refused(tenant.api.with_password(key["key_id"], "wrong"), 401)

    # A job waits for its upload: it is known, and has no status yet. Then it is processed.
    job = {"subject_id": "art_1", "webhook_id": webhook_id}
    await distillers.produce(queued("job_1", **job, status="pending_upload"))
    await tenant.until_known("job_1")
    assert (await customer.get("/v1/jobs/job_1"))["status"] is None
    await distillers.produce(queued("job_1", **job, status="queued_for_processing"))
    await distillers.produce(started("job_1", **job, status="running"))
    await distillers.produce(completed("job_1", "success", **job, subject_status="processed"))
    await receiver.wait_for(1)
    told = receiver.arrivals[0].verify(secret).data["job"]
    assert (told["status"], told["source_status"], told["subject_status"]) == ("succeeded", "success", "processed")

    # The artifact is extracted again: a new job, which names no destination, goes where the one before it went.
    await distillers.produce(completed("job_2", "success", subject_id="art_1"))
    await receiver.wait_for(2)
    told = receiver.arrivals[1].verify(secret).data["job"]
    assert (told["job_id"], told["subject_id"]) == ("job_2", "art_1")

    # What never came, or must not be touched, is a failure with a code.
    await distillers.produce(completed("job_3", "expired", webhook_id=webhook_id))
    await receiver.wait_for(3)
    await distillers.produce(completed("job_4", "failed", webhook_id=webhook_id, subject_status="quarantined"))
    await receiver.wait_for(4)
    codes = [(arrival.data["job"]["status"], arrival.data["job"]["error_code"]) for arrival in receiver.arrivals[2:]]
    assert codes == [("failed", "expired"), ("failed", "quarantined")]

    # A job may bring a URL of its own. That is signed with the tenant's default secret, and waits until there is one.
    async with Receiver() as once:
        await distillers.produce(completed("job_5", "success", webhook_url=once.url))
        held = await tenant.delivery("held", job="job_5")
        assert held["reason"] == "no_signing_key"
        default_secret = await tenant.make_default_secret()
        await once.wait_for(1)
        await tenant.quiet()
        assert once.arrivals[0].verify(default_secret).data["job"]["job_id"] == "job_5"
        assert len(once.arrivals) == 1
    assert len(receiver.arrivals) == 4


async def is_refused(api, status):
    try:
        await api.get("/v1/webhooks")
    except Refused as refused:
        return refused.status == status
    return False


async def test_a_tenant_sees_nothing_of_another(tenant, receiver):
    """What one tenant has is 404 for every other, and its deliveries go nowhere else."""
    webhook = await tenant.register(receiver, event_types=["*"], retry_schedule=LATER)
    other = tenant.api.of_tenant(f"{tenant.tenant_id}-other")
    assert await other.find(f"/v1/webhooks/{webhook['webhook_id']}") is None
    stranger = replace(tenant, api=other)
    await stranger.produce(completed("job_1", webhook_id=webhook["webhook_id"]))
    assert (await stranger.delivery("failed", job="job_1"))["reason"] == "destination_missing"
    await tenant.quiet()
    assert receiver.arrivals == []
    assert await tenant.api.find("/v1/jobs/job_1") is None


async def test_the_request_is_what_the_guide_says(tenant, receiver):
    """Standard Webhooks headers, hints, and the customer's own, in the case given."""
    webhook = await tenant.register(
        receiver, event_types=["extraction.*"], scopes=["job"], custom_headers={"X-Api-Key": "k1"}, signing="ed25519"
    )
    assert webhook["public_key"].startswith("whpk_")
    await tenant.produce(completed("job_1", generation=3, metadata={"naïve": "😀 1.10"}))
    await receiver.wait_for(1)
    (arrival,) = receiver.arrivals
    headers = {name.lower(): value for name, value in arrival.verify(webhook["secret"]).headers.items()}
    assert [signature.partition(",")[0] for signature in headers.pop("webhook-signature").split(" ")] == ["v1", "v1a"]
    assert headers.pop("webhook-id").startswith("msg_")
    assert len(headers.pop("webhook-timestamp")) == 10
    assert headers.pop("user-agent").startswith("webhookd/")
    assert headers == {
        "host": receiver.url.split("/")[2],
        "content-length": str(len(arrival.body)),
        "content-type": "application/json",
        "accept-encoding": "identity",
        "webhook-attempt": "1",
        "webhook-event-type": "extraction.completed",
        "webhook-generation": "3",
        "x-api-key": "k1",
    }
    assert "X-Api-Key" in set(arrival.headers)
    assert arrival.data["job"]["metadata"] == {"naïve": "😀 1.10"}
    assert '"metadata":{"naïve":"😀 1.10"}'.encode() in arrival.body
