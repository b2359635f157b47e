"""Is this URL, is this resolved address allowed, and if not why: the one guard for every outbound URL (chapter 3).

Belongs here: taking a URL apart exactly as the sender will dial it, and the verdicts. Does not belong here: the table
of special blocks (``addresses``), operators' exceptions (``egress``), resolving (``service.sender``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import NamedTuple

from service.domain.addresses import Address, embedded_addresses, find_special, is_metadata, unwrap_nat64
from service.domain.egress import EgressPolicy, Ports, find_entry

MAX_URL_LENGTH = 8192
_MAX_HOST_LENGTH = 253  # RFC 1035 2.3.4
_DEFAULT_PORTS = {"https": 443, "http": 80}

# What no network outside answers for. ``.test``, ``.example`` and ``.invalid`` are left to the resolver.
LOCAL_SUFFIXES = (
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
    "svc",
    "cluster.local",
)

SENTENCES: dict[str, str] = {
    "not_a_url": "The URL has no scheme and host.",
    "too_long": f"The URL is longer than {MAX_URL_LENGTH} characters.",
    "forbidden_character": "The URL contains white space, a control character or a backslash.",
    "scheme": "The URL's scheme is not https.",
    "userinfo": "The URL contains a user name or password.",
    "fragment": "The URL contains a fragment (#).",
    "port_syntax": "The URL's port is not a number between 1 and 65535.",
    "port": "The URL's port is not one that webhooks may use.",
    "host_syntax": "The URL's host is not a valid host name or IP address.",
    "host_idna": "The URL's internationalised host name has no valid ASCII form.",
    "numeric_host": "The URL's host is a number but not an IPv4 address in its usual spelling.",
    "local_name": "The URL's host is a name that only local networks know.",
    "denied_host": "The URL's host is closed by the operator.",
    "denied_address": "The host's address is closed by the operator.",
    "metadata_address": "The host's address belongs to a cloud metadata service.",
    "unspecified_address": "The host's address is an unspecified address.",
    "private_address": "The host's address is private.",
    "shared_address": "The host's address belongs to carrier-grade NAT.",
    "loopback_address": "The host's address is a loopback address.",
    "link_local_address": "The host's address is link-local.",
    "reserved_address": "The host's address is reserved.",
    "documentation_address": "The host's address is reserved for documentation.",
    "translated_address": "The host's address is a translated or tunnelled IPv4 address.",
    "benchmark_address": "The host's address is reserved for benchmarks.",
    "multicast_address": "The host's address is a multicast address.",
}


class Refusal(NamedTuple):
    """Why a URL or an address is not allowed: ``reason`` is a stable word, ``sentence`` is for people.

    ``form`` is True when the URL itself is at fault, which ends a delivery at once; an address is retried, since names
    move. A URL whose host is an address outside the policy is refused for its address.
    """

    reason: str
    sentence: str
    form: bool


@dataclass(frozen=True, slots=True)
class Target:
    """A URL as the sender dials it.

    ``host`` is ASCII and in lower case, an IPv6 address without brackets; ``literal`` is that address when the host is
    one. ``path`` is the request target in origin form (RFC 9112 3.2.1), never empty. ``head`` is the start of every
    request to it: request line and ``host`` line. ``origin`` holds no secret and may be stored in clear.
    """

    scheme: str
    host: str
    port: int
    path: bytes
    literal: Address | None
    origin: str
    head: bytes

    @property
    def tls(self) -> bool:
        return self.scheme == "https"


_BAD_CHARACTER = re.compile(
    r"[\x00-\x20\x7f-\xa0\\\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff]"
)
_URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://([^/?#]*)([^#]*)(#.*)?")
_AUTHORITY = re.compile(r"(\[[^\[\]@]*\]|[^\[\]:@]*)(?::([^:@]*))?")
_PORT = re.compile(r"[0-9]{1,5}")
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
_ENCODED = re.compile(r"[^!$&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~%]")


def parse_url(text: str, policy: EgressPolicy, tenant: str = "") -> Target | Refusal:
    """Take a URL apart and judge it, as far as that goes without resolving its name.

    ``tenant`` selects the allow and deny entries that name a tenant. Follows RFC 3986; stricter where a resolver, a
    proxy or an older library would read the text in another way than we do.
    """
    parts = _split(text)
    if isinstance(parts, Refusal):
        return parts
    host = _normalise_host(parts.host, policy)
    if isinstance(host, Refusal):
        return host
    target = _build_target(parts, host)
    return _judge_target(target, policy, tenant) or target


def parse_host(text: str, policy: EgressPolicy) -> str | Refusal:
    """A host by itself, spelled as ``Target.host`` is; an IPv6 address with brackets or without."""
    if _BAD_CHARACTER.search(text):
        return _refuse("forbidden_character")
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    return _normalise_ipv6(bare) if ":" in bare else _normalise_host(bare, policy)


def judge_address(address: Address, policy: EgressPolicy, host: str, port: int, tenant: str) -> Refusal | None:
    """None when this address, which ``host`` is or was resolved to, may be dialled.

    Deny entries win, also over the IPv4 address inside an IPv6 one, which the system may dial; metadata addresses open
    only when an allow entry is exactly that address; then allow entries for the address or the host; then the table.
    """
    inner = unwrap_nat64(address, policy.nat64)
    hidden = {address, inner, *embedded_addresses(address)}
    if policy.deny and any(find_entry(policy.deny, each, host, port, tenant) for each in hidden):
        return _refuse_address("denied_address")
    if is_metadata(address) or is_metadata(inner):
        exact = any(entry.names_exactly(each, port, tenant) for entry in policy.allow for each in (address, inner))
        return None if exact else _refuse_address("metadata_address")
    if find_entry(policy.allow, address, host, port, tenant) or find_entry(policy.allow, inner, host, port, tenant):
        return None
    reason = find_special(inner)
    return _refuse_address(reason) if reason else None


class _Parts(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str


def _refuse(reason: str) -> Refusal:
    return Refusal(reason, SENTENCES[reason], form=True)


def _refuse_address(reason: str) -> Refusal:
    return Refusal(reason, SENTENCES[reason], form=False)


def _split(text: str) -> _Parts | Refusal:
    if len(text) > MAX_URL_LENGTH:
        return _refuse("too_long")
    if _BAD_CHARACTER.search(text):
        return _refuse("forbidden_character")
    url = _URL.fullmatch(text)
    if url is None:
        return _refuse("not_a_url")
    scheme, authority, path, fragment = url.groups()
    if scheme.lower() not in _DEFAULT_PORTS:
        return _refuse("scheme")
    if "@" in authority:
        return _refuse("userinfo")
    if fragment is not None:
        return _refuse("fragment")
    return _split_authority(scheme.lower(), authority, path)


def _split_authority(scheme: str, authority: str, path: str) -> _Parts | Refusal:
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return _refuse("host_syntax")
    host, port = match.groups()
    if not host:
        return _refuse("not_a_url")
    number = _DEFAULT_PORTS[scheme]
    if port:
        number = int(port) if _PORT.fullmatch(port) else 0
    if number not in Ports(((1, 65535),)):
        return _refuse("port_syntax")
    return _Parts(scheme, host, number, path)


def _normalise_host(host: str, policy: EgressPolicy) -> str | Refusal:
    """The host as it is dialled; an IPv6 address keeps no brackets and takes its canonical form (RFC 5952)."""
    if host.startswith("["):
        return _normalise_ipv6(host[1:-1])
    if not host.isascii():
        try:
            host = policy.to_ascii(host)
        except UnicodeError:
            return _refuse("host_idna")
    return _check_name(host.lower())


def _normalise_ipv6(text: str) -> str | Refusal:
    try:
        address = IPv6Address(text)
    except AddressValueError:
        return _refuse("host_syntax")
    return _refuse("host_syntax") if address.scope_id else str(address)


def _check_name(host: str) -> str | Refusal:
    name = host.removesuffix(".")
    labels = name.split(".")
    if len(name) > _MAX_HOST_LENGTH or not all(_LABEL.fullmatch(label) for label in labels):
        return _refuse("host_syntax")
    if _NUMBER.fullmatch(labels[-1]):
        return host if _is_dotted_quad(host) else _refuse("numeric_host")
    return name


def _is_dotted_quad(host: str) -> bool:
    try:
        return str(IPv4Address(host)) == host
    except AddressValueError:
        return False


def _build_target(parts: _Parts, host: str) -> Target:
    literal = _find_literal(host)
    shown = f"[{host}]" if isinstance(literal, IPv6Address) else host
    path = _encode_path(parts.path)
    authority = shown if parts.port == _DEFAULT_PORTS[parts.scheme] else f"{shown}:{parts.port}"
    return Target(
        scheme=parts.scheme,
        host=host,
        port=parts.port,
        path=path,
        literal=literal,
        origin=f"{parts.scheme}://{shown}:{parts.port}",
        head=b"POST %b HTTP/1.1\r\nhost: %b\r\n" % (path, authority.encode("ascii")),
    )


def _find_literal(host: str) -> Address | None:
    if ":" in host:
        return IPv6Address(host)
    return IPv4Address(host) if host[-1].isdigit() and _is_dotted_quad(host) else None


def _encode_path(path: str) -> bytes:
    """The path and query as given; only what RFC 3986 does not know is percent-encoded, as UTF-8."""
    rooted = path if path.startswith("/") else "/" + path
    return _ENCODED.sub(_percent, rooted).encode("ascii")


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match.group().encode())


def _judge_target(target: Target, policy: EgressPolicy, tenant: str) -> Refusal | None:
    """Name, port, scheme and literal address, in that order; an allow entry lifts the first two together."""
    if target.literal is not None:
        return _judge_scheme(target, policy) or _judge_literal(target, target.literal, policy, tenant)
    if any(entry.names_host(target.host, target.port, tenant) for entry in policy.deny):
        return _refuse("denied_host")
    if any(entry.names_host(target.host, target.port, tenant) for entry in policy.allow):
        return _judge_scheme(target, policy)
    if _is_local(target.host):
        return _refuse("local_name")
    return _judge_scheme(target, policy) or _judge_port(target, policy)


def _judge_literal(target: Target, literal: Address, policy: EgressPolicy, tenant: str) -> Refusal | None:
    refusal = judge_address(literal, policy, target.host, target.port, tenant)
    if refusal is not None:
        return refusal
    named = find_entry(policy.allow, literal, target.host, target.port, tenant)
    return None if named else _judge_port(target, policy)


def _judge_scheme(target: Target, policy: EgressPolicy) -> Refusal | None:
    return None if target.tls or policy.allow_http else _refuse("scheme")


def _judge_port(target: Target, policy: EgressPolicy) -> Refusal | None:
    usual = {443, _DEFAULT_PORTS[target.scheme]}
    return None if target.port in usual or target.port in policy.ports else _refuse("port")


def _is_local(host: str) -> bool:
    return "." not in host or any(f".{host}".endswith("." + suffix) for suffix in LOCAL_SUFFIXES)
