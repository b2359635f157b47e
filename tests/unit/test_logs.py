"""Logs: the form of a line, and canaries that must not be in any (F70)."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import io
import logging
import sys
import threading
import warnings
from datetime import UTC, datetime
from types import SimpleNamespace

import asyncpg
import orjson
import pytest
import structlog
from aiohttp import ClientResponseError, RequestInfo
from multidict import CIMultiDict, CIMultiDictProxy
from pydantic import TypeAdapter, ValidationError
from yarl import URL

from service.logs import REDACTED, Redactor, configure, get_logger, sink

NOW = datetime(2026, 11, 30, 9, 0, 0, 250_000, tzinfo=UTC)
CANARY = "canary7f31xyz"


class Lines:
    """What was written, and the redactor it went through."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.redactor = Redactor()

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def events(self) -> list[dict]:
        return [orjson.loads(line) for line in self.text.splitlines()]

    @property
    def event(self) -> dict:
        (event,) = self.events
        return event


@pytest.fixture
def lines():
    found = Lines()
    undo = configure(now=lambda: NOW, redactor=found.redactor, stream=found.stream)
    yield found
    undo()


@pytest.fixture
def console():
    found = Lines()
    undo = configure(now=lambda: NOW, redactor=found.redactor, stream=found.stream, form="console", level="debug")
    yield found
    undo()


def test_a_line_is_one_json_object_with_the_event_first(lines):
    get_logger(webhook_id="wh_1").warning(
        "attempt_failed", delivery_id=7, outcome="timeout", took=0.5, again=True, at_all=None
    )
    assert lines.text.startswith('{"at":"2026-11-30T09:00:00.250Z","level":"warning","event":"attempt_failed",')
    assert lines.event == {
        "at": "2026-11-30T09:00:00.250Z",
        "level": "warning",
        "event": "attempt_failed",
        "webhook_id": "wh_1",
        "delivery_id": 7,
        "outcome": "timeout",
        "took": 0.5,
        "again": True,
        "at_all": None,
    }


def test_levels_below_the_configured_one_are_not_written(lines):
    get_logger().debug("seen_by_nobody")
    assert lines.text == ""


def test_context_of_the_task_is_on_every_line(lines):
    def inside() -> None:
        structlog.contextvars.bind_contextvars(trace_id="t1")
        get_logger().info("a")

    contextvars.copy_context().run(inside)
    assert lines.event["trace_id"] == "t1"


def test_values_of_every_type(lines):
    get_logger().info(
        "a", raw_size=b"12345", many=[1, "x", {"b": {2}}], when=NOW, error_text=ValueError("bad"), odd=object
    )
    assert lines.event["raw_size"] == "<5 bytes>"
    assert lines.event["many"] == [1, "x", {"b": [2]}]
    assert lines.event["when"] == "2026-11-30T09:00:00.250000Z"
    assert lines.event["error_text"] == "ValueError: bad"


def test_a_value_that_cannot_be_shown_costs_nothing_else(lines):
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    get_logger().info("a", thing=Broken())
    get_logger().info("b", exc_info=Broken())
    first, second = lines.events
    assert first["thing"] == "<Broken>"
    assert second["error"].endswith("Broken")


def test_control_characters_are_escaped_and_a_line_stays_one(lines):
    get_logger().info("a", text="\x1b[31mred\x00\x85\u202eevil\u2028\ud800\nnext", **{"na\x1bme": 1})
    assert lines.text.count("\n") == 1
    assert lines.event["text"] == "\\x1b[31mred\\x00\\x85\\u202eevil\\u2028\\ud800\nnext"
    assert lines.event["na\\x1bme"] == 1


def test_console_lines_forge_nothing(console):
    get_logger().info("a", text="one\n2026 [info] forged\x1b[2J")
    assert console.text.count("\n") == 1
    assert "\x1b" not in console.text


def test_an_exception_is_in_its_line(lines):
    try:
        int("x" * 0)
    except ValueError:
        get_logger().exception("handling_failed")
    assert lines.event["level"] == "error"
    assert lines.event["error"] == "ValueError"
    assert lines.event["exception"].endswith("ValueError: invalid literal for int() with base 10: ''\n")


def test_an_exception_whose_traceback_cannot_be_made_is_still_told(lines, monkeypatch):
    def refuse(_: BaseException) -> list[str]:
        raise RecursionError

    monkeypatch.setattr(sink.traceback, "format_exception", refuse)
    get_logger().error("a", exc_info=ValueError("x"))
    assert lines.event["exception"] == "ValueError"


def test_exc_info_without_an_exception_is_no_exception(lines):
    get_logger().error("a", exc_info=True)
    get_logger().error("b", exc_info=(None, None, None))
    assert all("exception" not in event for event in lines.events)


TEXTS = {
    "dsn": f"cannot connect to postgresql://webhookd:{CANARY}@db:5432/webhookd?sslmode=off",
    "dsn_slash": f"postgres://u:pa/{CANARY}@db/x is wrong",
    "dsn_words": f"host=db user=u password={CANARY} dbname=x",
    "dsn_quoted": f"host=db password='{CANARY} with space' dbname=x",
    "sasl": f"SASL failed: sasl_plain_password='{CANARY}', mechanism=PLAIN",
    "url_path": f"POST to https://receiver.example/hooks/{CANARY} failed",
    "url_query": f"https://receiver.example?token={CANARY}",
    "url_fragment": f"https://receiver.example#{CANARY}",
    "url_user": f"https://user:{CANARY}@receiver.example/",
    "url_user_odd": f"https://user:a#{CANARY}@receiver.example/",
    "url_relative": f"redirect to /hook?key={CANARY}",
    "request_line": f'"POST /v1/batches/{CANARY}/webhook HTTP/1.1" 500',
    "bearer": f"authorization was Bearer {CANARY}",
    "basic": f"sent Basic {CANARY}=",
    "header_line": f"Authorization: {CANARY}",
    "header_custom": f"X-Api-Key: {CANARY}",
    "header_dict": f"headers={{'Custom': '{CANARY}', 'b': ')'}}",
    "header_proxy": f"<CIMultiDictProxy('Custom': 'a) {CANARY}')>",
    "secret": f"whsec_{CANARY}",
    "private": f"key whsk_{CANARY}, then more",
    "body": f'cannot parse b\'{{"metadata": "{CANARY}"}}\'',
    "body_double": f'cannot parse b"it\'s {CANARY}"',
    "input": f"field\n  wrong [type=int, input_value='{CANARY}', input_type=str]",
    "argument": f"invalid input for query argument $1: '{CANARY}' (expected int)",
    "row": f"violates not-null\nDETAIL:  Failing row contains (1, {CANARY}).",
    "key": f"duplicate key: Key (tenant_id, url)=(a, {CANARY}) already exists.",
    "cookie": f"Set-Cookie: session={CANARY}; HttpOnly",
    "api_key": f'{{"api_key": "{CANARY}"}}',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("way", ["field", "nested", "exception", "library", "chained"])
def test_f70_no_canary_reaches_the_log(lines, text, way):
    match way:
        case "field":
            get_logger().error("a", detail=text)
        case "nested":
            get_logger().error("a", detail=[{"b": (text,)}])
        case "exception":
            get_logger().error("a", exc_info=RuntimeError(text))
        case "library":
            logging.getLogger("aiokafka.conn").error("failed: %s", text)
        case "chained":
            error = RuntimeError("outer")
            error.__cause__ = ValueError(text)
            get_logger().error("a", exc_info=error)
    assert lines.text
    assert CANARY not in lines.text


@pytest.mark.parametrize(
    "name", ["headers", "body", "custom_headers", "dsn", "Password", "query", "path", "Secret", "token"]
)
def test_f70_fields_that_hold_what_must_not_be_logged(lines, name):
    get_logger().info("a", **{name: {"any": CANARY}})
    get_logger().info("a", nested={name: CANARY})
    assert lines.events[0][name] == REDACTED
    assert CANARY not in lines.text


@pytest.mark.parametrize(
    "secret", ["p@ss w/rd", 'quo"ted\\', "pw4!", "multi\nline secret", "12345678", "s3cr3t-operator-key"]
)
def test_f70_registered_secrets_are_masked_wherever_they_stand(lines, secret):
    lines.redactor.register(secret)
    number = int(secret) if secret.isdigit() else 0
    get_logger().info("a", plain=f"x {secret} y", shown=repr(secret), number=number, **{f"k {secret}": 1})
    get_logger().info("a", encoded=f"x {URL.build(query={'k': secret}).query_string} y", exc_info=OSError(secret))
    for form in (secret, repr(secret)[1:-1], orjson.dumps(secret).decode()[1:-1]):
        assert form not in lines.text
    assert len(lines.events) == 2


def test_short_secrets_are_masked_as_words_and_the_shortest_not_at_all(lines):
    lines.redactor.register("post", "abc", "")
    get_logger().info("a", text="post posted abc")
    assert lines.event["text"] == f"{REDACTED} posted abc"


def test_what_operators_need_stays(lines):
    texts = {
        "origin": ("POST to https://receiver.example:8443/x failed", "POST to https://receiver.example:8443 failed"),
        "ipv6": ("http://[2001:db8::1]:80/x", "http://[2001:db8::1]:80"),
        "auth": ('password authentication failed for user "webhookd"',) * 2,
        "basic": ("basic authentication is off",) * 2,
        "plain": ("msg_p5jXN8AQM9LWM0D4loKWxJek",) * 2,
        "tls": ("tls_error: certificate has expired (_ssl.c:1006)",) * 2,
    }
    get_logger().info("a", **{name: given for name, (given, _) in texts.items()})
    assert {name: lines.event[name] for name in texts} == {name: kept for name, (_, kept) in texts.items()}


def test_very_long_values_are_cut(lines):
    get_logger().info("a", text="x y" * 100_000)
    assert len(lines.text) < 20_000


@pytest.mark.parametrize(
    "unit", ["passw", "x-", "b'", "input_value=", "bearer ", "a://", "headers=", "?a=", "token ", "key ("]
)
@pytest.mark.timeout(60)  # where a pattern backtracks, this takes hours
def test_no_text_is_slow_to_clean(unit):
    assert Redactor(["secret-of-the-test"]).text(unit * 20_000)


async def test_f70_a_bad_dsn_and_a_refused_login(lines):
    with pytest.raises(Exception) as bad:
        await asyncpg.connect(f"postgresql://u:{CANARY}@127.0.0.1:1/d?{CANARY}=1", timeout=30)
    get_logger().error("database_unreachable", exc_info=bad.value)
    assert lines.event["event"] == "database_unreachable"
    assert CANARY not in lines.text


def test_f70_what_aiohttp_and_pydantic_put_into_their_exceptions(lines):
    headers = CIMultiDictProxy(CIMultiDict({"X-Custom": CANARY, "Other": f"a)> {CANARY}"}))
    url = URL(f"https://receiver.example/{CANARY}")
    response = ClientResponseError(RequestInfo(url, "POST", headers, url), (), status=400, headers=headers)
    with pytest.raises(ValidationError) as invalid:
        TypeAdapter(int).validate_python(CANARY)
    get_logger().error("a", exc_info=response, shown=repr(response))
    get_logger().error("b", exc_info=invalid.value)
    assert CANARY not in lines.text
    assert "https://receiver.example" in lines.events[0]["exception"]


def test_libraries_speak_through_the_same_sink(lines):
    logging.getLogger("aiokafka").warning("broker %s is gone", "b:9092")
    logging.getLogger("aiokafka").info("not worth a line")
    assert lines.event == {
        "at": "2026-11-30T09:00:00.250Z",
        "level": "warning",
        "event": "library_log",
        "logger": "aiokafka",
        "message": "broker b:9092 is gone",
    }


def test_a_library_with_a_broken_format_string(lines):
    record = logging.LogRecord("odd", logging.ERROR, __file__, 1, "%s and %s", ("one",), None)
    (bridge,) = (handler for handler in logging.getLogger().handlers if type(handler).__module__ == sink.__name__)
    bridge.handle(record)  # pytest's own handlers would raise
    assert lines.event["message"] == "%s and %s"


def test_debug_lets_libraries_talk(console):
    logging.getLogger("aiokafka").info("joined")
    assert "joined" in console.text


def test_access_logs_of_aiohttp_are_off_because_they_hold_paths(lines):
    logging.getLogger("aiohttp.access").error("GET /secret-path")
    assert lines.text == ""


def test_warnings_go_to_the_sink(lines):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn(f"https://h.example/{CANARY}", stacklevel=1)
    assert lines.event["logger"] == "py.warnings"
    assert CANARY not in lines.text


async def test_f70_exceptions_that_nobody_caught(lines):
    error = RuntimeError(f"postgresql://u:{CANARY}@h/d")
    sys.excepthook(RuntimeError, error, None)
    sys.unraisablehook(SimpleNamespace(exc_value=error))
    threading.excepthook(SimpleNamespace(exc_value=error))
    asyncio.get_running_loop().call_exception_handler({"message": "never awaited", "exception": error})
    assert [event["event"] for event in lines.events] == [
        *("crashed", "unraisable_exception", "thread_crashed", "library_log")
    ]
    assert CANARY not in lines.text


def test_an_interrupt_is_no_crash(lines):
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert lines.text == ""


def test_undo_restores_what_was_there():
    before = (sys.excepthook, logging.getLogger().level, logging.getLogger("aiohttp.access").disabled)
    configure(now=lambda: NOW, redactor=Redactor(), stream=io.StringIO())()
    assert (sys.excepthook, logging.getLogger().level, logging.getLogger("aiohttp.access").disabled) == before


class FullDisk(io.RawIOBase):
    """A file on a disk with so much room."""

    def __init__(self, room):
        self.room = room
        self.content = b""

    def writable(self):
        return True

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = bytes(data[: self.room])
        self.content += taken
        self.room -= len(taken)
        return len(taken)


def test_lines_that_cannot_be_written_are_counted_and_raise_nothing():
    disk = FullDisk(room=0)
    stream = io.TextIOWrapper(io.BufferedWriter(disk), encoding="utf-8")
    undo = configure(now=lambda: NOW, redactor=Redactor(), stream=stream)
    try:
        get_logger().info("first")
        disk.room = 30  # not enough for a line
        get_logger().info("second")
        disk.room = 10_000
        get_logger().info("third")
        get_logger().info("fourth")
    finally:
        undo()
    cut, *lines = disk.content.splitlines()
    assert len(cut) == 30
    assert [(line["event"], line.get("count")) for line in map(orjson.loads, lines)] == [
        ("log_lines_lost", 2),
        ("third", None),
        ("fourth", None),
    ]


def test_a_closed_stream_is_no_error():
    stream = io.StringIO()
    undo = configure(now=lambda: NOW, redactor=Redactor(), stream=stream)
    stream.close()
    try:
        get_logger().info("event")
    finally:
        undo()
