"""Every example of the OpenAPI document is sent to the service as it stands, and answered in the shape that it shows."""

import asyncio

from jsonschema import Draft202012Validator

from service.api.operations import OPERATIONS
from tests.support.api import SEALER, running_api
from tests.support.calls import DOCUMENT, list_calls, list_requests, send_example
from tests.support.delivering import Queue, deliver
from tests.support.receivers import NO_CONTENT, answering, receive

TENANT = "acct_42"
# The order in which the examples make sense; what a name in brackets prepares is in ``Story``.
STORY = """
    healthz openapi docs docs_asset events_post batch_webhook_put webhook_create [delivered]
    batch_webhook_get batch_list batch_get batch_jobs job_get webhook_list webhook_get webhook_patch webhook_stats
    batch_webhook_test webhook_test batch_webhook_rotate_secret batch_webhook_revoke_previous_secret
    webhook_rotate_secret webhook_revoke_previous_secret batch_renotify [delivered]
    delivery_list delivery_get message_get delivery_redeliver [delivered]
    batch_webhook_pause batch_webhook_enable webhook_pause [waiting] delivery_cancel webhook_enable
    replay_start replay_get replay_cancel signing_keys_rotate signing_keys_get
    key_create key_list key_revoke operator_pause_create operator_pause_list operator_pause_delete operator_top audit_list
    message_expunge batch_webhook_delete webhook_delete
"""
ORDER = STORY.split()


def test_every_call_has_its_place_and_its_example():
    assert sorted(name for name in ORDER if name[0] != "[") == sorted(operation.name for operation in OPERATIONS)
    for call in list_calls().values():
        for status, answer in list(call["responses"].items())[:1]:
            for kind, content in answer.get("content", {}).items():
                assert kind != "application/json" or "example" in content or call["operationId"] == "openapi", (
                    call["operationId"], status,
                )  # fmt: skip
        body = call.get("requestBody", {"content": {}, "required": False})
        for content in body["content"].values():
            assert "example" in content or content.get("examples") or not body["required"], call["operationId"]
        assert all("example" in each for each in call["parameters"] if each["required"]), call["operationId"]


class Story:
    """The examples told one after the other; what the service named itself takes the place of the example's name."""

    def __init__(self, api, queue, receiver):
        self.api, self.queue, self.origin = api, queue, receiver.url("").rstrip("/")
        self.named = {}

    async def tell(self, call):
        """Send each example of a call; return the answers."""
        return [await send_example(self.api, call, request, self.named, self.origin) for request in list_requests(call)]

    async def prepare(self, what):
        if what == "waiting":
            await self.api.finish("invoices-nov", "doc_late")
        else:
            await self.queue.wait("deliveries_done", "state = 4")
            async with asyncio.timeout(60):
                while await self.queue.count("deliveries"):
                    await asyncio.sleep(0.01)
        state = "held" if what == "waiting" else "delivered"
        newest = (await self.api.deliveries(f"?state={state}&type=extraction.completed"))[0]
        self.named.update(delivery_id=newest["delivery_id"], message_id=newest["message_id"])

    def learn(self, name, answer):
        if name == "key_create":
            self.named["key_id"] = answer["key_id"]
        if name == "replay_start":
            self.named["replay_id"] = answer["replay"]["replay_id"]


async def test_every_example_is_accepted_and_answered_as_shown(database):
    calls = list_calls()
    async with (
        receive(answering(NO_CONTENT)) as receiver, running_api(database) as api,
        Queue(database) as queue, deliver(database, sealer=SEALER),
    ):  # fmt: skip
        story = Story(api.as_tenant(TENANT), queue, receiver)
        for name in ORDER:
            if name.startswith("["):
                await story.prepare(name.strip("[]"))
                continue
            for reply in await story.tell(calls[name]):
                check(calls[name], reply)
                if reply.raw and name in {"key_create", "replay_start"}:
                    story.learn(name, reply.json)


def check(call, reply):
    first, shown = next(iter(call["responses"].items()))
    accepted = [each for each in call["responses"] if each.startswith("2")]
    assert str(reply.status) in accepted, (call["operationId"], reply.status, reply.raw)
    content = shown.get("content", {}).get("application/json")
    if content is None or str(reply.status) != first:
        return
    validator = Draft202012Validator({**content["schema"], "components": DOCUMENT["components"]})
    validator.validate(reply.json)
    validator.validate(content["example"])
    assert shape(content["example"], reply.json) == shape(reply.json, content["example"]), call["operationId"]


def shape(value, other):
    """What a value is made of: names and kinds. Null, and the content of a list that is empty on one side, are no kind."""
    if value is None or other is None:
        return None
    if isinstance(value, dict) and isinstance(other, dict):
        return {name: shape(inner, other.get(name)) if name in other else "only here" for name, inner in value.items()}
    if isinstance(value, list) and isinstance(other, list):
        return [shape(value[0], other[0])] if value and other else []
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
