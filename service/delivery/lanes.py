"""One lane: the deliveries of one webhook (or of one-shots to one origin) that wait here, and what it may do.

Belongs here: a lane's own caps, and how far its receiver is trusted. Does not belong here: whose turn it is (``slots``).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from service.delivery.ready import ReadyDelivery

BUFFER_PER_SLOT: Final = 16  # deliveries that wait for each attempt that a proven lane may run at a time
BUFFER_CAP: Final = 500  # deliveries that wait in a proven lane, at most
BUFFER_UNPROVEN: Final = 4  # deliveries that wait in any other lane, at most


class Trust(IntEnum):
    """How far a lane's receiver is trusted to answer in time, by what its attempts have shown so far."""

    PROVEN = 0  # it accepted something since it last timed out
    NEW = 1  # nothing is known yet
    SUSPECT = 2  # it timed out, and has accepted nothing since


@dataclass(slots=True, eq=False)
class Gate:
    """The attempts to one place (a tenant's host, a shared address), at most ``cap`` at a time.

    Unproven lanes have at most half of them, so that receivers that hang do not close the place to others. ``parked``
    are the lanes that wait until an attempt ends: the unproven ones, then the proven ones, indexed by whether a lane is
    proven. ``turn`` is which of the two is asked first the next time.
    """

    key: tuple[str, str]
    cap: int
    in_flight: int = 0
    unproven: int = 0
    parked: tuple[deque[Lane], deque[Lane]] = field(default_factory=lambda: (deque(), deque()))
    turn: bool = True

    def admits(self, *, proven: bool) -> bool:
        """Whether one more attempt may run."""
        return self.in_flight < self.cap and (proven or self.unproven < max(1, self.cap // 2))

    def enter(self, *, proven: bool) -> None:
        """One more attempt runs."""
        self.in_flight += 1
        self.unproven += not proven

    def leave(self, *, proven: bool) -> None:
        """An attempt has ended."""
        self.in_flight -= 1
        self.unproven -= not proven

    def let_in(self) -> Lane | None:
        """The next parked lane that may go on, proven and unproven ones by turns; None when there is none."""
        for kind in (self.turn, not self.turn):
            if self.parked[kind] and self.admits(proven=kind):
                self.turn = not kind
                return self.parked[kind].popleft()
        return None

    def park(self, lane: Lane) -> None:
        """Let a lane wait until an attempt ends."""
        lane.parked = True
        self.parked[lane.trust is Trust.PROVEN].append(lane)


@dataclass(slots=True, eq=False)
class Tenant:
    """A tenant: its lanes that may start an attempt now, by trust; its attempts in flight; its waiting deliveries."""

    tenant_id: str
    ready: tuple[deque[Lane], deque[Lane], deque[Lane]] = field(default_factory=lambda: (deque(), deque(), deque()))
    in_flight: int = 0
    waiting: int = 0
    lanes: int = 0


@dataclass(slots=True, eq=False)
class Lane:
    """The state of one lane.

    ``limit`` is how many attempts its settings allow in this process, ``allowance`` how many its health allows (None:
    all). ``tokens`` is what is left of its rate limit here (None: no limit). ``reserved`` counts deliveries that are
    about to be handed over. ``listed`` is the trust under which it is in the ready queue, None when it is not.
    ``parked``: it waits at a gate, or for its receiver's address.
    """

    key: int
    tenant: Tenant
    host: Gate
    limit: int
    trust: Trust = Trust.NEW
    allowance: int | None = None
    tokens: int | None = None
    rows: deque[ReadyDelivery] = field(default_factory=deque)
    in_flight: int = 0
    reserved: int = 0
    listed: Trust | None = None
    parked: bool = False

    @property
    def cap(self) -> int:
        """Attempts that may run at the same time now: one only, until the receiver is proven."""
        cap = self.limit if self.trust is Trust.PROVEN else 1
        return cap if self.allowance is None else min(cap, self.allowance)

    @property
    def may_start(self) -> bool:
        """Whether there is something to send and no limit of the lane's own in the way.

        An extra attempt (a redelivery, a test) comes first and does not wait for the webhook's health.
        """
        if not self.rows or self.parked or self.tokens == 0:
            return False
        return self.in_flight < (self.cap or not self.rows[0].scheduled)

    @property
    def full(self) -> bool:
        """Whether one more delivery would have to wait for the lane's own limits, even if every slot were free."""
        ahead = len(self.rows)
        return self.in_flight + ahead >= self.cap or (self.tokens is not None and ahead >= self.tokens)

    @property
    def buffer(self) -> int:
        """How many deliveries may wait here."""
        if self.trust is not Trust.PROVEN:
            return BUFFER_UNPROVEN
        return min(BUFFER_CAP, self.cap * BUFFER_PER_SLOT)

    def find_room(self, most: int) -> int:
        """How many more may be claimed, if at most ``most`` may wait.

        0 until a quarter of the buffer is free: a claim costs the same whether it brings one delivery or many.
        """
        buffer = min(self.buffer, most)
        room = buffer - len(self.rows) - self.reserved
        return room if room * 4 >= buffer else 0

    @property
    def idle(self) -> bool:
        """Whether it has nothing here, so that it may be forgotten."""
        return not (self.rows or self.in_flight or self.reserved or self.parked)
