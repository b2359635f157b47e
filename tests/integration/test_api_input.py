"""Whatever comes in, the answer is a problem document with the right status, and never 500."""

import asyncio
import json
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.api import OPERATOR_KEY, URL_1, running_api

HOOK = "/v1/batches/nov/webhook"


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running


async def raw(api, content: bytes) -> bytes:
    """Send bytes as they are; the whole answer."""
    host, port = api.base.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(content)
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return answer


async def test_problem_documents(api):
    reply = await api.get("/v1/nothing")
    assert reply.status == 404 and reply.headers["Content-Type"] == "application/problem+json"
    assert set(reply.json) == {"type", "title", "status", "detail", "code"}
    for header in ("X-Content-Type-Options", "Content-Security-Policy", "Cache-Control", "X-Frame-Options"):
        assert header in reply.headers
    refused = await api.call("TRACE", HOOK)
    assert (refused.status, refused.headers["Allow"]) == (405, "DELETE, GET, HEAD, PUT")
    broken = await api.put(HOOK, {"url": 7, "extra": 1, "timeout_seconds": 99})
    assert broken.status == 422
    assert {error["field"] for error in broken.json["errors"]} == {"url", "extra", "timeout_seconds"}


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"\xef\xbb\xbf{}", "application/json", 400),
        (b'{"url": "\\ud800"}', "application/json", 400),
        (b"[" * 2000, "application/json", 400),
        (b"[]", "application/json", 400),
        (b"null", "application/json", 400),
        (b"", "application/json", 400),
        (b"NaN", "application/json", 400),
        (b"url=x", "application/x-www-form-urlencoded", 415),
        (b"{}", "", 415),
        (b'{"url": "https://a.example/", "settle_seconds": 1e400}', "application/json", (400, 422)),
        (b'{"url": "https://a.example/", "settle_seconds": 99999999999999999999}', "application/json", 422),
        (b'{"url": "https://a.example/\\u0000"}', "application/json", 422),
        (b'{"url": "https://a.example/", "description": "\\u0000"}', "application/json", 422),
        (b'{"url": "' + b"a" * 262_144 + b'"}', "application/json", 413),
    ],
)
async def test_bad_bodies(api, body, kind, status):
    reply = await api.call("PUT", HOOK, data=body, **({"Content_Type": kind} if kind else {}))
    wanted = status if isinstance(status, tuple) else (status,)
    assert reply.status in wanted, reply.raw
    assert reply.code


NUMBERS = {
    "tiny": b'{"a":-1e-400}',
    "wide": b'{"a":18446744073709551616}',
    "long": b'{"a":1.' + b"1" * 3000 + b"}",
    "twice": b'{"a":1,"a":2}',
    "huge": b'{"a":1e400}',
}


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("form", [b"[%s]", b"%s"])
async def test_metadata_costs_no_finish_whatever_its_numbers(api, numbers, form):
    """The same bytes that come out of Kafka unchanged: a decoration is kept or dropped."""
    event = json.dumps(api.event("job.completed", "j1", status="succeeded")).encode()
    body = form % (event[:-1] + b', "metadata": ' + NUMBERS[numbers] + b"}")
    reply = await api.call("POST", "/v1/events", data=body, Content_Type="application/json")
    assert reply.status == 202, reply.raw
    assert reply.json["results"][0]["outcome"] == "applied"


async def test_compressed_bodies_are_415(api):
    reply = await api.call("PUT", HOOK, data=b"x", Content_Type="application/json", Content_Encoding="gzip")
    assert (reply.status, reply.code) == (415, "unsupported_encoding")


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://10.0.0.1/", "url_private_address"),
        ("https://169.254.169.254/latest", "url_metadata_address"),
        ("https://localhost/", "url_local_name"),
        ("https://user:pw@a.example/", "url_userinfo"),
        ("ftp://a.example/", "url_scheme"),
        ("https://a.example/#f", "url_fragment"),
        ("https://a.example:22/", None),
        ("nonsense", "url_not_a_url"),
    ],
)
async def test_urls_are_checked_at_registration(api, url, code):
    for reply in (await api.put(HOOK, {"url": url}), await api.post("/v1/webhooks", {"url": url})):
        if code is not None:
            assert (reply.status, reply.code, reply.json["errors"][0]["field"]) == (422, code, "url")
        assert url not in reply.raw.decode() or reply.status < 300


async def test_queries(api):
    for query in (
        "limit=0",
        "limit=201",
        "limit=x",
        "unknown=1",
        "cursor=",
        "%FF=1",
        "limit=%FF",
        "a&b",
        "limit=1&limit=2",
    ):
        reply = await api.get(f"/v1/deliveries?{query}")
        assert reply.status in (400, 422), query
    assert (await api.get("/v1/deliveries?since=2026-11-30")).status == 422
    assert (await api.get("/v1/deliveries?since=0001-01-01T00:00:00%2B14:00")).status == 422
    assert (await api.get("/v1/deliveries?batch=%00")).status == 422
    assert (await api.get("/v1/deliveries?webhook=" + quote("é😀"))).status == 200


async def test_raw_bytes_on_the_wire(api):
    auth = f"Authorization: Bearer {OPERATOR_KEY}\r\nX-Tenant-ID: t1\r\nConnection: close\r\n".encode()
    for head in (
        b"GET /v1/batches/\xff\xfe HTTP/1.1\r\n",
        b"GET /v1/batches/%ff HTTP/1.1\r\n",
        b"GET //v1//batches HTTP/1.1\r\n",
        b"GET /v1/../v1/batches HTTP/1.1\r\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"GET http://x/v1/batches?limit=0 HTTP/1.1\r\n",
        b"BREW /v1/batches HTTP/1.1\r\n",
        b"GET /v1/batches?cursor=\xff HTTP/1.1\r\n",
        b"PUT /v1/batches/a/webhook HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n",
        b"POST /v1/events HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: x\r\n",
        b"GET /v1/batches HTTP/1.1\r\nIdempotency-Key: \xff\r\n",
        b"POST /v1/webhooks HTTP/1.1\r\nContent-Type: \xff\r\nContent-Length: 2\r\n",
    ):
        body = b"{}\r\n\r\n" if b"POST" in head or b"PUT" in head else b""
        answer = await raw(api, head + b"Host: x\r\n" + auth + b"\r\n" + body)
        status = answer.split(b" ", 2)[1] if answer else b"closed"
        assert status == b"closed" or status.startswith(b"4") or status == b"200", (head, answer)
    for bad in (b"Bearer \xff\xfe", b"Basic \xff", b"\xff", b"Bearer whkey_\xff.x"):
        answer = await raw(
            api, b"GET /v1/batches HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: " + bad + b"\r\n\r\n"
        )
        assert answer.split(b" ", 2)[1] == b"401", (bad, answer)
    answer = await raw(api, b"GET /v1/batches HTTP/1.1\r\nHost: x\r\n" + auth.replace(b"t1", b"t\xff") + b"\r\n")
    assert b" 200 " not in answer[:20]


async def test_the_database_away_is_503_with_retry_after(api):
    await api.parts.database.__aexit__(None, None, None)
    for method, path, body in (
        ("GET", "/v1/batches", None),
        ("PUT", HOOK, {"url": URL_1}),
        ("POST", "/v1/events", [api.event("job.queued", "j")]),
        ("POST", "/v1/webhooks/x/test", None),
    ):
        reply = await api.call(method, path, body)
        assert (reply.status, reply.code) == (503, "database_unavailable"), path
        assert reply.headers["Retry-After"]
    other = await api.as_key("whkey_0011.aa").get("/v1/batches")
    assert other.status == 503
    assert (await api.get("/healthz")).status == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    ["url", "id", "description", "secret", "custom_headers", "retry_schedule", "timeout_seconds", "event_types", "scopes",
     "batch_names", "signing", "rate_limit", "batch_id", "settle_seconds", "force", "since", "until", "which", "roles"]
)  # fmt: skip
CALLS = [
    ("PUT", HOOK),
    ("POST", "/v1/webhooks"),
    ("PATCH", "/v1/webhooks/w"),
    ("POST", "/v1/webhooks/w/rotate-secret"),
    ("POST", "/v1/webhooks/w/replay"),
    ("POST", "/v1/keys"),
    ("POST", "/v1/operator/pauses"),
    ("POST", "/v1/batches/nov/renotify"),
    ("POST", "/v1/events"),
]


async def test_any_json_gets_an_answer_below_500(api):
    await api.post("/v1/webhooks", {"url": URL_1, "id": "w"})
    loop = asyncio.get_running_loop()

    async def try_one(call, body):
        reply = await api.call(*call, data=json.dumps(body).encode("utf-8", "replace"), Content_Type="application/json")
        assert reply.status < 500, (call, body, reply.raw)

    @settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(CALLS), st.dictionaries(FIELDS, JSON, max_size=5) | JSON)
    def check(call, body):
        asyncio.run_coroutine_threadsafe(try_one(call, body), loop).result(120)

    await asyncio.to_thread(check)
