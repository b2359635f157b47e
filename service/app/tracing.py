"""Tracing, if OpenTelemetry's variables ask for it and its extra is installed."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from service.config import Configuration
from service.lifecycle import Clock
from service.logs import Logger

if TYPE_CHECKING:
    from service.telemetry.spans import Spans


def open_spans(stack: AsyncExitStack, configuration: Configuration, clock: Clock, log: Logger) -> Spans | None:
    """Open tracing, or say why it stays off although somebody asked for it. Nothing is imported when nobody did."""
    tracing = configuration.tracing
    if tracing.reason is not None:
        log.warning("tracing_off", reason=tracing.reason)
    if not tracing.wanted:
        return None
    try:
        from service.telemetry.spans import Spans
    except ModuleNotFoundError as error:
        log.warning("tracing_off", reason=f"the otel extra is not installed ({error.name})")
        return None
    spans = Spans(clock, group_id=configuration.settings.kafka_group_id, queue_size=tracing.queue_size)
    stack.push_async_callback(spans.close)
    return spans
