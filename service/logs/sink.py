"""The one place that lines are written by: our events, libraries' log records, warnings and crashes.

Belongs here: turning an event into one line (JSON, or text for people), and routing everything that could print into it.
Does not belong here: what is masked (``redaction``).
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, TextIO, cast

import orjson
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from service.logs.redaction import Redactor

Logger = FilteringBoundLogger
Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "console"]

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_FIRST = ("at", "level", "event")


def get_logger(**bound: Any) -> Logger:
    """A logger with fields bound to every line. Whatever ``configure`` said last holds, also for older loggers."""
    return cast("Logger", structlog.stdlib.get_logger(**bound))


def configure(
    *,
    now: Callable[[], datetime],
    redactor: Redactor,
    level: Level = "info",
    form: Format = "json",
    stream: TextIO | None = None,
) -> Callable[[], None]:
    """Send everything through one sink to ``stream`` (default: standard error); returns what undoes it, for tests.

    Libraries are heard from ``warning`` on (with ``debug``, from ``info`` on), as ``library_log`` events.
    """
    sink = _Sink(now, redactor, form)
    outlet = _Outlet(sys.stderr if stream is None else stream, sink.count_lost)
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, sink],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", outlet)),
        cache_logger_on_first_use=False,
    )
    undo = ExitStack()
    undo.callback(structlog.reset_defaults)
    _route_libraries(logging.INFO if level == "debug" else max(_LEVELS[level], logging.WARNING), undo)
    _route_crashes(undo)
    return undo.close


class _Sink:
    """The last processor: event in, redacted line out. Never raises."""

    def __init__(self, now: Callable[[], datetime], redactor: Redactor, form: Format) -> None:
        self._now = now
        self._redactor = redactor
        self._render = _render_json if form == "json" else structlog.dev.ConsoleRenderer(colors=False)

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> str:
        event["at"] = self._now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        error = _error_of(event.pop("exc_info", None))
        if error is not None:
            event["error"] = type(error).__qualname__
            event["exception"] = _traceback_of(error)
        ordered = {name: event.pop(name) for name in _FIRST if name in event}
        ordered.update(event)
        return self._redactor.line(str(self._render(logger, method, self._redactor.fields(ordered))))

    def count_lost(self, count: int) -> str:
        """The line that says how many before it were lost."""
        return self(None, "warning", {"level": "warning", "event": "log_lines_lost", "count": count})


class _Outlet:
    """What lines go to. One that cannot be written is dropped and counted: a full disk stops no delivery.

    Bytes go past the stream's buffer, which would keep what failed, and offer it again at each line and at the exit.
    """

    def __init__(self, stream: TextIO, count_lost: Callable[[int], str]) -> None:
        self._stream = stream
        self._raw: Any = getattr(getattr(stream, "buffer", None), "raw", None)
        self._count_lost = count_lost
        self._lost = 0
        self._cut = False

    def write(self, line: str) -> None:
        """Write a line with its end, after one about those that were lost before it. Raises nothing."""
        text = line
        if self._lost:
            text = ("\n" if self._cut else "") + f"{self._count_lost(self._lost)}\n{line}"
        try:
            self._put(text)
        except (OSError, ValueError):  # disk full, reader gone, closed
            self._lost += 1
        else:
            self._lost, self._cut = 0, False

    def flush(self) -> None:
        """Nothing is held back."""

    def _put(self, text: str) -> None:
        if self._raw is None:
            self._stream.write(text)
            self._stream.flush()
            return
        left = memoryview(text.encode("utf-8", "backslashreplace"))
        while left:
            written = self._raw.write(left)
            if written is None:
                raise BlockingIOError
            left, self._cut = left[written:], True


def _render_json(_: WrappedLogger, __: str, event: EventDict) -> str:
    return orjson.dumps(event, option=orjson.OPT_NON_STR_KEYS, default=str).decode()


def _error_of(exc_info: object) -> BaseException | None:
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return next((part for part in exc_info if isinstance(part, BaseException)), None)
    return sys.exception() if exc_info else None


def _traceback_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - an exception whose text cannot be made must not hide that it happened
        return type(error).__qualname__


class _Bridge(logging.Handler):
    """Standard library log records as ``library_log`` events."""

    def emit(self, record: logging.LogRecord) -> None:
        """One record, one line."""
        level = min(record.levelno, logging.CRITICAL)
        structlog.get_logger().log(
            level, "library_log", logger=record.name, message=_message_of(record), exc_info=record.exc_info
        )


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a library's bad format string is not ours to fail on
        return str(record.msg)


def _route_libraries(level: int, undo: ExitStack) -> None:
    root, access = logging.getLogger(), logging.getLogger("aiohttp.access")
    bridge = _Bridge()
    undo.callback(root.setLevel, root.level)
    undo.callback(setattr, access, "disabled", access.disabled)
    undo.callback(root.removeHandler, bridge)
    undo.callback(logging.captureWarnings, capture=False)
    root.setLevel(level)
    root.addHandler(bridge)
    access.disabled = True  # it writes paths and queries; what is worth a line has an event
    logging.captureWarnings(capture=True)


def _route_crashes(undo: ExitStack) -> None:
    for owner, name, hook in (
        (sys, "excepthook", _on_crash),
        (sys, "unraisablehook", _on_unraisable),
        (threading, "excepthook", _on_thread_crash),
    ):
        undo.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, hook)


def _on_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    structlog.get_logger().critical("crashed", exc_info=error.with_traceback(trace))


def _on_thread_crash(args: threading.ExceptHookArgs) -> None:
    structlog.get_logger().error("thread_crashed", exc_info=args.exc_value)


def _on_unraisable(args: Any) -> None:
    structlog.get_logger().error("unraisable_exception", exc_info=args.exc_value)
