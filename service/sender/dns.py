"""The look-up over c-ares: absolute names only, no search list, no aliases from the environment.

Belongs here: what aiodns needs to be told. Does not belong here: caching for our own sake (``resolver``).

c-ares keeps a cache of its own, for as long as a record's time to live says (seen: an hour), and aiodns gives no way to
turn it off. Re-reading the configuration empties it, so that is done soon after every look-up.

The hosts file comes before the name servers, also where the servers are given: pycares 5.2 can be told otherwise
(``lookups``), but frees that word before c-ares reads it, and then every look-up may end at once as "unreachable".
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Final

import aiodns
import pycares

from service.sender.failures import probe_descriptors
from service.sender.resolver import Found

FORGET_SECONDS = 1.0
_QUERY_SECONDS: Final = 1.0
_TRIES: Final = 2
_WORDS: Final = {
    aiodns.error.ARES_ENOTFOUND: "nxdomain",
    aiodns.error.ARES_ENODATA: "no_address",
    aiodns.error.ARES_ESERVFAIL: "servfail",
    aiodns.error.ARES_ETIMEOUT: "timeout",
    aiodns.error.ARES_EREFUSED: "refused",
    aiodns.error.ARES_ECONNREFUSED: "unreachable",
    aiodns.error.ARES_EBADNAME: "bad_name",
}
_ABOUT_THE_NAME: Final = frozenset({"nxdomain", "no_address", "bad_name"})


class _ForgetfulResolver(aiodns.DNSResolver):
    """An aiodns resolver whose c-ares cache can be emptied."""

    def forget(self) -> None:
        """Empty the cache of c-ares, and read the system's configuration anew; servers that were given stay."""
        self._channel.reinit()


class AresLookup:
    """Looks names up with aiodns: in the system's configured way, or only at ``servers`` (``1.1.1.1``, ``[::1]:5353``).

    Needs a running event loop. ``close`` ends its thread.
    """

    def __init__(self, servers: Sequence[str] = ()) -> None:
        self._resolver = _ForgetfulResolver(
            nameservers=list(servers) or None,
            timeout=_QUERY_SECONDS,
            tries=_TRIES,
            flags=pycares.ARES_FLAG_NOSEARCH | pycares.ARES_FLAG_NOALIASES,
        )
        self._forgetting: asyncio.TimerHandle | None = None

    async def __call__(self, name: str) -> Found:
        """Addresses in the order to try them (RFC 6724); the problem is a word."""
        try:
            result = await self._resolver.getaddrinfo(name, socket.AF_UNSPEC, None, 0, socket.SOCK_STREAM)
        except aiodns.error.DNSError as error:
            word = _WORDS.get(error.args[0], "other")
            if word not in _ABOUT_THE_NAME:
                probe_descriptors()
            return Found(problem=word)
        finally:
            self._forget_soon()
        return Found(
            addresses=tuple(node.addr[0].decode("ascii") for node in result.nodes),
            ttl=min((node.ttl for node in result.nodes), default=0),
        )

    async def close(self) -> None:
        """End all look-ups and the thread that makes them."""
        if self._forgetting is not None:
            self._forgetting.cancel()
        await self._resolver.close()

    def _forget_soon(self) -> None:
        if self._forgetting is None:
            self._forgetting = asyncio.get_running_loop().call_later(FORGET_SECONDS, self._forget)

    def _forget(self) -> None:
        self._forgetting = None
        self._resolver.forget()
