"""What operators changed about where webhooks may go: the egress policy and its text forms.

Belongs here: allow and deny entries, ports and NAT64 prefixes, their parsers, and what an entry matches. Does not
belong here: the verdict on a URL or an address (``targets``) and the table of special blocks (``addresses``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv6Network, ip_network

from service.domain.addresses import Address, Network

MAX_PORT = 65535
_NAT64_LENGTHS = frozenset({32, 40, 48, 56, 64, 96})  # RFC 6052 2.2
_PORTS = re.compile(r"(?:\*|[0-9]{1,5}(?:-[0-9]{1,5})?)")
_DANGLING = re.compile(r"[^:\[]*:|\[[^\]]*|\[[^\]]*\](?!\Z|:.).*")  # a port is missing, or a bracket
_GLOB = re.compile(r"\*|(?=.*[a-z])[a-z0-9_.*?-]+")
_NUMERIC_END = re.compile(r"(?:^|\.)(?:0x[0-9a-f?*]*|[0-9?*]*[0-9][0-9?*]*)$")


@dataclass(frozen=True, slots=True)
class Ports:
    """A set of ports as closed ranges."""

    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, port: int) -> bool:
        return any(low <= port <= high for low, high in self.ranges)


_EVERYTHING = ".*"
EVERY_PORT = Ports(((1, MAX_PORT),))


@dataclass(frozen=True, slots=True)
class Entry:
    """One ``[tenant=]host-glob-or-CIDR[:ports]``: exactly one of ``network`` and ``glob`` is set."""

    text: str
    tenant: str | None
    network: Network | None
    glob: re.Pattern[str] | None
    ports: Ports

    def names_host(self, host: str, port: int, tenant: str) -> bool:
        """True when the entry is a glob that matches this host name; of the literal addresses only ``*`` names any."""
        if self.glob is None or not self.glob.fullmatch(host) or not self._covers(port, tenant):
            return False
        return self.glob.pattern == _EVERYTHING or not _is_address(host)

    def names_address(self, address: Address, port: int, tenant: str) -> bool:
        """True when the entry is a block that holds this address."""
        return self.network is not None and address in self.network and self._covers(port, tenant)

    def names_exactly(self, address: Address, port: int, tenant: str) -> bool:
        """True when the entry is this one address and nothing else."""
        return (
            self.network is not None
            and self.network.num_addresses == 1
            and self.network.network_address == address
            and self._covers(port, tenant)
        )

    def _covers(self, port: int, tenant: str) -> bool:
        return self.tenant in {None, tenant} and port in self.ports


def ascii_host(host: str) -> str:
    """A host name in its ASCII form by the standard library (IDNA 2003, RFC 3490); raises UnicodeError."""
    return host.encode("idna").decode("ascii").lower()


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """Where webhooks may go. The default is the strict one: https, port 443, public addresses.

    ``ports`` come on top of 443 (and 80 under ``allow_http``). ``to_ascii`` turns an internationalised host name into
    the one that is dialled, or raises UnicodeError; it is part of the policy so that registration and sending agree.
    """

    allow_http: bool = False
    allow: tuple[Entry, ...] = ()
    deny: tuple[Entry, ...] = ()
    ports: Ports = field(default_factory=Ports)
    nat64: tuple[IPv6Network, ...] = ()
    to_ascii: Callable[[str], str] = ascii_host


def parse_policy(
    *,
    allow_http: bool = False,
    allow: str = "",
    deny: str = "",
    ports: str = "",
    nat64_prefixes: str = "",
    to_ascii: Callable[[str], str] = ascii_host,
) -> EgressPolicy:
    """The policy from the settings' text forms; raises ValueError with one line that names the bad part."""
    return EgressPolicy(
        allow_http=allow_http,
        allow=parse_entries(allow),
        deny=parse_entries(deny),
        ports=parse_ports(ports),
        nat64=parse_nat64_prefixes(nat64_prefixes),
        to_ascii=to_ascii,
    )


def parse_entries(text: str) -> tuple[Entry, ...]:
    """Allow or deny entries, separated by commas or white space; raises ValueError.

    An entry without ports names every port. Several ports follow each other: ``localhost:8080,9000-9010``. IPv6 takes
    brackets before ports: ``[fd00::/8]:8443``.
    """
    return tuple(_parse_entry(part) for part in _split_entries(text))


def parse_ports(text: str) -> Ports:
    """``443,8000-8100`` or ``*``; raises ValueError."""
    return Ports(tuple(_parse_range(part) for part in _words(text)))


def parse_nat64_prefixes(text: str) -> tuple[IPv6Network, ...]:
    """IPv6 prefixes of a length that RFC 6052 2.2 knows; raises ValueError."""
    return tuple(_parse_nat64(part) for part in _words(text))


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _split_entries(text: str) -> Iterator[str]:
    """Words, with those that are only ports put back behind the entry they belong to."""
    entry = ""
    for word in _words(text):
        if entry and _PORTS.fullmatch(word) and _has_ports(entry):
            entry = f"{entry},{word}"
            continue
        if entry:
            yield entry
        entry = word
    if entry:
        yield entry


def _has_ports(entry: str) -> bool:
    return bool(_split_ports(entry.rpartition("=")[2])[1])


def _parse_entry(text: str) -> Entry:
    tenant, equals, rest = text.rpartition("=")
    if equals and not tenant:
        raise ValueError(f"egress entry {text!r}: no tenant before '='")
    if _DANGLING.fullmatch(rest):
        raise ValueError(f"egress entry {text!r}: no port after ':', or a bracket that is not closed")
    what, ports = _split_ports(rest.lower())
    network = _parse_network(what, text)
    return Entry(
        text=text,
        tenant=tenant or None,
        network=network,
        glob=None if network else _parse_glob(what, text),
        ports=_parse_entry_ports(ports, text) if ports else EVERY_PORT,
    )


def _split_ports(text: str) -> tuple[str, str]:
    if text.startswith("["):
        inside, _, after = text[1:].partition("]")
        return inside, after.removeprefix(":")
    if text.count(":") > 1:  # a bare IPv6 block
        return text, ""
    what, _, ports = text.partition(":")
    return what, ports


def _parse_network(what: str, text: str) -> Network | None:
    if "/" not in what and not _NUMERIC_END.search(what) and ":" not in what:
        return None
    try:
        return ip_network(what)
    except ValueError as error:
        raise ValueError(f"egress entry {text!r}: {error}") from None


def _parse_glob(what: str, text: str) -> re.Pattern[str]:
    if not _GLOB.fullmatch(what):
        raise ValueError(f"egress entry {text!r}: {what!r} is neither a host name pattern nor an address block")
    pattern = re.escape(what).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(pattern)


def _parse_entry_ports(ports: str, text: str) -> Ports:
    try:
        return parse_ports(ports)
    except ValueError as error:
        raise ValueError(f"egress entry {text!r}: {error}") from None


def _parse_range(part: str) -> tuple[int, int]:
    if part == "*":
        return EVERY_PORT.ranges[0]
    if not _PORTS.fullmatch(part):
        raise ValueError(f"{part!r} is not a port, a range of ports or '*'")
    low, _, high = part.partition("-")
    first, last = int(low), int(high or low)
    if not 1 <= first <= last <= MAX_PORT:
        raise ValueError(f"{part!r} is not a range of ports between 1 and {MAX_PORT}")
    return first, last


def _parse_nat64(part: str) -> IPv6Network:
    try:
        prefix = IPv6Network(part)
    except ValueError as error:
        raise ValueError(f"NAT64 prefix {part!r}: {error}") from None
    if prefix.prefixlen not in _NAT64_LENGTHS:
        raise ValueError(f"NAT64 prefix {part!r}: its length is none of 32, 40, 48, 56, 64, 96")
    return prefix


def _is_address(host: str) -> bool:
    return ":" in host or host.rpartition(".")[2].isdigit()


def find_entry(entries: Iterable[Entry], address: Address, host: str, port: int, tenant: str) -> Entry | None:
    """The first entry that names this address, or the host it was resolved from."""
    return next(
        (
            entry
            for entry in entries
            if entry.names_address(address, port, tenant) or entry.names_host(host, port, tenant)
        ),
        None,
    )
