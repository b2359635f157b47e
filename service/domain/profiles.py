"""A source's vocabulary as data: its words for states, events, kinds and links.

Belongs here: the value, its checks, and the questions others ask of it. Does not belong here: reading TOML
(``service.profiles``) and what a status does to a job (``jobs``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from string import Formatter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from service.domain.events import EventType
from service.domain.webhooks import OPERATIONAL_TYPES, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NO_MEMBER: Final = "none"  # stored, not yet a member of its batch
TERMINAL_WORDS: Final = frozenset({"succeeded", "failed", "canceled"})
PUBLIC_WORDS: Final = frozenset({"queued", "processing"}) | TERMINAL_WORDS
DEFAULT_TYPE: Final = "extraction.completed"
EXPIRED: Final = "expired"
NATIVE: Final = "native"  # every set has it: it ships with the service
QUARANTINED: Final = "quarantined"
RERUN_RULES: Final = ("none", "subject")

_COMMON_FIELDS: Final = frozenset({"tenant_id", "source", "status", "generation", "batch_name", "batch_id"})
LINK_FIELDS: Final[Mapping[Scope, frozenset[str]]] = {
    Scope.BATCH: _COMMON_FIELDS | {"name", "id"},  # as the batch itself calls them
    Scope.JOB: _COMMON_FIELDS
    | {"job_id", "subject_id", "subject_status", "kind", "attempts", "stage", "source_status", "error_code"}
    | {"previous_job_id"},
}

_LISTS: Final = frozenset({"scopes", "cloudevents_sources"})
_TABLES: Final = frozenset({"status", "event_types", "types", "links"})
_KEYS: Final = _LISTS | _TABLES | {"name", "rerun", "notify_expired", "default_type"}
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_TYPE: Final = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*")
_RESERVED_TYPES: Final = OPERATIONAL_TYPES | {"webhook.test"}
_LINK_START: Final = re.compile(r"https?://[^/?#\\\s@]+/")
_MAX_WORD: Final = 255
_MAX_URL: Final = 2_048


@dataclass(frozen=True, slots=True)
class Profile:
    """How one source speaks.

    ``status`` maps its words to a public word or ``none``. ``event_types`` maps CloudEvents types to ours, ``types``
    kinds of job to message types. ``links`` are templates that were checked when the profile was read.
    """

    name: str
    status: Mapping[str, str]
    scopes: frozenset[Scope] = frozenset(Scope)
    rerun_by_subject: bool = False
    notify_expired: bool = True
    default_type: str = DEFAULT_TYPE
    cloudevents_sources: tuple[str, ...] = ()
    event_types: Mapping[str, EventType] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[Scope, str] = field(default_factory=dict)

    def find_status(self, word: str | None) -> str | None:
        """The public word for a producer's word, ``none`` for one that makes no member, None for an unknown one."""
        return None if word is None else self.status.get(word)

    def find_error_code(self, word: str | None, subject_status: str | None) -> str | None:
        """What fills an empty ``error_code``: the word ``expired`` of a run that failed so, else ``quarantined``."""
        if word == EXPIRED and self.find_status(word) == "failed":
            return EXPIRED
        return QUARANTINED if subject_status == QUARANTINED else None

    def find_event_type(self, cloudevents_type: str) -> EventType | None:
        """Our event type for a CloudEvents ``type``: an alias, or one of the six by its own name."""
        alias = self.event_types.get(cloudevents_type)
        return alias or next((known for known in EventType if known.value == cloudevents_type), None)

    def find_message_type(self, scope: Scope, kind: str | None) -> str:
        """The ``type`` of a message: by the job's kind, else the default; batches always have the default."""
        if scope is Scope.BATCH or kind is None:
            return self.default_type
        return self.types.get(kind, self.default_type)

    def emits(self, scope: Scope) -> bool:
        """Whether account webhooks get messages of this scope; a named destination always does."""
        return scope in self.scopes

    def find_link(self, scope: Scope, fields: Mapping[str, object]) -> str | None:
        """``links.self``, values percent-encoded; None without a template, or when a value that it needs is missing."""
        template = self.links.get(scope)
        if template is None:
            return None
        values = {name: fields.get(name) for name in _list_names(template)}
        if any(value is None or value == "" for value in values.values()):
            return None
        return template.format_map({name: quote(str(value), safe="") for name, value in values.items()})


@dataclass(frozen=True, slots=True)
class ProfileSet:
    """All profiles of a service; ``find`` takes a profile's name or one of its CloudEvents sources."""

    by_name: Mapping[str, Profile]
    by_source: Mapping[str, Profile]

    def find(self, source: str) -> Profile | None:
        """The profile of an event's ``source``; None sends the event to the dead letters."""
        return self.by_name.get(source) or self.by_source.get(source)

    def choose(self, source: str | None) -> Profile:
        """The profile of work that is stored already: the native one where its own is not known any more."""
        return (self.find(source) if source else None) or self.by_name[NATIVE]


def build_profile_set(profiles: Iterable[Profile]) -> ProfileSet:
    """Index profiles; a later one replaces an earlier one of its name. Raises ValueError when two claim one source."""
    by_name = {profile.name: profile for profile in profiles}
    by_source: dict[str, Profile] = {}
    for profile in by_name.values():
        for source in profile.cloudevents_sources:
            other = by_source.setdefault(source, profile)
            if other is not profile:
                raise ValueError(f"profiles {other.name!r} and {profile.name!r} both claim the source {source!r}")
    return ProfileSet(by_name, by_source)


def parse_profile(document: Mapping[str, Any]) -> Profile:
    """Check a parsed profile file. Raises ValueError with one line per problem."""
    problems = list(_find_problems(document))
    if problems:
        raise ValueError("\n".join(problems))
    return Profile(
        name=document["name"],
        status=dict(document["status"]),
        scopes=frozenset(Scope(scope) for scope in document.get("scopes", Scope)),
        rerun_by_subject=document.get("rerun") == "subject",
        notify_expired=document.get("notify_expired", True),
        default_type=document.get("default_type", DEFAULT_TYPE),
        cloudevents_sources=tuple(document.get("cloudevents_sources", ())),
        event_types={alias: EventType(known) for alias, known in document.get("event_types", {}).items()},
        types=dict(document.get("types", {})),
        links={Scope(scope): template for scope, template in document.get("links", {}).items()},
    )


def _find_problems(document: Mapping[str, Any]) -> Iterator[str]:
    shapeless = list(_check_shapes(document))
    if shapeless:  # the other checks look inside
        return iter(shapeless)
    return chain(
        _check_scalars(document),
        _check_list(document, "scopes", tuple(Scope)),
        _check_list(document, "cloudevents_sources", None),
        _check_status(document),
        _check_table(document, "event_types", tuple(EventType)),
        _check_types(document),
        _check_links(document),
    )


def _check_shapes(document: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(document.keys() - _KEYS):
        yield f"unknown key {key!r}"
    for key in _TABLES:
        if not isinstance(document.get(key, {}), Mapping):
            yield f"{key}: a table"
    for key in _LISTS:
        if not isinstance(document.get(key, []), list):
            yield f"{key}: a list"


def _check_scalars(document: Mapping[str, Any]) -> Iterator[str]:
    name = document.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield "name: needed, lower-case letters, digits, - and _, at most 63"
    if document.get("rerun", "none") not in RERUN_RULES:
        yield "rerun: 'none' or 'subject'"
    if not isinstance(document.get("notify_expired", True), bool):
        yield "notify_expired: true or false"
    yield from _check_type("default_type", document.get("default_type", DEFAULT_TYPE))


def _check_list(document: Mapping[str, Any], key: str, allowed: tuple[str, ...] | None) -> Iterator[str]:
    for word in document.get(key, []):
        if not _is_word(word):
            yield f"{key}: each is a string of 1 to {_MAX_WORD} characters"
        elif allowed is not None and word not in allowed:
            yield f"{key}: {word!r} is not one of {', '.join(allowed)}"


def _check_status(document: Mapping[str, Any]) -> Iterator[str]:
    words = document.get("status", {})
    if not TERMINAL_WORDS & {word for word in words.values() if isinstance(word, str)}:
        yield "status: needed, with a word for at least one end"
    yield from _check_table(document, "status", (*sorted(PUBLIC_WORDS), NO_MEMBER))


def _check_table(document: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> Iterator[str]:
    for word, value in document.get(key, {}).items():
        if not _is_word(word):
            yield f"{key}: keys have 1 to {_MAX_WORD} characters"
        if value not in allowed:
            yield f"{key}.{word}: {value!r} is not one of {', '.join(allowed)}"


def _check_types(document: Mapping[str, Any]) -> Iterator[str]:
    for kind, value in document.get("types", {}).items():
        yield from _check_type(f"types.{kind}", value)


def _check_type(path: str, value: object) -> Iterator[str]:
    if not isinstance(value, str) or len(value) > _MAX_WORD or not _TYPE.fullmatch(value):
        yield f"{path}: letters, digits and _ in parts joined by dots"
    elif value in _RESERVED_TYPES:
        yield f"{path}: {value!r} is a type of the service's own messages"


def _check_links(document: Mapping[str, Any]) -> Iterator[str]:
    for scope, template in document.get("links", {}).items():
        if scope not in LINK_FIELDS:
            yield f"links: {scope!r} is not one of job, batch"
        elif not isinstance(template, str) or len(template) > _MAX_URL:
            yield f"links.{scope}: a string of at most {_MAX_URL} characters"
        else:
            yield from _check_template(Scope(scope), template)


def _check_template(scope: Scope, template: str) -> Iterator[str]:
    """Only ``{field}``: an attribute, index, conversion or format would read more than the field, or fail at send."""
    if not _LINK_START.match(template.partition("{")[0]):
        yield f"links.{scope}: starts with http(s)://host/, with no field before the path"
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        yield f"links.{scope}: {error}"
        return
    for _, name, spec, conversion in parts:
        if name is not None and (name not in LINK_FIELDS[scope] or spec or conversion):
            yield f"links.{scope}: no field {{{name}}}, known are {', '.join(sorted(LINK_FIELDS[scope]))}"


def _list_names(template: str) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(template) if name is not None]


def _is_word(word: object) -> bool:
    return isinstance(word, str) and 1 <= len(word) <= _MAX_WORD
