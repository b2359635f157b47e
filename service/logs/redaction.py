"""What must not be in a log, found by what it is, by where it stands, and by its very text.

Belongs here: patterns of secrets and of what tenants own (URL paths and queries, header values, bodies), secrets told by
the composition root, and control characters. Does not belong here: writing lines (``sink``). A pattern that hides too
much costs a word in a log; one that hides too little costs a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

REDACTED = "[redacted]"
_LONGEST_TEXT = 16_384
_SHORTEST_SECRET = 4
_SURE_SECRET = 12  # shorter ones are masked as whole words only: they would eat ordinary text

_FORBIDDEN_FIELDS = frozenset({
    "authorization", "body", "content", "cookie", "cookies", "credentials", "custom_headers", "database_url", "dsn",
    "egress_proxy", "encryption_keys", "excerpt", "header", "header_value", "headers", "operator_key", "password",
    "path", "payload", "private_key", "query", "query_string", "raw", "sasl_password", "secret", "secrets", "signature",
    "token", "url_path", "userinfo",
})  # fmt: skip
_PLAIN = re.compile(r"(?!wh(?:sec|sk)_)[A-Za-z0-9_.+-]{0,64}", re.ASCII)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_OPEN_SCHEMES = ("http://", "https://")
_ORIGIN = re.compile(r"[A-Za-z0-9._-]{1,253}(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](?::[0-9]{1,5})?")
_VALUE = r"(?:b?\"(?:[^\"\\]|\\.)*\"|b?'(?:[^'\\]|\\.)*'|[^\s,;)}\]]+)"
_NAMES = "passw|pwd|secret|token|apikey|api_key|api-key|authorization|cookie|signature|credential|x-"
_SCHEMES = "bearer|basic|digest|negotiate"


class _Rule(NamedTuple):
    """Text that holds one of ``signs`` (in lower case) is searched for ``pattern``; most text holds none."""

    signs: tuple[str, ...]
    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str]


def _rule(signs: str, pattern: str, replacement: str | Callable[[re.Match[str]], str]) -> _Rule:
    return _Rule(tuple(signs.split("|")), re.compile(pattern, re.IGNORECASE | re.MULTILINE), replacement)


def _origin_only(match: re.Match[str]) -> str:
    scheme, rest = match[1], match[2]
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
    host = authority.rpartition("@")[2]
    origin = _ORIGIN.match(host)
    if scheme.lower() not in _OPEN_SCHEMES or "@" in rest[len(authority) :] or not origin:
        return f"{scheme}{REDACTED}"
    return scheme + origin[0]


_RULES = (
    _rule("://", r"([a-z][a-z0-9+.-]{1,30}://)([^\s\"'<>`]*)", _origin_only),
    # a mapping of headers, to the end of the line: its values may hold any bracket
    _rule("cimultidict", r"(cimultidict(?:proxy)?\()[^\n]*", rf"\1{REDACTED}"),
    _rule("header", r"(\bheaders?[\"']?\s*[=:]\s*)[^\n]+", rf"\1{REDACTED}"),
    # what is named like a secret, and credentials by their scheme
    _rule(
        _NAMES,
        rf"((?:{_NAMES})[\w.-]{{0,40}}[\"']?\s{{0,4}}[=:]\s{{0,4}})(?:(?:{_SCHEMES})\s+)?{_VALUE}",
        rf"\1{REDACTED}",
    ),
    _rule(_SCHEMES, rf"\b({_SCHEMES})\s{{1,4}}(?!auth)[a-z0-9._~+/=-]{{4,}}", rf"\1 {REDACTED}"),
    _rule("whsec_|whsk_", r"\b(whse?[ck]_)[^\s\"',;]*", rf"\1{REDACTED}"),
    # bodies: bytes in a repr, what pydantic and asyncpg quote of their input, PostgreSQL's rows and keys
    _rule("b'|b\"", r"\bb(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", f"b'{REDACTED}'"),
    _rule("input_value=", r"(\binput_value=).*?(?=, input_type=|\]|$)", rf"\1{REDACTED}"),
    _rule("query argument", r"(\bquery argument \$\d+: )[^\n]*", rf"\1{REDACTED}"),
    _rule(
        "detail:|failing row|key (", r"((?:detail:|failing row contains|key \([^)\n]*\)=)\s*)[^\n]+", rf"\1{REDACTED}"
    ),
    # request lines, and queries without a scheme in front
    _rule(" /", r"\b((?:get|head|post|put|patch|delete|options|connect|trace) )/\S*", rf"\1{REDACTED}"),
    _rule("?", r"\?[\w.~%-]+=[^\s\"']*", f"?{REDACTED}"),
)
_SIGNS = tuple((sign, rule) for rule in _RULES for sign in rule.signs)


class Redactor:
    """Cleans values before they are written, and rendered lines once more."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._longest_first: list[str] = []
        self.register(*secrets)

    def register(self, *secrets: str) -> None:
        """Mask these texts wherever they stand, plain, percent-encoded or escaped; under 4 characters is ignored."""
        for secret in secrets:
            if len(secret) >= _SHORTEST_SECRET:
                self._known |= {secret, quote(secret, safe=""), _escaped(secret), secret.replace('"', '\\"')}
        self._longest_first = sorted(self._known, key=len, reverse=True)

    def _masked(self, text: str) -> str:
        for secret in self._longest_first:
            if secret in text:
                text = re.sub(_exactly(secret), REDACTED, text)
        return text

    def line(self, text: str) -> str:
        """A rendered line without registered secrets: the net under everything else."""
        return self._masked(text)

    def text(self, text: str) -> str:
        """Any text, such as an exception's, without what must not be logged and without control characters."""
        text = self._masked(text)
        if _PLAIN.fullmatch(text):
            return text
        text = text[:_LONGEST_TEXT]
        signs = text.lower()
        for sign, rule in _SIGNS:
            if sign in signs:
                text = rule.pattern.sub(rule.replacement, text)
        return _CONTROL.sub(_escape, text)

    def fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """An event's fields, cleaned at every depth."""
        return {
            self.text(str(name)): self._value(value) if value is None or not _is_forbidden(str(name)) else REDACTED
            for name, value in fields.items()
        }

    def _value(self, value: Any) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return value if self._masked(str(value)) == str(value) else REDACTED
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return f"<{len(value)} bytes>"
        if isinstance(value, Mapping):
            return self.fields(value)
        if isinstance(value, Sequence | set | frozenset):
            return [self._value(item) for item in value]
        return self.text(_words_of(value))


@lru_cache(1024)
def _is_forbidden(name: str) -> bool:
    return name.lower().replace("-", "_") in _FORBIDDEN_FIELDS


def _words_of(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    try:
        return f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value)
    except Exception:  # noqa: BLE001 - logging never raises
        return f"<{type(value).__name__}>"


def _exactly(secret: str) -> str:
    pattern = re.escape(secret)
    return pattern if len(secret) >= _SURE_SECRET else rf"(?<!\w){pattern}(?!\w)"


def _escaped(text: str) -> str:
    return text.encode("unicode_escape").decode("ascii")


def _escape(match: re.Match[str]) -> str:
    return _escaped(match[0])
