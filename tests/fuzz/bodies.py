"""What a caller of the API sends: paths, cursors and bodies end in a value or a problem below 500."""

import orjson
from pydantic import ValidationError

from service.api.cursors import read_number
from service.api.models import BatchWebhookPut, WebhookPatch, WebhookPost
from service.api.operations import OPERATIONS
from service.api.problems import Problem, from_validation, render
from service.api.reading import parse_json
from service.api.routes import Routes
from service.api.settings_of import post_request, put_request
from service.api.views import mask_url

MODELS = tuple(dict.fromkeys(operation.body for operation in OPERATIONS if operation.body is not None))
ROUTES = Routes(OPERATIONS)
_HOOK = {
    "url": "https://r.example/x?y", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "signing": "ed25519",
    "custom_headers": {"X-A": "b"}, "retry_schedule": [1, 2], "timeout_seconds": 5, "rate_limit": 3, "id": "w",
    "event_types": ["extraction.*"], "batch_names": ["nov-*"], "scopes": ["job"], "description": "d", "since": "2026-11-30T00:00:00Z",
    "which": "failed", "roles": ["read"], "overlap_seconds": 1, "tenant": "t", "host": "h", "until": "2026-11-30T00:00:00+01:00",
}  # fmt: skip
SEEDS = (
    *(bytes([number]) + orjson.dumps(_HOOK) for number in range(len(MODELS))),
    *(bytes([number]) + orjson.dumps({}) for number in range(len(MODELS))),
    b"\xff/v1/batches/a%2Fb/webhook?limit=1",
    b"\xfe" + b"ZGVsaXZlcmllczo3",
)


def try_one(data: bytes) -> None:
    model = MODELS[data[0] % len(MODELS)] if data else MODELS[0]
    body = data[1:]
    text = body.decode("utf-8", "surrogateescape")
    attempt(lambda: ROUTES.match("GET", text))
    attempt(lambda: read_number("deliveries", text))
    mask_url(text)
    read = attempt(lambda: model.model_validate(parse_json(body)))
    if read is not None:
        read.model_dump_json()
    if isinstance(read, BatchWebhookPut):
        put_request(read)
    if isinstance(read, WebhookPost) and not isinstance(read, WebhookPatch):
        post_request(read)


def attempt(call):
    """What it gives, or None for an answer that the caller deserves."""
    try:
        return call()
    except ValidationError as error:
        problem = from_validation(error)
    except Problem as error:
        problem = error
    assert 400 <= problem.status < 500
    render(problem)
    return None
