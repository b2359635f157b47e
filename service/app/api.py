"""The api role: the admin API on its port, from the settings."""

from __future__ import annotations

from contextlib import AsyncExitStack

from service.api.app import build_api
from service.api.parts import ApiLimits, Parts
from service.app.basics import Basics, build_registry
from service.app.ingest import build_reader
from service.inbound import Bounds, listening
from service.ingest.applying import Ingestor
from service.ingest.requests import EventRequests
from service.lifecycle import raise_descriptor_limit

MOST_CONNECTIONS = 1000


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
        basics.tell,
        EventRequests(build_reader(basics), ingestor, basics.telemetry, basics.spans),
    )
    bounds = Bounds(connections=min(MOST_CONNECTIONS, raise_descriptor_limit() // 8))
    api = listening(build_api(parts), "api", settings.api_host, settings.api_port, bounds)
    return await stack.enter_async_context(api)
