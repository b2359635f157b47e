"""The api role: the admin API on its port, from the settings."""

from __future__ import annotations

from contextlib import AsyncExitStack

from aiohttp import web

from service.api.app import build_api
from service.api.parts import ApiLimits, Parts
from service.app.basics import Basics, build_registry
from service.app.ingest import build_reader
from service.ingest.applying import Ingestor
from service.ingest.requests import EventRequests


async def open_api(stack: AsyncExitStack, basics: Basics, ingestor: Ingestor) -> int:
    settings = basics.configuration.settings
    parts = Parts(
        basics.database,
        build_registry(basics),
        basics.clock,
        ApiLimits(
            reads=settings.limit_reads,
            writes=settings.limit_writes,
            tests_per_webhook=settings.limit_tests,
        ),
        basics.configuration.secret("operator_key").get,
        EventRequests(build_reader(basics), ingestor, basics.telemetry, basics.spans),
    )
    runner = web.AppRunner(build_api(parts), access_log=None, handle_signals=False, shutdown_timeout=3.0)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, settings.api_host, settings.api_port).start()
    return int(runner.addresses[0][1])
