"""What each part of a signed request may have been meant to be, and what is wrong with how it was given.

Belongs here: reading one part leniently: header names, id, timestamp, signature list, secrets. Pure. Does not belong here:
which guess the signature confirms (``checking``), and bodies (``reencoding``).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from hmac import compare_digest, digest
from itertools import islice
from typing import Generic, Protocol, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from service.domain.signing import SECRET_PREFIX, Secret, Signer, build_signer, format_secret, parse_secret

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
NAMES = (ID, TIMESTAMP, SIGNATURE)
MILLISECONDS = 10**11  # as seconds, that is the year 5138
PUBLIC_PREFIX, PRIVATE_PREFIX = "whpk_", "whsk_"
_PUBLIC_BYTES = 32
_SLOW_TRIES = 10_000
_ENTRY = re.compile(r"v1,[A-Za-z0-9+/]{43}=|v1a,[A-Za-z0-9+/]{86}==|(?!v1a?,)v[0-9]+[a-z]*,[A-Za-z0-9+/]+={0,2}")
_TOKEN = re.compile(
    r"(?:(v[0-9]+[a-z]*)[,=: ])?([A-Za-z0-9+/_-]{86}|[A-Fa-f0-9]{64}|[A-Za-z0-9+/_-]{43})(?![A-Za-z0-9+/_-])"
)
_HEX_DIGITS, _LONG = 64, 86
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

T = TypeVar("T")
Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Guess(Generic[T]):
    """One reading of a part. ``wrong`` says what would have to be repaired for it; None: it is read as it was given."""

    value: T
    wrong: str | None = None


@dataclass(frozen=True, slots=True)
class Guesses(Generic[T]):
    """All readings of a part, the likeliest first, and what is wrong with it for sure. Empty: it cannot be read at all."""

    readings: tuple[Guess[T], ...]
    problem: str | None = None


class Key(Protocol):
    """Something that signatures are checked with."""

    def fits(self, message_id: str, timestamp: int, body: bytes, entries: Sequence[str]) -> bool:
        """Tell whether one of the signature entries was made with it over these three."""

    def find_moment(self, message_id: str, moments: Iterable[int], body: bytes, entries: Sequence[str]) -> int | None:
        """Return the first of these instants for which one fits, as far as a second or two suffice to look."""


@dataclass(frozen=True, slots=True)
class HmacKey:
    """A ``whsec_`` secret; compared in constant time."""

    signer: Signer = field(repr=False)
    key: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> HmacKey:
        """Raises ValueError with a reason that never repeats the secret."""
        key = parse_secret(text)
        return cls(build_signer([Secret(key, _EPOCH)]), key)

    def fits(self, message_id: str, timestamp: int, body: bytes, entries: Sequence[str]) -> bool:
        """See ``Key``."""
        expected = self.signer.sign(message_id, timestamp, body).encode()
        return any(compare_digest(expected, entry.encode()) for entry in entries)

    def find_moment(self, message_id: str, moments: Iterable[int], body: bytes, entries: Sequence[str]) -> int | None:
        """See ``Key``. One-shot digests: three times as many a second as signatures."""
        wanted = {_read_digest(entry) for entry in entries if entry.startswith("v1,")}
        front = message_id.encode()
        digests = ((at, digest(self.key, b"%s.%d.%s" % (front, at, body), "sha256")) for at in moments)
        return next((at for at, made in digests if made in wanted), None)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The ``whpk_`` half of a webhook's Ed25519 pair."""

    public: Ed25519PublicKey

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Raises ValueError."""
        try:
            raw = b64decode(text.removeprefix(PUBLIC_PREFIX), validate=True)
        except (Base64Error, ValueError):
            raw = b""
        if len(raw) != _PUBLIC_BYTES:
            raise ValueError(f"a public key is {PUBLIC_PREFIX!r} and padded base64 of {_PUBLIC_BYTES} bytes")
        return cls(Ed25519PublicKey.from_public_bytes(raw))

    def fits(self, message_id: str, timestamp: int, body: bytes, entries: Sequence[str]) -> bool:
        """See ``Key``."""
        signed = f"{message_id}.{timestamp}.".encode() + body
        return any(self._made(entry.removeprefix("v1a,"), signed) for entry in entries if entry.startswith("v1a,"))

    def find_moment(self, message_id: str, moments: Iterable[int], body: bytes, entries: Sequence[str]) -> int | None:
        """See ``Key``."""
        some = islice(moments, _SLOW_TRIES)
        return next((at for at in some if self.fits(message_id, at, body, entries)), None)

    def _made(self, signature: str, signed: bytes) -> bool:
        try:
            self.public.verify(b64decode(signature), signed)
        except (InvalidSignature, ValueError):
            return False
        return True


def _read_digest(entry: str) -> bytes:
    try:
        return b64decode(entry.removeprefix("v1,"), validate=True)
    except (Base64Error, ValueError):
        return b""


def guess_key(text: str) -> Guesses[Key]:
    """Read a secret, or a public key."""
    if text.startswith(PRIVATE_PREFIX):
        return Guesses((), f"this is a private key, which never leaves its owner; give the {PUBLIC_PREFIX} text")
    try:
        return Guesses((Guess(PublicKey.parse(text) if text.startswith(PUBLIC_PREFIX) else HmacKey.parse(text)),))
    except ValueError as error:
        problem = str(error)
    repaired = _repair_secret(text)
    return Guesses((Guess(repaired, problem),) if repaired else (), problem)


def _repair_secret(text: str) -> Key | None:
    bare = text.strip().strip("\"'").removeprefix("v1,")
    encoded = re.sub(f"^{SECRET_PREFIX}", "", bare, flags=re.IGNORECASE).translate(str.maketrans("-_", "+/"))
    encoded = "".join(encoded.split()).rstrip("=")
    try:
        return HmacKey.parse(format_secret(b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)))
    except (Base64Error, ValueError):
        return None


def guess_id(text: str) -> Guesses[str]:
    """Read ``webhook-id``."""
    if not text.isascii():
        return Guesses((), "has characters that no id has")
    bare = text.strip().strip("\"'")
    readings = [Guess(text)] if text else []
    if bare and bare != text:
        readings.append(Guess(bare, "has quotes or white space around it"))
    problem = None if re.fullmatch(r"[!-~]+", text) and "." not in text else "is no id: letters, digits and _, no dot"
    return Guesses(tuple(readings), problem)


def guess_timestamp(text: str) -> Guesses[int]:
    """Read ``webhook-timestamp``: unix seconds in ASCII digits."""
    if not re.fullmatch(r"[0-9]{1,19}", text):
        at = _read_other_time(text)
        why = f"is {at[1]}, not unix seconds" if at else "is not unix seconds in ASCII digits"
        return Guesses((Guess(at[0], why),) if at else (), why)
    number = int(text)
    readings = [Guess(number, None if str(number) == text else "has zeros in front")]
    problem: str | None = None
    for name, unit in (("milliseconds", 1_000), ("microseconds", 1_000_000), ("nanoseconds", 1_000_000_000)):
        if unit * 10**8 <= number < unit * MILLISECONDS:
            problem = f"is in {name}; it has to be in seconds"
            readings.append(Guess(number // unit, f"was turned into {name}; what was signed is in seconds"))
    return Guesses(tuple(readings), problem)


def _read_other_time(text: str) -> tuple[int, str] | None:
    bare = text.strip().strip("\"'")
    if re.fullmatch(r"[0-9]{1,11}(\.[0-9]+)?", bare):
        return int(bare.partition(".")[0]), "a number written otherwise"
    for parse, name in ((datetime.fromisoformat, "an RFC 3339 date"), (parsedate_to_datetime, "an HTTP date")):
        try:
            at = parse(bare)
        except (ValueError, OverflowError):
            continue
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()), name
    return None


def guess_signatures(text: str) -> Guesses[tuple[str, ...]]:
    """Read ``webhook-signature``: ``version,base64`` entries with one space between."""
    entries = text.split(" ")
    if all(_ENTRY.fullmatch(entry) for entry in entries):
        return Guesses((Guess(tuple(entries)),))
    problem = _describe_list(text, entries)
    tokens = tuple(_as_entry(version, token) for version, token in _TOKEN.findall(text))
    return Guesses((Guess(tokens, problem),) if tokens else (), problem)


def _describe_list(text: str, entries: Sequence[str]) -> str:
    if not text.strip():
        return "is empty"
    if "" in entries or text != text.strip():
        return "has two spaces in a row, or one at an end; one space stands between entries"
    if re.search(r"[;,]\s*v[0-9]", text):
        return "has entries separated by a comma or semicolon; one space stands between entries"
    if re.search(r"[\"']", text):
        return "has quotes in it"
    if re.search(r"v[0-9]+[a-z]*[=:]", text):
        return "has an entry as version=…; it is version, comma, base64"
    if re.search(r"(^|[ ,=])[A-Fa-f0-9]{64}($|[ ,])", text):
        return "has a signature in hexadecimal; it is base64"
    if re.search(r"v[0-9]+[a-z]*,[A-Za-z0-9+/]*[-_]", text):
        return "has a signature in URL-safe base64; it is the standard kind (+ and /)"
    if not re.search(r"v[0-9]+[a-z]*,", text):
        return "has no version before the signature; an entry is v1,<base64>"
    return "is no list of version,base64 entries with one space between"


def _as_entry(version: str, token: str) -> str:
    if len(token) == _HEX_DIGITS:
        return f"{version or 'v1'},{b64encode(bytes.fromhex(token)).decode()}"
    encoded = token.translate(str.maketrans("-_", "+/"))
    padded = encoded + "=" * (-len(encoded) % 4)
    return f"{version or ('v1a' if len(token) == _LONG else 'v1')},{padded}"


def find_named(headers: Headers) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the three headers that are there once, and for each other one its name and what is wrong."""
    found: dict[str, str] = {}
    wrong: list[tuple[str, str]] = []
    for name in NAMES:
        values = [value for given, value in headers if given.lower() == name]
        if len(values) == 1:
            found[name] = values[0]
        elif values:
            wrong.append((name, f"{name} is there {len(values)} times"))
        else:
            wrong.append((name, f"{name} is missing{_hint(name, headers)}"))
    return found, wrong


def _hint(name: str, headers: Headers) -> str:
    last = name.rpartition("-")[2]
    for given, _ in headers:
        words = re.split("[-_]", given.lower())
        if words[-1] == last and {"webhook", "svix", "wehbook", "hook"} & set(words):
            return f"; there is {given}, which is not the same"
    return ""
