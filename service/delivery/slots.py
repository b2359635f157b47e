"""Slots and fairness: who sends next, in constant time (chapter 5, Fairness).

Belongs here: the ready queue, round robin by tenant and then by lane, and the caps that keep one bad receiver from
hurting others. Does not belong here: waiting (``sending``), claiming, and what an attempt does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from service.delivery.crowding import Buffer, Crowd, Shares
from service.delivery.lanes import Gate, Lane, Tenant, Trust
from service.delivery.ready import ReadyDelivery, Work
from service.delivery.roster import LaneTerms, Roster
from service.delivery.unproven import Unproven

SMALLEST_BUFFER: Final = 64
# The trusts in the order in which a pick looks for a lane: each comes first in every third pick, so that none starves.
_ORDERS: Final = tuple(tuple(Trust((first + turn) % 3) for turn in range(3)) for first in range(3))


class Slots:
    """Deliveries that wait for a slot, and the attempts that have one.

    A lane that is not proven runs one attempt at a time, and ``unproven`` limits all such lanes together. One tenant has
    at most half of the slots while another waits, and at most 50 attempts to one host. ``listed`` counts the lanes in the
    ready queue: those that have something to send and may start it.
    """

    def __init__(self, limit: int, buffer: int | None = None) -> None:
        self.limit = limit
        self.buffer = Buffer(buffer or max(SMALLEST_BUFFER, 2 * limit))
        self._roster = Roster()
        self._busy: set[Lane] = set()
        self._addresses: dict[str, Gate] = {}
        self._rings: tuple[deque[Tenant], deque[Tenant], deque[Tenant]] = (deque(), deque(), deque())
        self._turn = 0
        self._on_wire: set[Work] = set()
        self._behind_wire: dict[Work, list[ReadyDelivery]] = {}
        self.unproven = Unproven(limit)
        self.listed = 0
        self.in_flight = 0

    @property
    def waiting(self) -> int:
        """Deliveries that wait for a turn."""
        return self.buffer.waiting

    def add(self, row: ReadyDelivery, terms: LaneTerms) -> Lane:
        """Let a delivery wait for its turn."""
        lane = self._roster.enter(row, terms)
        row.waited_for_limits = row.waited_for_limits or lane.full
        self._wait(lane, row, first=not row.scheduled)
        self._list(lane)
        return lane

    def find_crowd(self, row: ReadyDelivery, terms: LaneTerms) -> Crowd | None:
        """Whose part of the buffer is used up, so that this delivery should go back to the queue; None: nobody's."""
        return self.buffer.find_crowd(self._roster.enter(row, terms))

    def take(self, now: float) -> ReadyDelivery | None:
        """The delivery whose turn it is at the monotonic instant ``now``, with a slot; None when nobody may start."""
        if self.in_flight >= self.limit or not self.waiting:
            return None
        self.unproven.age(now)
        while lane := self._next_lane(now):
            row = self._start(lane)
            if row is not None:
                row.started = now
                if not row.proven:
                    self.unproven.start(row)
                return row
        return None

    def find_pause(self, now: float) -> float:
        """Seconds until an attempt may start that only waits for its distance to others; 0 if none does."""
        return self.unproven.find_pause(now) if self.listed and self.in_flight < self.limit else 0.0

    def done(self, row: ReadyDelivery, trust: Trust | None = None) -> None:
        """Give the slot back; ``trust`` is what the attempt has shown of the receiver, None: nothing."""
        lane = self._leave(row)
        if trust is not None and trust is not lane.trust:
            self.buffer.judge(lane, trust)
        self._settle(lane)

    def enter(self, row: ReadyDelivery, address: str) -> bool:
        """Pass the gate of an address that receivers may share; False: the delivery waits again, its slot is back."""
        gate = self._addresses.get(address)
        if gate is None:
            gate = self._addresses[address] = Gate(("", address), max(1, self.limit // 2))
        if not gate.admits(proven=row.proven):
            lane = self._leave(row)
            self._wait(lane, row, first=True)
            gate.park(lane)
            return False
        gate.enter(proven=row.proven)
        row.address = address
        return True

    def step_aside(self, row: ReadyDelivery) -> None:
        """Give the slot back while the receiver's name is resolved; the lane starts nothing meanwhile."""
        self._leave(row).parked = True

    def step_back(self, row: ReadyDelivery, *, again: bool) -> None:
        """The name is resolved, or is not going to be: the lane may start again, with this delivery first if ``again``."""
        lane = self._roster.get(row.lane)
        lane.parked = False
        if again:
            self._wait(lane, row, first=True)
        self._settle(lane)

    def reserve(self, lane_key: int, tenant_id: str, terms: LaneTerms | None) -> bool:
        """Keep room for one delivery that is about to come; False when there is none."""
        lane = self._roster.find(lane_key)
        if not self.buffer.free or (lane is not None and (lane.tokens is not None or lane.allowance == 0)):
            return False
        lane = lane or self._roster.make(lane_key, tenant_id, terms or LaneTerms("", 1))
        if not self.buffer.find_room(lane):
            return False
        lane.reserved += 1
        self.buffer.reserved += 1
        self._busy.add(lane)
        return True

    def unreserve(self, lane_key: int) -> None:
        """Give reserved room back: its delivery came, or never will."""
        lane = self._roster.get(lane_key)
        lane.reserved -= 1
        self.buffer.reserved -= 1
        self._settle(lane)

    def allow(self, lane_key: int, allowance: int | None) -> None:
        """Set how many attempts the health of a lane's webhook lets run."""
        lane = self._roster.find(lane_key)
        if lane is not None and lane.allowance != allowance:
            lane.allowance = allowance
            self._list(lane)

    def grant(self, lane_key: int, tokens: int) -> None:
        """Add attempts drawn from a lane's rate limit."""
        lane = self._roster.find(lane_key)
        if lane is not None and lane.tokens is not None:
            lane.tokens += tokens
            self._list(lane)

    def list_thirsty(self) -> list[Lane]:
        """Lanes that wait for nothing but their rate limit."""
        return [lane for lane in self._busy if lane.tokens == 0 and lane.rows]

    def share_out(self, first: Iterable[int]) -> Shares:
        """How many more deliveries each lane may get: ``first`` those with these keys, then all with something here."""
        known = filter(None, map(self._roster.find, first))
        return Shares(self.buffer, chain(known, self._busy))

    def may_claim(self, lane_key: int) -> bool:
        """Whether it pays to claim more deliveries of this lane."""
        lane = self._roster.find(lane_key)
        return lane is None or self.buffer.may_claim(lane)

    def withdraw(self, gone: Callable[[ReadyDelivery], bool]) -> list[ReadyDelivery]:
        """Take those waiting deliveries out for which ``gone`` is true."""
        taken: list[ReadyDelivery] = []
        for lane in list(self._busy):
            found = [row for row in lane.rows if gone(row)]
            if found:
                taken += found
                lane.rows = deque(row for row in lane.rows if not gone(row))
                self.buffer.count(lane, -len(found))
                self._settle(lane)
        for key, rows in list(self._behind_wire.items()):
            found = [row for row in rows if gone(row)]
            taken += found
            self._behind_wire[key] = [row for row in rows if not gone(row)]
            self.buffer.waiting -= len(found)
        return taken

    def empty(self, lane_key: int) -> list[ReadyDelivery]:
        """Take everything out that waits in one lane."""
        lane = self._roster.find(lane_key)
        if lane is None or not lane.rows:
            return []
        rows = list(lane.rows)
        lane.rows.clear()
        self.buffer.count(lane, -len(rows))
        self._settle(lane)
        return rows

    def list_waiting(self) -> Iterator[ReadyDelivery]:
        """Every delivery that waits for a turn."""
        for lane in self._busy:
            yield from lane.rows
        for rows in self._behind_wire.values():
            yield from rows

    # --- turns ----------------------------------------------------------------------------------------------------

    def _next_lane(self, now: float) -> Lane | None:
        """Take the lane whose turn it is out of the ready queue."""
        self._turn = (self._turn + 1) % 3
        return self._find_lane(now, max(1, self.limit // 2)) or self._find_lane(now, self.limit)

    def _find_lane(self, now: float, per_tenant: int) -> Lane | None:
        for trust in _ORDERS[self._turn]:
            ring = self._rings[trust]
            if ring and (trust is Trust.PROVEN or self.unproven.admits(trust, now)):
                lane = self._find_in_ring(ring, trust, per_tenant)
                if lane is not None:
                    return lane
        return None

    def _find_in_ring(self, ring: deque[Tenant], trust: Trust, per_tenant: int) -> Lane | None:
        """The next tenant's next lane. At most two tenants can be over half, so at most two are passed over."""
        for _ in range(min(3, len(ring))):
            tenant = ring[0]
            if tenant.in_flight < per_tenant:
                return self._pop_lane(ring, tenant, trust)
            ring.rotate(-1)
        return None

    def _pop_lane(self, ring: deque[Tenant], tenant: Tenant, trust: Trust) -> Lane:
        lanes = tenant.ready[trust]
        lane = lanes.popleft()
        lane.listed = None
        self.listed -= 1
        ring.popleft()
        if lanes:
            ring.append(tenant)
        return lane

    def _start(self, lane: Lane) -> ReadyDelivery | None:
        """Start the lane's next delivery; None when the lane has to wait after all."""
        if not lane.may_start:
            return None
        if not lane.host.admits(proven=lane.trust is Trust.PROVEN):
            lane.host.park(lane)
            return None
        row = lane.rows.popleft()
        self.buffer.count(lane, -1)
        if row.group_key is not None and not self._enter_wire(row, row.group_key):
            self._list(lane)
            return None
        self._count(lane, row)
        self._list(lane)
        return row

    def _count(self, lane: Lane, row: ReadyDelivery) -> None:
        row.running = True
        row.proven = lane.trust is Trust.PROVEN
        self.in_flight += 1
        lane.in_flight += 1
        lane.tenant.in_flight += 1
        lane.host.enter(proven=row.proven)
        if lane.tokens is not None:
            lane.tokens -= 1

    def _list(self, lane: Lane) -> None:
        """Put a lane into the ready queue, once, if it may start something."""
        if lane.listed is not None or not lane.may_start:
            return
        lane.listed = trust = lane.trust
        self.listed += 1
        lanes = lane.tenant.ready[trust]
        if not lanes:
            self._rings[trust].append(lane.tenant)
        lanes.append(lane)

    def _settle(self, lane: Lane) -> None:
        if lane.idle:
            self._busy.discard(lane)
        else:
            self._list(lane)

    def _leave(self, row: ReadyDelivery) -> Lane:
        """Undo what ``_count`` did, and let go on who waited for it."""
        lane = self._roster.get(row.lane)
        row.running = False
        if not row.proven:
            self.unproven.end(row)
        self.in_flight -= 1
        lane.in_flight -= 1
        lane.tenant.in_flight -= 1
        self._leave_gate(lane.host, row)
        if row.address:
            self._leave_gate(self._addresses[row.address], row)
            row.address = ""
        if row.group_key is not None:
            self._leave_wire(row.group_key, row.webhook_key)
        return lane

    def _wait(self, lane: Lane, row: ReadyDelivery, *, first: bool) -> None:
        if first:
            lane.rows.appendleft(row)
        else:
            lane.rows.append(row)
        self.buffer.count(lane, 1)
        self._busy.add(lane)

    def _leave_gate(self, gate: Gate, row: ReadyDelivery) -> None:
        """An attempt has left: let in one lane that starts something, or, with none left in flight, all that wait."""
        gate.leave(proven=row.proven)
        while lane := gate.let_in():
            lane.parked = False
            self._settle(lane)
            if lane.listed is not None and gate.in_flight:
                return
        if not gate.in_flight and not gate.key[0]:
            self._addresses.pop(gate.key[1], None)

    # --- one delivery of a work on the wire -----------------------------------------------------------------------

    def _enter_wire(self, row: ReadyDelivery, group_key: int) -> bool:
        key = (group_key, row.webhook_key)
        if key in self._on_wire:
            self._behind_wire.setdefault(key, []).append(row)
            self.buffer.waiting += 1
            return False
        self._on_wire.add(key)
        return True

    def _leave_wire(self, group_key: int, webhook_key: int) -> None:
        key = (group_key, webhook_key)
        self._on_wire.discard(key)
        for row in self._behind_wire.pop(key, ()):
            lane = self._roster.get(row.lane)
            lane.rows.append(row)
            self.buffer.move(lane, 1)
            self._busy.add(lane)
            self._list(lane)
