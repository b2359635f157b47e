"""Webhooks as workers read them: settings with their sealed columns opened, changes, health, pauses, clock.

Belongs here: the catalog's port. Does not belong here: writing webhooks (``webhooks``) or their health (``health``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from service.delivery.catalog import Changes, Pauses, Trouble
from service.delivery.entries import WebhookSource
from service.sealing import Sealer, Undecryptable
from service.store.codes import WEBHOOK_STATES, WebhookKind
from service.store.database import Database, Row
from service.store.health import read_epoch, read_health
from service.store.listening import PROCESS_LOCK
from service.store.signing_keys import SigningKeys, unseal_keys
from service.store.webhook_seals import Headers, open_headers, unseal_url

Opened = tuple[str, Headers, SigningKeys]


class WebhookCatalog:
    """``CatalogStore`` on PostgreSQL."""

    def __init__(self, database: Database, sealer: Sealer) -> None:
        self._database = database
        self._sealer = sealer

    async def read_clock(self) -> float:
        """Seconds since 1970 by the database's clock."""
        async with self._database.session() as session:
            epoch: float = await session.value("clock_read")
        return epoch

    async def load(self, webhook_keys: Collection[int]) -> list[WebhookSource]:
        """These webhooks, opened; those that do not exist are left out."""
        async with self._database.session() as session:
            rows = await session.fetch("webhooks_load", list(webhook_keys))
        return [self._read(row) for row in rows]

    async def read_changes(self, back: float, troubled: Collection[int], *, first: bool) -> Changes:
        """What has changed in the last ``back`` seconds; the health of the ``troubled`` and of all that are not well."""
        async with self._database.session() as session:
            changed = await session.fetch("webhooks_changed", back)
            healths = await session.fetch("webhooks_troubled", list(troubled), None if first else back)
            pauses = await session.fetch("operator_pauses_active")
            processes = await session.value("processes_count", *PROCESS_LOCK)
        return Changes(
            revisions=tuple((row["webhook_key"], row["revision"]) for row in changed),
            troubles=tuple(_read_trouble(row) for row in healths),
            pauses=_read_pauses(pauses),
            processes=max(1, processes),
        )

    async def list_readable(self, webhook_keys: Collection[int]) -> list[int]:
        """Those of these webhooks whose sealed columns open."""
        return [source.webhook_key for source in await self.load(webhook_keys) if not source.broken]

    def _read(self, row: Row) -> WebhookSource:
        try:
            url, headers, keys = self._open(row)
            broken = False
        except (
            Undecryptable,
            ValueError,
            TypeError,
            LookupError,
        ):  # what opens and makes no sense is as good as closed
            url, headers, keys, broken = "", (), SigningKeys(), True
        return WebhookSource(
            webhook_key=row["webhook_key"],
            webhook_id=row["webhook_id"],
            tenant_id=row["tenant_id"],
            one_shot=row["kind"] == WebhookKind.ONE_SHOT,
            lane=row["lane"],
            state=WEBHOOK_STATES[row["state"]],
            state_at=row["state_at"].timestamp(),
            deleted=row["deleted"],
            revision=row["revision"],
            origin=row["origin"],
            url=url,
            headers=headers,
            hmac=keys.hmac,
            ed25519=keys.ed25519,
            broken=broken,
            retry_schedule=None if row["retry_schedule"] is None else tuple(row["retry_schedule"]),
            timeout_seconds=row["timeout_seconds"],
            max_in_flight=row["max_in_flight"],
            rate_limit=row["rate_limit"],
            health=read_health(row["health"]),
            held_until=read_epoch(row["held_until"]),
        )

    def _open(self, row: Row) -> Opened:
        sealer, tenant_id, webhook_id = self._sealer, row["tenant_id"], row["webhook_id"]
        url = unseal_url(sealer, tenant_id, webhook_id, row["url"])
        headers = open_headers(sealer, tenant_id, webhook_id, row["custom_headers"])
        if row["secrets"] is not None:
            return url, headers, unseal_keys(sealer, tenant_id, webhook_id, row["secrets"])
        return url, headers, unseal_keys(sealer, tenant_id, "", row["signing_secrets"])


def _read_trouble(row: Row) -> Trouble:
    return Trouble(row["webhook_key"], read_health(row["health"]), read_epoch(row["held_until"]))


def _read_pauses(rows: Iterable[Row]) -> Pauses:
    listed = list(rows)
    return Pauses(
        everything=any(row["scope"] == "all" for row in listed),
        tenants=frozenset(row["tenant_id"] for row in listed if row["scope"] == "tenant"),
        hosts=frozenset(row["host"] for row in listed if row["scope"] == "host"),
    )
