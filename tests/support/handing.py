"""A delivery engine that takes everything from memory and only keeps it: the other end of the hand-over from ingest."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True)
class Room:
    token: int
    until: datetime


class KeepingEngine:
    """Has room for every delivery; ``handed`` is what it was given to send, ``canceled`` what was given up."""

    def __init__(self) -> None:
        self.handed = []
        self.canceled = []

    def reserve(self, _):
        return Room(1, datetime.now(UTC) + timedelta(minutes=1))

    def push(self, handed):
        self.handed.append(handed)

    def cancel(self, room):
        self.canceled.append(room)

    def wake(self):
        return None
