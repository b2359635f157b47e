"""The chunked transfer coding, read incrementally and without trust (RFC 9112 7.1).

Belongs here: where chunks begin and end. Does not belong here: what is done with their data (``answers``).
"""

from __future__ import annotations

import re
from enum import Enum, auto

MAX_LINE = 1024  # a chunk's size with extensions, or a trailer line
MAX_TRAILERS = 64
_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")


class _State(Enum):
    SIZE = auto()
    DATA = auto()
    DATA_END = auto()
    TRAILER = auto()
    DONE = auto()
    BROKEN = auto()


class ChunkReader:
    """Takes bytes as they come; ``feed`` gives the data in them.

    After ``done`` the rest of the last ``feed`` is in ``surplus``; after ``broken`` nothing more is read.
    """

    __slots__ = ("_left", "_line", "_state", "_trailers", "surplus")

    def __init__(self) -> None:
        self._state = _State.SIZE
        self._left = 0
        self._line = b""
        self._trailers = 0
        self.surplus = b""

    @property
    def done(self) -> bool:
        return self._state is _State.DONE

    @property
    def broken(self) -> bool:
        return self._state is _State.BROKEN

    def feed(self, data: bytes) -> bytes:
        """The chunks' data found in ``data``; incomplete lines are kept for the next call."""
        out: list[bytes] = []
        while data and self._state not in {_State.DONE, _State.BROKEN}:
            data = self._take_data(data, out) if self._state is _State.DATA else self._take_line(data)
        self.surplus = data if self.done else b""
        return b"".join(out)

    def _take_data(self, data: bytes, out: list[bytes]) -> bytes:
        piece = data[: self._left]
        out.append(piece)
        self._left -= len(piece)
        if not self._left:
            self._state = _State.DATA_END
        return data[len(piece) :]

    def _take_line(self, data: bytes) -> bytes:
        head, newline, rest = data.partition(b"\n")
        self._line += head
        if len(self._line) > MAX_LINE:
            self._state = _State.BROKEN
        elif newline:
            line, self._line = self._line.removesuffix(b"\r"), b""
            self._state = self._judge_line(line)
        return rest

    def _judge_line(self, line: bytes) -> _State:
        if self._state is _State.SIZE:
            return self._judge_size(line)
        if self._state is _State.DATA_END:
            return _State.BROKEN if line else _State.SIZE
        self._trailers += 1
        if self._trailers > MAX_TRAILERS:
            return _State.BROKEN
        return _State.TRAILER if line else _State.DONE

    def _judge_size(self, line: bytes) -> _State:
        match = _SIZE.fullmatch(line)
        if match is None:
            return _State.BROKEN
        self._left = int(match[1], 16)
        return _State.DATA if self._left else _State.TRAILER
