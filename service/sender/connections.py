"""One connection: a request goes out, its answer comes back, and the connection is kept or closed.

Belongs here: the life of a connection after it was made. Does not belong here: making one (``dialing``), keeping idle
ones (``pool``), reading answers (``answers``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeAlias, cast

from service.domain.attempts import OutcomeClass
from service.domain.outbound import Hop
from service.sender.answers import MAX_EXCERPT, AnswerReader, State
from service.sender.failures import Failure, lost_failure
from service.sender.sweep import Watched

MAX_DRAIN = 65536  # body bytes read for the sake of keeping the connection
DRAIN_SECONDS = 1.0

Result: TypeAlias = AnswerReader | Failure


class Keeper(Protocol):
    """Who keeps connections between requests."""

    def adopt(self, connection: Connection) -> None:
        """A new connection, ready for its first request."""

    def release(self, connection: Connection) -> None:
        """The connection may carry another request."""

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""

    def distrust(self, connection: Connection) -> None:
        """Its receiver sent bytes that nobody asked for."""


class Connection(asyncio.Protocol):
    """A connection to one checked address, with at most one request on it (no pipelining).

    ``grace`` is how many seconds an answer whose body did not come with its head is held back for the sake of the
    excerpt; the outcome itself is decided by then.
    """

    __slots__ = (
        "_answer",
        "_clock",
        "_grace",
        "_held",
        "_keeper",
        "_loop",
        "_transport",
        "_waiter",
        "_watched",
        "deadline",
        "hop",
        "idle_since",
        "made_at",
    )

    def __init__(
        self, hop: Hop, keeper: Keeper, watched: set[Watched], clock: Callable[[], float], grace: float
    ) -> None:
        self.hop = hop
        self.made_at = self.idle_since = clock()
        self.deadline = 0.0
        self._keeper = keeper
        self._watched = watched
        self._clock = clock
        self._grace = grace
        self._held: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._answer: AnswerReader | None = None
        self._waiter: asyncio.Future[Result] | None = None

    @property
    def usable(self) -> bool:
        """True while another request may go out on it."""
        return self._transport is not None and not self._transport.is_closing()

    def post(self, payload: bytes, deadline: float) -> asyncio.Future[Result]:
        """Write a whole request; the future gives its answer, with the head read, or why there is none.

        ``deadline`` is in seconds of the clock. The future is cancelled by ``abort`` and never raises otherwise.
        """
        self._waiter = waiter = self._loop.create_future()
        if self._transport is None:
            waiter.set_result(lost_failure(None, "closed"))
            return waiter
        self.deadline = deadline
        self._answer = AnswerReader()
        self._watched.add(self)
        self._transport.write(payload)
        return waiter

    def expire(self) -> None:
        """The deadline has passed."""
        answer = self._answer
        if answer is not None and answer.state is State.BODY:
            self._settle(answer)
            self.abort()
        else:
            self._fail(Failure(OutcomeClass.TIMEOUT))

    def abort(self) -> None:
        """Drop the connection and what is on it."""
        self._leave()
        if self._waiter is not None:
            self._waiter.cancel()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection politely."""
        self._leave()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its class
        self._keeper.adopt(self)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            self._keeper.distrust(self)
            self.abort()
            return
        answer.feed(data)
        if answer.state is State.DONE:
            self._finish(answer)
        elif answer.state is State.BODY:
            self._read_on(answer)
        elif answer.state is State.BROKEN:
            if answer.problem == "not_http":  # on a kept connection: late bytes of the answer before
                self._keeper.distrust(self)
            self._fail(Failure(OutcomeClass.PROTOCOL_ERROR, answer.problem))

    def connection_lost(self, exc: Exception | None) -> None:
        answer = self._answer
        if answer is not None:
            answer.end()
            self._settle(answer if answer.state is State.DONE else lost_failure(exc, answer.problem))
        self._leave()
        self._transport = None
        self._keeper.forget(self)

    def _finish(self, answer: AnswerReader) -> None:
        self._settle(answer)
        self._leave()
        if answer.surplus:
            self._keeper.distrust(self)
        if self._transport is None or self._transport.get_write_buffer_size():
            self.abort()  # answered before it had read the request
        elif answer.reusable and not self._transport.is_closing():
            self._keeper.release(self)
        else:
            self.close()

    def _read_on(self, answer: AnswerReader) -> None:
        """The head is read, the body is not at its end: hand over soon, and drain a little for the next request."""
        if self._waiter is None:
            if answer.body_bytes > MAX_DRAIN:
                self.abort()
        elif len(answer.excerpt) >= MAX_EXCERPT or not self._grace:
            self._hand_over()
        elif self._held is None:
            self._held = self._loop.call_later(self._grace, self._hand_over)

    def _hand_over(self) -> None:
        self._held = None
        if self._answer is not None:
            self.deadline = self._clock() + DRAIN_SECONDS
            self._settle(self._answer)

    def _settle(self, result: Result) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(result)

    def _fail(self, failure: Failure) -> None:
        self._settle(failure)
        self.abort()

    def _leave(self) -> None:
        """Out of the sweep: nothing is awaited any more."""
        self._answer = None
        self._watched.discard(self)
        if self._held is not None:
            self._held.cancel()
            self._held = None
