"""A webhook as a value: settings and their bounds, filters, states and what moves between them.

Belongs here: what one registration is and which messages its filters want. Does not belong here: what a ``PUT`` or
``PATCH`` changes (``registrations``), whether a URL is allowed (``targets``), who gets a message (``routing``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from service.domain.headers import find_header_problems
from service.domain.schedule import parse_seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from datetime import datetime

MAX_URL_BYTES: Final = 2_048
MAX_DESCRIPTION_BYTES: Final = 4_096
MAX_GLOBS: Final = 20
MAX_GLOB_CHARACTERS: Final = 255
SETTLE_BOUNDS: Final = (0, 3_600)
TIMEOUT_BOUNDS: Final = (1, 30)
IN_FLIGHT_BOUNDS: Final = (1, 100)
RATE_BOUNDS: Final = (1, 10_000)

# Types about other webhooks: only a filter that names one literally gets it, no glob does (chapter 3).
OPERATIONAL_TYPES: Final = frozenset({"webhook.disabled", "delivery.exhausted"})


class WebhookKind(StrEnum):
    """The three ways a destination comes into being."""

    ACCOUNT = "account"
    BATCH = "batch"
    ONE_SHOT = "one_shot"


class Signing(StrEnum):
    """Which signatures a webhook gets; ``ed25519`` adds one beside the HMAC."""

    HMAC = "hmac"
    ED25519 = "ed25519"


class Scope(StrEnum):
    """What a message is about."""

    JOB = "job"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Filters:
    """What an account webhook subscribes to.

    ``event_types`` are globs; none = reached only by id. ``scopes``: none = both. ``batch_names`` are globs on the
    batch name, any of which suffices; none = every message, with or without a batch.
    """

    event_types: tuple[str, ...] = ()
    scopes: frozenset[Scope] = frozenset()
    batch_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """What a caller sets of a webhook. None = the service's default at the time of use, except as noted.

    ``settle_seconds`` None: chapter 1, batch rule 8. ``retry_schedule`` is whole seconds per step. ``rate_limit`` is
    attempts per second, None = unlimited. ``custom_headers`` keep case and order. ``filters`` belong to account
    webhooks and ``settle_seconds`` and ``notify_if_done`` to batch webhooks.
    """

    url: str = field(repr=False)
    description: str = ""
    custom_headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    settle_seconds: float | None = None
    notify_if_done: bool = True
    retry_schedule: tuple[int, ...] | None = None
    timeout_seconds: float | None = None
    max_in_flight: int | None = None
    rate_limit: int | None = None
    signing: Signing = Signing.HMAC
    filters: Filters = field(default_factory=Filters)


@dataclass(frozen=True, slots=True)
class WebhookDefaults:
    """The service's own values for what a caller left out."""

    retry_schedule: tuple[int, ...]
    timeout_seconds: float
    max_in_flight: int


class SettingProblem(NamedTuple):
    """One broken bound: ``path`` as in the request body (``custom_headers.X-A``) and a sentence."""

    path: str
    reason: str


class WebhookState(StrEnum):
    """The three states of a webhook."""

    ENABLED = "enabled"
    PAUSED = "paused"
    DISABLED = "disabled"

    @property
    def hold(self) -> str | None:
        """The reason for which a delivery to a webhook in this state starts ``held``; None: it is due at once."""
        return None if self is WebhookState.ENABLED else self.value


class DisableReason(StrEnum):
    """Why the service disabled a webhook."""

    GONE = "gone"
    FAILING = "failing"


class WebhookEvent(StrEnum):
    """What can move a webhook from one state to another."""

    PAUSE = "pause"
    ENABLE = "enable"
    PUT = "put"
    GONE = "gone"
    FAILING = "failing"


class Standing(NamedTuple):
    """A state with its reason, which only ``disabled`` has."""

    state: WebhookState
    reason: DisableReason | None = None


class WebhookMove(NamedTuple):
    """Where an event leads: the new standing, and whether sending starts again with one trial delivery."""

    to: Standing
    trial: bool = False


ENABLED: Final = Standing(WebhookState.ENABLED)
PAUSED: Final = Standing(WebhookState.PAUSED)
GONE: Final = Standing(WebhookState.DISABLED, DisableReason.GONE)
FAILING: Final = Standing(WebhookState.DISABLED, DisableReason.FAILING)

# Every pair that is not here changes nothing. A pause is a human's word: no PUT and no late answer overrides it.
WEBHOOK_TABLE: Final[Mapping[tuple[WebhookState, WebhookEvent], WebhookMove]] = {
    (WebhookState.ENABLED, WebhookEvent.PAUSE): WebhookMove(PAUSED),
    (WebhookState.ENABLED, WebhookEvent.GONE): WebhookMove(GONE),
    (WebhookState.ENABLED, WebhookEvent.FAILING): WebhookMove(FAILING),
    (WebhookState.PAUSED, WebhookEvent.ENABLE): WebhookMove(ENABLED, trial=True),
    (WebhookState.DISABLED, WebhookEvent.ENABLE): WebhookMove(ENABLED, trial=True),
    (WebhookState.DISABLED, WebhookEvent.PUT): WebhookMove(ENABLED, trial=True),
    (WebhookState.DISABLED, WebhookEvent.PAUSE): WebhookMove(PAUSED),
}

_SENTENCES: Final[Mapping[Standing, str]] = {
    ENABLED: "Deliveries are sent.",
    PAUSED: "Paused by request: deliveries are held until it is enabled.",
    GONE: "Disabled: the receiver answered 410 Gone. Deliveries are held until it is enabled.",
    FAILING: "Disabled: no delivery was accepted for a long time. Deliveries are held until it is enabled.",
}


def find_move(standing: Standing, event: WebhookEvent) -> WebhookMove | None:
    """What this event does to a webhook of this standing; None when it changes nothing."""
    return WEBHOOK_TABLE.get((standing.state, event))


def describe_standing(standing: Standing, since_at: datetime) -> str:
    """The human sentence beside the state; ``since_at`` is when it began."""
    return f"{_SENTENCES[standing]} Since {since_at:%Y-%m-%dT%H:%M:%SZ}."


def build_webhook_diagram() -> str:
    """The table as a mermaid state diagram."""
    lines = [f"    {state} --> {move.to.state}: {event}" for (state, event), move in WEBHOOK_TABLE.items()]
    return "\n".join(["stateDiagram-v2", "    [*] --> enabled: registered", *lines, ""])


def fill_defaults(settings: WebhookSettings, defaults: WebhookDefaults) -> WebhookSettings:
    """Settings with the service's values where the caller left them out: what is used, and what is compared."""
    return replace(
        settings,
        retry_schedule=settings.retry_schedule or defaults.retry_schedule,
        timeout_seconds=settings.timeout_seconds or defaults.timeout_seconds,
        max_in_flight=settings.max_in_flight or defaults.max_in_flight,
    )


def find_setting_problems(settings: WebhookSettings) -> tuple[SettingProblem, ...]:
    """Every bound of chapter 4 that these settings break; empty when they may be stored."""
    return (
        *_check_texts(settings),
        *_check_numbers(settings),
        *_check_schedule(settings.retry_schedule),
        *_check_headers(settings.custom_headers),
        *_check_globs("event_types", settings.filters.event_types),
        *_check_globs("batch_names", settings.filters.batch_names),
    )


def matches(filters: Filters, event_type: str, scope: Scope | None, batch_name: str | None) -> bool:
    """Whether an account webhook with these filters gets this message (chapter 1, destinations, rule 3).

    ``batch_name`` None: a message without a batch, which only absent batch globs match. ``scope`` None: a message about
    no work at all (operational types), which every ``scopes`` matches.
    """
    return (
        _wants_type(filters.event_types, event_type)
        and (scope is None or not filters.scopes or scope in filters.scopes)
        and (not filters.batch_names or (batch_name is not None and _any_glob(filters.batch_names, batch_name)))
    )


def matches_glob(glob: str, text: str) -> bool:
    """Whether ``text`` as a whole fits ``glob``: ``*`` is any characters or none, everything else is itself.

    Linear in the text: each literal piece is looked for once, left to right, and the leftmost find is always right.
    """
    if "*" not in glob:
        return glob == text
    first, *pieces = glob.split("*")
    *middle, last = pieces
    if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def _wants_type(event_types: Collection[str], event_type: str) -> bool:
    if event_type in OPERATIONAL_TYPES:
        return event_type in event_types
    return _any_glob(event_types, event_type)


def _any_glob(globs: Collection[str], text: str) -> bool:
    return text in globs or any(matches_glob(glob, text) for glob in globs)


def _check_texts(settings: WebhookSettings) -> Iterator[SettingProblem]:
    for path, text, limit in (
        ("url", settings.url, MAX_URL_BYTES),
        ("description", settings.description, MAX_DESCRIPTION_BYTES),
    ):
        if len(text.encode("utf-8", "surrogatepass")) > limit:
            yield SettingProblem(path, f"at most {limit} bytes")
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            yield SettingProblem(path, "no NUL and no lone surrogates")


def _check_numbers(settings: WebhookSettings) -> Iterator[SettingProblem]:
    for path, value, (low, high) in (
        ("settle_seconds", settings.settle_seconds, SETTLE_BOUNDS),
        ("timeout_seconds", settings.timeout_seconds, TIMEOUT_BOUNDS),
        ("max_in_flight", settings.max_in_flight, IN_FLIGHT_BOUNDS),
        ("rate_limit", settings.rate_limit, RATE_BOUNDS),
    ):
        if value is not None and not low <= value <= high:  # NaN too
            yield SettingProblem(path, f"between {low} and {high}")


def _check_schedule(steps: tuple[int, ...] | None) -> Iterator[SettingProblem]:
    if steps is not None:
        try:
            parse_seconds(steps)
        except ValueError as error:
            yield SettingProblem("retry_schedule", str(error))


def _check_headers(headers: tuple[tuple[str, str], ...]) -> Iterator[SettingProblem]:
    if len({name for name, _ in headers}) < len(headers):
        yield SettingProblem("custom_headers", "a header is given twice")
    for problem in find_header_problems(dict(headers)):
        yield SettingProblem(f"custom_headers.{problem.name}".rstrip("."), problem.reason)


def _check_globs(path: str, globs: tuple[str, ...]) -> Iterator[SettingProblem]:
    if len(globs) > MAX_GLOBS:
        yield SettingProblem(path, f"at most {MAX_GLOBS} globs")
    for index, glob in enumerate(globs):
        if not 1 <= len(glob) <= MAX_GLOB_CHARACTERS:
            yield SettingProblem(f"{path}[{index}]", f"1 to {MAX_GLOB_CHARACTERS} characters")
