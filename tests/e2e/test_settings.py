"""Starts that are refused, each with one clear line, and what the other commands say."""

import asyncio
import os

import orjson
import pytest
from aiohttp import ClientSession

from tests.e2e.story import completed, new_tenant
from tests.support.postgres import connected
from tests.support.service import OPERATOR_KEY, PROGRAM, Refused, build_settings, run_program

DATABASE = "postgresql://webhookd:s3cret-password@127.0.0.1:1/webhookd"


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"retry_shedule": "5s"}, "WEBHOOKD_RETRY_SHEDULE: is not a setting; WEBHOOKD_RETRY_SCHEDULE is"),
        ({"lease": "20s"}, "WEBHOOKD_LEASE: 20s is shorter than the longest timeout"),
        ({"encryption_keys": None}, "WEBHOOKD_ENCRYPTION_KEYS: is not set"),
        ({"operator_key": None}, "WEBHOOKD_OPERATOR_KEY: is not set"),
        ({"database_url": None}, "WEBHOOKD_DATABASE_URL: is not set"),
        ({"database_url": "mysql://webhookd:s3cret-password@host/name"}, "WEBHOOKD_DATABASE_URL: is not a PostgreSQL"),
        (
            {"database_url": "postgresql://webhookd:1?s3cret-password@host/name"},
            "WEBHOOKD_DATABASE_URL: is not a Postgre",
        ),
        ({"encryption_keys": "k1:s3cret-password"}, "WEBHOOKD_ENCRYPTION_KEYS: entry 1 is not id:base64"),
        ({"profiles_dir": "/nowhere"}, "WEBHOOKD_PROFILES_DIR: names a directory that does not exist"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
async def test_a_wrong_setting_stops_the_start_with_one_line(wrong, line):
    ended = await run_program("serve", settings=build_settings(**{"database_url": DATABASE, **wrong}))
    assert ended.status != 0
    (only,) = ended.stderr.splitlines()
    assert line in only
    assert "s3cret-password" not in ended.stderr + ended.stdout
    assert ended.stdout == ""


async def test_f70_what_ends_the_program_is_a_line_like_any_other():
    """The database's client quotes what it cannot read in its own variables."""
    settings = {**build_settings(DATABASE), "PGTARGETSESSIONATTRS": "s3cret-password"}
    ended = await run_program("serve", settings=settings)
    assert ended.status == 1
    lines = [orjson.loads(line) for line in ended.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["crashed"]
    assert "s3cret-password" not in ended.stderr + ended.stdout


async def test_each_wrong_setting_has_a_line():
    wrong = {"retry_schedule": "5s,soon", "api_port": 70000, "leese": "60s"}
    ended = await run_program("serve", settings=build_settings(DATABASE, **wrong))
    assert ended.status != 0
    names = sorted(line.partition(":")[0] for line in ended.stderr.splitlines())
    assert names == ["WEBHOOKD_API_PORT", "WEBHOOKD_LEESE", "WEBHOOKD_RETRY_SCHEDULE"]


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("profiles_dir", "own.toml", 'name = "own"\n[status]\ndone = "finished"\n'),
        ("profiles_dir", "own.toml", "name = \n"),
        ("ca_file", "ca.pem", "no certificate"),
        ("kafka_ca_file", "ca.pem", "no certificate"),
    ],
)
async def test_a_file_that_cannot_be_used_stops_the_start_with_one_line(tmp_path, name, file, content):
    (tmp_path / file).write_text(content)
    path = tmp_path if name == "profiles_dir" else tmp_path / file
    protocol = {"kafka_security_protocol": "SSL", "kafka_bootstrap_servers": "127.0.0.1:1"}
    settings = build_settings(DATABASE, **{name: path}, **(protocol if name == "kafka_ca_file" else {}))
    ended = await run_program("serve", settings=settings)
    assert ended.status == 2
    (only,) = ended.stderr.splitlines()
    assert only.startswith(f"WEBHOOKD_{name.upper()}: ")


async def test_what_kubernetes_injects_is_no_setting():
    injected = {
        "WEBHOOKD_PORT": "tcp://10.0.0.1:80",
        "WEBHOOKD_API_PORT": "tcp://10.0.0.1:80",
        "WEBHOOKD_PORT_80_TCP_ADDR": "10.0.0.1",
        "WEBHOOKD_SERVICE_HOST": "10.0.0.1",
        "WEBHOOKD_OPS_SERVICE_PORT_HTTP": "9090",
    }
    ended = await run_program("config", settings={**build_settings(DATABASE), **injected})
    assert ended.status == 0, ended.stderr


async def test_a_database_that_is_not_there_is_said_without_its_address():
    ended = await run_program("migrate", settings=build_settings(DATABASE))
    assert ended.status != 0
    assert len(ended.stderr.splitlines()) == 1
    assert "s3cret-password" not in ended.stderr + ended.stdout


async def test_f68_with_nothing_set_what_is_inside_is_closed(new_database, new_service):
    settings = build_settings(await new_database(), allow_http=None, egress_allow=None, egress_ports=None)
    closed = {
        "https://169.254.169.254/latest/meta-data": "url_metadata_address",
        "https://[fd00:ec2::254]/": "url_metadata_address",
        "https://10.0.0.1/": "url_private_address",
        "https://127.0.0.1/": "url_loopback_address",
        "https://localhost/": "url_local_name",
        "https://receiver.example:8443/": "url_port",
        "http://receiver.example/": "url_scheme",
    }
    async with new_service(settings) as service, new_tenant(service, None) as tenant:
        for url, code in closed.items():
            with pytest.raises(Refused) as refused:
                await tenant.api.post("/v1/webhooks", {"url": url})
            assert (refused.value.status, refused.value.problem["code"]) == (422, code)
        assert await tenant.api.post("/v1/webhooks", {"url": "https://receiver.example/"})


async def test_an_unmigrated_database_is_refused_until_it_is_migrated(new_database, new_service):
    settings = build_settings(await new_database(migrated=False))
    refused = await run_program("serve", settings=settings)
    assert refused.status != 0
    (line,) = refused.stderr.splitlines()
    assert "webhookd migrate" in line

    assert (await run_program("migrate", "--check", settings=settings)).status != 0
    migrated = await run_program("migrate", settings=settings)
    assert migrated.status == 0, migrated.stderr
    assert (await run_program("migrate", "--check", settings=settings)).status == 0

    async with new_service(settings) as service:
        assert await service.stop() == 0


async def test_migrate_check_changes_nothing(new_database):
    database = await new_database(migrated=False)
    checked = await run_program("migrate", "--check", settings=build_settings(database))
    assert checked.status != 0
    async with connected(database) as connection:
        assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0


async def test_help_names_every_command():
    ended = await run_program("--help", settings={})
    assert ended.status == 0
    for command in ("demo", "serve", "migrate", "listen", "verify", "keys", "dlq", "secrets", "tenants", "config"):
        assert command in ended.stdout
        own = await run_program(command, "--help", settings={})
        assert own.status == 0, own.stderr
        assert f"webhookd {command}" in own.stdout


async def test_config_shows_values_and_masks_secrets():
    ended = await run_program("config", settings=build_settings(DATABASE, retry_schedule="7s,9s"))
    assert ended.status == 0
    assert "WEBHOOKD_RETRY_SCHEDULE" in ended.stdout
    assert "WEBHOOKD_RETRY_SCHEDULE=7s,9s  # env; default 5s,5m,30m,2h,5h,10h,14h,20h,24h" in ended.stdout
    assert "s3cret-password" not in ended.stdout
    assert OPERATOR_KEY not in ended.stdout


async def test_serve_embedded_needs_no_database_and_no_broker(tmp_path, new_service, receiver):
    """PostgreSQL is in DATA_DIR, and events come by HTTP."""
    settings = build_settings(encryption_keys=None, data_dir=tmp_path / "data")
    service = new_service(settings)
    for run in (1, 2):
        service.launch("--embedded")
        await service.wait_until_ready()
        async with new_tenant(service, None) as tenant:
            batch = tenant.batch("invoices-nov", total=1)
            secret = (await batch.register(receiver))["secret"]
            result = await tenant.api.post("/v1/events", batch.complete(completed("A")))
            assert len(result["results"]) == 1
            await receiver.wait_for(run)
            receiver.arrivals[-1].verify(secret)
        assert await service.stop() == 0, service.tail()


async def test_attempts_at_once_are_no_more_than_descriptors_allow(new_database):
    settings = build_settings(await new_database(), max_in_flight=2000)
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", 'ulimit -n 600; exec "$0" serve', str(PROGRAM)),
        env={"PATH": os.environ["PATH"], **settings},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            line = {}
            while line.get("event") != "max_in_flight_capped":
                line = orjson.loads(await process.stderr.readline())
    finally:
        process.kill()
        await process.wait()
    assert (line["level"], line["slots"], line["descriptors"]) == ("warning", 300, 600)


async def test_the_api_documents_itself(service):
    async with ClientSession() as http:
        async with http.get(f"{service.api_url}/openapi.json") as answer:
            document = await answer.json()
        async with http.get(f"{service.api_url}/docs") as answer:
            assert (answer.status, answer.content_type) == (200, "text/html")
        async with http.get(f"{service.api_url}/healthz") as answer:
            assert answer.status == 200
    assert document["openapi"].startswith("3.1")
    assert "/v1/batches/{batch_name}/webhook" in document["paths"]


async def test_the_demo_ends_well():
    ended = await run_program("demo", settings={}, within=250)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
