"""Signatures on the wire, as receivers verify them: several secrets, and an Ed25519 pair beside them."""

import base64

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook, WebhookVerificationError

from tests.support.api import running_api
from tests.support.delivering import deliver, until
from tests.support.receivers import NO_CONTENT, answering, receive

PATH = "/v1/webhooks/whk_a"


@pytest.fixture
async def api(database):
    async with running_api(database) as api:
        yield api


@pytest.fixture
async def receiver():
    async with receive(answering(NO_CONTENT)) as receiver:
        yield receiver


class Deliveries:
    """Lets a job end and returns the request that tells of it."""

    def __init__(self, api, receiver, role):
        self.api = api
        self.receiver = receiver
        self.role = role
        self.count = 0

    async def one(self):
        self.count += 1
        await self.api.send(self.api.event("job.completed", f"j{self.count}", status="succeeded", webhook_id="whk_a"))
        await until(lambda: len(self.receiver.requests) >= self.count)
        return self.receiver.requests[-1]


@pytest.fixture
async def deliveries(api, receiver, database):
    async with deliver(database) as role:
        yield Deliveries(api, receiver, role)


def entries(request):
    return request.get("webhook-signature").split(" ")


def versions(request):
    return [entry.partition(",")[0] for entry in entries(request)]


def verifies_hmac(request, secret):
    try:
        Webhook(secret).verify(request.body, dict(request.headers))
    except WebhookVerificationError:
        return False
    return True


def verifies_ed25519(request, public_key):
    """As a receiver would that has only what ``GET`` shows."""
    prefix, _, encoded = public_key.partition("_")
    assert prefix == "whpk"
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(encoded, validate=True))
    signed = f"{request.get('webhook-id')}.{request.get('webhook-timestamp')}.".encode() + request.body
    for entry in entries(request):
        version, _, signature = entry.partition(",")
        try:
            if version == "v1a":
                key.verify(base64.b64decode(signature, validate=True), signed)
                return True
        except InvalidSignature:
            continue
    return False


async def test_an_ed25519_webhook_is_signed_both_ways_through_its_whole_life(api, receiver, deliveries):
    made = (await api.post("/v1/webhooks", {"id": "whk_a", "url": receiver.url(), "signing": "ed25519"})).json
    assert "whsk_" not in str(made)
    request = await deliveries.one()
    assert versions(request) == ["v1", "v1a"]
    assert verifies_hmac(request, made["secret"])
    assert verifies_ed25519(request, made["public_key"])

    rotated = (await api.post(f"{PATH}/rotate-secret")).json
    shown = (await api.get(PATH)).json
    assert shown["public_key"] == rotated["public_key"] != made["public_key"]
    assert "secret" not in shown or shown["secret"] is None
    request = await deliveries.one()
    assert versions(request) == ["v1", "v1", "v1a", "v1a"]
    assert all(verifies_hmac(request, each["secret"]) for each in (made, rotated))
    assert all(verifies_ed25519(request, each["public_key"]) for each in (made, rotated))

    assert (await api.post(f"{PATH}/revoke-previous-secret")).status == 204
    request = await deliveries.one()
    assert versions(request) == ["v1", "v1a"]
    assert [verifies_hmac(request, each["secret"]) for each in (made, rotated)] == [False, True]
    assert [verifies_ed25519(request, each["public_key"]) for each in (made, rotated)] == [False, True]

    assert (await api.call("PATCH", PATH, {"signing": "hmac"})).json["public_key"] is None
    request = await deliveries.one()
    assert versions(request) == ["v1"]
    assert verifies_hmac(request, rotated["secret"])

    again = (await api.call("PATCH", PATH, {"signing": "ed25519"})).json
    assert again["public_key"] not in (None, made["public_key"], rotated["public_key"])
    request = await deliveries.one()
    assert verifies_hmac(request, rotated["secret"])
    assert verifies_ed25519(request, again["public_key"])


async def test_the_newest_secret_signs_first_and_each_entry_is_apart_by_one_space(api, receiver, deliveries):
    made = (await api.post("/v1/webhooks", {"id": "whk_a", "url": receiver.url()})).json
    second = (await api.post(f"{PATH}/rotate-secret")).json
    third = (await api.post(f"{PATH}/rotate-secret", {"force": True})).json
    request = await deliveries.one()
    value = request.get("webhook-signature")
    assert value.count(" ") == 2 and value == value.strip() and "," in value
    order = []
    for entry in entries(request):
        alone = {**dict(request.headers), "webhook-signature": entry}
        for name, secret in (("made", made), ("second", second), ("third", third)):
            try:
                Webhook(secret["secret"]).verify(request.body, alone)
            except WebhookVerificationError:
                continue
            order.append(name)
    assert order == ["third", "second", "made"]


async def test_a_header_comes_in_the_case_given_and_beside_ours(api, receiver, deliveries):
    headers = {"X-Api-KEY": "s3cret", "authorization": "Bearer a b"}
    await api.post("/v1/webhooks", {"id": "whk_a", "url": receiver.url(), "custom_headers": headers})
    request = await deliveries.one()
    assert {name: value for name, value in request.headers if name in headers} == headers
    names = [name.lower() for name, _ in request.headers]
    assert len(names) == len(set(names))
    assert request.get("accept-encoding") == "identity"
    assert request.get("webhook-attempt") == request.get("webhook-generation") == "1"
    for absent in ("cookie", "expect", "connection", "transfer-encoding"):
        assert request.get(absent) is None
