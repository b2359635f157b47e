"""The operations port over real HTTP."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import aiohttp
import pytest
from blockbuster import blockbuster_ctx
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from service.lifecycle import Heartbeats, Stop
from service.ops import OpsApp, serve_ops
from service.telemetry import Telemetry
from tests.support.ports import find_free_port

HOST = "127.0.0.1"


class StillClock:
    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self):
        raise AssertionError("nobody here asks for the time of day")


class Ops:
    """A running operations port, with everything it looks at."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.heartbeats = Heartbeats(self.clock)
        self.stop = Stop(self.clock, timedelta(0))
        self.telemetry = Telemetry(request_timeout=timedelta(seconds=15), retry_schedule=[timedelta(seconds=5)])
        self.answers = {"database": True, "kafka": True}
        self.checks = {name: self._check(name) for name in self.answers}
        self.port = 0
        self.told: list[tuple[object, ...]] = []

    def warn(self, event: str, **fields: object) -> None:
        self.told.append((event, *fields.values()))

    def _check(self, name: str):
        async def check() -> bool:
            if isinstance(self.answers[name], Exception):
                raise self.answers[name]
            if self.answers[name] is None:
                await asyncio.Event().wait()
            return self.answers[name]

        return check

    async def get(self, path: str, **headers: str) -> tuple[int, aiohttp.ClientResponse, bytes]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{HOST}:{self.port}{path}", headers=headers) as response,
        ):
            return response.status, response, await response.read()

    async def get_json(self, path: str) -> tuple[int, dict]:
        async with aiohttp.ClientSession() as session, session.get(f"http://{HOST}:{self.port}{path}") as response:
            return response.status, await response.json()


@pytest.fixture
async def ops():
    made = Ops()
    app = OpsApp(made.telemetry, made.heartbeats, made.stop, made.checks, seconds=0.05, warn=made.warn)
    with blockbuster_ctx():
        async with serve_ops(app, HOST, 0) as made.port:
            yield made


async def test_live_while_loops_turn(ops):
    assert await ops.get_json("/livez") == (200, {"live": True, "silent": {}})
    with ops.heartbeats.watch("claim", timedelta(seconds=30)) as beat:
        ops.clock.seconds += 31.26
        assert await ops.get_json("/livez") == (503, {"live": False, "silent": {"claim": 31.3}})
        beat()
        assert (await ops.get_json("/livez"))[0] == 200


async def test_dependencies_never_fail_liveness(ops):
    ops.answers |= {"database": False, "kafka": OSError("gone")}
    assert (await ops.get_json("/livez"))[0] == 200
    assert (await ops.get_json("/readyz"))[0] == 503


async def test_ready_names_every_check(ops):
    assert await ops.get_json("/readyz") == (
        *(200, {"ready": True, "stopping": False, "checks": {"database": True, "kafka": True}}),
    )


@pytest.mark.parametrize("answer", [False, OSError("gone"), None], ids=["false", "raises", "hangs"])
async def test_one_check_that_fails_is_enough(ops, answer):
    ops.answers["kafka"] = answer
    status, body = await ops.get_json("/readyz")
    assert (status, body["ready"]) == (503, False)
    assert body["checks"] == {"database": True, "kafka": False}
    ops.answers["kafka"] = True
    assert (await ops.get_json("/readyz"))[0] == 200


async def test_what_changes_between_two_probes_is_told_once(ops):
    ops.answers["database"] = False
    await ops.get("/readyz")
    assert ops.told == [], "it starts: it was never ready"
    for database, kafka in ((True, True), (False, True), (False, True), (False, False), (True, True)):
        ops.answers |= {"database": database, "kafka": kafka}
        await ops.get("/readyz")
    named = [("readiness_changed", failing) for failing in (["database"], ["database", "kafka"], [])]
    assert ops.told == named
    with ops.heartbeats.watch("claim", timedelta(seconds=30)) as beat:
        ops.clock.seconds += 31.26
        for _ in range(2):
            await ops.get("/livez")
        beat()
        await ops.get("/livez")
    assert ops.told[len(named) :] == [("loops_silent", {"claim": 31.3}), ("loops_silent", {})]


async def test_what_a_process_gives_up_while_it_stops_is_no_news(ops):
    await ops.get("/readyz")
    ops.stop.set()
    ops.answers["kafka"] = False
    assert (await ops.get_json("/readyz"))[1]["checks"]["kafka"] is False
    assert ops.told == []


async def test_a_process_that_stops_is_not_ready_but_alive(ops):
    ops.stop.set()
    status, body = await ops.get_json("/readyz")
    assert (status, body["ready"], body["stopping"]) == (503, False, True)
    assert (await ops.get_json("/livez"))[0] == 200


async def test_a_role_without_dependencies_is_ready():
    made = Ops()
    async with serve_ops(OpsApp(made.telemetry, made.heartbeats, made.stop, {}), HOST, 0) as made.port:
        assert await made.get_json("/readyz") == (200, {"ready": True, "stopping": False, "checks": {}})


async def test_metrics_as_prometheus_text(ops):
    status, response, body = await ops.get("/metrics")
    assert status == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert "webhookd_attempts" in {family.name for family in parse_text(body.decode())}


async def test_metrics_as_openmetrics_when_asked_for(ops):
    asked = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    status, response, body = await ops.get("/metrics", accept=asked)
    assert status == 200
    assert response.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    assert "webhookd_attempts" in {family.name for family in parse_openmetrics(body.decode())}


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain;version=1.0.0", "x;q=é", "," * 1000])
async def test_any_accept_header_gets_an_answer(ops, accept):
    assert (await ops.get("/metrics", accept=accept))[0] == 200


async def test_nothing_else_is_served(ops):
    assert (await ops.get("/"))[0] == 404


async def test_the_port_is_free_afterwards():
    made = Ops()
    app = OpsApp(made.telemetry, made.heartbeats, made.stop, {})
    async with serve_ops(app, HOST, find_free_port()) as port:
        with pytest.raises(OSError, match="address already in use"):
            async with serve_ops(OpsApp(made.telemetry, made.heartbeats, made.stop, {}), HOST, port):
                raise AssertionError
    async with serve_ops(OpsApp(made.telemetry, made.heartbeats, made.stop, {}), HOST, port) as again:
        assert again == port


async def test_a_check_may_go_while_another_one_is_waited_for(ops):
    async def forget() -> bool:
        del ops.checks["forgetful"]
        return True

    ops.checks["forgetful"] = forget
    status, answer = await ops.get_json("/readyz")
    assert (status, answer["checks"]["forgetful"]) == (200, True)
    status, answer = await ops.get_json("/readyz")
    assert "forgetful" not in answer["checks"]
