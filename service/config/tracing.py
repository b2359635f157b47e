"""Whether OpenTelemetry is asked for, by its own variables.

Belongs here: reading ``OTEL_…`` as far as we must know before its SDK does, which reads the rest of them itself. They are
shared by everything that runs on a machine or in a namespace, so that none of them stops the start: what we cannot do
leaves tracing off, with a reason for the log. Does not belong here: spans (``service.telemetry.spans``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_QUEUE = "OTEL_BSP_MAX_QUEUE_SIZE"
LARGE_QUEUE = 16_384  # the SDK's own 2,048 are less than a second of full speed


@dataclass(frozen=True, slots=True)
class Tracing:
    """``wanted``: spans are to be made. ``reason``: why not, although something was asked for."""

    wanted: bool = False
    reason: str | None = None
    queue_size: int | None = LARGE_QUEUE
    masks: frozenset[str] = frozenset()


NO_TRACING = Tracing()


def read_tracing(environ: Mapping[str, str]) -> Tracing:
    """What the variables ask for; an empty one counts as unset."""
    given = {name: text.strip() for name, text in environ.items() if name.startswith("OTEL_") and text.strip()}
    masks = frozenset(mask for name in _HEADERS for mask in _list_header_values(given.get(name, "")))
    queue_size = None if _QUEUE in given else LARGE_QUEUE
    asked = "OTEL_TRACES_EXPORTER" in given or any(name in given for name in _ENDPOINTS)
    exporter = given.get("OTEL_TRACES_EXPORTER", "otlp").lower()
    if not asked or exporter == "none" or given.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return Tracing(masks=masks)
    reason = _find_obstacle(given, exporter)
    return Tracing(reason is None, reason, queue_size, masks)


def _find_obstacle(given: Mapping[str, str], exporter: str) -> str | None:
    if exporter != "otlp":
        return "OTEL_TRACES_EXPORTER: only otlp"
    protocol = next((name for name in _PROTOCOLS if name in given), None)
    if protocol is not None and given[protocol].lower() != "http/protobuf":
        return f"{protocol}: only http/protobuf"
    return None


def _list_header_values(text: str) -> list[str]:
    values = [value.strip() for _, found, value in (pair.partition("=") for pair in text.split(",")) if found]
    return [*values, *map(unquote, values)]
