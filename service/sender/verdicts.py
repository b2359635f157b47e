"""What an answer means (chapter 3): from status line and failures to ``Outcome``."""

from __future__ import annotations

from service.domain.attempts import Flag, Outcome, OutcomeClass
from service.sender.answers import AnswerReader
from service.sender.failures import Failure

_NONE: frozenset[Flag] = frozenset()
_REDIALED = frozenset({Flag.REDIALED})
_GONE = 410


def _classify(status: int) -> OutcomeClass:
    if 200 <= status < 300:  # noqa: PLR2004  # RFC 9110 15.3
        return OutcomeClass.DELIVERED
    if 300 <= status < 400:  # noqa: PLR2004  # RFC 9110 15.4
        return OutcomeClass.REDIRECT
    return OutcomeClass.GONE if status == _GONE else OutcomeClass.HTTP_ERROR


_KINDS = tuple(_classify(status) for status in range(1000))


def answered(answer: AnswerReader, address: str, duration: float, *, redialed: bool) -> Outcome:
    """The outcome of an answer whose head was read. ``retry_after`` is kept for failures only."""
    kind = _KINDS[answer.status]
    flags = _NONE if answer.plain else answer.flags()
    return Outcome(
        kind,
        answer.status,
        "",
        () if kind is OutcomeClass.DELIVERED else answer.retry_after,
        answer.excerpt,
        flags | _REDIALED if redialed else flags,
        duration,
        address,
    )


def failed(failure: Failure, address: str = "", duration: float = 0.0, *, redialed: bool = False) -> Outcome:
    """The outcome of an attempt that got no answer."""
    return Outcome(
        failure.kind,
        detail=failure.detail,
        flags=_REDIALED if redialed else _NONE,
        duration=duration,
        address=address,
    )
