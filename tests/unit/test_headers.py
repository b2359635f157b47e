import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.headers import MAX_VALUE_BYTES, find_header_problems, is_reserved, list_sendable

TAKEN = [
    "Webhook-Signature", "webhook-id ", "HOST", "Content-Length", "Transfer-Encoding", "Connection", "ce-id",
    "Stripe-Signature", "svix-id", "Svix-Timestamp", "content-type", "User-Agent", "Accept-Encoding", "traceparent",
    "tracestate", "Keep-Alive", "TE", "Trailer", "Upgrade", "Proxy-Authorization", "Cookie", "Expect",
    "Content-Encoding", "webhook-attempt", "X-Hub-Signature", " host", "\thost",
    "Webhook_Signature", "webhook_id", "WEBHOOK-TIMESTAMP", "Webhook_timestamp", "X_Hub_Signature", "ce_id", "Transfer_Encoding",
]  # fmt: skip


@pytest.mark.parametrize(
    "value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "a\x7fb", "\x1b[0m", 5, 1.5, None, True, {"a": "b"}, ["a"], b"a", "é", "\u2028", " a", "a ", "\t", "x" * 4097]
)  # fmt: skip
def test_f14_bad_values_are_refused_by_name(value):
    (problem,) = find_header_problems({"X-Fine": "ok", "X-Api-Key": value})
    assert problem.name == "X-Api-Key"
    assert problem.reason
    assert list_sendable([("X-Api-Key", value)]) == []


@pytest.mark.parametrize("name", ["", "X Key", "X:Key", "X-Ключ", "X\r\nY", "X\0", "X-Key\n", '"X"', "(x)", "x" * 257])
def test_f14_bad_names_are_refused(name):
    (problem,) = find_header_problems({name: "ok"})
    assert problem.name == name[:256]
    assert list_sendable([(name, "ok")]) == []


@pytest.mark.parametrize("name", TAKEN)
def test_f15_reserved_names_are_refused_and_dropped_again(name):
    assert is_reserved(name)
    (problem,) = find_header_problems({name: "x"})
    assert problem.name == name
    assert list_sendable([("X-Mine", "1"), (name, "x"), (name.upper(), "x")]) == [("X-Mine", "1")]


def test_good_headers_keep_their_case():
    headers = {"X-Api-Key": "k", "AUTHORIZATION": "Bearer a b\tc", "x_y": "", "X-Full": "x" * MAX_VALUE_BYTES}
    assert find_header_problems(headers) == ()
    assert list_sendable(headers.items()) == list(headers.items())


def test_names_are_unique_whatever_their_case():
    assert [problem.name for problem in find_header_problems({"X-A": "1", "x-a": "2"})] == ["x-a"]


def test_at_most_twenty():
    assert find_header_problems({f"X-{number}": "v" for number in range(20)}) == ()
    (problem,) = find_header_problems({f"X-{number}": "v" for number in range(21)})
    assert problem.name == ""


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=40), max_size=5))
def test_what_is_accepted_is_sent_and_is_one_line_of_ascii(headers):
    refused = {problem.name for problem in find_header_problems(headers)}
    for name, value in list_sendable(headers.items()):
        assert f"{name}: {value}".isascii()
        assert f"{name}: {value}".replace("\t", " ").isprintable()
    assert {name for name in headers if name not in refused} <= {name for name, _ in list_sendable(headers.items())}
