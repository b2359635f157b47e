"""The reader of answers: framing, limits, flags, and that neither segments nor the short way change anything."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.domain.attempts import Flag
from service.sender.answers import MAX_HEADERS, MAX_INTERIM, AnswerReader, State
from service.sender.chunks import ChunkReader

H = b"HTTP/1.1 200 OK\r\n"


def read(*pieces: bytes, end: bool = False) -> AnswerReader:
    reader = AnswerReader()
    for piece in pieces:
        reader.feed(piece)
    if end:
        reader.end()
    return reader


def facts(reader: AnswerReader) -> tuple[object, ...]:
    problem = reader.problem
    return reader.state, reader.status, reader.reusable, reader.flags(), reader.excerpt, reader.retry_after, problem


@pytest.mark.parametrize(
    ("data", "status", "reusable"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, True),
        (b"HTTP/1.1 204\r\n\r\n", 204, True),
        (b"HTTP/1.1 204 \r\n\r\n", 204, True),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", 304, True),
        (H + b"Content-Length: 2\r\n\r\nok", 200, True),
        (H + b"CONTENT-LENGTH:2\r\n\r\nok", 200, True),
        (H + b"content-length: 2\r\nconnection: Keep-Alive\r\n\r\nok", 200, True),
        (H + b"content-length: 2\r\nconnection: close\r\n\r\nok", 200, False),
        (H + b"content-length: 2\r\nconnection: x, CLOSE\r\n\r\nok", 200, False),
        (H + b"content-length: 2\r\nConnection : close\r\n\r\nok", 200, True),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nok", 200, True),
        (b"HTTP/1.9 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, True),
        (H + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, True),
        (H + b"transfer-encoding: gzip, Chunked\r\n\r\n2;x=y\r\nok\r\n0\r\nt: v\r\n\r\n", 200, True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + H + b"content-length: 0\r\n\r\n", 200, True),
        (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 204 \r\n\r\n", 204, True),
        (b"\r\n\r\nHTTP/1.1 204 x\r\n\r\n", 204, True),
        (b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok", 200, True),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", 101, False),
        (H + b"x: a\r\n folded\r\ncontent-length: 2\r\n\r\nok", 200, True),
        (H + b"cross-origin: a\r\ntiming: b\r\nreferrer: c\r\ncontent-length: 2\r\n\r\nok", 200, True),
        (b"HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n", 999, True),
    ],
)
def test_an_answer_is_read_to_its_end(data, status, reusable):
    reader = read(data)
    assert reader.state is State.DONE
    assert (reader.status, reader.reusable) == (status, reusable)
    assert reader.flags() == frozenset()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not_http"),
        (b"HTTQ", "not_http"),
        (b"hello\r\n\r\n", "not_http"),
        (b"ICY 200 OK\r\n\r\n", "not_http"),
        (b"HTTP/2.0 200 OK\r\n\r\n", "status_line"),
        (b"HTTP/0.9 200 OK\r\n\r\n", "status_line"),
        (b"HTTP/1.1  200 OK\r\n\r\n", "status_line"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "status_line"),
        (b"HTTP/1.1 20 OK\r\n\r\n", "status_line"),
        (b"HTTP/1.1 099 OK\r\n\r\n", "status_line"),
        (b"HTTP/1.1 +20 OK\r\n\r\n", "status_line"),
        (b"HTTP/1.1 200OK\r\n\r\n", "status_line"),
        (b"HTTP/1.1 abc\r\nthen: nothing", "status_line"),
        (b"HTTP/1.1 200 a\x00b\r\n\r\n", "status_line"),
        (H + b"content-length: 2\r\ncontent-length: 2\r\n\r\nok", "framing"),
        (H + b"content-length: 2\r\nx: y\r\nCONTENT-LENGTH: 3\r\n\r\nok", "framing"),
        (H + b"content-length: 2, 2\r\n\r\nok", "framing"),
        (H + b"content-length: -2\r\n\r\nok", "framing"),
        (H + b"content-length: +2\r\n\r\nok", "framing"),
        (H + b"content-length: 0x2\r\n\r\nok", "framing"),
        (H + b"content-length: \r\n\r\nok", "framing"),
        (H + b"content-length: 9999999999999999999\r\n\r\nok", "framing"),
        (H + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "framing"),
        (H + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n0\r\n\r\n", "framing"),
        (H + b"content-length: 2\r\n 3\r\n\r\nok", "header_line"),
        (H + b"no colon here\r\n\r\n", "header_line"),
        (H + b": no name\r\n\r\n", "header_line"),
        (H + b"x: " + b"a" * 9000 + b"\r\n\r\n", "head_too_long"),
        (H + b"x: " + b"a" * 9000, "head_too_long"),
        (H + (b"x: " + b"a" * 1000 + b"\r\n") * 40 + b"\r\n", "head_too_long"),
        (H + (b"x: " + b"a" * 1000 + b"\r\n") * 40, "head_too_long"),
        (H + b"x: y\r\n" * (MAX_HEADERS + 1) + b"\r\n", "too_many_headers"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * (MAX_INTERIM + 1), "interim_flood"),
    ],
)
def test_f21_what_is_no_answer_is_broken_at_once_and_has_no_status(data, problem):
    reader = read(data)
    assert (reader.state, reader.problem, reader.status) == (State.BROKEN, problem, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 204 No Content\r\n\r\nhello",
        b"HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\nhello",
        H + b"content-length: 2\r\n\r\nokay",
        H + b"content-length: 0\r\n\r\nHTTP/1.1 500 Never\r\n\r\n",
        H + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\nmore",
    ],
)
def test_f22_surplus_bytes_are_flagged_and_cost_the_connection_only(data):
    for pieces in ([data], [data[:-3], data[-3:]], [bytes([byte]) for byte in data]):
        reader = read(*pieces)
        assert reader.state is State.DONE
        assert reader.status in {200, 204}
        assert not reader.reusable
        assert Flag.SURPLUS_BYTES in reader.flags()


@pytest.mark.parametrize(
    ("data", "incomplete"),
    [
        (H + b"content-length: 9\r\n\r\nshort", True),
        (H + b"transfer-encoding: chunked\r\n\r\n5\r\nab", True),
        (H + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", True),
        (H + b"transfer-encoding: chunked\r\n\r\nzz\r\n", True),
        (H + b"transfer-encoding: chunked\r\n\r\n2\r\nokX\r\n", True),
        (H + b"transfer-encoding: chunked\r\n\r\n" + b"1" * 2000, True),
        (H + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"t: v\r\n" * 100, True),
        (H + b"\r\nuntil the end", False),
        (H + b"transfer-encoding: gzip\r\n\r\nuntil the end", False),
        (b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\n\r\n", False),
    ],
)
def test_f19_f24_the_end_of_the_connection_ends_a_body(data, incomplete):
    reader = read(data, end=True)
    assert (reader.state, reader.status, reader.reusable) == (State.DONE, 200, False)
    assert (Flag.BODY_INCOMPLETE in reader.flags()) == incomplete


@pytest.mark.parametrize(
    ("data", "problem"),
    [(b"", "closed"), (b"HTTP/1.1 200 OK\r\nx: y\r\n", "head_cut_short"), (b"\r\n", "head_cut_short")],
)
def test_the_end_of_the_connection_before_the_end_of_the_head_is_no_answer(data, problem):
    reader = read(*([data] if data else []), end=True)
    assert (reader.state, reader.problem) == (State.BROKEN, problem)


def test_a_body_that_has_not_ended_counts_as_incomplete_and_a_long_one_as_cut():
    reader = read(H + b"content-length: 9000\r\n\r\n" + b"x" * 5000)
    assert reader.state is State.BODY
    assert reader.flags() == {Flag.BODY_INCOMPLETE, Flag.BODY_CUT}
    assert (len(reader.excerpt), reader.body_bytes) == (4096, 5000)
    reader.feed(b"x" * 4000)
    assert reader.state is State.DONE
    assert reader.flags() == {Flag.BODY_CUT}


def test_retry_after_is_kept_raw_and_bounded():
    head = b"HTTP/1.1 503 x\r\ncontent-length: 0\r\n"
    assert read(head + b"Retry-After:  120 \r\nretry-after: \xe9\r\n\r\n").retry_after == ("120", "é")
    assert len(read(head + b"retry-after: 1\r\n" * 9 + b"\r\n").retry_after) == 4
    assert read(head + b"\r\n").retry_after == ()


def test_nothing_is_read_after_a_broken_head():
    reader = read(b"SSH-2.0\r\n", H + b"content-length: 0\r\n\r\n", end=True)
    assert (reader.state, reader.status) == (State.BROKEN, 0)


_NAMES = st.sampled_from(
    [
        b"Server",
        b"Date",
        b"content-length",
        b"Content-Type",
        b"transfer-encoding",
        b"connection",
        b"retry-after",
        b"x",
        b"cf-ray",
    ]
)
_VALUES = st.sampled_from([b"0", b"2", b"chunked", b"close", b"keep-alive", b"gzip", b"a: b", b"", b"text/plain"])
_LINES = st.lists(st.tuples(_NAMES, st.sampled_from([b":", b": ", b" : ", b""]), _VALUES).map(b"".join), max_size=5)
_HEADS = st.tuples(
    st.sampled_from([b"HTTP/1.1 200 OK", b"HTTP/1.1 204 No", b"HTTP/1.0 200 OK", b"HTTP/1.1 100 C", b"HTTP/1.1 599"]),
    _LINES,
).map(lambda parts: b"\r\n".join((parts[0], *parts[1], b"", b"")))
_BODIES = st.sampled_from([b"", b"ok", b"2\r\nok\r\n0\r\n\r\n", b"okay", b"0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])


@given(
    st.lists(_HEADS, min_size=1, max_size=3).map(b"".join),
    _BODIES,
    st.lists(st.integers(0, 300), max_size=6),
    st.booleans(),
)
@example(H + b"content-length: 2\r\n\r\n", b"ok", [1, 2, 3], True)
@example(H + b"x: y\n\n", b"\r\nbody", list(range(60)), True)
@example(H + b"transfer-encoding: chunked\r\n\r\n", b"2\r\vok\r\n0\r\n\r\n", list(range(90)), True)
def test_neither_segments_nor_the_short_way_change_what_is_read(head, body, cuts, end):
    data = head + body
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    whole = read(data, end=end)
    pieces = read(*(data[a:b] for a, b in itertools.pairwise(places)), end=end)
    slow = AnswerReader()
    slow._touched = True
    slow.feed(data)
    if end:
        slow.end()
    assert facts(whole) == facts(slow)
    assert facts(whole) == facts(pieces)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_are_read_without_an_exception_and_within_bounds(data, cut):
    for prefix in (b"", b"HTTP/1.1 200 OK\r\n", H + b"\r\n", H + b"transfer-encoding: chunked\r\n\r\n"):
        reader = read(prefix + data[:cut], data[cut:], end=True)
        assert reader.state in {State.DONE, State.BROKEN}
        assert len(reader.excerpt) <= 4096


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.integers(1, 7))
def test_chunks_are_joined_whatever_their_segments(chunks, size):
    wire = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\nrest"
    reader = ChunkReader()
    out = b"".join(reader.feed(wire[at : at + size]) for at in range(0, len(wire), size))
    assert reader.done
    assert out == b"".join(chunks)
