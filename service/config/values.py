"""The form of one setting's value: lists, addresses, names, keys.

Belongs here: types that settings are declared with. Does not belong here: which settings exist (``fields``) and what
two of them together mean (``conflicts``). No message here holds the text that it refuses, which may be a secret; those of
the egress lists come from the domain and do.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr

from service.config.durations import parse_duration
from service.domain.egress import parse_entries, parse_nat64_prefixes, parse_ports
from service.domain.schedule import find_schedule_problem

KEY_BYTES = 32
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}", re.ASCII)
_OPERATOR_KEY = re.compile(r"[\x21-\x7e]{8,512}")
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Fa-f:]{2,45}", re.ASCII)
_BROKER = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})", re.ASCII)
_DNS_SERVER = re.compile(r"\[([^\]]+)\](?::([0-9]{1,5}))?|([0-9.]+):([0-9]{1,5})|(.+)", re.ASCII)
_DSN_OPTIONS = {
    "port": re.compile(r"[0-9]{1,5}(?:,[0-9]{1,5})*"),
    "sslmode": re.compile(r"disable|allow|prefer|require|verify[-_]ca|verify[-_]full"),
    "sslnegotiation": re.compile(r"postgres|direct"),
    "target_session_attrs": re.compile(r"any|primary|standby|read-write|read-only|prefer-standby"),
}
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_HEADER_TEXT = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,254}[\x21-\x7e])?")
_HIGHEST_PORT = 65535


class EncryptionKey(NamedTuple):
    """One AES-256 key and the id that is written into what it encrypts."""

    key_id: str
    material: bytes

    def __repr__(self) -> str:
        """The id only: a key does not reach a log through a ``repr``."""
        return f"EncryptionKey({self.key_id!r})"


def parse_encryption_keys(text: str) -> tuple[EncryptionKey, ...]:
    """Comma-separated ``id:base64`` with 32 bytes each; the first encrypts, all decrypt.

    Raises:
        ValueError: an entry has another form, an id repeats, or there is none. The text is not in the message.
    """
    keys = tuple(_parse_key(position, entry.strip()) for position, entry in enumerate(text.split(","), start=1))
    if len({key.key_id for key in keys}) < len(keys):
        raise ValueError("holds two keys with the same id")
    return keys


def _parse_key(position: int, entry: str) -> EncryptionKey:
    key_id, _, encoded = entry.partition(":")
    try:
        material = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        material = b""
    if not _KEY_ID.fullmatch(key_id) or len(material) != KEY_BYTES:
        raise ValueError(f"entry {position} is not id:base64 of {KEY_BYTES} bytes (openssl rand -base64 {KEY_BYTES})")
    return EncryptionKey(key_id, material)


def _matching(pattern: re.Pattern[str], refusal: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(refusal)
        return value

    return AfterValidator(check)


def _secret(usable: Callable[[str], bool], refusal: str) -> AfterValidator:
    def check(value: SecretStr) -> SecretStr:
        text = value.get_secret_value()
        if text and not usable(text):
            raise ValueError(refusal)
        return value

    return AfterValidator(check)


def _existing(kind: str, exists: Callable[[Path], bool]) -> AfterValidator:
    def check(value: Path | None) -> Path | None:
        if value is not None and not exists(value):
            raise ValueError(f"names a {kind} that does not exist or cannot be read")
        return value

    return AfterValidator(check)


def _check_keys(value: SecretStr) -> SecretStr:
    if value.get_secret_value():
        parse_encryption_keys(value.get_secret_value())
    return value


def _split_url(text: str) -> SplitResult | None:
    try:
        parts = urlsplit(text)
        return parts if _VISIBLE.fullmatch(text) and _is_port(str(parts.port or 1)) else None
    except ValueError:
        return None


def _is_dsn(text: str) -> bool:
    """Whether the database's client can read it: what it cannot read it quotes, and that may be of the password."""
    parts = _split_url(text)
    if parts is None or parts.scheme not in {"postgresql", "postgres"} or parts.fragment:
        return False
    try:
        options = parse_qsl(parts.query, strict_parsing=True) if parts.query else []
    except ValueError:
        return False
    return all(_DSN_OPTIONS[name].fullmatch(value) for name, value in options if name in _DSN_OPTIONS)


def _is_proxy(text: str) -> bool:
    parts = _split_url(text)
    if parts is None or parts.scheme != "http" or not parts.hostname:
        return False
    return parts.port is not None and parts.path in {"", "/"} and not parts.query and not parts.fragment


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) <= _HIGHEST_PORT


def _check_broker(value: str) -> str:
    found = _BROKER.fullmatch(value)
    if not found or not _is_port(found[1]):
        raise ValueError("must be a list of host:port")
    return value


def _check_dns_server(value: str) -> str:
    found = _DNS_SERVER.fullmatch(value)
    try:
        if found and _is_port(found[2] or found[4] or "53"):
            ip_address(found[1] or found[3] or found[5])
            return value
    except ValueError:
        pass
    raise ValueError("must be a list of addresses, each with an optional port (10.0.0.2, 10.0.0.2:5353, [::1]:53)")


def _policy(parse: Callable[[str], object]) -> AfterValidator:
    def check(value: str) -> str:
        parse(value)
        return value

    return AfterValidator(check)


def _check_schedule(value: tuple[timedelta, ...]) -> tuple[timedelta, ...]:
    if problem := find_schedule_problem(value):
        raise ValueError(problem)
    return value


def _split_list(value: object) -> object:
    """``a, b,`` → ``("a", "b")``; a list (from TOML) is taken as it is."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _joined_list(value: object) -> object:
    """A list from TOML as the text that an environment variable would hold."""
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _empty_is_none(value: Any) -> Any:
    return None if value == "" else value


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


AsList = BeforeValidator(_split_list)
AsText = BeforeValidator(_joined_list)
Lower = BeforeValidator(_lower)
Upper = BeforeValidator(_upper)

Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
Schedule = Annotated[tuple[Duration, ...], AsList, AfterValidator(_check_schedule)]
_not_a_topic = "is not a Kafka topic name (letters, digits, dot, underscore, hyphen; at most 249)"
Topic = Annotated[str, _matching(_TOPIC, _not_a_topic)]
OptionalTopic = Annotated[str, _matching(re.compile(f"(?:{_TOPIC.pattern})?", re.ASCII), _not_a_topic)]
Topics = Annotated[tuple[Topic, ...], AsList]
Host = Annotated[str, _matching(_HOST, "is not a host name or address")]
UserAgent = Annotated[str, _matching(_HEADER_TEXT, "must be at most 256 printable ASCII characters")]
Brokers = Annotated[tuple[Annotated[str, AfterValidator(_check_broker)], ...], AsList]
DnsServers = Annotated[tuple[Annotated[str, AfterValidator(_check_dns_server)], ...], AsList]
# Texts, not lists: the URL policy in the domain owns their grammar and parses them again.
EgressRules = Annotated[str, AsText, _policy(parse_entries)]
EgressPorts = Annotated[str, AsText, _policy(parse_ports)]
Nat64Prefixes = Annotated[str, AsText, _policy(parse_nat64_prefixes)]
Dsn = Annotated[
    SecretStr,
    _secret(
        _is_dsn,
        "is not a PostgreSQL address (postgresql://user:password@host:5432/name, / ? # @ in a password as %2F %3F %23 %40)",
    ),
]
ProxyAddress = Annotated[SecretStr, _secret(_is_proxy, "must be http://[user:password@]host:port")]
OperatorKey = Annotated[
    SecretStr,
    _secret(lambda text: bool(_OPERATOR_KEY.fullmatch(text)), "must be 8 to 512 visible ASCII characters, no space"),
]
EncryptionKeys = Annotated[SecretStr, AfterValidator(_check_keys)]
Directory = Annotated[Path, AfterValidator(Path.expanduser)]
ExistingFile = Annotated[Path | None, BeforeValidator(_empty_is_none), _existing("file", Path.is_file)]
ExistingDir = Annotated[Path | None, BeforeValidator(_empty_is_none), _existing("directory", Path.is_dir)]
