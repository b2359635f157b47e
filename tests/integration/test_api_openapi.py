"""The OpenAPI document: valid, complete, true, and browsable without anything from elsewhere."""

import asyncio
import re
from datetime import timedelta

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.api.openapi import build_document
from service.api.operations import OPERATIONS
from service.api.parts import ApiLimits
from tests.support.api import OPERATOR_KEY, URL_1, running_api


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running


async def test_the_document_names_every_call_and_is_valid(api):
    document = (await api.as_key("none").get("/openapi.json")).json
    assert document["openapi"].startswith("3.1")
    assert {(path, method.upper()) for path, calls in document["paths"].items() for method in calls} == {
        (operation.path, operation.method) for operation in OPERATIONS
    }
    names = [call["operationId"] for calls in document["paths"].values() for call in calls.values()]
    assert len(names) == len(set(names))
    for name, schema in document["components"]["schemas"].items():
        Draft202012Validator.check_schema(schema)
        assert schema.get("title") == name
    text = str(document)
    for reference in re.findall(r"#/components/schemas/(\w+)", text):
        assert reference in document["components"]["schemas"]


async def test_answers_are_what_the_document_says(api):
    document = build_document(OPERATIONS)
    await api.post("/v1/webhooks", {"url": URL_1, "id": "w", "event_types": ["*"], "signing": "ed25519"})
    await api.put("/v1/batches/nov/webhook", {"url": URL_1, "settle_seconds": 3})
    await api.finish("nov", "j")
    (one, *_) = await api.deliveries()
    for path, example in {
        "/v1/webhooks": "/v1/webhooks",
        "/v1/webhooks/{webhook_id}": "/v1/webhooks/w",
        "/v1/webhooks/{webhook_id}/stats": "/v1/webhooks/w/stats",
        "/v1/batches": "/v1/batches",
        "/v1/batches/{batch_name}": "/v1/batches/nov",
        "/v1/batches/{batch_name}/webhook": "/v1/batches/nov/webhook",
        "/v1/batches/{batch_name}/jobs": "/v1/batches/nov/jobs",
        "/v1/jobs/{job_id}": "/v1/jobs/j",
        "/v1/deliveries": "/v1/deliveries",
        "/v1/deliveries/{delivery_id}": f"/v1/deliveries/{one['delivery_id']}",
        "/v1/messages/{message_id}": f"/v1/messages/{one['message_id']}",
        "/v1/signing-keys": "/v1/signing-keys",
        "/v1/keys": "/v1/keys",
        "/v1/audit": "/v1/audit",
        "/v1/operator/pauses": "/v1/operator/pauses",
        "/v1/operator/top": "/v1/operator/top?by=pending",
        "/healthz": "/healthz",
    }.items():
        reply = await api.get(example)
        assert reply.status == 200, reply.raw
        schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        Draft202012Validator({**schema, "components": document["components"]}).validate(reply.json)
        assert (await api.call("HEAD", example)).status == 200
    problem = await api.get("/v1/webhooks/none")
    Draft202012Validator(document["components"]["schemas"]["Problem"]).validate(problem.json)


async def test_the_page_ships_its_assets(api):
    client = api.as_key("none")
    page = await client.get("/docs")
    assert page.status == 200 and page.headers["Content-Type"].startswith("text/html")
    text = page.raw.decode()
    for asset in re.findall(r'(?:src|href)="(docs/[^"]+)"', text):
        reply = await client.get("/" + asset)
        assert reply.status == 200, asset
        assert b"http" not in reply.raw.replace(b'xmlns="http://www.w3.org/2000/svg"', b""), "a name, not an address"
    assert "http" not in text and "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert (await client.get("/docs/%2e%2e%2fapp.py")).status == 404


@pytest.mark.timeout(400)
async def test_schemathesis_finds_no_answer_that_the_document_does_not_have(database):
    schema = schemathesis.openapi.from_dict(build_document(OPERATIONS))
    headers = {"Authorization": f"Bearer {OPERATOR_KEY}", "X-Tenant-ID": "t1"}
    calls = [result.ok() for result in schema.get_all_operations()]
    assert {(call.path, call.method.upper()) for call in calls} == {(each.path, each.method) for each in OPERATIONS}
    limits = ApiLimits(reads=100_000, writes=100_000, tests_per_webhook=5, test_wait=timedelta())
    async with running_api(database, limits=limits) as api:
        await api.finish("invoices-nov", "doc_7f31")  # what the examples name is there, so that some calls get further
        await api.put("/v1/batches/invoices-nov/webhook", {"url": URL_1})
        await api.post("/v1/webhooks", {"url": URL_1, "id": "erp", "event_types": ["*"]})
        for call in calls:
            await asyncio.to_thread(try_operation, call, api.base, headers)
        assert await api.value("SELECT count(*) FROM audit_log") >= 10, "some were taken"


CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def try_operation(operation, base, headers):
    @settings(max_examples=5, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(operation.as_strategy())
    def one(case):
        case.headers = {**(case.headers or {}), **headers}
        case.validate_response(case.call(base_url=base, timeout=120), checks=CHECKS)

    one()
