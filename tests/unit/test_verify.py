"""`webhookd verify`: what is right, and which part is wrong, of a captured request."""

import argparse
import base64
import html
import io
import json
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
import standardwebhooks
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from service.domain.batches import Batch, member_of
from service.domain.identity import batch_message_id, job_message_id
from service.domain.jobs import Job, Phase
from service.domain.messages import build_batch_body, build_job_body
from service.domain.signing import KeyPair, Secret, build_signer, format_secret, parse_secret
from service.ingest.bodies import encode_json
from service.store.signing_keys import public_key
from service.tools import verify
from service.tools.checking import Part, check_request
from service.tools.reencoding import list_originals
from service.tools.traces import SPAN, Record, derive_id, list_moments

NOW = 1_796_037_241
KEY = bytes(range(200, 232)) + b"\xfb\xff\xfe"  # its base64 has + and /, and padding
SECRET = format_secret(KEY)
OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SEED = bytes(range(32))
ID = "msg_0b6f1c8d92f34f7c9d3c2f8e55e1a7a4"
BODY = (
    '{"type":"extraction.completed","timestamp":"2026-11-30T09:00:00.000000Z","data":{"scope":"batch",'
    '"tenant_id":"acct_42","batch":{"name":"Zoë 🎉 \u2028 <b>&","id":"bat_1","generation":2},'
    '"jobs":[{"job_id":"d","metadata":{"z":1,"a":[]}}],"links":{"self":"https://x.example/a"}}}'
).encode()


def sign(body=BODY, timestamp=NOW, message_id=ID, key=KEY):
    return build_signer([Secret(key, datetime.now(UTC))]).sign(message_id, timestamp, body)


def headers(**other):
    named = {"id": ID, "timestamp": str(NOW), "signature": sign(), **other}
    return [("Host", "x"), *((f"Webhook-{name.title()}", value) for name, value in named.items() if value is not None)]


def wrong(given=None, body=BODY, secret=SECRET, now=NOW, extra=()):
    """The wrong parts and what is said of them; empty when valid."""
    verdict = check_request([*(given or headers()), *extra], body, [secret], now)
    assert verdict.valid == (not verdict.wrong)
    return {finding.part: finding.text for finding in verdict.wrong}


@pytest.mark.parametrize(
    ("secret", "message_id", "timestamp", "body", "signature"),
    [
        (
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            b'{"test": 2432232314}',
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
        (
            "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
            "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
            "1649367553",
            b'{"email":"test@example.com","username":"test_user"}',
            "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
        ),
    ],
)
def test_known_answers_are_valid(secret, message_id, timestamp, body, signature):
    given = headers(id=message_id, timestamp=timestamp, signature=signature)
    assert wrong(given, body, secret, int(timestamp)) == {}
    assert set(wrong(given, body + b" ", secret, int(timestamp))) == {Part.BYTES}


def test_valid_by_any_secret_and_any_entry():
    both = headers(signature=f"{sign(key=parse_secret(OTHER))} {sign()}")
    assert check_request(both, BODY, [OTHER], NOW).valid
    assert check_request(headers(), BODY, [OTHER, SECRET], NOW).valid
    assert {finding.part for finding in check_request(headers(), BODY, [SECRET], NOW).findings} == set(Part) - {
        Part.HEADERS
    }


def test_an_ed25519_signature_is_checked_with_the_public_key():
    private = Ed25519PrivateKey.from_private_bytes(SEED)
    signature = build_signer([Secret(KEY, datetime.now(UTC))], [KeyPair(private.sign)]).sign(ID, NOW, BODY)
    given = headers(signature=signature)
    assert wrong(given, secret=public_key(SEED)) == {}
    assert wrong(given) == {}
    assert set(wrong(given, BODY + b"\n", public_key(SEED))) == {Part.BYTES}
    assert set(wrong(given, secret=public_key(bytes(32)))) == {Part.SECRET}
    assert "is for v1a, but the list holds v1 only" in wrong(secret=public_key(SEED))[Part.SECRET]
    assert "32 bytes" in wrong(given, secret="whpk_AAAA")[Part.SECRET]
    assert "private key" in wrong(given, secret="whsk_" + base64.b64encode(SEED).decode())[Part.SECRET]


@pytest.mark.parametrize("name", ["id", "timestamp", "signature"])
def test_a_missing_header_is_named(name):
    told = wrong(headers(**{name: None}))
    assert told == {Part.HEADERS: f"webhook-{name} is missing"}
    hinted = wrong(headers(**{name: None}), extra=[(f"HTTP_WEBHOOK_{name.upper()}", "1")])
    assert f"there is HTTP_WEBHOOK_{name.upper()}" in hinted[Part.HEADERS]
    assert "there 2 times" in wrong(extra=[(f"webhook-{name}", "1")])[Part.HEADERS]


@pytest.mark.parametrize(
    ("now", "says"), [(NOW + 301, "too old"), (NOW - 301, "too new"), (NOW + 300, None), (NOW - 300, None)]
)
def test_the_tolerance_is_five_minutes(now, says):
    told = wrong(now=now)
    assert set(told) == ({Part.TIMESTAMP} if says else set())
    assert says is None or says in told[Part.TIMESTAMP]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{NOW}000", "milliseconds"),
        (f"{NOW}123456", "microseconds"),
        (f"{NOW}123456789", "nanoseconds"),
        (f"{NOW}.0", "written otherwise"),
        (f"0{NOW}", "zeros"),
        (datetime.fromtimestamp(NOW, UTC).isoformat(), "RFC 3339"),
        (datetime.fromtimestamp(NOW, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"), "HTTP date"),
    ],
)
def test_a_timestamp_that_was_rewritten_is_found_out(text, says):
    told = wrong(headers(timestamp=text))
    assert set(told) == {Part.TIMESTAMP}
    assert says in told[Part.TIMESTAMP]


@pytest.mark.parametrize("text", ["", "soon", "-1", "१२०", "9" * 5000, "1e9"])
def test_f38_f47_a_hostile_timestamp_is_refused_in_words(text):
    assert Part.TIMESTAMP in wrong(headers(timestamp=text))


def test_f47_milliseconds_that_were_signed_are_wrong_too():
    given = headers(timestamp=str(NOW * 1000), signature=sign(timestamp=NOW * 1000))
    assert wrong(given) == {Part.TIMESTAMP: "webhook-timestamp is not in seconds: too long, as milliseconds are"}


@pytest.mark.parametrize("text", [f"{ID} ", f'"{ID}"'])
def test_an_id_that_was_rewritten_is_found_out(text):
    assert set(wrong(headers(id=text))) == {Part.ID}


@pytest.mark.parametrize("text", ["", "msg.1", "msg 1", "mäg_1", "\udcff"])
def test_an_id_that_is_none_is_named(text):
    assert "id" in wrong(headers(id=text))[Part.ID]


@pytest.mark.parametrize(
    ("secret", "says"),
    [
        (SECRET.removeprefix("whsec_"), "starts with"),
        (f"v1,{SECRET}", "starts with"),
        (SECRET.upper()[:6] + SECRET[6:], "starts with"),
        (f" {SECRET}", "starts with"),
        (SECRET.replace("+", "-").replace("/", "_"), "URL-safe"),
        (SECRET.rstrip("="), "padded"),
        (SECRET + "\n", "base64"),
    ],
)
def test_f46_a_secret_that_was_mangled_is_found_out(secret, says):
    assert secret != SECRET
    told = wrong(secret=secret)
    assert set(told) == {Part.SECRET}
    assert says in told[Part.SECRET]
    assert SECRET[10:30] not in told[Part.SECRET]


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!!!!", "password", "whsec_" + "A" * 500, "wh\udcff"])
def test_a_secret_that_is_none_is_said_to_be(secret):
    assert set(wrong(secret=secret)) == {Part.SECRET}


def test_another_webhooks_secret_is_the_likeliest_when_all_else_looks_well():
    told = wrong(secret=OTHER)
    assert set(told) == {Part.SECRET}
    assert "another webhook's" in told[Part.SECRET]
    assert set(wrong(secret=OTHER, now=NOW + 1000)) == {Part.SECRET, Part.TIMESTAMP}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda one: f" {one}", "two spaces"),
        (lambda one: f"v1,{'A' * 43}=  {one}", "two spaces"),
        (lambda one: f"v1,{'A' * 43}=,{one}", "separated by a comma"),
        (lambda one: f'"{one}"', "quotes"),
        (lambda one: one.replace("v1,", "v1="), "version=…"),
        (lambda one: one.replace("v1,", ""), "no version"),
        (lambda one: f"v1,{base64.b64decode(one[3:]).hex()}", "hexadecimal"),
        (lambda one: "v1," + base64.urlsafe_b64encode(base64.b64decode(one[3:])).decode(), "URL-safe"),
    ],
)
def test_f49_a_signature_list_of_another_form_is_found_out(change, says):
    body = next(b for b in (BODY + b" " * n for n in range(99)) if {"+", "/"} <= set(sign(b)))
    told = wrong(headers(signature=change(sign(body))), body)
    assert set(told) == {Part.SIGNATURE}
    assert says in told[Part.SIGNATURE]


@pytest.mark.parametrize("text", ["", "nonsense", "v1,", "v9,AAAA", "v1,é", "\udcff"])
def test_a_signature_list_that_is_none_is_refused_in_words(text):
    assert wrong(headers(signature=text))


DOCUMENT = json.loads(BODY)
REWRITES = {
    "python": json.dumps(DOCUMENT).encode(),
    "python, sorted": json.dumps(DOCUMENT, sort_keys=True).replace('"a": [], "z": 1', '"z": 1, "a": []').encode(),
    "python, unescaped": json.dumps(DOCUMENT, ensure_ascii=False).encode(),
    "javascript, indented": json.dumps(DOCUMENT, ensure_ascii=False, indent=2).encode(),
    "php": json.dumps(DOCUMENT, separators=(",", ":")).replace("/", "\\/").encode(),
    "go": BODY.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026"),
    "twice": json.dumps(BODY.decode()).encode(),
    "rewritten and twice": json.dumps(json.dumps(DOCUMENT)).encode(),
    "print of bytes": repr(BODY).encode(),
    "line end": BODY + b"\r\n",
    "byte order mark": b"\xef\xbb\xbf" + BODY,
    "read as latin-1": BODY.decode("latin-1").encode(),
}


@pytest.mark.parametrize("body", REWRITES.values(), ids=REWRITES)
def test_f42_f43_f44_a_body_that_was_rewritten_is_found_out(body):
    assert body != BODY
    told = wrong(body=body)
    assert set(told) == {Part.BYTES}
    assert f"instead of {len(BODY)}" in told[Part.BYTES]
    assert "raw bytes" in told[Part.BYTES]


def test_a_rewriting_is_described():
    assert "characters escaped, other white space" in wrong(body=REWRITES["python"])[Part.BYTES]
    assert "keys in another order" in wrong(body=REWRITES["python, sorted"])[Part.BYTES]
    assert "slashes escaped" in wrong(body=REWRITES["php"])[Part.BYTES]


@pytest.mark.parametrize(
    ("body", "length", "says"),
    [
        (b"", None, "empty"),
        (BODY[:-5], None, "no JSON"),
        (BODY[:-5], len(BODY), "content-length says"),
        (BODY.decode().encode("ascii", "replace").replace(b"?", "\ufffd".encode()), None, "replacement character"),
        (html.escape(BODY.decode()).encode(), None, "no JSON"),
        (json.dumps({"event": DOCUMENT["data"]}).encode(), None, "not written as webhookd writes"),
    ],
)
def test_a_body_that_is_lost_is_said_to_be(body, length, says):
    told = wrong(body=body, extra=[("content-length", str(length))] if length else ())
    assert set(told) == {Part.BYTES}
    assert says in told[Part.BYTES]


def test_two_wrongs_are_both_named():
    told = wrong(headers(timestamp=f"{NOW}000"), REWRITES["python"], SECRET.rstrip("="), NOW + 9999)
    assert set(told) == {Part.TIMESTAMP, Part.BYTES, Part.SECRET}


@given(st.binary(max_size=300), st.text(max_size=60), st.text(max_size=60), st.text(max_size=120))
def test_nothing_makes_it_raise_or_pass(body, message_id, timestamp, signature):
    given = headers(id=message_id, timestamp=timestamp, signature=signature)
    assert wrong(given, body)


@pytest.mark.parametrize("depth", [90, 500, 900, 990, 2000, 200_000])
def test_deep_json_is_no_trouble(depth):
    assert Part.BYTES in wrong(body=b"[" * depth + b"]" * depth)
    assert Part.BYTES in wrong(body=b'{"a":' * depth + b"1" + b"}" * depth)


@given(st.binary(max_size=200))
def test_originals_are_others(body):
    assert body not in dict(list_originals(body))


@given(
    st.binary(min_size=24, max_size=64),
    st.binary(max_size=500).filter(lambda b: b.decode(errors="ignore").encode() == b),
)
def test_it_agrees_with_the_published_library(key, body):
    secret, now = format_secret(key), datetime.now(UTC)
    signature = standardwebhooks.Webhook(secret).sign("msg_1", now, body.decode())
    given = headers(id="msg_1", timestamp=str(int(now.timestamp())), signature=signature)
    assert wrong(given, body, secret, int(now.timestamp())) == {}


# What is well written, but not what was signed


def finished():
    """A body as the service makes it, and the id that it gets."""
    jobs = [Job("t1", "a", 1, Phase.SUCCEEDED, batch_key=1), Job("t1", "b", 2, Phase.FAILED, batch_key=1)]
    jobs[0].completed_at = jobs[1].completed_at = datetime.fromtimestamp(NOW - 5_000, UTC)
    shown = Batch(1, "t1", "nov", 1, "bat_1", members=2, succeeded=1, failed=1)
    shown.completed_at = jobs[0].completed_at
    body = build_batch_body(shown, jobs, message_type="x", link=None, cap=10_000, encode=encode_json)
    return body, batch_message_id("t1", "bat_1", sum(member_of(job).weight for job in jobs) % (1 << 128))


FINISHED, FINISHED_ID = finished()
JOB = Job("t1", "doc", 3, Phase.SUCCEEDED)
JOB.completed_at = datetime.fromtimestamp(NOW, UTC)
JOB_BODY = build_job_body(JOB, None, message_type="x", link=None, encode=encode_json)
JOB_ID = job_message_id("t1", "doc", 3)


def judge(body, sent, timestamp=NOW, message_id=FINISHED_ID, secret=SECRET, **more):
    """The findings where a request was signed with ``sent`` (id, timestamp, body) and came with something else."""
    given = headers(id=message_id, timestamp=str(timestamp), signature=sign(sent[2], sent[1], sent[0]))
    verdict = check_request(given, body, [secret], timestamp, **more)
    return {
        part: "; ".join(f.text for f in verdict.wrong if f.part is part) for part in {f.part for f in verdict.wrong}
    }


@pytest.mark.parametrize(("body", "message_id"), [(FINISHED, FINISHED_ID), (JOB_BODY, JOB_ID)])
def test_an_id_follows_from_the_body(body, message_id):
    assert derive_id(body) == message_id
    changed = judge(body, (message_id, NOW, body), message_id="msg_" + "0" * 32)
    assert changed == {Part.ID: f"webhook-id was changed: the signature is for {message_id}"}


@pytest.mark.parametrize(
    "body",
    [BODY, b"", b"[]", b'{"data":[]}', FINISHED.replace(b'"jobs_truncated":false', b'"jobs_truncated":true'),
     FINISHED.replace(b'"type"', b'"test":true,"type"'), FINISHED.replace(b'"failed","source', b'"odd","source'),
     FINISHED.replace(b'"job_id":"a"', b'"job_id":["a"]'), JOB_BODY.replace(b'"job_id":"doc"', b'"job_id":1')],
)  # fmt: skip
def test_a_body_that_tells_too_little_has_no_id(body):
    assert derive_id(body) is None


@pytest.mark.parametrize("at", [NOW - 1, NOW + 600, NOW - 600, NOW - 4_990, NOW - 7 * 3_600, NOW + 5_400])
def test_a_timestamp_that_was_changed_is_found(at):
    told = judge(FINISHED, (FINISHED_ID, at, FINISHED), span=600)
    assert told[Part.TIMESTAMP].startswith(f"webhook-timestamp was changed: the signature is for {at}")
    assert set(told) == {Part.TIMESTAMP}


def test_changed_id_and_timestamp_are_both_found():
    told = judge(FINISHED, (FINISHED_ID, NOW - 9, FINISHED), message_id="msg_other", span=60)
    assert set(told) == {Part.ID, Part.TIMESTAMP}


def test_a_changed_timestamp_is_found_with_a_public_key_too():
    private = Ed25519PrivateKey.from_private_bytes(SEED)
    signature = build_signer([Secret(KEY, datetime.now(UTC))], [KeyPair(private.sign)]).sign(ID, NOW - 7, BODY)
    verdict = check_request(headers(signature=signature), BODY, [public_key(SEED)], NOW, span=60)
    assert {finding.part for finding in verdict.wrong} == {Part.TIMESTAMP}


def test_a_body_that_tells_of_other_work_than_the_id_was_changed():
    changed = FINISHED.replace(b'"generation":2', b'"generation":3')
    told = judge(changed, (FINISHED_ID, NOW, FINISHED), span=60)
    assert set(told) == {Part.BYTES} and "other work" in told[Part.BYTES]


def test_without_a_record_the_rest_cannot_be_told_apart_and_it_says_so():
    told = judge(
        FINISHED.replace(b'"bat', b'"Bat').replace(b'"Bat_1', b'"bat_1'), (FINISHED_ID, NOW, FINISHED + b"x"), span=60
    )
    assert set(told) == {Part.SECRET}
    assert "likely" in told[Part.SECRET] and "--api" in told[Part.SECRET]


CHANGED = FINISHED.replace(b'"nov"', b'"dec"')
RECORD = Record(True, FINISHED, (NOW - 40, NOW))


@pytest.mark.parametrize(
    ("body", "sent", "more", "parts"),
    [
        (CHANGED, (FINISHED_ID, NOW, FINISHED), {}, {Part.BYTES}),
        (CHANGED, (FINISHED_ID, NOW, FINISHED), {"secret": OTHER}, {Part.BYTES}),
        (FINISHED, (FINISHED_ID, NOW, FINISHED), {"secret": OTHER}, {Part.SECRET}),
        (FINISHED, (FINISHED_ID, NOW - 40, FINISHED), {}, {Part.TIMESTAMP}),
        (FINISHED, (FINISHED_ID, NOW - 20, FINISHED), {"timestamp": NOW - 20, "secret": OTHER}, {Part.TIMESTAMP}),
        (CHANGED, (FINISHED_ID, NOW - 40, FINISHED), {}, {Part.BYTES, Part.TIMESTAMP}),
        (CHANGED, (FINISHED_ID, NOW, FINISHED), {"record": Record(known=False)}, {Part.ID}),
        (CHANGED, (FINISHED_ID, NOW, FINISHED), {"record": Record(known=True)}, {Part.SECRET}),
        (FINISHED, (FINISHED_ID, NOW, FINISHED), {}, set()),
    ],
)
def test_the_services_record_tells_what_was_changed(body, sent, more, parts):
    assert set(judge(body, sent, **{"record": RECORD, **more})) == parts


def test_a_record_that_shows_little_leaves_a_doubt():
    assert "or what" in judge(CHANGED, (FINISHED_ID, NOW, FINISHED), record=Record(known=True))[Part.SECRET]
    assert "or what" not in judge(FINISHED, (FINISHED_ID, NOW, FINISHED), record=RECORD, secret=OTHER)[Part.SECRET]


def test_a_large_body_is_searched_for_less():
    few = len(list(list_moments(NOW, FINISHED + b" " * 200_000, SPAN)))
    assert 0 < few < 10_000 < len(list(list_moments(NOW, FINISHED, SPAN)))


# The command


def run(*arguments, stdin=b"", monkeypatch):
    parser = argparse.ArgumentParser()
    verify.add_arguments(parser)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
    return verify.run(parser.parse_args(arguments))


@pytest.fixture
def files(tmp_path):
    head, body = tmp_path / "headers", tmp_path / "body"
    head.write_bytes("".join(f"{name}: {value}\r\n" for name, value in headers()).encode())
    body.write_bytes(BODY)
    return str(head), str(body)


def test_files(files, monkeypatch, capsys):
    head, body = files
    base = ("--secret", SECRET, "--headers", head, "--body", body)
    assert run(*base, "--at", str(NOW), monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.endswith("\nvalid\n")
    assert run(*base, "--at", "2026-11-30T10:27:21+00:00", monkeypatch=monkeypatch) == 1
    told = capsys.readouterr().out
    assert told.startswith("WRONG  timestamp") and told.endswith("NOT VALID\n")
    assert run(*base, monkeypatch=monkeypatch) == 1


def test_one_capture_holds_both(monkeypatch, capsys):
    lines = "".join(f"{name}: {value}\n" for name, value in headers())
    capture = f"POST /hooks HTTP/1.1\n{lines}\n".encode() + BODY
    assert run("--secret", SECRET, "--at", str(NOW), stdin=capture, monkeypatch=monkeypatch) == 0
    assert run("--secret", OTHER, "--at", str(NOW), stdin=capture, monkeypatch=monkeypatch) == 1
    assert capsys.readouterr().out.count("WRONG  secret") == 1


def test_what_cannot_be_read_is_2(files, monkeypatch, capsys, tmp_path):
    head, body = files
    assert run("--secret", SECRET, "--headers", head, monkeypatch=monkeypatch) == 2
    assert run("--secret", SECRET, "--headers", str(tmp_path / "no"), "--body", body, monkeypatch=monkeypatch) == 2
    assert run("--secret", SECRET, "--headers", body, "--body", body, monkeypatch=monkeypatch) in {1, 2}
    assert run("--secret", SECRET, "--body", body, stdin=b"\x1b[31m", monkeypatch=monkeypatch) == 2
    assert "\x1b" not in capsys.readouterr().err
    for bad in (("--at", "yesterday", "--secret", SECRET), ("--at", "2026-11-30T09:00:00", "--secret", SECRET), ()):
        with pytest.raises(SystemExit) as ended:
            run(*bad, monkeypatch=monkeypatch)
        assert ended.value.code == 2


def test_output_escapes_control_characters(monkeypatch, capsys):
    capture = (
        b"webhook-id: \x1b]0;x\x07\nwebhook-timestamp: 1\nwebhook-signature: v1\nHTTP_\x1b_WEBHOOK_id: 1\n\n\x1b[31m"
    )
    assert run("--secret", SECRET, stdin=capture, monkeypatch=monkeypatch) == 1
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())
