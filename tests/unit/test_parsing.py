"""Chapter 2 as inputs: every rule of the field table, the three forms, and everything that is no event (F28, F45)."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.events import BatchRef, EventType, JobEvent
from service.ingest.parsing import DECORATION_DROPPED, Parser
from service.ingest.poison import TOMBSTONE, DeadLetter, Reason
from service.ingest.wire import MAX_RECORD_BYTES
from service.profiles import load_profiles

PARSER = Parser(load_profiles())
SHORT = {"ids": lambda value: ascii(value)[:40]}
FULL = {
    "event_id": "evt_1",
    "event_type": "job.completed",
    "source": "imagetotable",
    "occurred_at": "2026-11-30T09:00:00.250Z",
    "tenant_id": "acct_42",
    "job_id": "doc_7f31",
    "subject_id": "art_1",
    "subject_status": "ready",
    "kind": "receipt",
    "batch": {"name": "invoices-nov", "id": "b1", "total": 3, "version": 7},
    "generation": 2,
    "attempts": 1,
    "stage": "extract",
    "status": "succeeded",
    "error_code": "E1",
    "error_message": "none",
    "created_at": "2026-11-30T08:58:00Z",
    "started_at": "2026-11-30T08:59:00Z",
    "completed_at": "2026-11-30T09:00:00Z",
    "previous_job_id": "doc_0",
    "webhook_id": "wh_1",
    "webhook_url": "https://example.com/hook",
    "result_url": "https://api.example.com/results",
    "metadata": {"customer_ref": "A-17"},
}
LEAST = {
    "event_id": "evt_1",
    "event_type": "job.queued",
    "occurred_at": "2026-11-30T09:00:00Z",
    "tenant_id": "t",
    "job_id": "j",
}
NINE = datetime(2026, 11, 30, 9, tzinfo=UTC)


class _Gone:
    def __repr__(self):
        return "gone"  # the same in every worker: it names a test


GONE = _Gone()


def encode(document):
    return json.dumps(document, ensure_ascii=False).encode()


def build(base=LEAST, **changes):
    return {key: value for key, value in (base | changes).items() if value is not GONE}


def parse(value, headers=()):
    return PARSER.parse(value if isinstance(value, bytes | None) else encode(value), headers)


def read(value, headers=()):
    event = parse(value, headers)
    assert isinstance(event, JobEvent), event
    return event


def refuse(value):
    letter = parse(value)
    assert isinstance(letter, DeadLetter), letter
    assert letter.detail.isprintable()
    assert len(letter.detail) < 300
    return letter.reason


def with_raw(name, raw):
    """An event whose field `name` is the JSON text `raw`."""
    return encode(build(LEAST, **{name: GONE}))[:-1] + f', "{name}": '.encode() + raw + b"}"


# The ordinary event


def test_every_field_is_taken():
    assert read(FULL) == JobEvent(
        event_id="evt_1",
        type=EventType.JOB_COMPLETED,
        source="imagetotable",
        occurred_at=NINE + timedelta(milliseconds=250),
        tenant_id="acct_42",
        job_id="doc_7f31",
        batch=BatchRef("invoices-nov", "b1", 3, 7),
        generation=2,
        attempts=1,
        stage="extract",
        status="succeeded",
        kind="receipt",
        subject_id="art_1",
        subject_status="ready",
        error_code="E1",
        error_message="none",
        created_at=NINE - timedelta(minutes=2),
        started_at=NINE - timedelta(minutes=1),
        completed_at=NINE,
        previous_job_id="doc_0",
        webhook_id="wh_1",
        webhook_url="https://example.com/hook",
        result_url="https://api.example.com/results",
        metadata='{"customer_ref": "A-17"}',
    )


def test_least_event_has_the_defaults():
    event = read(LEAST)
    assert (event.source, event.generation, event.attempts, event.batch, event.metadata) == (
        "native",
        None,
        None,
        None,
        None,
    )
    assert event.anomalies == ()


def test_null_is_absent():
    optional = {key: None for key in FULL if key not in {*LEAST, "status"}}
    assert read(build(**optional)) == read(LEAST)


def test_empty_texts_say_nothing():
    empty = ("stage", "status", "kind", "subject_id", "subject_status", "error_code", "error_message")
    more = ("previous_job_id", "webhook_id", "webhook_url", "result_url", "source")
    assert read(build(**dict.fromkeys((*empty, *more), ""))) == read(LEAST)


def test_unknown_fields_are_ignored():
    assert read(build(colour="red", nested={"a": [1, {"b": None}]})) == read(LEAST)


def test_the_last_of_equal_keys_counts():
    assert read(with_raw("job_id", b'"first", "job_id": "last"')).job_id == "last"


def test_tombstone():
    assert parse(None) is TOMBSTONE


@pytest.mark.parametrize("type_", list(EventType))
def test_event_types(type_):
    event = read(build(event_type=type_.value, status="succeeded", batch={"name": "b"}))
    assert event.type is type_
    assert event.job_id == ("" if type_.value.startswith("batch.") else "j")


@pytest.mark.parametrize("type_", ["batch.sealed", "batch.deleted"])
def test_batch_events_need_no_job(type_):
    assert read(build(event_type=type_, job_id=GONE, batch={"name": "b"})).batch == BatchRef("b")


# What is required, and its form


@pytest.mark.parametrize("field", list(LEAST))
@pytest.mark.parametrize("value", [GONE, None, "", 7, ["x"], {"a": 1}, True])
def test_required_fields(field, value):
    expected = Reason.UNKNOWN_TYPE if (field, value) == ("event_type", "") else Reason.SCHEMA
    assert refuse(build(**{field: value})) is expected


@pytest.mark.parametrize("type_", ["batch.sealed", "batch.deleted", "job.removed"])
@pytest.mark.parametrize("batch", [GONE, None, {}, {"id": "x"}, "b", 7, [], {"name": None}])
def test_batch_is_required(type_, batch):
    assert refuse(build(event_type=type_, batch=batch)) is Reason.SCHEMA


@pytest.mark.parametrize("place", ["event_id", "tenant_id", "job_id", "batch.name", "batch.id"])
@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("x" * 255, True),
        ("\U0001f600" * 255, True),  # code points, not bytes
        ("x" * 256, False),
        ("a/b c%2F?#", True),
        ("…", True),
        ("a\u200bb\u00a0\u2028\ufeff", True),  # format and separator, not Cc
        ("...", True),
        (" ", True),
    ],
    **SHORT,
)
def test_bounds_of_names(place, name, good):
    document = place_name(place, name)
    assert parse(document) == read(document) if good else refuse(document) is Reason.SCHEMA


@pytest.mark.parametrize("place", ["tenant_id", "job_id", "batch.name", "batch.id"])
@pytest.mark.parametrize("name", [".", "..", "a\nb", "\t", "\x7f", "a\x80", "\x9f", "\x1b[31m", "a\u0000b"])
def test_refused_names(place, name):
    assert refuse(place_name(place, name)) is Reason.SCHEMA


def test_names_are_not_normalised():
    composed, decomposed = "\u00e9", "e\u0301"
    assert read(build(job_id=composed)).job_id == composed
    assert read(build(job_id=decomposed)).job_id == decomposed


def place_name(place, name):
    if place.startswith("batch."):
        return build(batch={"name": "b"} | {place.removeprefix("batch."): name})
    return build(**{place: name})


@pytest.mark.parametrize(("field", "lowest", "highest"), [("generation", 1, 2**31 - 1), ("attempts", 0, 2**31 - 1)])
def test_bounds_of_integers(field, lowest, highest):
    for good in (lowest, highest):
        assert getattr(read(build(**{field: good})), field) == good
    for bad in (lowest - 1, highest + 1, 2**53 + 1, 2**63, 2**64, -(2**70), 1.0, 1.5, "1", True, [], {}):
        assert refuse(build(**{field: bad})) is Reason.SCHEMA
    for raw in (b"1e400", b"1E2", b"1.0", b"-0.5"):
        assert refuse(with_raw(field, raw)) is Reason.SCHEMA
    for raw in (b"NaN", b"Infinity", b"-Infinity", b"01", b"+1", b".5", b"1.", b"0x1"):
        assert refuse(with_raw(field, raw)) is Reason.INVALID_JSON


def test_bounds_of_the_total():
    for total, version in ((1, 0), (2**31 - 1, 2**63 - 1), (None, None)):
        event = read(build(batch={"name": "b", "total": total, "version": version}))
        assert event.batch == BatchRef("b", None, total, version or 0)
    for bad in ({"total": 0}, {"total": 2**31}, {"version": -1}, {"version": 2**63}, {"total": 1.5}, {"total": "3"}):
        assert refuse(build(batch={"name": "b"} | bad)) is Reason.SCHEMA


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-11-30T09:00:00Z", NINE),
        ("2026-11-30t09:00:00z", NINE),
        ("2026-11-30T10:00:00+01:00", NINE),
        ("2026-11-30T03:30:00-05:30", NINE),
        ("2026-11-30T09:00:00-00:00", NINE),
        ("2026-11-30T08:59:60Z", NINE - timedelta(seconds=1)),  # a leap second
        ("2026-11-30T09:00:00.000001Z", NINE + timedelta(microseconds=1)),
        ("2026-11-30T09:00:00.0000004Z", NINE),
        ("0001-01-01T00:00:00.000001Z", datetime(1, 1, 1, microsecond=1, tzinfo=UTC)),
        ("9999-12-31T23:59:59Z", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_times(text, instant):
    event = read(build(occurred_at=text, created_at=text))
    assert event.occurred_at == event.created_at == instant
    assert event.occurred_at.tzinfo is UTC
    assert event.created_at.tzinfo is UTC
    assert event.anomalies == ()


BAD_TIMES = [
    "2026-11-30T09:00:00",
    "2026-11-30",
    "2026-11-30T09:00Z",
    "2026-11-30T24:00:00Z",
    "2026-02-30T00:00:00Z",
    "2026-11-30T09:00:61Z",
    "2026-11-30T09:00:00+24:00",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "0001-01-01T00:00:00Z",  # what Go writes for no time
    "0001-01-01T05:30:00+05:30",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59-23:59",
    "12026-11-30T09:00:00Z",
    "-2026-11-30T09:00:00Z",
    "Mon, 30 Nov 2026 09:00:00 GMT",
    "٢٠٢٦-11-30T09:00:00Z",
    "",
    1796029200,
    1.5,
    True,
    [],
    {},
]


@pytest.mark.parametrize("time", BAD_TIMES)
def test_refused_times(time):
    assert refuse(build(occurred_at=time)) is Reason.SCHEMA
    event = read(build(created_at=time, started_at="2026-11-30T09:00:00Z"))
    assert (event.created_at, event.started_at) == (None, NINE)
    assert event.anomalies == (DECORATION_DROPPED,)


# Words


@pytest.mark.parametrize(
    ("source", "word"),
    [("native", "canceled"), ("oatmilk", "completed"), ("datadistillers", "expired"), ("imagetotable", "failed")],
)
def test_terminal_words_are_the_profiles(source, word):
    event = read(build(event_type="job.completed", source=source, status=word))
    assert (event.status, event.source) == (word, source)


@pytest.mark.parametrize(
    "status",
    [GONE, None, "", "queued", "processing", "Succeeded", "succeeded ", "completed", "x" * 300, 7, [], "\u202e"],
    **SHORT,
)
def test_completed_needs_a_terminal_word(status):
    assert refuse(build(event_type="job.completed", status=status)) is Reason.UNKNOWN_STATUS


@pytest.mark.parametrize("status", ["anything", "succeeded", "pending_upload", "\u202e"])
def test_any_word_elsewhere(status):
    assert read(build(status=status)).status == status


@pytest.mark.parametrize(
    "source", ["nobody", "Native", "https://oatmilk.example/nobody", "x" * 300, "\x1b[31m"], **SHORT
)
def test_unknown_source(source):
    assert refuse(build(source=source)) is Reason.UNKNOWN_SOURCE


@pytest.mark.parametrize("headers", [(), (("content-type", b"application/json"),)])
def test_a_structured_cloudevent_without_its_content_type_is_told_what_it_lacks(headers):
    event = {"specversion": "1.0", "id": "1", "type": "job.started", "source": "/any", "data": {"tenant_id": "t"}}
    letter = parse(event, headers)
    detail = "is a CloudEvent, but its content-type is not application/cloudevents+json"
    assert letter == DeadLetter(Reason.SCHEMA, detail)


@pytest.mark.parametrize(
    "type_", ["job.exploded", "JOB.QUEUED", "job.queued ", "x" * 300, "job.finished", "\x1b"], **SHORT
)
def test_unknown_type(type_):
    assert refuse(build(source="oatmilk", event_type=type_)) is Reason.UNKNOWN_TYPE


# Decorations never cost a finish


BAD_VALUES = [7, 1.5, True, [], ["x"], {}, {"a": 1}, 2**70]
WORDS = (
    "stage",
    "kind",
    "subject_id",
    "subject_status",
    "error_code",
    "previous_job_id",
    "error_message",
    "result_url",
)


@pytest.mark.parametrize("field", WORDS)
@pytest.mark.parametrize("value", BAD_VALUES)
def test_decorations_of_a_wrong_type_are_dropped(field, value):
    event = read(build(FULL, **{field: value}))
    assert event == replace(read(FULL), **{field: None}, anomalies=(DECORATION_DROPPED,))


@pytest.mark.parametrize("field", ["stage", "subject_status", "error_code"])
def test_long_words_are_cut(field):
    assert getattr(read(build(**{field: "ä" * 255})), field) == "ä" * 255
    event = read(build(**{field: "ä" * 256}))
    assert getattr(event, field) == "ä" * 255
    assert event.anomalies == (DECORATION_DROPPED,)


@pytest.mark.parametrize(
    ("field", "limit"), [("kind", 255), ("subject_id", 255), ("previous_job_id", 255), ("result_url", 2048)]
)
def test_long_ids_are_dropped(field, limit):
    assert getattr(read(build(**{field: "x" * limit})), field) == "x" * limit
    event = read(build(**{field: "x" * (limit + 1)}))
    assert getattr(event, field) is None
    assert event.anomalies == (DECORATION_DROPPED,)


@pytest.mark.parametrize(
    ("message", "kept", "anomalies"),
    [
        ("x" * 1024, "x" * 1024, ()),
        ("x" * 1025, "x" * 1024, (DECORATION_DROPPED,)),
        ("é" * 512, "é" * 512, ()),
        ("é" * 513, "é" * 512, (DECORATION_DROPPED,)),
        ("x" + "é" * 512, "x" + "é" * 511, (DECORATION_DROPPED,)),
        ("\U0001f600" * 5000, "\U0001f600" * 256, (DECORATION_DROPPED,)),
    ],
    **SHORT,
)
def test_messages_are_cut_by_bytes(message, kept, anomalies):
    event = read(build(error_message=message))
    assert (event.error_message, event.anomalies) == (kept, anomalies)


def test_urls_are_bounded_by_bytes():
    event = read(build(result_url="https://example.com/" + "é" * 1020))
    assert (event.result_url, event.anomalies) == (None, (DECORATION_DROPPED,))


def test_bad_decorations_do_not_cost_a_finish():
    bad = dict.fromkeys((*WORDS, "created_at", "started_at", "completed_at", "metadata"), 7)
    event = read(build(FULL, **bad))
    assert event.status == "succeeded"
    assert event.anomalies == (DECORATION_DROPPED,) * len(bad)
    assert event.batch == BatchRef("invoices-nov", "b1", 3, 7)


def test_overlong_destinations_are_kept_unusable():
    event = read(build(webhook_url="https://example.com/" + "x" * 9000, webhook_id="w" * 900))
    assert len(event.webhook_url) > 2048
    assert len(event.webhook_id) > 255
    assert len(event.anomalies) == 2


@pytest.mark.parametrize("field", ["webhook_url", "webhook_id"])
@pytest.mark.parametrize("value", BAD_VALUES)
def test_destinations_of_a_wrong_type_are_refused(field, value):
    assert refuse(build(**{field: value})) is Reason.SCHEMA


# Metadata: the bytes it came in (F42, F45)


@pytest.mark.parametrize(
    "raw",
    [
        '{"b":1,"a":2}',
        '{"a":1,"a":2}',
        '{ "a" : 1.10, "b":1E2,\n\t"c":-0.0 }',
        '{"n":[9007199254740993,9223372036854775808,18446744073709551616,1e400,1.0]}',
        '{"é":"\\u00e9 \u2028 \U0001f600 \\ud83d\\ude00 \\/"}',
        "{}",
        '{"x":"' + "y" * 4088 + '"}',
    ],
    **SHORT,
)
def test_metadata_is_kept_byte_for_byte(raw):
    event = read(with_raw("metadata", b"  " + raw.encode() + b" \n"))
    assert event.metadata == raw
    assert event.anomalies == ()


@pytest.mark.parametrize(
    "raw",
    [
        "[]",
        '"text"',
        "7",
        "true",
        "1e400",
        "[" * 50 + "]" * 50,
        '{"x":"' + "y" * 4089 + '"}',
        '{"x":"' + "é" * 2045 + '"}',
    ],
    **SHORT,
)
def test_bad_metadata_is_dropped(raw):
    event = read(with_raw("metadata", raw.encode()))
    assert (event.metadata, event.anomalies) == (None, (DECORATION_DROPPED,))


@pytest.mark.parametrize(
    "raw",
    ["{", '{"a":NaN}', '{"a":Infinity}', '{"a":01}', '{"a":1,}', "{'a':1}", '{"a":"\x01"}', '{"a":"\\x"}', "{a:1}", ""],
)
def test_metadata_that_is_no_json(raw):
    assert refuse(with_raw("metadata", raw.encode())) is Reason.INVALID_JSON


# What is no event at all


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", Reason.INVALID_JSON),
        (b" ", Reason.INVALID_JSON),
        (b"{", Reason.INVALID_JSON),
        (b"}", Reason.INVALID_JSON),
        (b"{}}", Reason.INVALID_JSON),
        (b"nul", Reason.INVALID_JSON),
        (b"NaN", Reason.INVALID_JSON),
        (b"\x00\x00\x00\x00\x05avro", Reason.INVALID_JSON),
        (b"<xml/>", Reason.INVALID_JSON),
        (b"// comment\n{}", Reason.INVALID_JSON),
        (b"\xef\xbb\xbf" + json.dumps(LEAST).encode(), Reason.INVALID_JSON),
        (json.dumps(LEAST).encode("utf-16"), Reason.INVALID_UTF8),
        (json.dumps(LEAST).encode("utf-16-le"), Reason.INVALID_JSON),
        (b"\xff", Reason.INVALID_UTF8),
        (b'{"a": "\xc3\x28"}', Reason.INVALID_UTF8),
        (b'{"a": "\xc0\xaf"}', Reason.INVALID_UTF8),
        (b'{"a": "\xed\xa0\x80"}', Reason.INVALID_UTF8),
        (b"\x1f\x8b\x08gzip", Reason.INVALID_UTF8),
        (b"null", Reason.SCHEMA),
        (b"7", Reason.SCHEMA),
        (b'"text"', Reason.SCHEMA),
        (b"[]", Reason.SCHEMA),
        (b"[" + json.dumps(LEAST).encode() + b"]", Reason.SCHEMA),
        (b"{}", Reason.SCHEMA),
        (b"[" * 1100 + b"]" * 1100, Reason.SCHEMA),
        (b'{"a":' * 1100 + b"1" + b"}" * 1100, Reason.SCHEMA),
        (b"[" * 100_000, Reason.SCHEMA),
        (b"x" * (MAX_RECORD_BYTES + 1), Reason.OVERSIZE),
    ],
    **SHORT,
)
def test_poison(value, reason):
    assert refuse(value) is reason


@pytest.mark.parametrize("field", ["unknown", "metadata", "batch", "tenant_id", "stage"])
def test_deep_json_anywhere(field):
    assert refuse(with_raw(field, b"[" * 1100 + b"]" * 1100)) is Reason.SCHEMA
    assert refuse(with_raw(field, b'{"a":' * 1100 + b"1" + b"}" * 1100)) is Reason.SCHEMA


def test_size_limit_is_exact():
    value = encode(LEAST)
    assert read(value + b" " * (MAX_RECORD_BYTES - len(value))) == read(LEAST)
    assert refuse(value + b" " * (MAX_RECORD_BYTES - len(value) + 1)) is Reason.OVERSIZE


NULS_AND_SURROGATES = [
    rb"\u0000",
    rb"\ud800",
    rb"\uDFFF",
    rb"\udbff\u0041",
    rb"\udc00\ud800",
    rb"\\\ud800",
    rb"a\u0000b",
]


@pytest.mark.parametrize("escape", NULS_AND_SURROGATES)
@pytest.mark.parametrize("field", ["tenant_id", "unknown", "error_message", "metadata", "source"])
def test_nul_and_lone_surrogates_anywhere(escape, field):
    assert refuse(with_raw(field, b'"' + escape + b'"')) is Reason.SCHEMA
    assert refuse(with_raw(field, b'{"' + escape + b'": 1}')) is Reason.SCHEMA


@pytest.mark.parametrize(
    "escape", [rb"\\u0000", rb"\ud83d\ude00", rb"\uD83D\uDE00", rb"\\\\ud800", rb"\\\ud83d\ude00", rb"\u0001"]
)
def test_what_only_looks_like_them(escape):
    event = read(with_raw("error_message", b'"' + escape + b'"'))
    assert event.error_message == json.loads(b'"' + escape + b'"')


# CloudEvents


ENVELOPE = {
    "specversion": "1.0",
    "id": "ce-1",
    "source": "https://oatmilk.example/jobs",
    "type": "job.finished",
    "time": "2026-11-30T10:00:00+01:00",
    "datacontenttype": "application/json",
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
}
DATA = {"tenant_id": "t", "job_id": "j", "status": "completed", "metadata": {"b": 1, "a": 2}}


@pytest.fixture
def aliased():
    """Oatmilk with an alias, as an operator's profile may have it."""
    profiles = load_profiles()
    oatmilk = replace(
        profiles.by_name["oatmilk"],
        cloudevents_sources=("https://oatmilk.example/jobs",),
        event_types={"job.finished": EventType.JOB_COMPLETED},
    )
    return Parser(
        replace(
            profiles,
            by_name={**profiles.by_name, "oatmilk": oatmilk},
            by_source={"https://oatmilk.example/jobs": oatmilk},
        )
    )


def structured(**changes):
    return encode({key: value for key, value in (ENVELOPE | {"data": DATA} | changes).items() if value is not GONE})


def binary(**changes):
    attributes = {key: value for key, value in (ENVELOPE | changes).items() if value is not GONE}
    attributes.pop("datacontenttype", None)
    return [(f"ce_{name}", str(text).encode()) for name, text in attributes.items()]


@pytest.mark.parametrize(
    "content_type",
    [
        b"application/cloudevents+json",
        b"application/cloudevents+json; charset=UTF-8",
        b"Application/CloudEvents+JSON;charset=utf-8",
        b" application/cloudevents+json ; x=y",
    ],
)
@pytest.mark.parametrize("header", ["content-type", "Content-Type"])
def test_structured_mode(aliased, content_type, header):
    event = aliased.parse(structured(), [(header, content_type)])
    assert event == JobEvent(
        "ce-1", EventType.JOB_COMPLETED, "oatmilk", NINE, "t", "j", status="completed", metadata='{"b": 1, "a": 2}'
    )
    assert event.trace == ENVELOPE["traceparent"]


@pytest.mark.parametrize("content_type", [(), [("content-type", b"application/json")], [("other", None)]])
def test_binary_mode(aliased, content_type):
    event = aliased.parse(encode(DATA), [*binary(), *content_type])
    assert event == aliased.parse(structured(), [("content-type", b"application/cloudevents+json")])
    assert event.trace == ENVELOPE["traceparent"]


CE = [("content-type", b"application/cloudevents+json")]


def test_envelope_wins_over_its_data(aliased):
    data = DATA | {
        "event_id": "no",
        "event_type": "job.queued",
        "source": "native",
        "occurred_at": "1999-01-01T00:00:00Z",
    }
    assert aliased.parse(structured(data=data), CE) == aliased.parse(structured(), CE)


def test_time_may_be_in_the_data(aliased):
    data = DATA | {"occurred_at": "2026-11-30T09:00:00Z"}
    assert aliased.parse(structured(time=GONE, data=data), CE).occurred_at == NINE
    assert aliased.parse(structured(time=GONE), CE).reason is Reason.SCHEMA
    assert aliased.parse(encode(data), binary(time=GONE)).occurred_at == NINE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"source": "https://nobody.example"}, Reason.UNKNOWN_SOURCE),
        ({"type": "job.exploded"}, Reason.UNKNOWN_TYPE),
        ({"time": "yesterday"}, Reason.SCHEMA),
        ({"id": ""}, Reason.SCHEMA),
        ({"id": GONE}, Reason.SCHEMA),
        ({"source": GONE}, Reason.SCHEMA),
        ({"type": GONE}, Reason.SCHEMA),
    ],
)
def test_bad_envelopes(aliased, changes, reason):
    assert aliased.parse(structured(**changes), CE).reason is reason
    headers = binary(**changes) if changes != {"id": GONE} else [*binary(**changes), ("ce_specversion", b"1.0")]
    assert aliased.parse(encode(DATA), headers).reason is reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{", Reason.INVALID_JSON),
        (b"[]", Reason.SCHEMA),
        (structured(data=7), Reason.SCHEMA),
        (structured(data=GONE), Reason.SCHEMA),
        (structured(data=None), Reason.SCHEMA),
        (structured(data="text"), Reason.SCHEMA),
        (structured(data={"a": [[]]})[:-2], Reason.INVALID_JSON),
        (structured(id=7), Reason.SCHEMA),
        (structured(data=DATA | {"status": "queued"}), Reason.UNKNOWN_STATUS),
        (b'{"data":' * 1100 + b"{}" + b"}" * 1100, Reason.SCHEMA),
    ],
    **SHORT,
)
def test_bad_structured_values(aliased, value, reason):
    assert aliased.parse(value, CE).reason is reason


def test_direct_names_work_in_cloudevents_too(aliased):
    event = aliased.parse(structured(source="native", type="job.started", data={"tenant_id": "t", "job_id": "j"}), CE)
    assert (event.type, event.source) == (EventType.JOB_STARTED, "native")


def test_bad_headers_are_refused_and_strange_ones_ignored(aliased):
    assert aliased.parse(encode(DATA), [*binary(), ("ce_x", b"\xff")]).reason is Reason.INVALID_UTF8
    assert aliased.parse(encode(DATA), [*binary(), ("ce_x", b"a\0")]).reason is Reason.SCHEMA
    assert isinstance(aliased.parse(encode(DATA), [*binary(), ("x", b"\xff\0")]), JobEvent)
    assert read(LEAST, [("x", b"\xff"), ("content-type", None)]) == read(LEAST)


def test_a_batch_of_cloudevents_is_refused(aliased):
    headers = [("content-type", b"application/cloudevents-batch+json")]
    assert aliased.parse(b"[" + structured() + b"]", headers).reason is Reason.SCHEMA


def test_an_envelope_without_its_content_type_is_no_event(aliased):
    assert aliased.parse(structured()).reason is Reason.SCHEMA


BAD_CONTEXTS = [b"", b"garbage", b"00-ABC", b"00-" + b"0" * 400, b"\x1b[31m", b"\xff\xfe", b"a\0b"]


@pytest.mark.parametrize("bad", BAD_CONTEXTS)
@pytest.mark.parametrize("name", ["traceparent", "tracestate", "ce_traceparent", "ce_tracestate"])
def test_a_bad_trace_context_costs_no_event(aliased, name, bad):
    assert read(LEAST, [(name, bad)]).trace is None
    event = aliased.parse(encode(DATA), [*binary(traceparent=GONE), (name, bad)])
    assert isinstance(event, JobEvent)
    assert event.trace is None


@pytest.mark.parametrize("bad", [7, None, "", ["x"], {"a": 1}, "garbage"])
def test_a_bad_extension_costs_no_event(aliased, bad):
    header = ("traceparent", ENVELOPE["traceparent"].encode())
    assert aliased.parse(structured(traceparent=bad, tracestate=bad), CE).trace is None
    assert aliased.parse(structured(traceparent=bad, tracestate=bad), [*CE, header]).trace == ENVELOPE["traceparent"]
    assert aliased.parse(structured(tracestate=bad), CE).trace == ENVELOPE["traceparent"]


def test_trace_context_of_a_plain_record():
    headers = [("traceparent", ENVELOPE["traceparent"].encode()), ("Tracestate", b"a=1,b=2")]
    assert read(LEAST, headers).trace == f"{ENVELOPE['traceparent']} a=1,b=2"


def test_the_event_s_own_context_wins_over_a_hop_s(aliased):
    hop = ("traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01")
    assert aliased.parse(structured(tracestate="a=1"), [*CE, hop]).trace == f"{ENVELOPE['traceparent']} a=1"
    assert aliased.parse(encode(DATA), [*binary(tracestate="a=1"), hop]).trace == f"{ENVELOPE['traceparent']} a=1"
    assert aliased.parse(encode(DATA), [*binary(traceparent=GONE), hop]).trace == hop[1].decode()


# Whatever comes


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.binary())
def test_any_bytes_have_an_answer(value):
    assert isinstance(parse(value), DeadLetter)


@settings(deadline=None, max_examples=40)
@given(st.fixed_dictionaries({}, optional={name: JSON_VALUES | st.just(value) for name, value in FULL.items()}))
def test_any_object_has_an_answer(document):
    result = parse(json.dumps(document).encode())
    assert isinstance(result, JobEvent | DeadLetter)
    if isinstance(result, JobEvent):
        check_bounds(result)


@settings(deadline=None)
@given(st.sampled_from(sorted(FULL)), JSON_VALUES)
def test_one_field_wrong(name, value):
    result = parse(json.dumps(FULL | {name: value}).encode())
    vital = {*LEAST, "batch", "generation", "attempts", "source", "webhook_id", "webhook_url", "status"}
    if isinstance(result, JobEvent):
        check_bounds(result)
    else:
        assert name in vital or "\\u0000" in json.dumps(value) or "\\ud" in json.dumps(value), result


@settings(deadline=None)
@given(JSON_VALUES, JSON_VALUES)
def test_any_envelope_has_an_answer(envelope, data):
    headers = [("content-type", b"application/cloudevents+json")]
    assert isinstance(parse(json.dumps({"data": data, "id": envelope}).encode(), headers), DeadLetter)
    assert isinstance(parse(json.dumps(data).encode(), [("ce_id", json.dumps(envelope).encode())]), DeadLetter)


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)))
def test_any_metadata_is_kept(document):
    raw = json.dumps(document)
    event = parse(with_raw("metadata", raw.encode()))
    if isinstance(event, JobEvent) and len(raw) <= 4096:
        assert event.metadata == raw


@settings(deadline=None)
@given(st.datetimes(), st.integers(-1439, 1439))
def test_any_zone_is_the_same_instant(naive, minutes):
    local = naive.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    result = parse(build(occurred_at=local.isoformat(timespec="microseconds")))
    try:
        expected = local.astimezone(UTC)
    except OverflowError:
        assert isinstance(result, DeadLetter)
    else:
        assert result.occurred_at == expected


def check_bounds(event):
    assert 1 <= len(event.tenant_id) <= 255
    for word in (event.stage, event.status, event.kind, event.subject_id, event.subject_status, event.error_code):
        assert word is None or 1 <= len(word) <= 255
    assert len((event.error_message or "").encode()) <= 1024
    assert len((event.result_url or "").encode()) <= 2048
    assert event.metadata is None or (event.metadata.startswith("{") and len(event.metadata.encode()) <= 4096)
    for time in (event.occurred_at, event.created_at, event.started_at, event.completed_at):
        assert time is None or (time.tzinfo is UTC and math.isfinite(time.timestamp()))
