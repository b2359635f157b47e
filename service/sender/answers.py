"""One answer, from its first byte to the end of its body (RFC 9112): bytes in, facts out, no socket in sight.

Belongs here: status line, header block, interim answers, body framing, the excerpt and the flags. Does not belong
here: what a status means (``verdicts``) and connections.

An answer counts as one when its whole header block is there and valid; from then on nothing that the body does changes
it. Whatever is strange about a body only costs the connection.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TypeAlias

from service.domain.attempts import Flag
from service.sender.chunks import ChunkReader

MAX_EXCERPT = 4096
MAX_HEAD = 32768
MAX_LINE = 8190
MAX_HEADERS = 128
MAX_INTERIM = 16
MAX_RETRY_AFTER = 4

_STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9][0-9])(?: [^\x00\r\n]*)?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_SWITCHING = 101
_NO_BODY = frozenset({_SWITCHING, 204, 304})
_FIRST_FINAL = 200
_HTTP_PREFIX = b"HTTP/"
# The usual answer in one look. Ordinary: any field but those that say where the body ends or what happens next.
_ORDINARY = (
    rb"(?:[!-9;-BD-QSU-bd-qsu-~][!-9;-~]*+:[^\r\n]*+"
    rb"|[Cc](?:onnection: ?keep-alive|ontent-[Tt]ype:[^\r\n]*+|ache-[Cc]ontrol:[^\r\n]*+)"
    rb"|[CcRrTt](?!(?i:onnection|ontent-length|etry-after|ransfer-encoding)[ \t]*:)[!-9;-~]*+:[^\r\n]*+)\r\n"
)
_PLAIN_HEAD = re.compile(
    rb"HTTP/1\.1 ([2-9][0-9][0-9])(?: [^\r\n\0]*+)?\r\n"
    rb"(?:%b){0,60}+(?:[Cc]ontent-[Ll]ength: ?([0-9]{1,15})\r\n(?:%b){0,60}+)?+\r\n" % (_ORDINARY, _ORDINARY),
)
_FOLD = (b" ", b"\t")  # RFC 9112 5.2
# The fields that are read, by the length of their names: most lines are told apart by that alone.
_KNOWN = {10: b"connection", 11: b"retry-after", 14: b"content-length", 17: b"transfer-encoding"}
_Fields: TypeAlias = dict[bytes, list[bytes]]


class State(Enum):
    """How far an answer has been read."""

    HEAD = auto()
    BODY = auto()
    DONE = auto()
    BROKEN = auto()  # no valid answer; never after the head was read


class AnswerReader:
    """Reads one answer.

    ``status`` is set once the final header block was read. ``reusable`` then says whether the connection may carry
    another request, which also needs ``state`` to be ``DONE``. ``surplus`` is True when bytes followed the answer.
    ``problem`` is a short word for a broken head.
    """

    # Defaults stay on the class: most answers change few of them, and one is made for every attempt.
    state = State.HEAD
    status = 0
    reusable = False
    surplus = False
    truncated = False
    excerpt = b""
    problem = ""
    retry_after: tuple[str, ...] = ()
    _touched = False
    _buffer = b""
    _left: int | None = 0
    _total = 0
    _interim = 0
    _chunks: ChunkReader | None = None

    @property
    def body_bytes(self) -> int:
        """Body bytes read so far, the framing left out."""
        return self._total

    @property
    def cut(self) -> bool:
        """True when the body is longer than the excerpt."""
        return self._total > MAX_EXCERPT

    @property
    def plain(self) -> bool:
        """True when there is nothing to flag, as with most answers."""
        return self.reusable and self.state is State.DONE and self._total <= MAX_EXCERPT

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the connection."""
        if self.state is State.HEAD:
            if self._touched or not self._feed_plain(data):
                self._touched = True
                self._feed_head(self._buffer + data)
        elif self.state is State.BODY:
            self._feed_body(data)
        elif (
            self.state is State.DONE and not self.truncated
        ):  # behind broken chunks, what is surplus is anybody's guess
            self._mark_surplus()

    def end(self) -> None:
        """The connection is at its end: it completes, cuts short or leaves out the answer."""
        self.reusable = False
        if self.state is State.HEAD:
            self._break("head_cut_short" if self._touched else "closed")
        elif self.state is State.BODY:
            self.truncated = self._left is not None or self._chunks is not None
            self.state = State.DONE

    def flags(self) -> frozenset[Flag]:
        """What is odd so far; a body that is not at its end counts as incomplete."""
        found = set()
        if self.surplus:
            found.add(Flag.SURPLUS_BYTES)
        if self.truncated or self.state is State.BODY:
            found.add(Flag.BODY_INCOMPLETE)
        if self.cut:
            found.add(Flag.BODY_CUT)
        return frozenset(found)

    def _break(self, problem: str) -> None:
        self.state = State.BROKEN
        self.problem = problem

    def _mark_surplus(self) -> None:
        self.surplus = True
        self.reusable = False

    def _feed_plain(self, data: bytes) -> bool:
        """The usual answer, whole in its first segment and with nothing special about it, at a fifth of the cost."""
        head = _PLAIN_HEAD.match(data, 0, MAX_LINE)
        if head is None:
            return False
        status, length = int(head[1]), head[2]
        if status in _NO_BODY:
            length = b"0"
        elif length is None:  # until the connection closes
            return False
        self._touched = self.reusable = True
        self.status = status
        self._left = int(length)
        self.state = State.BODY if self._left else State.DONE
        end = head.end()
        if len(data) > end:
            self.feed(data[end:])
        return True

    def _feed_head(self, data: bytes) -> None:
        while self.state is State.HEAD:
            data = data.lstrip(b"\r\n")
            end, body = _find_head_end(data)
            if end < 0:
                self._buffer = data
                self._judge_partial(data)
                return
            self._buffer = b""
            head, data = data[:end], data[body:]
            self._parse_head(head)
        if data and self.state is not State.BROKEN:
            self.feed(data)

    def _judge_partial(self, data: bytes) -> None:
        """Give up at once on what can never become a valid head, rather than at the deadline."""
        line, newline, _ = data.partition(b"\n")
        if not data.startswith(_HTTP_PREFIX[: len(data)]):
            self._break("not_http")
        elif newline and not _STATUS_LINE.fullmatch(line.removesuffix(b"\r")):
            self._break("status_line")
        elif len(data) > MAX_HEAD or len(data) - data.rfind(b"\n") > MAX_LINE:
            self._break("head_too_long")

    def _parse_head(self, head: bytes) -> None:
        lines = head.split(b"\n")
        match = _STATUS_LINE.fullmatch(lines[0].removesuffix(b"\r"))
        if match is None:
            self._break("status_line" if head.startswith(_HTTP_PREFIX) else "not_http")
        elif len(lines) > MAX_HEADERS + 1:
            self._break("too_many_headers")
        elif len(head) > MAX_LINE and (len(head) > MAX_HEAD or max(map(len, lines)) > MAX_LINE):
            self._break("head_too_long")
        else:
            self._take_head(int(match[2]), match[1] != b"0", lines)

    def _take_head(self, status: int, persistent: bool, lines: list[bytes]) -> None:  # noqa: FBT001
        fields = _parse_fields(lines)
        if fields is None:
            self._break("header_line")
        elif status < _FIRST_FINAL and status != _SWITCHING:
            self._interim += 1
            if self._interim > MAX_INTERIM:
                self._break("interim_flood")
        elif not _is_framed(fields):
            self._break("framing")
        else:
            self.status = status
            if b"retry-after" in fields:
                self.retry_after = tuple(v.decode("latin-1") for v in fields[b"retry-after"][:MAX_RETRY_AFTER])
            self._start_body(status, persistent, fields)

    def _start_body(self, status: int, persistent: bool, fields: _Fields) -> None:  # noqa: FBT001
        """RFC 9112 6.3, in its order."""
        self.state = State.BODY
        self.reusable = status != _SWITCHING and _keeps_alive(persistent, fields)
        codings = b",".join(fields.get(b"transfer-encoding", ())).lower()
        if status in _NO_BODY:
            self._left = 0
        elif codings.rpartition(b",")[2].strip() == b"chunked" and persistent:
            self._chunks = ChunkReader()
            return
        elif b"content-length" in fields:
            self._left = int(fields[b"content-length"][0])
        else:  # until the connection closes
            self._left = None
            self.reusable = False
        if self._left == 0:
            self.state = State.DONE

    def _feed_body(self, data: bytes) -> None:
        if self._chunks is not None:
            self._feed_chunks(self._chunks, data)
        elif self._left is None:
            self._keep(data)
        else:
            self._keep(data[: self._left])
            surplus = len(data) > self._left
            self._left = max(0, self._left - len(data))
            if not self._left:
                self.state = State.DONE
            if surplus:
                self._mark_surplus()

    def _feed_chunks(self, chunks: ChunkReader, data: bytes) -> None:
        self._keep(chunks.feed(data))
        if chunks.broken:
            self.truncated = True
            self.reusable = False
            self.state = State.DONE
        elif chunks.done:
            self.state = State.DONE
            if chunks.surplus:
                self._mark_surplus()

    def _keep(self, data: bytes) -> None:
        self._total += len(data)
        if len(self.excerpt) < MAX_EXCERPT:
            self.excerpt += data[: MAX_EXCERPT - len(self.excerpt)]


def _find_head_end(data: bytes) -> tuple[int, int]:
    """Where the header block ends and the body begins, or -1; a lone LF ends a line too (RFC 9112 2.2)."""
    end = data.find(b"\n\r\n")
    bare = data.find(b"\n\n", 0, end + 1 if end >= 0 else len(data))
    return (bare, bare + 2) if bare >= 0 else (end, end + 3)


def _parse_fields(lines: list[bytes]) -> _Fields | None:
    """The values of the fields that are read; None when a line is no header field, or folds one of them."""
    fields: _Fields = {}
    known = False
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if name[:1] in _FOLD:
            if known:
                return None
            continue
        if not colon or not name:
            return None
        known = len(name) in _KNOWN and name.lower() == _KNOWN[len(name)]
        if known:
            fields.setdefault(_KNOWN[len(name)], []).append(value.strip(b" \t\r"))
    return fields


def _is_framed(fields: _Fields) -> bool:
    """False for what two readers could take for two bodies (RFC 9112 6.3, request smuggling)."""
    lengths = fields.get(b"content-length")
    if lengths is None:
        return True
    return len(lengths) == 1 and b"transfer-encoding" not in fields and _LENGTH.fullmatch(lengths[0]) is not None


def _keeps_alive(persistent: bool, fields: _Fields) -> bool:  # noqa: FBT001
    """RFC 9112 9.3."""
    values = fields.get(b"connection")
    if values is None:
        return persistent
    options = {option.strip() for option in b",".join(values).lower().split(b",")}
    return b"close" not in options and (persistent or b"keep-alive" in options)
