"""Settings shown to people: rows for ``webhookd config`` and the Markdown table of ``service/SETTINGS.md``.

Belongs here: names, ranges and defaults in words, all read from the fields. Does not belong here: printing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from service.config.durations import format_duration
from service.config.fields import GROUPS
from service.config.loading import SECRETS, Configuration, Origin
from service.config.schema import PREFIX, Settings

MASK = "********"
_HEAD = """# Settings

Generated from `service/config/fields.py` by `python -m service.config > service/SETTINGS.md`; a test compares.

Every setting is an environment variable. A secret may be in a file instead, named by the same variable with `_FILE`
after it, and is read again when the file changes. `WEBHOOKD_CONFIG_FILE` names an optional TOML file with the same
settings by lower-case name without the prefix. The environment wins over a secret's file, and both win over TOML.
Durations are written `250ms`, `5s`, `30m`, `24h`, `400d`, or as bare seconds; lists are separated by commas. An empty
variable counts as unset. Unknown `WEBHOOKD_` names stop the start, except those that Kubernetes injects for Services
called webhookd or webhookd-…: `WEBHOOKD_…_PORT=tcp://…`, `…_SERVICE_…` and `…_PORT_<n>_…`.
`webhookd config` shows the values in force.
"""
_TAIL = """
## Tracing

With the `otel` extra installed, the variables of OpenTelemetry (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`,
`OTEL_TRACES_SAMPLER`, …) are honoured as its documentation describes them; they have no prefix. Default: off; range: as
OpenTelemetry says. An endpoint, or `OTEL_TRACES_EXPORTER=otlp`, turns spans on; they go out by OTLP over HTTP
(`http/protobuf`), and only they: metrics are for Prometheus. What cannot be done leaves tracing off with a line
`tracing_off`; it never stops the start. `OTEL_BSP_MAX_QUEUE_SIZE` is 16384 unless it is set.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One setting as text. ``value`` is masked for secrets; ``range`` is empty where any value of the type will do."""

    group: str
    name: str
    value: str
    source: Origin
    default: str
    range: str
    meaning: str


def describe(configuration: Configuration) -> list[Row]:
    """A row for every setting, in the order of the reference."""
    return [
        Row(
            group=group.__doc__ or "",
            name=PREFIX + name.upper(),
            value=_shown_value(name, getattr(configuration.settings, name)),
            source=configuration.origins[name],
            default=_default(field),
            range=_range(field),
            meaning=field.description or "",
        )
        for group, name, field in _every_field()
    ]


def render_reference() -> str:
    """The whole settings reference as Markdown."""
    lines = [_HEAD]
    shown: type[BaseModel] | None = None
    for group, name, field in _every_field():
        if group is not shown:
            lines += [*([""] if shown else []), f"## {group.__doc__}", "", "| setting | default | range | meaning |"]
            lines += ["| --- | --- | --- | --- |"]
            shown = group
        lines.append(_table_row(name, field))
    return "\n".join(lines) + "\n" + _TAIL


def _every_field() -> Iterator[tuple[type[BaseModel], str, FieldInfo]]:
    for group in GROUPS:
        for name in group.model_fields:
            yield group, name, Settings.model_fields[name]


def _table_row(name: str, field: FieldInfo) -> str:
    names = f"`{PREFIX}{name.upper()}`" + (" (or `_FILE`)" if name in SECRETS else "")
    cells = names, _code(_default(field)) or "empty", _range(field), field.description or ""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _code(text: str) -> str:
    return text if not text or "`" in text else f"`{text}`"


def _default(field: FieldInfo) -> str:
    return str(_extra(field).get("shown_default", _text(field.default)))


def _shown_value(name: str, value: Any) -> str:
    if name in SECRETS:
        return MASK if value.get_secret_value() else ""
    return _text(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, tuple):
        return ",".join(_text(item) for item in value)
    return str(value)


def _range(field: FieldInfo) -> str:
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices if choice)
    if field.annotation is bool:
        return "`true`, `false`"
    low, high = _bounds(field)
    if high is not None:
        return f"{_text(low)} – {_text(high)}"
    return str(_extra(field).get("shown_range", ""))


def _bounds(field: FieldInfo) -> tuple[Any, Any]:
    low = next((item.ge for item in field.metadata if isinstance(item, Ge)), None)
    high = next((item.le for item in field.metadata if isinstance(item, Le)), None)
    return (timedelta() if low is None else low), high


def _extra(field: FieldInfo) -> dict[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
