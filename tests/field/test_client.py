"""F01-F25: what receivers did to other senders' HTTP clients.

One conformance suite over the product's sender and aiohttp's client. Where the reference is known to be wrong, the
expected difference stands in ``REFERENCE_DIFFERS``, and a test fails when it no longer differs.
"""

from __future__ import annotations

import asyncio
import gzip
import time

import pytest

from service.domain.attempts import Flag, Outcome, OutcomeClass
from service.sender import SenderLimits
from tests.support.ports import find_free_port
from tests.support.receivers import NO_CONTENT, OK, answering, in_turn, receive, segments, silent
from tests.support.senders import BODY, Client, open_client

KINDS = ("product", "reference")
H = b"HTTP/1.1 200 OK\r\n"

# (test, case): what aiohttp's client makes of it.
REFERENCE_DIFFERS = {
    ("f01", "closes"): OutcomeClass.RESET,  # POST is not idempotent, so aiohttp does not dial again
    ("f01", "resets"): OutcomeClass.RESET,
    ("f19", "no chunk"): OutcomeClass.PROTOCOL_ERROR,
    ("f22", "204 with a body, one segment"): OutcomeClass.PROTOCOL_ERROR,
    ("f22", "204 chunked, one segment"): OutcomeClass.PROTOCOL_ERROR,
    ("f22", "204 closing, one segment"): OutcomeClass.PROTOCOL_ERROR,
    ("f22", "length too small, one segment"): OutcomeClass.PROTOCOL_ERROR,
    ("f23", "HTTP/2.0 200 OK"): OutcomeClass.DELIVERED,
    ("f23", "HTTP/1.1 000 OK"): OutcomeClass.HTTP_ERROR,
}


@pytest.fixture(params=KINDS)
async def client(request):
    async with open_client(request.param, limits=SenderLimits(body_grace=0.5)) as client:
        yield client


def check(client: Client, outcome: Outcome, kind: OutcomeClass, *case: str) -> bool:
    """Assert the class; True when the reference's known difference was seen instead."""
    other = None if client.product else REFERENCE_DIFFERS.get(case)
    assert outcome.kind is (other or kind), outcome
    return other is not None


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_f01_keep_alive_lie_is_one_visible_attempt_each(client, end):
    said = H + b"connection: keep-alive\r\ncontent-length: 2\r\n\r\nok"
    async with receive(answering(said, then=end)) as receiver:
        for number in range(5):
            outcome = await client.post(receiver.url())
            assert outcome.delivered or (not client.product and number), outcome
            await asyncio.sleep(0)
    if client.product:
        assert len(receiver.requests) == 5


@pytest.mark.parametrize("end", ["closes", "resets"])
async def test_f01_a_kept_connection_that_dies_on_the_next_request_is_dialled_again_once(client, end):
    async def one_answer(visit):
        await visit.request()
        await visit.say(OK)
        await visit.request()
        if end == "resets":
            visit.reset()

    async with receive(in_turn(one_answer, answering(OK))) as receiver:
        assert (await client.post(receiver.url())).flags == frozenset()
        outcome = await client.post(receiver.url())
        if not check(client, outcome, OutcomeClass.DELIVERED, "f01", end):
            assert outcome.flags == {Flag.REDIALED}
            assert receiver.visits == 2


async def test_f06_proxy_variables_and_netrc_are_ignored(client, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login user password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with receive(answering(NO_CONTENT)) as proxy, receive(answering(NO_CONTENT)) as receiver:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url())
        assert (await client.post(receiver.url())).delivered
    assert proxy.visits == 0
    assert receiver.requests[0].get("authorization") is None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 300, 304])
async def test_f10_f11_f12_a_redirect_is_never_followed(client, status):
    async with receive(answering(NO_CONTENT)) as other:
        said = f"HTTP/1.1 {status} Go\r\nlocation: {other.url()}\r\ncontent-length: 0\r\n\r\n".encode()
        async with receive(answering(said)) as receiver:
            outcome = await client.post(receiver.url())
    assert (outcome.kind, outcome.status) == (OutcomeClass.REDIRECT, status)
    assert (len(receiver.requests), other.visits) == (1, 0)


async def test_f13_no_cookie_is_ever_sent(client):
    said = b"HTTP/1.1 200 OK\r\nset-cookie: a=b; domain=127.0.0.1; path=/\r\ncontent-length: 0\r\n\r\n"
    async with receive(answering(said)) as first, receive(answering(said)) as second:
        for receiver in (first, second, first):
            assert (await client.post(receiver.url())).delivered
    assert all(request.get("cookie") is None for request in first.requests + second.requests)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
async def test_f16_no_answer_is_decompressed(client, coding):
    bomb = gzip.compress(bytes(10_000_000))
    said = b"HTTP/1.1 200 OK\r\ncontent-encoding: %b\r\ncontent-length: %d\r\n\r\n" % (coding.encode(), len(bomb))
    async with receive(answering(said + bomb)) as receiver:
        outcome = await client.post(receiver.url())
    assert outcome.delivered
    assert outcome.excerpt == bomb[:4096]
    assert receiver.requests[0].get("accept-encoding") == "identity"


@pytest.mark.parametrize("framing", [b"transfer-encoding: chunked", b"content-length: 5000000000"])
async def test_f17_an_endless_body_is_a_success_at_once(client, framing):
    async def endless(visit):
        await visit.request()
        await visit.say(H + framing + b"\r\n\r\n")
        while True:
            await visit.say(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")

    async with receive(endless) as receiver:
        started = time.monotonic()
        outcome = await client.post(receiver.url(), seconds=90)
        assert time.monotonic() - started < 60  # long before the deadline
        assert outcome.delivered
        assert Flag.BODY_CUT in outcome.flags
        assert len(outcome.excerpt) == 4096
        while receiver.live:  # it is not read for ever either
            await asyncio.sleep(0.01)


async def test_f17_a_body_that_stalls_does_not_delay_the_outcome(client):
    async with receive(answering(H + b"content-length: 100\r\n\r\n", b"some", pause=90)) as receiver:
        started = time.monotonic()
        outcome = await client.post(receiver.url(), seconds=90)
    assert time.monotonic() - started < 60  # long before the deadline
    assert outcome.delivered
    assert Flag.BODY_INCOMPLETE in outcome.flags


async def test_f18_a_slow_drip_ends_at_the_total_deadline(client):
    said = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n"
    async with receive(answering(*segments(said, 1), pause=0.1)) as receiver:
        started = time.monotonic()
        outcome = await client.post(receiver.url(), seconds=3)
    assert time.monotonic() - started > 2.9
    assert len(said) * 0.1 > 8  # when the whole answer would have been there
    assert (outcome.kind, outcome.status) == (OutcomeClass.TIMEOUT, None)


BROKEN_BODIES = {
    "length": H + b"content-length: 100\r\n\r\nshort",
    "chunk": H + b"transfer-encoding: chunked\r\n\r\n64\r\nshort",
    "no chunk": H + b"transfer-encoding: chunked\r\n\r\nnonsense",
    "gzip": H + b"content-encoding: gzip\r\ncontent-length: 100\r\n\r\n\x1f\x8bnonsense",
}


@pytest.mark.parametrize("case", BROKEN_BODIES)
async def test_f19_a_body_cut_short_after_a_2xx_is_a_success_with_a_flag(client, case):
    async with receive(answering(BROKEN_BODIES[case], then="close")) as receiver:
        outcome = await client.post(receiver.url())
        assert not client.product or (await client.post(receiver.url())).delivered
    if not check(client, outcome, OutcomeClass.DELIVERED, "f19", case):
        assert (outcome.status, outcome.flags) == (200, {Flag.BODY_INCOMPLETE})


@pytest.mark.parametrize("case", BROKEN_BODIES)
async def test_f19_a_reset_right_behind_a_2xx_changes_nothing(case):
    """Only for the product: whether aiohttp's stream reader still gives the head is a matter of timing."""
    async with open_client() as client, receive(answering(BROKEN_BODIES[case], then="reset")) as receiver:
        for _ in range(2):
            outcome = await client.post(receiver.url())
            assert (outcome.status, outcome.flags) == (200, {Flag.BODY_INCOMPLETE})


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_f20_an_end_before_any_answer_is_a_failed_attempt_without_a_second_dial(client, end):
    async with receive(answering(b"", then=end)) as receiver:
        outcome = await client.post(receiver.url())
    assert (outcome.kind, outcome.status) == (OutcomeClass.RESET, None)
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        H + b"content-length: 2\r\ncontent-length: 3\r\n\r\nok!",
        H + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        H + b"x: " + b"a" * 9000 + b"\r\ncontent-length: 0\r\n\r\n",
        H + b"x: y\r\n" * 200 + b"content-length: 0\r\n\r\n",
        H + b"no colon\r\n\r\n",
    ],
    ids=["code", "nonsense", "ssh", "two lengths", "length and chunked", "long line", "many headers", "no colon"],
)
async def test_f21_no_status_is_invented_for_what_is_no_answer(client, said):
    async with receive(answering(said)) as receiver:
        outcome = await client.post(receiver.url())
    assert (outcome.kind, outcome.status) == (OutcomeClass.PROTOCOL_ERROR, None)


SURPLUS = {
    "204 with a body": (NO_CONTENT, b"hello"),
    "204 chunked": (b"HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n", b"0\r\n\r\n"),
    "204 closing": (b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n", b"hello"),
    "length too small": (H + b"content-length: 2\r\n\r\nok", b"ay"),
}


@pytest.mark.parametrize("case", SURPLUS)
async def test_f22_surplus_bytes_in_one_segment(client, case):
    async with receive(answering(b"".join(SURPLUS[case]))) as receiver:
        for _ in range(3):
            outcome = await client.post(receiver.url())
            if check(client, outcome, OutcomeClass.DELIVERED, "f22", f"{case}, one segment"):
                return
            assert outcome.status in {200, 204}
            assert outcome.flags == {Flag.SURPLUS_BYTES}
        assert receiver.visits == 3


@pytest.mark.parametrize("pause", [0.0, 0.03])
@pytest.mark.parametrize("case", SURPLUS)
async def test_f22_surplus_bytes_in_two_segments(case, pause):
    async with open_client() as client, receive(answering(*SURPLUS[case], pause=pause)) as receiver:
        for _ in range(5):
            outcome = await client.post(receiver.url())
            assert outcome.delivered, outcome
        assert len(receiver.requests) <= 6  # one more when the bytes met the next request on its way


@pytest.mark.parametrize("status", [200, 201, 202, 204, 226, 299])
async def test_f23_every_2xx_is_a_success_with_or_without_a_reason(client, status):
    for reason in (b" OK", b" ", b""):
        async with receive(answering(b"HTTP/1.1 %d%b\r\ncontent-length: 0\r\n\r\n" % (status, reason))) as receiver:
            outcome = await client.post(receiver.url())
        assert (outcome.kind, outcome.status) == (OutcomeClass.DELIVERED, status)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, OutcomeClass.HTTP_ERROR),
        (404, OutcomeClass.HTTP_ERROR),
        (408, OutcomeClass.HTTP_ERROR),
        (410, OutcomeClass.GONE),
        (429, OutcomeClass.HTTP_ERROR),
        (500, OutcomeClass.HTTP_ERROR),
        (503, OutcomeClass.HTTP_ERROR),
        (600, OutcomeClass.HTTP_ERROR),
        (999, OutcomeClass.HTTP_ERROR),
    ],
)
async def test_f23_every_other_status_is_a_failure_with_that_status(client, status, kind):
    said = b"HTTP/1.1 %d Odd\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nwhy?" % status
    async with receive(answering(said)) as receiver:
        outcome = await client.post(receiver.url())
    assert (outcome.kind, outcome.status) == (kind, status)
    assert (outcome.retry_after, outcome.excerpt) == (("7",), b"why?")


@pytest.mark.parametrize("line", ["HTTP/2.0 200 OK", "HTTP/1.1 000 OK", "HTTP/1.1 2000 OK", "ICY 200 OK"])
async def test_f23_odd_versions_and_codes_are_no_answer(client, line):
    async with receive(answering(f"{line}\r\ncontent-length: 0\r\n\r\n".encode())) as receiver:
        outcome = await client.post(receiver.url())
    check(client, outcome, OutcomeClass.PROTOCOL_ERROR, "f23", line)


@pytest.mark.parametrize("said", [b"HTTP/1.0 200 OK\r\n\r\nthanks", b"HTTP/1.0 200 OK\r\n\r\n", H + b"\r\nthanks"])
async def test_f24_a_body_without_a_length_ends_with_the_connection(client, said):
    async with receive(answering(said, then="close")) as receiver:
        outcome = await client.post(receiver.url())
    assert (outcome.kind, outcome.flags) == (OutcomeClass.DELIVERED, frozenset())
    assert outcome.excerpt in {b"thanks", b""}


async def test_f25_a_huge_error_page_is_cut_to_4_kib(client):
    said = b"HTTP/1.1 500 No\r\ncontent-length: 2000000\r\n\r\n" + b"x" * 2_000_000
    async with receive(answering(said)) as receiver:
        outcome = await client.post(receiver.url())
    assert (outcome.status, len(outcome.excerpt)) == (500, 4096)
    assert Flag.BODY_CUT in outcome.flags


async def test_interim_answers_are_skipped_and_101_is_a_failure(client):
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    async with receive(answering(interim, OK, pause=0.01)) as receiver:
        assert (await client.post(receiver.url())).delivered
    switching = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"
    async with receive(answering(switching)) as receiver:
        outcome = await client.post(receiver.url(), seconds=30 if client.product else 2)  # the reference waits for more
        assert not outcome.delivered
        if client.product:
            assert (outcome.kind, outcome.status) == (OutcomeClass.HTTP_ERROR, 101)


async def test_what_is_sent_is_what_was_given_byte_for_byte(client):
    async with receive(answering(NO_CONTENT)) as receiver:
        assert (await client.post(receiver.url("/a/b?c=%20&d=ü"), body=BODY)).delivered
        assert (await client.post(receiver.url("/a"), body=b"")).delivered
    first, second = receiver.requests
    assert first.line == b"POST /a/b?c=%20&d=%C3%BC HTTP/1.1"
    assert (first.body, second.body) == (BODY, b"")
    assert first.get("host") == f"127.0.0.1:{receiver.port}"
    assert (first.get("content-length"), second.get("content-length")) == (str(len(BODY)), "0")
    assert first.get("webhook-id") == "msg_1"


async def test_nothing_listens_or_nobody_answers(client):
    async with receive(silent) as receiver:
        outcome = await client.post(receiver.url(), seconds=3)
    assert outcome.kind is OutcomeClass.TIMEOUT
    outcome = await client.post(f"http://127.0.0.1:{find_free_port()}/")
    assert (outcome.kind, outcome.detail) == (OutcomeClass.CONNECT_ERROR, "refused")
