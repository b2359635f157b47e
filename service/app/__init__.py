"""THE composition root: builds every part from the settings, enters them in order, runs them.

Belongs here: in what order parts open and close; a module per role says which part knows which. Does not belong here:
any rule. Closing order is the exit stack's, bottom up: workers have ended before the API, the sender and the pool close;
the operations port closes last.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from service.app.api import open_api
from service.app.basics import build_common_workers, check_files, open_basics, wait_for_schema
from service.app.deliver import add_deliver, build_upkeep
from service.app.ingest import build_ingest, build_ingestor
from service.config import Configuration
from service.lifecycle import Stop, Supervisor, Worker, tune_gc
from service.logs import Logger
from service.ops import OpsApp, serve_ops

ROLES = ("api", "ingest", "deliver")


@dataclass(frozen=True, slots=True)
class Service:
    """The opened service: its workers run until the stop."""

    workers: tuple[Worker, ...]
    log: Logger
    api_port: int
    ops_port: int

    async def run(self, stop: Stop) -> None:
        """Run the workers until the stop. Raises WorkerFailed."""
        tune_gc()
        self.log.info("started", api_port=self.api_port, ops_port=self.ops_port)
        await Supervisor(stop, self.log.error).run(self.workers)
        self.log.info("stopped")


@asynccontextmanager
async def open_service(configuration: Configuration, roles: frozenset[str], stop: Stop) -> AsyncIterator[Service]:
    """Open all parts of the given roles; yields once they listen. Raises ConfigError for what a
    setting's file holds, SchemaUnfit, OSError for a taken port.
    """
    check_files(configuration)
    async with AsyncExitStack() as stack:
        basics = await open_basics(stack, configuration)
        checks: dict[str, Any] = {}
        ops = OpsApp(basics.telemetry, basics.heartbeats, stop, checks, warn=basics.log.warning)
        settings = configuration.settings
        ops_port = await stack.enter_async_context(serve_ops(ops, settings.ops_host, settings.ops_port))
        checks["started"] = never_ready
        await wait_for_schema(basics, stop)
        if stop.is_set():  # asked to end before the database was there
            yield Service((), basics.log, 0, ops_port)
            return
        workers: list[Worker] = [*build_common_workers(basics)]
        role = await add_deliver(stack, basics, workers, checks) if "deliver" in roles else None
        ingestor = build_ingestor(basics, role)
        if "deliver" in roles:
            workers.append(build_upkeep(basics, ingestor, role))
        if "ingest" in roles and settings.kafka_bootstrap_servers:
            workers += build_ingest(basics, ingestor, checks)
        api_port = await open_api(stack, basics, ingestor) if "api" in roles else 0
        del checks["started"]
        yield Service(tuple(workers), basics.log, api_port, ops_port)


async def never_ready() -> bool:
    """Stand for what is not known yet to be well."""
    return False
