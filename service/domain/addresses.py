"""Is this IP address a public one: our own frozen table of special blocks, and nothing else.

Belongs here: the blocks of the IANA special-purpose registries, the addresses of cloud metadata services, and the IPv4
addresses that hide inside IPv6 ones. Does not belong here: exceptions made by operators (``egress``) and URLs
(``targets``). ``ipaddress.is_global`` is not used: on Python 3.11 it takes NAT64, 6to4, ``::127.0.0.1``, multicast,
site-local and 192.0.0.192 for public.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

# The reason is a stable word; operators read it in logs, tenants never do (chapter 3, "What an answer means").
SPECIAL_V4: tuple[tuple[IPv4Network, str], ...] = tuple(
    (IPv4Network(block), reason)
    for block, reason in (
        ("0.0.0.0/8", "unspecified_address"),  # RFC 1122 3.2.1.3, "this network"
        ("10.0.0.0/8", "private_address"),  # RFC 1918
        ("100.64.0.0/10", "shared_address"),  # RFC 6598, carrier NAT; also many clusters' pods
        ("127.0.0.0/8", "loopback_address"),  # RFC 1122 3.2.1.3
        ("169.254.0.0/16", "link_local_address"),  # RFC 3927
        ("172.16.0.0/12", "private_address"),  # RFC 1918
        ("192.0.0.0/24", "reserved_address"),  # RFC 6890, IETF protocol assignments
        ("192.0.2.0/24", "documentation_address"),  # RFC 5737
        ("192.31.196.0/24", "reserved_address"),  # RFC 7535, AS112
        ("192.52.193.0/24", "reserved_address"),  # RFC 7450, AMT
        ("192.88.99.0/24", "translated_address"),  # RFC 7526, 6to4 relays
        ("192.168.0.0/16", "private_address"),  # RFC 1918
        ("192.175.48.0/24", "reserved_address"),  # RFC 7534, AS112
        ("198.18.0.0/15", "benchmark_address"),  # RFC 2544
        ("198.51.100.0/24", "documentation_address"),  # RFC 5737
        ("203.0.113.0/24", "documentation_address"),  # RFC 5737
        ("224.0.0.0/4", "multicast_address"),  # RFC 5771
        ("240.0.0.0/4", "reserved_address"),  # RFC 1112 4, and broadcast
    )
)

# Searched in order; what no line names is public inside 2000::/3 (RFC 4291 2.4) and refused outside it.
SPECIAL_V6: tuple[tuple[IPv6Network, str], ...] = tuple(
    (IPv6Network(block), reason)
    for block, reason in (
        ("::/128", "unspecified_address"),
        ("::1/128", "loopback_address"),
        ("::ffff:0:0/96", "translated_address"),  # RFC 4291 2.5.5.2, mapped
        ("::ffff:0:0:0/96", "translated_address"),  # RFC 2765 2.1, translated
        ("::/96", "translated_address"),  # RFC 4291 2.5.5.1, compatible
        ("64:ff9b::/96", "translated_address"),  # RFC 6052, NAT64
        ("64:ff9b:1::/48", "translated_address"),  # RFC 8215, local NAT64
        ("2001::/32", "translated_address"),  # RFC 4380, Teredo
        ("2001:db8::/32", "documentation_address"),  # RFC 3849
        ("2001::/23", "reserved_address"),  # RFC 2928, IETF protocol assignments
        ("2002::/16", "translated_address"),  # RFC 3056, 6to4
        ("2620:4f:8000::/48", "reserved_address"),  # RFC 7534, AS112
        ("3ffe::/16", "reserved_address"),  # RFC 3701, the returned 6bone
        ("3fff::/20", "documentation_address"),  # RFC 9637
        ("fc00::/7", "private_address"),  # RFC 4193
        ("fe80::/10", "link_local_address"),  # RFC 4291 2.5.6
        ("fec0::/10", "private_address"),  # RFC 3879, site-local
        ("ff00::/8", "multicast_address"),  # RFC 4291 2.7
    )
)
PUBLIC_V6 = IPv6Network("2000::/3")

# Credentials are one request away behind these. Only their exact address in an allow entry opens one.
METADATA: frozenset[Address] = frozenset(
    {
        IPv4Address("169.254.169.254"),  # AWS, Azure, Google, DigitalOcean, OpenStack, Hetzner, ...
        IPv4Address("169.254.169.253"),  # AWS: the VPC's resolver
        IPv4Address("169.254.169.123"),  # AWS: time
        IPv4Address("169.254.170.2"),  # AWS: credentials of ECS tasks
        IPv4Address("169.254.170.23"),  # AWS: EKS pod identity
        IPv4Address("169.254.0.23"),  # Tencent
        IPv4Address("100.100.100.200"),  # Alibaba
        IPv4Address("192.0.0.192"),  # Oracle
        IPv4Address("168.63.129.16"),  # Azure's wire server, inside public space
        IPv6Address("fd00:ec2::254"),  # AWS
        IPv6Address("fd00:ec2::253"),  # AWS: the VPC's resolver
        IPv6Address("fd00:ec2::23"),  # AWS: EKS pod identity
        IPv6Address("fd20:ce::254"),  # Google
        IPv6Address("fd00:42::42"),  # Scaleway
        IPv6Address("fe80::a9fe:a9fe"),  # OpenStack
    }
)

_LOW_32 = 0xFFFF_FFFF
_ISATAP = 0x0000_5EFE  # RFC 5214 6.1: 0000:5efe or 0200:5efe before the IPv4 address
_ISATAP_MASK = 0xFDFF_FFFF
_EMBEDDING = tuple(  # blocks with an IPv4 address inside, and how far it stands from the right
    (IPv6Network(block), shift)
    for block, shift in (
        ("::ffff:0:0/96", 0),
        ("::ffff:0:0:0/96", 0),
        ("::/96", 0),
        ("64:ff9b::/96", 0),
        ("64:ff9b:1::/48", 0),  # as a /96 inside it; the other layouts have no fixed place
        ("2002::/16", 80),
    )
)


def find_special(address: Address) -> str | None:
    """The reason word of the special block that holds ``address``, or None for a public address."""
    if isinstance(address, IPv4Address):
        return next((reason for block, reason in SPECIAL_V4 if address in block), None)
    if _is_isatap(address):
        return "translated_address"
    known = next((reason for block, reason in SPECIAL_V6 if address in block), None)
    return known or (None if address in PUBLIC_V6 else "reserved_address")


def is_metadata(address: Address) -> bool:
    """True for a cloud metadata address, in any IPv6 spelling that carries one."""
    return address in METADATA or any(inner in METADATA for inner in embedded_addresses(address))


def embedded_addresses(address: Address) -> Iterator[IPv4Address]:
    """Every IPv4 address that a translator or tunnel might read out of ``address``."""
    if isinstance(address, IPv4Address):
        return
    number = int(address)
    for block, shift in _EMBEDDING:
        if address in block:
            yield IPv4Address(number >> shift & _LOW_32)
    if _is_isatap(address):
        yield IPv4Address(number & _LOW_32)
    if address.teredo is not None:
        yield from address.teredo


def unwrap_nat64(address: Address, prefixes: Sequence[IPv6Network]) -> Address:
    """The IPv4 address inside ``address`` when it is under one of the operator's NAT64 prefixes, else ``address``.

    RFC 6052 2.2: prefixes of 32, 40, 48, 56, 64 or 96 bits; bits 64 to 71 are skipped.
    """
    if isinstance(address, IPv4Address):
        return address
    for prefix in prefixes:
        if address in prefix:
            return IPv4Address(_after_prefix(int(address), prefix.prefixlen))
    return address


def _after_prefix(number: int, length: int) -> int:
    if length == 96:  # noqa: PLR2004  # RFC 6052 names the lengths
        return number & _LOW_32
    without_octet = (number >> 64 << 56) | (number & (1 << 56) - 1)
    return without_octet >> (120 - 32 - length) & _LOW_32


def _is_isatap(address: IPv6Address) -> bool:
    return int(address) >> 32 & _ISATAP_MASK == _ISATAP
