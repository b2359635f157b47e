"""What is right and what is wrong with a signed request: a finding or more a part.

Belongs here: judging headers, body and secrets as they were given; pure, and the signature arithmetic is
``domain.signing``'s. Does not belong here: reading captures (``verify``), receiving (``listen``), what one part may have
been meant to be (``guesses``, ``reencoding``).

Where the signature does not fit what was given, it is tried on what may have been meant (a secret without its padding, a
timestamp in milliseconds, a body that was encoded anew), then on the id that the body tells of, on other instants, and on
what the service has on record; the guess that fits tells which part is wrong. A signature alone cannot tell a wrong secret
from an id, a timestamp or bytes of which no guess is right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

import orjson

from service.tools.guesses import (
    ID,
    MILLISECONDS,
    SIGNATURE,
    TIMESTAMP,
    Guess,
    Guesses,
    Headers,
    Key,
    PublicKey,
    find_named,
    guess_id,
    guess_key,
    guess_signatures,
    guess_timestamp,
)
from service.tools.reencoding import describe_difference, list_originals
from service.tools.traces import Record, derive_id, list_moments

TOLERANCE = 300  # seconds, both ways: Standard Webhooks 1.0, "Verifying signatures"
_OURS = re.compile(rb'\{"type":"[^"]*","timestamp":(?:"[^"]*"|null),')  # how every body of the service begins


class Part(StrEnum):
    """What can be wrong."""

    HEADERS = "headers"
    SECRET = "secret"  # noqa: S105 - a part's name
    ID = "id"
    TIMESTAMP = "timestamp"
    SIGNATURE = "signature list"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is so with one part."""

    part: Part
    text: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """All findings; valid when all of them are good."""

    findings: tuple[Finding, ...]

    @property
    def valid(self) -> bool:
        """Whether a receiver may accept the request."""
        return all(finding.right for finding in self.findings)

    @property
    def wrong(self) -> list[Finding]:
        """The findings that are not good."""
        return [finding for finding in self.findings if not finding.right]


@dataclass(frozen=True, slots=True)
class _Readings:
    """Every part's readings."""

    keys: Guesses[Key]
    ids: Guesses[str]
    timestamps: Guesses[int]
    signatures: Guesses[tuple[str, ...]]

    def list_problems(self) -> Iterator[Finding]:
        """What is wrong for sure, whatever the signature says."""
        named = ((Part.ID, ID, self.ids), (Part.TIMESTAMP, TIMESTAMP, self.timestamps))
        for part, name, guesses in (*named, (Part.SIGNATURE, SIGNATURE, self.signatures)):
            if guesses.problem:
                yield Finding(part, f"{name} {guesses.problem}")
        if self.keys.problem:
            yield Finding(Part.SECRET, self.keys.problem)


@dataclass(frozen=True, slots=True)
class _Fit:
    """Readings over which the signature is right."""

    key: Guess[Key]
    message_id: Guess[str]
    timestamp: Guess[int]
    signatures: Guess[tuple[str, ...]]
    body: Guess[bytes]

    @property
    def repairs(self) -> int:
        """How many parts are not as they were given."""
        parts = (self.key, self.message_id, self.timestamp, self.signatures, self.body)
        return sum(part.wrong is not None for part in parts)

    def holds(self) -> bool:
        """Whether the signature is right."""
        values = (self.message_id.value, self.timestamp.value, self.body.value, self.signatures.value)
        return self.key.value.fits(*values)


def check_request(
    headers: Headers, body: bytes, secrets: Sequence[str], now: int, *, record: Record | None = None, span: int = 0
) -> Verdict:
    """Judge one request. ``secrets`` are ``whsec_`` or ``whpk_`` texts, any of which may fit; ``now`` is unix seconds.

    ``record`` is what the service knows of the id; ``span`` is how many seconds around the given timestamp to search for
    the one that was signed, which may take a second or two.
    """
    named, missing = find_named(headers)
    keys = _read_keys(secrets)
    if missing:
        findings = [Finding(Part.HEADERS, text) for _, text in missing]
        return Verdict((*findings, *([Finding(Part.SECRET, keys.problem)] if keys.problem else [])))
    readings = _Readings(
        keys, guess_id(named[ID]), guess_timestamp(named[TIMESTAMP]), guess_signatures(named[SIGNATURE])
    )
    fit = _find_fit(readings, body) or _find_changed(readings, body, record, span)
    if fit is not None:
        return Verdict(tuple(_explain(fit, body, now)))
    return Verdict(tuple(_suspect(readings, headers, body, now, record)))


def _read_keys(secrets: Sequence[str]) -> Guesses[Key]:
    guessed = [guess_key(secret) for secret in secrets]
    problems = [guesses.problem for guesses in guessed if guesses.problem]
    return Guesses(tuple(one for guesses in guessed for one in guesses.readings), problems[0] if problems else None)


def _find_fit(readings: _Readings, body: bytes) -> _Fit | None:
    """The fit with the fewest repairs; the body's guesses, which cost most, only after all else has failed."""
    parts = (readings.keys.readings, readings.ids.readings, readings.timestamps.readings, readings.signatures.readings)
    combined = list(product(*parts))
    for bodies in ([Guess(body)], [Guess(original, story) for original, story in list_originals(body)]):
        fits = (_Fit(*combination, one) for one in bodies for combination in combined)
        for fit in sorted(fits, key=lambda fit: fit.repairs):
            if fit.holds():
                return fit
    return None


def _find_changed(readings: _Readings, body: bytes, record: Record | None, span: int) -> _Fit | None:
    """The fit with what is well written, but not what was signed: another id, other bytes, another instant."""
    ids = _list_ids(readings, body)
    for key, signatures in product(readings.keys.readings, readings.signatures.readings):
        for message_id, moment, sent in _list_changes(readings, ids, body, record):
            fit = _Fit(key, message_id, moment, signatures, sent)
            if fit.holds():
                return fit
        for message_id in ids:
            moments = list_moments(
                readings.timestamps.readings[0].value if readings.timestamps.readings else None, body, span
            )
            at = key.value.find_moment(message_id.value, moments, body, signatures.value)
            if at is not None:
                return _Fit(key, message_id, _moved(at), signatures, Guess(body))
    return None


def _list_ids(readings: _Readings, body: bytes) -> list[Guess[str]]:
    """The ids as they were read, and the one that the body tells of."""
    derived = derive_id(body)
    if derived is None or derived in {reading.value for reading in readings.ids.readings}:
        return list(readings.ids.readings)
    return [*readings.ids.readings, Guess(derived, f"was changed: the signature is for {derived}")]


def _list_changes(
    readings: _Readings, ids: Sequence[Guess[str]], body: bytes, record: Record | None
) -> Iterator[tuple[Guess[str], Guess[int], Guess[bytes]]]:
    moments, bodies = list(readings.timestamps.readings), [Guess(body)]
    if record is not None:
        moments += [_moved(at) for at in record.attempted_at or ()]
        bodies += [] if record.body is None else [Guess(record.body, "these are not the bytes that the service sent")]
    return product(ids, moments, bodies)


def _moved(at: int) -> Guess[int]:
    return Guess(at, f"was changed: the signature is for {at}")


def _explain(fit: _Fit, body: bytes, now: int) -> Iterator[Finding]:
    yield Finding(Part.SECRET, fit.key.wrong or "fits", fit.key.wrong is None)
    for part, name, guess in ((Part.ID, ID, fit.message_id), (Part.SIGNATURE, SIGNATURE, fit.signatures)):
        yield Finding(part, f"{name} {guess.wrong}" if guess.wrong else "as it was sent", guess.wrong is None)
    if fit.timestamp.wrong:
        yield Finding(Part.TIMESTAMP, f"{TIMESTAMP} {fit.timestamp.wrong}")
    yield _judge_age(fit.timestamp.value, now)
    if fit.body.wrong is None:
        yield Finding(Part.BYTES, "as they were signed", right=True)
    else:
        difference = describe_difference(body, fit.body.value)
        yield Finding(Part.BYTES, f"{fit.body.wrong}: {difference}. Verify the raw bytes, before parsing them")


def _judge_age(timestamp: int, now: int) -> Finding:
    age = now - timestamp
    if abs(age) <= TOLERANCE:
        return Finding(Part.TIMESTAMP, f"{age} s old" if age >= 0 else f"{-age} s ahead", right=True)
    if timestamp >= MILLISECONDS:
        return Finding(Part.TIMESTAMP, f"{TIMESTAMP} is not in seconds: too long, as milliseconds are")
    what = f"{age} s old, too old" if age > 0 else f"{-age} s ahead, too new"
    return Finding(Part.TIMESTAMP, f"{what}: {TOLERANCE} s are allowed (a captured request: give --at)")


def _suspect(readings: _Readings, headers: Headers, body: bytes, now: int, record: Record | None) -> Iterator[Finding]:
    """No reading fits: what is wrong for sure, and failing that, what is likeliest."""
    problems = list(readings.list_problems())
    if readings.timestamps.readings and readings.timestamps.problem is None:
        problems.append(_judge_age(readings.timestamps.readings[0].value, now))
    if trouble := _find_trouble(headers, body):
        problems.append(Finding(Part.BYTES, trouble))
    if unusable := _find_unusable(readings):
        problems.append(Finding(Part.SECRET, unusable))
    yield from problems
    if record is not None:
        yield from _compare(readings, body, record)
    elif not any(finding.part is not Part.TIMESTAMP for finding in problems):
        yield _suspect_secret(readings, body)


def _compare(readings: _Readings, body: bytes, record: Record) -> Iterator[Finding]:
    """What the record says for sure; what it bears out leaves the secret."""
    if not record.known:
        yield Finding(Part.ID, f"{ID} is of no message that the service has for this tenant")
        return
    found = [Finding(Part.ID, f"{ID} is of a message that the service has", right=True)]
    if record.body is not None:
        same = record.body == body
        text = (
            "as the service sent them"
            if same
            else f"not those that were sent: {describe_difference(body, record.body)}"
        )
        found.append(Finding(Part.BYTES, text, same))
    if record.attempted_at is not None and readings.timestamps.readings:
        near = any(record.attempted_near(reading.value) for reading in readings.timestamps.readings)
        text = "an attempt was made then" if near else f"{TIMESTAMP} is of no attempt that is on record"
        found.append(Finding(Part.TIMESTAMP, text, near))
    yield from found
    if all(finding.right for finding in found):
        sure = record.body is not None and record.attempted_at is not None
        doubt = "" if sure else " (or what the record does not show was changed: see above what it shows)"
        yield Finding(Part.SECRET, f"does not fit: another webhook's secret, or one rotated out{doubt}")


def _suspect_secret(readings: _Readings, body: bytes) -> Finding:
    """Say what is likeliest, and what cannot be told from a capture alone."""
    derived = derive_id(body)
    if derived is not None and derived not in {reading.value for reading in readings.ids.readings}:
        text = f"they tell of other work than {ID} does: they were changed, or this is a renotify under a new id"
        return Finding(Part.BYTES, f"{text} with another secret; the service's record tells (webhookd verify --api)")
    borne_out = "id and body belong together" if derived else "all else looks as it was sent"
    text = f"does not fit; {borne_out}, so this is likely another webhook's secret, or one rotated out"
    return Finding(
        Part.SECRET, f"{text}; the service's record tells whether something was changed instead (webhookd verify --api)"
    )


def _find_unusable(readings: _Readings) -> str | None:
    """Say that the keys are of a kind of which the list has no signature."""
    versions = {entry.partition(",")[0] for guess in readings.signatures.readings for entry in guess.value}
    wanted = {"v1a" if isinstance(guess.value, PublicKey) else "v1" for guess in readings.keys.readings}
    if not versions or not wanted or versions & wanted:
        return None
    return f"is for {' and '.join(sorted(wanted))}, but the list holds {' and '.join(sorted(versions))} only"


def _find_trouble(headers: Headers, body: bytes) -> str | None:
    """Say why a body cannot be, or hardly is, what was sent."""
    declared = [value.strip() for name, value in headers if name.lower() == "content-length"]
    if declared and declared[0].isdecimal() and int(declared[0]) != len(body):
        return f"content-length says {declared[0][:20]} bytes, the body has {len(body)}"
    if not body:
        return "the body is empty: was it read before, by a framework?"
    if "\N{REPLACEMENT CHARACTER}".encode() in body:
        return (
            "the body has a replacement character (U+FFFD): it was decoded with the wrong encoding, and bytes are lost"
        )
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return "the body is no JSON in UTF-8: cut short, or changed"
    if not _OURS.match(body):
        return "the body is not written as webhookd writes, and no usual rewriting explains it (or the secret is wrong, too)"
    return None
