"""From a URL to what is dialled: whatever is accepted dials exactly what was judged, however others would read it."""

import asyncio
import contextlib
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from service.domain.addresses import find_special
from service.domain.egress import parse_policy
from service.domain.outbound import Route
from service.domain.targets import Refusal, Target, judge_address, parse_url
from service.sender.guard import Guard
from service.sender.names import ascii_host
from service.sender.resolver import Found, Resolver, ResolverLimits

STRICT = parse_policy(to_ascii=ascii_host)
POLICIES = (
    STRICT,
    parse_policy(allow_http=True, ports="*", to_ascii=ascii_host),
    parse_policy(
        allow="t1=*.corp.example:443,10.1.0.0/16:8443", deny="*.evil.example 8.8.8.8", nat64_prefixes="2001:67c:1::/96",
        to_ascii=ascii_host,
    ),
)  # fmt: skip
SEEDS = tuple(
    bytes([number % 3]) + text.encode("utf-8", "surrogatepass") + b"\n" + addresses
    for number, (text, addresses) in enumerate((
        ("https://hooks.example/x?y=z", b"\x08\x08\x08\x08"),
        ("https://hooks.example:443/", b"\x0a\x00\x00\x01\x08\x08\x08\x08"),
        ("https://8.8.8.8/", b""),
        ("https://[2606:4700::1]/", b""),
        ("https://[::ffff:127.0.0.1]/", b""),
        ("https://0x7f.1/", b""),
        ("https://127.1/", b""),
        ("https://a.corp.example./", b"\x0a\x01\x00\x01"),
        ("https://bücher.example/ä", b"\x7f\x00\x00\x01"),
        ("https://１２７.0.0.1/", b""),
        ("https://ⓔxample.com%2f@evil/", b""),
        ("https://user@host\\@10.0.0.1/", b""),
        ("https://a.example:0443/?#", b""),
    ))
)  # fmt: skip


def try_one(data: bytes) -> None:
    which = data[0] if data else 0
    policy = POLICIES[which % len(POLICIES)]
    text, _, packed = data[1:].partition(b"\n")
    url = text.decode("utf-8", "surrogateescape" if which & 0x80 else "replace")
    verdict = parse_url(url, policy, "t1")
    if isinstance(verdict, Refusal):
        assert verdict.sentence
        return
    check_request(verdict)
    check_other_readers(url, verdict)
    check_again(verdict, policy)
    asyncio.run(check_dialling(verdict, policy, read_addresses(packed)))


def check_request(target: Target) -> None:
    """The head says where it goes, in two lines and no more."""
    line, host, end = target.head.split(b"\r\n")
    assert end == b""
    assert line == b"POST " + target.path + b" HTTP/1.1"
    assert target.path.startswith(b"/")
    assert all(0x21 <= byte <= 0x7E for byte in target.path)
    shown = host.removeprefix(b"host: ").decode("ascii")
    assert shown.removesuffix(f":{target.port}").strip("[]") == target.host
    assert 1 <= target.port <= 65535


def check_other_readers(url: str, target: Target) -> None:
    """The standard library reads the same host and port out of it; the system's parser sees no other number in it."""
    if url.isascii():
        parts = urlsplit(url)
        assert (parts.hostname or "").removesuffix(".") == target.host or target.literal == ip_address(parts.hostname)
        assert (parts.port or (443 if target.tls else 80)) == target.port
        assert parts.username is None
        assert parts.scheme == target.scheme
    with contextlib.suppress(OSError):
        number = IPv4Address(socket.inet_aton(target.host))  # as getaddrinfo would
        assert number == target.literal
    if target.literal is None:
        assert target.host.isascii()
        assert target.host == target.host.lower()
        assert not target.host.endswith(".")


def check_again(target: Target, policy) -> None:
    """Taken apart once more, the origin is what it was."""
    again = parse_url(target.origin + target.path.decode(), policy, "t1")
    assert isinstance(again, Target)
    assert (again.scheme, again.host, again.port, again.path) == (target.scheme, target.host, target.port, target.path)


def read_addresses(packed: bytes) -> tuple[str, ...]:
    found = []
    while len(packed) >= 4:
        size = 16 if packed[0] & 1 and len(packed) >= 16 else 4
        found.append(str((IPv6Address if size == 16 else IPv4Address)(packed[:size])))
        packed = packed[size:]
    return tuple(found[:20])


async def check_dialling(target: Target, policy, addresses: tuple[str, ...]) -> None:
    """What may be dialled was judged, all of it, at this port; a literal address is never asked for."""
    asked = []

    async def lookup(name: str) -> Found:
        asked.append(name)
        return Found(addresses, 5.0)

    guard = Guard(policy, Resolver(lookup, ResolverLimits(), lambda: 0.0), lambda: 0.0)
    route = await guard.locate(target, "t1", 5.0)
    assert asked == ([] if target.literal else [target.host])
    given = [target.literal] if target.literal else [ip_address(each) for each in addresses]
    refused = [each for each in given if judge_address(each, policy, target.host, target.port, "t1")]
    assert isinstance(route, Route) == (bool(given) and not refused)
    if isinstance(route, Route):
        assert [ip_address(hop.address) for hop in route.hops] == given[: len(route.hops)]
        assert {(hop.host, hop.port, hop.tls) for hop in route.hops} == {(target.host, target.port, target.tls)}
        if policy is STRICT:
            assert target.tls
            assert target.port == 443
            assert not any(find_special(each) for each in given)
