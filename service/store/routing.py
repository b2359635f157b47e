"""What routing reads: tenants' account webhooks (a copy that is trusted only at the version the transaction sees), the
own webhooks of batches, and the hidden ones of one-shot URLs.

Belongs here: look-ups for ``domain.routing``. Does not belong here: registering webhooks, and the choice among them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from service.domain.egress import EgressPolicy
from service.domain.identity import digest
from service.domain.routing import Subscriber
from service.domain.targets import Target, parse_url
from service.domain.webhooks import Filters, Scope
from service.ingest.transaction import Tenancy
from service.ports import Conflict
from service.sealing import Sealer
from service.store.codes import WEBHOOK_STATES
from service.store.database import Session
from service.store.statements import columns
from service.store.webhook_seals import hash_url, seal_url

COPIES = 10_000  # tenants kept in memory


class Version(NamedTuple):
    """What a transaction reads of a tenant: at which version a copy of its webhooks is good, and if it has a secret."""

    tenant_id: str
    number: int
    has_secret: bool


class RoutingCopy:
    """Account webhooks of recently seen tenants. Not shared between event loops."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[int, Mapping[str, Subscriber]]] = OrderedDict()

    async def list_tenancies(self, session: Session, tenant_ids: Sequence[str]) -> dict[str, Tenancy]:
        """Return each tenant's account webhooks as of this transaction."""
        rows = await session.fetch("tenants_routing", tenant_ids) if tenant_ids else []
        return await self.bring_up_to(session, [Version(*row) for row in rows])

    async def bring_up_to(self, session: Session, versions: Sequence[Version]) -> dict[str, Tenancy]:
        """Return each tenant's account webhooks as of these versions, which the transaction has read."""
        outdated = {v.tenant_id: v.number for v in versions if self._known.get(v.tenant_id, (None,))[0] != v.number}
        if outdated:
            await self._read(session, outdated)
        return {version.tenant_id: self._tenancy(version) for version in versions}

    async def _read(self, session: Session, versions: Mapping[str, int]) -> None:
        found: dict[str, dict[str, Subscriber]] = {tenant_id: {} for tenant_id in versions}
        for row in await session.fetch("webhooks_list_subscribers", list(versions)):
            found[row["tenant_id"]][row["webhook_id"]] = _subscriber(row, _filters(row))
        for tenant_id, subscribers in found.items():
            self._known[tenant_id] = (versions[tenant_id], subscribers)
            self._known.move_to_end(tenant_id)

    def _tenancy(self, version: Version) -> Tenancy:
        tenancy = Tenancy(self._known[version.tenant_id][1], version.has_secret)
        while len(self._known) > COPIES:
            self._known.popitem(last=False)
        return tenancy


class OneShots:
    """The hidden webhooks behind one-shot URLs: one per (tenant, URL)."""

    def __init__(self, sealer: Sealer, policy: EgressPolicy, draw_id: Callable[[], str]) -> None:
        self._sealer = sealer
        self._policy = policy
        self._draw_id = draw_id

    async def list_or_make(
        self, session: Session, urls: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], Subscriber]:
        """Return the webhook of each (tenant, URL), made where there is none."""
        hashes = {(tenant_id, hash_url(tenant_id, url)): (tenant_id, url) for tenant_id, url in urls}
        found = await self._find(session, hashes)
        missing = [pair for pair in urls if pair not in found]
        if missing:
            await session.execute("webhooks_insert_one_shots", *columns(map(self._row, missing), 6))
            found = await self._find(session, hashes)
        if len(found) < len(hashes):
            msg = "a hidden webhook was forgotten before it was used again"
            raise Conflict(msg)
        return found

    async def _find(
        self, session: Session, hashes: Mapping[tuple[str, bytes], tuple[str, str]]
    ) -> dict[tuple[str, str], Subscriber]:
        rows = await session.fetch("webhooks_find_one_shots", *columns(hashes, 2))
        idle = sorted(row["webhook_key"] for row in rows if row["idle"])
        awake = {row["webhook_key"] for row in await session.fetch("webhooks_wake", idle)} if idle else set()
        used = [row for row in rows if not row["idle"] or row["webhook_key"] in awake]
        return {hashes[row["tenant_id"], row["url_hash"]]: _subscriber(row, Filters()) for row in used}

    def _row(self, pair: tuple[str, str]) -> tuple[object, ...]:
        tenant_id, url = pair
        target = parse_url(url, self._policy, tenant_id)
        origin = target.origin if isinstance(target, Target) else "refused"
        webhook_id = self._draw_id()
        sealed = seal_url(self._sealer, tenant_id, webhook_id, url)
        return tenant_id, webhook_id, one_shot_lane(tenant_id, origin), sealed, hash_url(tenant_id, url), origin


def one_shot_lane(tenant_id: str, origin: str) -> int:
    """Return the lane that one-shots of a tenant to one origin share: negative, so never a webhook's row key."""
    return -1 - (int(digest("lane", tenant_id, origin)[:16], 16) >> 1)


def batch_subscriber(row: Any) -> Subscriber:
    """Build what routing needs of a batch's own webhook."""
    return _subscriber(row, Filters())


def _subscriber(row: Any, filters: Filters) -> Subscriber:
    held = WEBHOOK_STATES[row["state"]].hold
    return Subscriber(row["webhook_key"], row["webhook_id"], row["lane"], filters, held)


def _filters(row: Any) -> Filters:
    return Filters(
        tuple(row["event_types"] or ()),
        frozenset(Scope(scope) for scope in row["scopes"] or ()),
        tuple(row["batch_names"] or ()),
    )
