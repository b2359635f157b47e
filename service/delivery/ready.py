"""A delivery in the hands of this process: leased, with its body, waiting for a slot or on the wire.

Belongs here: the record that travels from the claim to the recorder. Does not belong here: anything about its webhook,
which the catalog knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from service.domain.deliveries import Reason, Recall, State
from service.domain.outcomes import Purpose

# A batch or a job, with a webhook: only one of its deliveries is on the wire at a time.
Work: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Lease:
    """Room reserved for one delivery that is inserted already leased to this process.

    ``token`` and ``until`` are for the row. ``expires`` is the same end on this process's monotonic clock, measured
    from before the reservation; ``lane`` is where the room was reserved.
    """

    token: int
    until: datetime
    expires: float
    lane: int


@dataclass(frozen=True, slots=True)
class Special:
    """What only few deliveries have.

    ``purpose``: an attempt beside the schedule. ``recall``: a flag that was set before the claim. ``before`` and what
    follows: the state to go back to after an extra attempt, due at ``before_due`` in seconds since 1970.
    ``attempts_before`` were made before the present schedule or beside it.
    """

    purpose: Purpose = Purpose.SCHEDULED
    recall: Recall | None = None
    recall_reason: Reason | None = None
    before: State = State.PENDING
    before_reason: Reason | None = None
    before_due: float | None = None
    attempts_before: int = 0


ORDINARY: Final = Special()


@dataclass(slots=True)
class ReadyDelivery:
    """One leased delivery.

    ``token`` is the fencing token of its lease, ``expires`` the lease's end in monotonic seconds. ``attempts`` are all
    that were ever made of it. ``created`` and ``first_due`` are seconds since 1970 by the database's clock.
    ``revision`` is the webhook's when the delivery was claimed (0: not known). ``body`` is None when it was expunged;
    ``trace`` is the context that attempts continue. The fields after ``special`` belong to the slots.
    """

    token: int
    expires: float
    delivery_id: int
    webhook_key: int
    lane: int
    tenant_id: str
    message_id: str
    type: str
    generation: int
    group_key: int | None
    attempts: int
    created: float
    first_due: float
    revision: int
    body: bytes | None
    trace: str | None = None
    special: Special = ORDINARY
    ready: float = 0.0
    started: float = 0.0
    waited_for_limits: bool = False
    address: str = ""
    running: bool = False
    proven: bool = False
    slow: bool = False

    @property
    def scheduled(self) -> bool:
        """Whether the attempt is one of the schedule."""
        return self.special is ORDINARY or self.special.purpose is Purpose.SCHEDULED

    @property
    def work(self) -> Work | None:
        """The work of which others may have to wait for this delivery; None when there can be no others.

        There are others only once the work was done again (a later generation) or a delivery of it is sent again.
        """
        if self.group_key is None or (self.generation <= 1 and self.special is ORDINARY):
            return None
        return self.group_key, self.webhook_key

    @property
    def test(self) -> bool:
        """Whether it is a test message, which ignores pause and disable."""
        return self.special.purpose is Purpose.TEST

    @property
    def number(self) -> int:
        """The attempt's number, from 1; a schedule that starts over goes on counting."""
        return self.attempts + 1

    @property
    def spent(self) -> int:
        """How many attempts of the present schedule were made."""
        return max(0, self.attempts - self.special.attempts_before)
