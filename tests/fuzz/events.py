"""What a producer writes: an event, a dead letter or a skip, never an exception; and an event is within its bounds."""

import orjson

from service.domain.events import JobEvent
from service.ingest.parsing import Parser
from service.ingest.poison import DeadLetter, Skipped
from service.profiles import load_profiles

PARSER = Parser(load_profiles())
HEADERS = (
    (),
    (("content-type", b"application/cloudevents+json"),),
    (("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"native"), ("ce_type", b"job.completed")),
    (("ce_specversion", None), ("ce_time", b"\xff"), ("traceparent", b"00-x")),
)
_EVENT = {
    "event_id": "evt_1", "event_type": "job.completed", "source": "imagetotable", "tenant_id": "acct_42",
    "occurred_at": "2026-11-30T09:00:00.250Z", "job_id": "doc_7f31", "kind": "receipt", "status": "succeeded",
    "batch": {"name": "invoices-nov", "id": "b1", "total": 3, "version": 7}, "generation": 2, "attempts": 1,
    "metadata": {"a": [1, None, {"b": 1e300}]}, "webhook_url": "https://r.example/", "completed_at": 1764493200,
}  # fmt: skip
SEEDS = tuple(
    bytes([number]) + orjson.dumps(value)
    for number, value in enumerate((
        _EVENT,
        {"specversion": "1.0", "id": "1", "source": "native", "type": "job.completed", "data": _EVENT},
        _EVENT,
        {"event_type": "batch.sealed", "batch": {"name": "x"}},
    ))
)  # fmt: skip


def try_one(data: bytes) -> None:
    headers = HEADERS[data[0] % len(HEADERS)] if data else ()
    value = data[1:]
    parsed = PARSER.parse(value, headers)
    assert parsed == PARSER.parse(value, headers)
    if isinstance(parsed, JobEvent):
        check_event(parsed)
    else:
        assert isinstance(parsed, DeadLetter | Skipped)


def check_event(event: JobEvent) -> None:
    """What goes into the database, keys and headers."""
    for name in (event.tenant_id, event.job_id):
        if name is not None:
            assert 1 <= len(name) <= 255
            assert "\0" not in name
            name.encode()
    assert event.occurred_at.tzinfo is not None
