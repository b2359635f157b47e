"""W3C trace context: what counts as one, and what goes on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.traces import compile_trace, continue_trace, parse_trace, split_trace, trace_id_of

ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
PARENT = f"00-{ID}-{SPAN}-01"
V = "v"
SHORT = ",".join(f"k{n}={V * 30}" for n in range(10))


@pytest.mark.parametrize(
    ("parent", "context"),
    [
        (PARENT, PARENT),
        (f"00-{ID}-{SPAN}-00", f"00-{ID}-{SPAN}-00"),
        (f"00-{ID}-{SPAN}-ff", f"00-{ID}-{SPAN}-03"),  # flags that nobody has defined yet are cleared
        (f"cc-{ID}-{SPAN}-01", PARENT),
        (f"cc-{ID}-{SPAN}-01-what-the-future-will-be-like", PARENT),
        (f"cc-{ID}-{SPAN}-01.what", None),
        (f"ff-{ID}-{SPAN}-01", None),
        (f"00-{ID}-{SPAN}-01-more", None),
        (f"00-{ID}-{SPAN}-01-", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{ID}-{'0' * 16}-01", None),
        (f"00-{ID.upper()}-{SPAN}-01", None),
        (f"00-{ID}-{SPAN}-1", None),
        (f"00-{ID[:-1]}-{SPAN}-01", None),
        (f" {PARENT}", None),
        (f"{PARENT}\r\n", None),
        (f"{PARENT},{PARENT}", None),
        ("", None),
        (None, None),
    ],
)
def test_which_traceparent_counts(parent, context):
    assert parse_trace(parent) == context
    assert parse_trace(parent, "a=1") == (context and f"{context} a=1")


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("congo=t61rcWkgMzE", "congo=t61rcWkgMzE"),
        ("a=1,b=2", "a=1,b=2"),
        ("a=1 ,\tb=2 , ,", "a=1,b=2"),
        ("tenant@system=x;y z", "tenant@system=x;y z"),
        ("1@a=x", "1@a=x"),
        ("a=1,a=2", ""),
        ("a", ""),
        ("a=", ""),
        ("A=1", ""),
        ("a=b=c", ""),
        ("a=\x01", ""),
        ("a=é", ""),
        ("a=1\r\nx: y", ""),
        (f"{'k' * 256}={'v' * 100}", f"{'k' * 256}={'v' * 100}"),
        (f"{'k' * 257}=v", ""),
        (f"k={'v' * 257}", ""),
        (",".join(f"k{n}=v" for n in range(32)), ",".join(f"k{n}=v" for n in range(32))),
        (",".join(f"k{n}=v" for n in range(33)), ""),
        # above 512 bytes a long member goes first, then the last ones
        (f"a=1,long={V * 200},{SHORT}", f"a=1,{SHORT}"),
        (",".join(f"k{n:02}={'w' * 60}" for n in range(12)), ",".join(f"k{n:02}={'w' * 60}" for n in range(7))),
    ],
)
def test_which_tracestate_is_kept(state, kept):
    assert parse_trace(PARENT, state) == f"{PARENT} {kept}".rstrip()


def test_an_attempt_is_a_child_in_the_same_trace():
    child = continue_trace(f"00-{ID}-{SPAN}-00 a=1", bytes.fromhex("00000000000000ff"))
    assert split_trace(child) == (f"00-{ID}-00000000000000ff-00", "a=1")
    assert trace_id_of(child) == trace_id_of(PARENT) == ID
    assert parse_trace(*split_trace(child)) == child


def test_header_lines():
    assert compile_trace(f"{PARENT} a=1 2,b=3") == f"traceparent: {PARENT}\r\ntracestate: a=1 2,b=3\r\n".encode()
    assert compile_trace(PARENT) == f"traceparent: {PARENT}\r\n".encode()


@given(st.text(), st.text())
def test_no_header_breaks_out_of_its_line(parent, state):
    for given_parent in (parent, PARENT):
        context = parse_trace(given_parent, state)
        if context is not None:
            lines = compile_trace(context)
            assert lines.isascii()
            assert lines.count(b"\n") == lines.count(b"\r\n") == len(lines.splitlines()) <= 2
