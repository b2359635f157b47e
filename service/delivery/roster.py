"""Which lanes, tenants and hosts are known here; what is idle is forgotten when there are too many.

Belongs here: finding and making them. Does not belong here: whose turn it is (``slots``).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

from service.delivery.lanes import Gate, Lane, Tenant, Trust
from service.delivery.ready import ReadyDelivery

PER_HOST: Final = 50
KEPT_LANES: Final = 50_000


@dataclass(frozen=True, slots=True)
class LaneTerms:
    """What a webhook's settings and health say about its lane.

    ``limit``: attempts at a time in this process. ``allowance``: as many as its health lets run, None = all.
    ``rated``: it has a rate limit. ``proven``: it has accepted something before, and is well.
    """

    host: str
    limit: int
    allowance: int | None = None
    rated: bool = False
    proven: bool = False


class Roster:
    """The lanes by key, with the tenants and hosts they belong to."""

    def __init__(self) -> None:
        self._lanes: dict[int, Lane] = {}
        self._tenants: dict[str, Tenant] = {}
        self._hosts: dict[tuple[str, str], Gate] = {}

    def find(self, key: int) -> Lane | None:
        """A lane that is known."""
        return self._lanes.get(key)

    def get(self, key: int) -> Lane:
        """A lane that must be known: something of it is here."""
        return self._lanes[key]

    def enter(self, row: ReadyDelivery, terms: LaneTerms) -> Lane:
        """The lane of a delivery, brought up to the terms of its webhook."""
        lane = self._lanes.get(row.lane)
        if lane is None:
            return self.make(row.lane, row.tenant_id, terms)
        lane.limit, lane.allowance = terms.limit, terms.allowance
        if not terms.rated:
            lane.tokens = None
        elif lane.tokens is None:
            lane.tokens = 0
        if lane.host.key[1] != terms.host and not lane.in_flight and not lane.parked:
            lane.host = self._host_of(row.tenant_id, terms.host)
        return lane

    def make(self, key: int, tenant_id: str, terms: LaneTerms) -> Lane:
        """A lane that is not known yet."""
        if len(self._lanes) >= KEPT_LANES:
            self._forget_some()
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            tenant = self._tenants[tenant_id] = Tenant(tenant_id)
        tenant.lanes += 1
        trust = Trust.PROVEN if terms.proven else Trust.NEW
        host = self._host_of(tenant_id, terms.host)
        lane = Lane(key, tenant, host, terms.limit, trust, terms.allowance, 0 if terms.rated else None)
        self._lanes[key] = lane
        return lane

    def _host_of(self, tenant_id: str, host: str) -> Gate:
        key = (tenant_id, host)
        found = self._hosts.get(key)
        if found is None:
            found = self._hosts[key] = Gate(key, PER_HOST)
        return found

    def _forget_some(self) -> None:
        """Forget idle lanes among the oldest, and with them tenants and hosts that nothing refers to."""
        for key in [key for key, lane in islice(self._lanes.items(), 1_000) if lane.idle]:
            lane = self._lanes.pop(key)
            lane.tenant.lanes -= 1
            if not lane.tenant.lanes:
                del self._tenants[lane.tenant.tenant_id]
        used = {lane.host.key for lane in self._lanes.values()}
        self._hosts = {key: host for key, host in self._hosts.items() if key in used}
