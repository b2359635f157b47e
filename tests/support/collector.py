"""An OpenTelemetry collector as far as tests need one: takes spans by OTLP over HTTP and remembers them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}


@dataclass(frozen=True)
class Told:
    """One span as it was exported; ids in hexadecimal, links as (trace id, span id)."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    links: tuple[tuple[str, str], ...]
    attributes: dict[str, Any]
    failed: bool
    nanoseconds: int

    @property
    def place(self) -> tuple[str, str]:
        return self.trace_id, self.span_id


@dataclass
class Collector:
    """Listens on a loopback port while it is open."""

    spans: list[Told] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    port: int = 0
    _runner: web.AppRunner | None = None

    async def open(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def named(self, name: str) -> list[Told]:
        return [span for span in self.spans if span.name == name]

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        export = ExportTraceServiceRequest.FromString(body)
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        for resource in export.resource_spans:
            self.resources.append(_read_attributes(resource.resource.attributes))
            self.spans += [_read_span(span) for scope in resource.scope_spans for span in scope.spans]
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")


def _read_attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def _read_span(span: Any) -> Told:
    return Told(
        span.name,
        KINDS[span.kind],
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        _read_attributes(span.attributes),
        span.status.code == 2,
        span.end_time_unix_nano - span.start_time_unix_nano,
    )
