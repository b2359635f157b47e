"""No secret in any output (F70): canaries in every secret place, every failure made to happen, every output read."""

import asyncio
import base64
import re
import secrets
import socket
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession
from aiokafka import AIOKafkaProducer

from tests.e2e.story import LATER, completed, create_topic, new_tenant, opened_topic
from tests.support.canaries import Canaries
from tests.support.certs import Authority
from tests.support.dns import serve_names
from tests.support.ports import find_free_port
from tests.support.postgres import connected
from tests.support.receivers import Visit, receive
from tests.support.service import Refused, build_settings, eventually, run_program

CLASSES = {
    *("delivered", "http_error", "gone", "redirect", "dns_error", "blocked_address", "connect_error"),
    *("connect_timeout", "tls_error", "timeout", "reset", "protocol_error"),
}
COMMANDS = (
    *(("config",), ("keys", "list"), ("dlq", "list"), ("dlq", "show", "1"), ("dlq", "replay", "1", "2", "3")),
    *(("secrets", "rotate-encryption"), ("migrate", "--check")),
)
# What the tenant may see of its own through the API: its URL's path, and the body that it was sent.
OWN = ("path", "body")


@pytest.fixture
def canaries() -> Canaries:
    return Canaries()


def secret_settings(canaries: Canaries, database: str, **more: object) -> dict[str, str]:
    parts = urlsplit(database)
    where = parts.netloc.rpartition("@")[2]
    return build_settings(
        parts._replace(netloc=f"{parts.username or 'postgres'}:{canaries['dsn']}@{where}").geturl(),
        operator_key="op-" + canaries["operator_key"],
        encryption_keys="k1:" + base64.b64encode(canaries.key("encryption_key")).decode(),
        kafka_sasl_password=canaries["sasl_password"],
        kafka_sasl_token=canaries["sasl_token"],
        log_level="debug",
        log_success_sample=1,
        **more,
    )


def answering_with_all_it_got(status: bytes, then: str = "", extra: bytes = b""):
    """A receiver that quotes the request, secrets included, in whatever it says."""

    async def script(visit: Visit) -> None:
        request = await visit.request()
        body = request.head + b"\r\n" + request.body
        if then == "reset":
            visit.reset()
            return
        if then == "silence":
            await visit.wait_closed()
            return
        await visit.say(
            status.replace(b"CANARY", body.replace(b"\r\n", b" ")[:500])
            + extra
            + b"content-length: %d\r\n\r\n" % len(body)
            + body
            + b"surplus "
            + body
        )

    return script


@asynccontextmanager
async def full_listener():
    """A port whose queue is full: a connection to it is neither made nor refused."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        knocking = [socket.socket() for _ in range(4)]
        for each in knocking:
            each.setblocking(False)
            with suppress(BlockingIOError):
                each.connect(address)
        try:
            yield address[1]
        finally:
            for each in knocking:
                each.close()


@asynccontextmanager
async def every_failure(folder):
    """URLs by the class of chapter 3 that a POST to them ends in, and the address of the name server."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        scripts = {
            "delivered": answering_with_all_it_got(b"HTTP/1.1 200 OK\r\n"),
            "http_error": answering_with_all_it_got(b"HTTP/1.1 500 CANARY\r\n", extra=b"retry-after: 3600\r\n"),
            "gone": answering_with_all_it_got(b"HTTP/1.1 410 Gone\r\n"),
            "redirect": answering_with_all_it_got(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1/?CANARY\r\n"),
            "timeout": answering_with_all_it_got(b"", "silence"),
            "reset": answering_with_all_it_got(b"", "reset"),
            "protocol_error": answering_with_all_it_got(b"CANARY\r\n"),
        }
        urls = {name: (await enter(receive(script))).url("") for name, script in scripts.items()}
        tls = Authority(folder).server("wrong.example")
        urls["tls_error"] = (await enter(receive(scripts["delivered"], tls=tls))).url("", scheme="https")
        urls["connect_error"] = f"http://127.0.0.1:{find_free_port()}"
        urls["connect_timeout"] = f"http://127.0.0.1:{await enter(full_listener())}"
        names = await enter(serve_names())
        names.table["inside.example"] = ("10.0.0.1",)
        urls["dns_error"], urls["blocked_address"] = "http://missing.example", "http://inside.example"
        yield urls, names.address


async def test_no_canary_gets_out(canaries, new_database, new_service, broker, tmp_path):
    database, topic = await new_database(), f"secrecy-{find_free_port()}"
    for name in (topic, f"{topic}-dead"):
        await create_topic(broker, name, 1)
    async with every_failure(tmp_path) as (urls, names), opened_topic(broker, topic, 1) as opened:
        kafka = {"kafka_bootstrap_servers": broker, "kafka_topics": topic, "kafka_group_id": topic}
        more = {"dns_servers": names, "connect_timeout": "3s", "kafka_dlq_topic": f"{topic}-dead", **kafka}
        settings = secret_settings(canaries, database, **more)
        async with new_service(settings) as service, new_tenant(service, opened) as tenant:
            tenant.api = tenant.api.with_key(await make_key(settings, tenant.tenant_id, canaries))
            await register_all(tenant.api, urls, canaries)
            assert await find_in_refusals(service, tenant.api, canaries) == {}
            await produce_everything(tenant, broker, topic, canaries)
            await eventually(lambda: has_met_every_class(service, tenant), every=8)
            assert await find_in_api(tenant.api, canaries) == {}
            assert await find_in_open_pages(service, canaries) == {}
            assert await find_in_commands(settings, database, canaries) == {}
            await break_a_table(service, database, tenant)
        said = service.log.read_text(errors="replace")
        assert canaries.find(said) == []
        assert "Traceback" in said

        await mend_the_table(database)
        service = new_service({**settings, **trouble(canaries)})
        service.launch()  # it is never ready, without Kafka
        await eventually(lambda: says(service, "started"))
        await send_tests(service, settings, tenant.tenant_id)
        await eventually(lambda: says(service, "kafka_unavailable", "own_fault", "url_refused"))
        assert await find_in_open_pages(service, canaries) == {}
        assert await service.stop() == 0
        assert canaries.find(service.log.read_text(errors="replace")) == []

        service = new_service({**settings, "WEBHOOKD_DATABASE_URL": f"postgresql://u:{canaries['dsn']}@127.0.0.1:1/x"})
        service.launch()
        await eventually(lambda: says(service, "database_unavailable"))
        service.end()
        assert canaries.find(service.log.read_text(errors="replace")) == []


def trouble(canaries: Canaries) -> dict[str, str]:
    """The same service for people to read, where nothing outside works: no proxy, no broker that knows SASL, no http."""
    return {
        "WEBHOOKD_LOG_FORMAT": "console",
        "WEBHOOKD_EGRESS_PROXY": f"http://user:{canaries['proxy']}@127.0.0.1:{find_free_port()}",
        "WEBHOOKD_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "WEBHOOKD_KAFKA_SASL_MECHANISM": "SCRAM-SHA-256",
        "WEBHOOKD_KAFKA_SASL_USERNAME": "webhookd",
        "WEBHOOKD_ALLOW_HTTP": "false",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://user:{canaries['collector']}@127.0.0.1:{find_free_port()}",
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {canaries['collector_header']}",
    }


async def says(service, *words: str) -> bool:
    said = service.log.read_text(errors="replace")
    return all(word in said for word in words)


async def has_met_every_class(service, tenant) -> bool:
    """Whether all have happened by now. What a busy machine made a timeout of gets another chance: one more job."""
    if await says(service, *(f'"outcome":"{kind}"' for kind in CLASSES)):
        return True
    await tenant.produce(completed(f"once-more-{secrets.token_hex(4)}"))
    return False


async def make_key(settings, tenant_id: str, canaries: Canaries) -> str:
    """By the command line, which prints it this once."""
    roles = [word for role in ("read", "write", "ingest") for word in ("--role", role)]
    ended = await run_program("keys", "create", "--tenant", tenant_id, *roles, settings=settings)
    assert canaries.find(ended.stdout + ended.stderr) == []
    key = ended.stdout.strip()
    canaries.made["api_key"] = key.partition(".")[2]
    return key


async def register_all(api, urls, canaries: Canaries) -> None:
    """A webhook for each way to end, with a secret in every place that takes one."""
    for name, url in urls.items():
        webhook = {
            "id": name,
            "url": f"{url}/{canaries['path']}?token={canaries['query']}",
            "secret": "whsec_" + base64.b64encode(canaries.key("signing_secret")).decode(),
            "custom_headers": {"X-Api-Token": canaries["header"]},
            "event_types": ["*"],
            "retry_schedule": LATER,
            "timeout_seconds": 5 if name == "timeout" else 15,
        }
        await api.post("/v1/webhooks", webhook)


async def find_in_refusals(service, api, canaries: Canaries) -> dict[str, list[str]]:
    """What the API says to requests that are wrong, which hold secrets where they belong and where they do not."""
    url, secret = f"https://u:{canaries['userinfo']}@receiver.example/", "whsec_" + canaries["signing_secret"]
    hook, long = "/v1/batches/b/webhook", "a" * 300_000
    bodies = [
        {"url": url},
        {"url": f"https://r.example/{canaries['path']}#{canaries['query']}"},
        {"url": f"https://r.example:{canaries['query']}/"},
        {"url": f"ftp://r.example/?{canaries['query']}"},
        {"url": "https://r.example/", "secret": secret},
        {"url": "https://r.example/", "secret": {canaries["signing_secret"]: canaries["signing_secret"]}},
        {"url": "https://r.example/", "custom_headers": {"X-A": canaries["header"] + "\n"}},
        {"url": "https://r.example/", "custom_headers": {"Host": canaries["header"]}},
        {"url": "https://r.example/", "custom_headers": [canaries["header"]]},
        {"url": [canaries["path"]], "secret": 7, "description": {"a": canaries["body"]}},
        {"url": "https://r.example/", "description": canaries["body"] + long},
        canaries["body"],
        [canaries["body"]],
    ]
    found = {}
    for number, body in enumerate(bodies):
        for method, path in (("PUT", hook), ("POST", "/v1/webhooks")):
            with pytest.raises(Refused) as refused:
                await api.call(method, path, body)
            found[f"{method} {number}"] = canaries.find(str(refused.value))
    event = {"event_type": canaries["body"], "tenant_id": 7, "job_id": {"a": canaries["body"]}, "webhook_url": url}
    answered = await api.call("POST", "/v1/events", [event, {"body": canaries["body"]}, canaries["body"]])
    found["events"] = canaries.find(str(answered))
    found |= await find_in_raw_answers(service, canaries)
    return {what: places for what, places in found.items() if places}


async def find_in_raw_answers(service, canaries: Canaries) -> dict[str, list[str]]:
    """The same for requests that no client library would send."""
    key = canaries["operator_key"].encode()
    heads = [
        b"GET /v1/keys HTTP/1.1\r\nauthorization: Bearer " + key + b"\r\n\r\n",
        b"GET /v1/keys HTTP/1.1\r\nauthorization: Basic " + base64.b64encode(b"a:" + key) + b"\r\n\r\n",
        b"GET /v1/keys HTTP/1.1\r\nauthorization: " + key + b"\r\nbad header " + key + b"\r\n\r\n",
        b"GET /v1/keys?" + key + b"=1 HTTP/1.1\r\n\r\n",
        b"GET /v1/" + key + b"\xff HTTP/9.9\r\n\r\n",
        b"PUT /v1/batches/b/webhook HTTP/1.1\r\nauthorization: Bearer op-" + key
        + b"\r\nx-tenant-id: t\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n" + key,
    ]  # fmt: skip
    found = {}
    for head in heads:
        for url in (service.api_url, service.ops_url):
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
            writer.write(head.replace(b"\r\n", b"\r\nhost: x\r\nconnection: close\r\n", 1))
            found[f"{url} {head[:40]}"] = canaries.find(await asyncio.wait_for(reader.read(), 60))
            writer.transport.abort()
    return found


async def produce_everything(tenant, broker: str, topic: str, canaries: Canaries) -> None:
    """A job that ends, for every webhook, and records that nobody can read."""
    secret_url = f"https://u:{canaries['userinfo']}@r.example/{canaries['path']}?{canaries['query']}"
    body = {"metadata": {"note": canaries["body"]}, "error_message": canaries["body"]}
    await tenant.produce(completed("job-1", **body), completed("job-2", webhook_url=secret_url, **body))
    producer = AIOKafkaProducer(bootstrap_servers=broker)
    await producer.start()
    text = canaries["body"]
    for value in (
        text.encode(),
        b"\xff" + text.encode(),
        f'{{"tenant_id": "{tenant.tenant_id}", "job_id": ["{text}"]}}'.encode(),
        f'{{"event_id": "{text}", "event_type": "job.{text}", "occurred_at": "{text}", "tenant_id": "t"}}'.encode(),
        f'{{"event_type": "job.completed", "job_id": "j", "status": "{text}", "tenant_id": "t"}}'.encode(),
    ):
        await producer.send_and_wait(topic, value, key=text.encode(), headers=[(text, text.encode())])
    await producer.stop()


async def find_in_api(api, canaries: Canaries) -> dict[str, list[str]]:
    """What the tenant's own reader sees: its URL's path and its bodies, which are its own, and no secret."""
    found = {}
    quoted = (*OWN, "header", "query")  # the receiver quoted the request: that is what its answer was
    for path in ("/v1/webhooks", "/v1/signing-keys", "/v1/jobs/job-1", "/v1/deliveries", "/v1/webhooks/gone/stats"):
        found[path] = canaries.find(str(await api.get(path)), OWN)
    for delivery in await api.list("/v1/deliveries"):
        path = f"/v1/deliveries/{delivery['delivery_id']}"
        found[path] = canaries.find(str(await api.get(path)), quoted)
        found[delivery["message_id"]] = canaries.find(str(await api.get(f"/v1/messages/{delivery['message_id']}")), OWN)
    return {what: places for what, places in found.items() if places}


async def find_in_open_pages(service, canaries: Canaries) -> dict[str, list[str]]:
    found = {}
    pages = [service.ops_url + path for path in ("/livez", "/readyz", "/metrics", "/nothing")]
    pages += [service.api_url + path for path in ("/healthz", "/docs", "/openapi.json", "/v1/keys")]
    async with ClientSession() as http:
        for url in pages:
            async with http.get(url) as answer:
                found[url] = canaries.find(await answer.read() + str(answer.headers).encode())
        operator = {"authorization": f"Bearer {service.settings['WEBHOOKD_OPERATOR_KEY']}", "x-tenant-id": "none"}
        for path in ("/v1/audit", "/v1/keys", "/v1/operator/top?by=failing", "/v1/operator/top?by=pending"):
            async with http.get(service.api_url + path, headers=operator) as answer:
                assert answer.status == 200
                found[path] = canaries.find(await answer.read(), ("path",))
    return {what: places for what, places in found.items() if places}


async def find_in_commands(settings, database: str, canaries: Canaries) -> dict[str, list[str]]:
    """Every command that says something about the service, and those that fail."""
    blank = {**settings, "WEBHOOKD_DATABASE_URL": re.sub(r"/[^/?]+\?", "/postgres?", settings["WEBHOOKD_DATABASE_URL"])}
    away = {**settings, "WEBHOOKD_DATABASE_URL": f"postgresql://u:{canaries['dsn']}@127.0.0.1:1/x"}
    secret = canaries["dsn"]
    wrong = {
        **settings,
        "WEBHOOKD_DATABASE_URL": f"mysql://u:{secret}@h/x",
        "WEBHOOKD_ENCRYPTION_KEYS": f"k1:{secret}",
        "WEBHOOKD_OPERATOR_KEY": f"{secret} ",
        "WEBHOOKD_EGRESS_PROXY": f"socks5://u:{secret}@h",
    }
    odd = {**settings, "WEBHOOKD_DATABASE_URL": f"postgresql://u:{secret}@127.0.0.1:1/x?sslmode={secret}"}
    calls = [
        *((settings, command) for command in COMMANDS),
        *((unusable, ("keys", "list")) for unusable in (blank, away, odd)),
        *((wrong, command) for command in (("config",), ("serve",))),
    ]
    turn, found = asyncio.Semaphore(2), {}

    async def run(each, command):
        async with turn:
            ended = await run_program(*command, settings=each)
        shown = ("body",) if command[:2] == ("dlq", "show") else ()  # the record, which is what was asked for
        if places := canaries.find(ended.stdout + ended.stderr, shown):
            found[" ".join(command)] = places

    await asyncio.gather(*(run(*call) for call in calls))
    return found


async def break_a_table(service, database: str, tenant) -> None:
    """A bug's way out: what nobody expected ends the process, with a traceback in its log."""
    async with connected(database) as connection:
        await connection.execute("ALTER TABLE deliveries RENAME TO deliveries_away")
    await tenant.produce(completed("job-3", metadata={}))
    await eventually(lambda: says(service, "Traceback"))


async def mend_the_table(database: str) -> None:
    async with connected(database) as connection:
        await connection.execute("ALTER TABLE deliveries_away RENAME TO deliveries")


async def send_tests(service, settings, tenant_id: str) -> None:
    """To a receiver that may only be reached through the proxy, and to one that may not be reached any more."""
    headers = {"authorization": f"Bearer {settings['WEBHOOKD_OPERATOR_KEY']}", "x-tenant-id": tenant_id}
    async with ClientSession(headers=headers) as http:
        for webhook in ("tls_error", "http_error"):
            await (await http.post(f"{service.api_url}/v1/webhooks/{webhook}/test")).read()
