"""Whether tracing is on: OpenTelemetry's variables, its extra, and what is left in memory when it is off."""

import subprocess
import sys
from contextlib import AsyncExitStack

import pytest
import structlog

from service.app.tracing import open_spans
from service.config import load_configuration
from service.config.tracing import LARGE_QUEUE, read_tracing
from service.lifecycle import SystemClock

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
GRPC = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}


@pytest.mark.parametrize(
    ("variables", "wanted", "reason"),
    [
        ({}, False, None),
        ({"OTEL_SERVICE_NAME": "hooks", "OTEL_RESOURCE_ATTRIBUTES": "a=b"}, False, None),
        (ENDPOINT, True, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False, None),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True, None),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True, None),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False, None),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "True"}, False, None),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "otlp,console"}, False, "OTEL_TRACES_EXPORTER: only otlp"),
        ({**ENDPOINT, **GRPC}, False, "OTEL_EXPORTER_OTLP_PROTOCOL: only http/protobuf"),
        ({**ENDPOINT, **GRPC, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, True, None),
        (GRPC, False, None),
    ],
)
def test_what_the_variables_ask_for(variables, wanted, reason):
    tracing = read_tracing(variables)
    assert (tracing.wanted, tracing.reason) == (wanted, reason)


def test_the_queue_is_large_unless_somebody_sized_it():
    assert read_tracing(ENDPOINT).queue_size == LARGE_QUEUE
    assert read_tracing({**ENDPOINT, "OTEL_BSP_MAX_QUEUE_SIZE": "10"}).queue_size is None  # the SDK reads it


def test_headers_of_the_exporter_are_masked_in_logs():
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Basic%20YWJj=, x-key = s3cret-key"}
    configuration = load_configuration(headers, needs=())
    assert configuration.masks() >= {"Basic%20YWJj=", "Basic YWJj=", "s3cret-key"}


@pytest.mark.parametrize(
    ("variables", "missing", "reason"),
    [
        (ENDPOINT, "opentelemetry.context", "the otel extra is not installed (opentelemetry.context)"),
        ({**ENDPOINT, **GRPC}, None, "OTEL_EXPORTER_OTLP_PROTOCOL: only http/protobuf"),
    ],
)
async def test_what_cannot_be_done_is_said_and_stops_nothing(monkeypatch, variables, missing, reason):
    if missing:
        monkeypatch.setitem(sys.modules, missing, None)
        monkeypatch.delitem(sys.modules, "service.telemetry.spans", raising=False)
    configuration = load_configuration(variables, needs=())
    with structlog.testing.capture_logs() as lines:
        async with AsyncExitStack() as stack:
            assert open_spans(stack, configuration, SystemClock(), structlog.get_logger()) is None
    assert [(line["event"], line["log_level"], line["reason"]) for line in lines] == [
        ("tracing_off", "warning", reason)
    ]


def test_off_nothing_of_it_is_even_imported():
    code = "import service.serving, service.api.app, sys; sys.exit(any(m.startswith('opentelemetry') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
