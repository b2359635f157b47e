"""A name server of our own over UDP, for the real resolver path: answers from a table that a test may change."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address

A, AAAA = 1, 28
NOERROR, SERVFAIL, NXDOMAIN = 0, 2, 3


@dataclass
class NameServer(asyncio.DatagramProtocol):
    """``table`` maps a name to addresses; a missing name is NXDOMAIN. ``codes`` maps a name to another answer code.

    ``silent`` names get no answer. ``asked`` counts questions per (name, type).
    """

    table: dict[str, tuple[str, ...]] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    ttl: int = 3600
    asked: list[tuple[str, int]] = field(default_factory=list)
    address: str = ""

    def connection_made(self, transport):
        self.transport = transport
        self.address = "127.0.0.1:{}".format(transport.get_extra_info("sockname")[1])

    def datagram_received(self, data, addr):
        name, kind, question = _parse_question(data)
        self.asked.append((name, kind))
        if name not in self.silent:
            self.transport.sendto(self._answer(data[:2], name, kind, question), addr)

    def _answer(self, ident: bytes, name: str, kind: int, question: bytes) -> bytes:
        known = self.table.get(name)
        code = self.codes.get(name, NXDOMAIN if known is None else NOERROR)
        wanted = (
            [a for a in map(ip_address, known or ()) if isinstance(a, IPv6Address) == (kind == AAAA)]
            if not code
            else []
        )
        records = b"".join(
            b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, self.ttl, len(a.packed)) + a.packed for a in wanted
        )
        return ident + struct.pack(">HHHHH", 0x8180 | code, 1, len(wanted), 0, 0) + question + records


def _parse_question(data: bytes) -> tuple[str, int, bytes]:
    at, labels = 12, []
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode().lower())
        at += data[at] + 1
    return ".".join(labels), struct.unpack(">H", data[at + 1 : at + 3])[0], data[12 : at + 5]


@contextlib.asynccontextmanager
async def serve_names(**table: tuple[str, ...]) -> AsyncIterator[NameServer]:
    """Run a name server on a free port."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 0))
    server.table.update(table)
    try:
        yield server
    finally:
        transport.close()
