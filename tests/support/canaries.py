"""Canaries: texts put where secrets are, and the search for them in whatever a program gives out.

Belongs here: making them and finding them in any spelling. Does not belong here: what gives out what.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import quote


@dataclass
class Canaries:
    """``canaries["body"]`` is the text for that place, 16 letters and digits that stand nowhere else."""

    made: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, place: str) -> str:
        return self.made.setdefault(place, "cnry" + secrets.token_hex(6))

    def key(self, place: str) -> bytes:
        """32 bytes with the canary in them."""
        return self[place].encode().ljust(32, b"=")

    def find(self, text: str | bytes, shown: Iterable[str] = ()) -> list[str]:
        """The places whose canary is in ``text``, plain or encoded, but for those that may be ``shown`` there."""
        data = text.encode() if isinstance(text, str) else text
        return [
            place
            for place, canary in self.made.items()
            if place not in shown and any(spelling in data for spelling in _spellings(canary))
        ]


def _spellings(canary: str) -> Iterable[bytes]:
    plain = canary.encode()
    yield plain
    yield plain[::-1]
    yield plain.hex().encode()
    yield "".join(f"%{byte:02X}" for byte in plain).encode()
    yield quote(canary, safe="").encode()
    for lead in range(3):  # base64 of a text that holds it, wherever in a group of three it starts
        encoded = base64.b64encode(b"\0" * lead + plain).decode()
        yield encoded[4 if lead else 0 :].rstrip("=")[:-1].encode()
