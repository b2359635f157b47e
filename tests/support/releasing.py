"""One look of upkeep at what is held, or waits behind an open breaker."""

from __future__ import annotations

from service.store.catalog import WebhookCatalog
from service.store.database import Database
from service.store.holds import Holds
from service.upkeep.release import Release
from tests.support.delivering import SEALER, Watcher

TOTAL = 100.0  # seconds that a schedule lasts


async def run_release(dsn: str) -> tuple[Watcher, list[int]]:
    """What it told, and an entry for each time that something became due."""
    watcher, due = Watcher(), []
    async with Database(dsn) as database:
        catalog = WebhookCatalog(database, SEALER)
        release = Release(Holds(database, TOTAL), catalog, watcher, watcher.tell, lambda: due.append(1))
        await release.run_once()
        await release.retry_undecryptable()
    return watcher, due
