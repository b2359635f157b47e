import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from time import process_time

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from service.domain.signing import (
    MAX_LIVE_SECRETS,
    KeyPair,
    RotationProblem,
    RotationRefused,
    Secret,
    build_signer,
    format_secret,
    is_live_key,
    list_live,
    parse_secret,
    revoke_previous,
    rotate,
)

NOW = datetime(2026, 11, 30, 9, 0, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
KEYS = [bytes([number]) * 32 for number in range(6)]
keys = st.binary(min_size=24, max_size=64)


def current(key: bytes = KEYS[0]) -> tuple[Secret, ...]:
    return (Secret(key, NOW - DAY),)


VECTORS = [
    (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ),
    (
        "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
        "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
        1649367553,
        b'{"email":"test@example.com","username":"test_user"}',
        "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
    ),
]


@pytest.mark.parametrize(("secret", "message_id", "timestamp", "body", "signature"), VECTORS)
def test_known_answers(secret, message_id, timestamp, body, signature):
    signer = build_signer([Secret(parse_secret(secret), NOW)])
    assert signer.sign(message_id, timestamp, body) == signature


def test_known_answer_ed25519_with_a_signer_from_outside():
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    pair = base64.b64decode("6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==")
    private = ed25519.Ed25519PrivateKey.from_private_bytes(pair[:32])
    _, message_id, timestamp, body, _ = VECTORS[0]
    assert build_signer([], [KeyPair(private.sign)]).sign(message_id, timestamp, body) == (
        "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
    )


@given(keys, st.text("abcXYZ019_", min_size=1), st.integers(10**9, 9_999_999_999), st.binary(max_size=2_000))
def test_signatures_equal_the_plain_definition(key, message_id, timestamp, body):
    digest = hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    signature = build_signer([Secret(key, NOW)]).sign(message_id, timestamp, body)
    assert signature == "v1," + base64.b64encode(digest).decode()


@pytest.mark.parametrize("name", ["é", "\u2028", "😀", "Zoë 🎉"])
def test_f44_names_with_accents_and_emoji_verify_with_the_published_library(name):
    body = json.dumps({"name": name}, ensure_ascii=False).encode()
    timestamp = int(datetime.now(UTC).timestamp())
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(timestamp),
        "webhook-signature": build_signer([Secret(KEYS[1], NOW)]).sign("msg_1", timestamp, body),
    }
    assert standardwebhooks.Webhook(format_secret(KEYS[1])).verify(body, headers) == {"name": name}


def test_f42_f43_the_bytes_are_signed_as_they_are():
    signer = build_signer(current())
    bodies = [b'{"b":1,"a":2}', b'{"a":2,"b":1}', b'{"a":1.10}', b'{"a":1E2}', b'{"a":1}\n', "é".encode(), b"\\u00e9"]
    assert len({signer.sign("msg_1", 1_700_000_000, body) for body in bodies}) == len(bodies)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("whsec_!!!!", "padded standard base64"),
        ("whsec_", "24 to 64 bytes, not 0"),
        ("", "starts with"),
        ("v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "starts with"),
        ("WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "starts with"),
        (" whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "starts with"),
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "starts with"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS-", "URL-safe"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS_", "URL-safe"),
        ("whsec_" + base64.b64encode(b"x" * 32).decode().rstrip("="), "padded"),
        ("whsec_" + base64.b64encode(b"x" * 32).decode() + "=", "base64"),
        ("whsec_" + base64.b64encode(b"x" * 32).decode() + "\n", "base64"),
        ("whsec_" + base64.b64encode(b"\xff" * 32).decode().replace("8=", "9="), "canonical"),
        ("whsec_" + base64.b64encode(b"x" * 23).decode(), "not 23"),
        ("whsec_" + base64.b64encode(b"x" * 65).decode(), "not 65"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSé", "base64"),
        ("whsec_MfKQ9r8G KYqrTwjUPD8ILPZIo2LaLaSw", "base64"),
    ],
)
def test_f46_only_canonical_secrets_are_accepted(text, reason):
    with pytest.raises(ValueError, match=reason) as refused:
        parse_secret(text)
    assert "PD8ILPZI" not in str(refused.value)


@given(keys)
def test_f46_secrets_round_trip(key):
    assert parse_secret(format_secret(key)) == key


@given(st.text(max_size=80))
def test_f46_any_text_is_refused_or_round_trips(text):
    try:
        key = parse_secret(text)
    except ValueError:
        return
    assert format_secret(key) == text


def test_f47_the_timestamp_is_signed_as_given():
    key = KEYS[0]
    timestamp = int(NOW.timestamp())
    assert len(str(timestamp)) == 10
    digest = hmac.digest(key, b"msg_1.%d.{}" % timestamp, "sha256")
    assert build_signer(current()).sign("msg_1", timestamp, b"{}") == "v1," + base64.b64encode(digest).decode()


def test_f48_a_kept_signer_signs_with_the_time_of_the_attempt():
    signer = build_signer(current())
    assert signer.sign("msg_1", 1_700_000_000, b"{}") != signer.sign("msg_1", 1_700_000_600, b"{}")


def test_every_live_key_pair_signs_newest_first_until_it_ends():
    at = int(NOW.timestamp())
    signer = build_signer([], [KeyPair(lambda _: b"n" * 64), KeyPair(lambda _: b"o" * 64, at + 1)])
    new, old = (f"v1a,{base64.b64encode(letter * 64).decode()}" for letter in (b"n", b"o"))
    assert signer.sign("msg_1", at, b"{}") == f"{new} {old}"
    assert signer.sign("msg_1", at + 1, b"{}") == new


def test_f49_several_keys_newest_first_single_spaces_ed25519_last():
    secrets = rotate(current(KEYS[0]), KEYS[1], NOW)
    header = build_signer(reversed(secrets), [KeyPair(lambda signed: signed[:3] + b"!" * 61)]).sign(
        "msg_1", int(NOW.timestamp()), b"{}"
    )
    entries = header.split(" ")
    assert [entry.split(",")[0] for entry in entries] == ["v1", "v1", "v1a"]
    assert entries[0] == build_signer([Secret(KEYS[1], NOW)]).sign("msg_1", int(NOW.timestamp()), b"{}")
    assert entries[1] == build_signer([Secret(KEYS[0], NOW)]).sign("msg_1", int(NOW.timestamp()), b"{}")
    assert base64.b64decode(entries[2][4:]).startswith(b"msg")
    for secret in secrets:
        timestamp = int(datetime.now(UTC).timestamp())
        signed = build_signer([Secret(KEYS[1], NOW), Secret(KEYS[0], NOW - DAY)]).sign("msg_1", timestamp, b"{}")
        headers = {"webhook-id": "msg_1", "webhook-timestamp": str(timestamp), "webhook-signature": signed}
        standardwebhooks.Webhook(format_secret(secret.key)).verify(b"{}", headers)


def test_trace_13_both_secrets_verify_during_the_overlap_one_after_it():
    signer = build_signer(rotate(current(), KEYS[1], NOW))
    at = int(NOW.timestamp())
    assert len(signer.sign("msg_1", at, b"{}").split(" ")) == 2
    assert len(signer.sign("msg_1", at + 86_399, b"{}").split(" ")) == 2
    assert len(signer.sign("msg_1", at + 86_400, b"{}").split(" ")) == 1
    assert build_signer([]).sign("msg_1", at, b"{}") == ""


def test_a_rotation_keeps_the_old_secret_for_the_overlap():
    secrets = rotate(current(), KEYS[1], NOW)
    assert secrets == (Secret(KEYS[1], NOW), Secret(KEYS[0], NOW - DAY, NOW + DAY))
    assert list_live(secrets, NOW + DAY) == (Secret(KEYS[1], NOW),)
    assert rotate(current(), KEYS[1], NOW, overlap=timedelta()) == (Secret(KEYS[1], NOW),)


def test_a_second_rotation_in_the_window_is_refused_unless_forced():
    first = rotate(current(), KEYS[1], NOW)
    refused = rotate(first, KEYS[2], NOW + HOUR)
    assert refused == RotationRefused(RotationProblem.OVERLAP_RUNNING, NOW + DAY)
    forced = rotate(first, KEYS[2], NOW + HOUR, force=True)
    assert [secret.key for secret in forced] == [KEYS[2], KEYS[1], KEYS[0]]
    assert [secret.expires_at for secret in forced] == [None, NOW + HOUR + DAY, NOW + DAY]
    assert [secret.key for secret in rotate(first, KEYS[2], NOW + DAY)] == [KEYS[2], KEYS[1]]


def test_a_forced_rotation_without_overlap_ends_every_older_secret():
    first = rotate(current(), KEYS[1], NOW)
    assert rotate(first, KEYS[2], NOW + HOUR, overlap=timedelta(), force=True) == (Secret(KEYS[2], NOW + HOUR),)


def test_at_most_three_secrets_live():
    secrets = current()
    for number, key in enumerate(KEYS[1:]):
        secrets = rotate(secrets, key, NOW + number * HOUR, force=True)
    assert [secret.key for secret in secrets] == [KEYS[5], KEYS[4], KEYS[3]]
    assert len(secrets) == MAX_LIVE_SECRETS


def test_a_live_secret_cannot_be_rotated_in_again():
    secrets = rotate(current(), KEYS[1], NOW)
    for key in KEYS[:2]:
        assert rotate(secrets, key, NOW, force=True) == RotationRefused(RotationProblem.SAME_SECRET)
    assert is_live_key(secrets, KEYS[0], NOW)
    assert not is_live_key(secrets, KEYS[0], NOW + DAY)
    assert not is_live_key(secrets, KEYS[2], NOW)


@pytest.mark.parametrize("overlap", [timedelta(days=7, microseconds=1), timedelta(microseconds=-1)])
def test_an_overlap_has_bounds(overlap):
    with pytest.raises(ValueError, match="7 days"):
        rotate(current(), KEYS[1], NOW, overlap=overlap)


def test_the_current_secret_leads_though_the_clock_stepped_back():
    secrets = rotate(current(), KEYS[1], NOW - 2 * DAY, overlap=timedelta(days=7))
    assert [secret.key for secret in secrets] == [KEYS[1], KEYS[0]]


def test_revoking_leaves_the_current_secret():
    secrets = rotate(current(), KEYS[1], NOW)
    assert revoke_previous(secrets, NOW) == (Secret(KEYS[1], NOW),)
    assert revoke_previous((), NOW) == ()


def test_keys_are_in_no_representation():
    secret = Secret(b"top-secret-key-of-32-bytes-length", NOW)
    assert "top-secret" not in repr(secret) + repr(build_signer([secret]))


def test_signing_a_kilobyte_costs_little_more_than_hashing_it():
    body = b"x" * 1024
    signer = build_signer(current())
    sign = bare = 1.0
    for _ in range(1000):  # the best of each: others on the machine make a round dearer, and never cheaper
        sign = min(sign, cpu_of(lambda: signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_700_000_000, body)))
        bare = min(bare, cpu_of(lambda: hashlib.sha256(body).digest()))
        if sign < 6 * bare + 3e-6:
            return
    pytest.fail(f"{sign * 1e6:.1f} µs to sign, {bare * 1e6:.1f} µs to hash")


def cpu_of(call) -> float:
    start = process_time()
    for _ in range(200):
        call()
    return (process_time() - start) / 200
