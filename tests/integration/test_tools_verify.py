"""`webhookd verify --api`: a request as the receiver got it, compared with what the service has on record."""

import argparse
import asyncio

import pytest

from service.tools import verify
from tests.support.api import OPERATOR_KEY, SEALER, running_api
from tests.support.delivering import Queue, deliver
from tests.support.receivers import NO_CONTENT, answering, receive

OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running


@pytest.fixture
async def sent(api, database):
    """A request that was delivered, and its secret."""
    async with receive(answering(NO_CONTENT)) as receiver, Queue(database) as queue, deliver(database, sealer=SEALER):
        made = await api.post("/v1/webhooks", {"url": receiver.url(), "event_types": ["*"], "scopes": ["job"]})
        await api.send(api.event("job.completed", "d/1", status="succeeded", metadata={"name": "Zoë"}))
        await queue.wait("deliveries_done", "state = 4")
    return receiver.requests[0], made.json["secret"]


async def verified(capsys, tmp_path, api, request, secret, body=None, *more):
    (tmp_path / "head").write_bytes(request.head)
    (tmp_path / "body").write_bytes(request.body if body is None else body)
    parser = argparse.ArgumentParser()
    verify.add_arguments(parser)
    given = ["--secret", secret, "--headers", str(tmp_path / "head"), "--body", str(tmp_path / "body")]
    asked = more or ("--api", api.base, "--key", OPERATOR_KEY, "--tenant", "t1")
    status = await asyncio.to_thread(verify.run, parser.parse_args([*given, *asked]))
    shown = capsys.readouterr()
    return status, [line.split()[1] for line in shown.out.splitlines() if line.startswith("WRONG")], shown


async def test_the_record_tells_bytes_from_secret(api, sent, capsys, tmp_path):
    request, secret = sent
    changed = request.body.replace(b'"Zo', b'"zo')
    key = await api.make_key("read")
    own = ("--api", api.base + "/", "--key", key)
    for given, body, more, wrong in (
        (secret, None, (), []),
        (OTHER, None, (), ["secret"]),
        (secret, changed, (), ["bytes"]),
        (OTHER, changed, (), ["bytes"]),
        (secret, changed, own, ["bytes"]),
    ):
        status, told, _ = await verified(capsys, tmp_path, api, request, given, body, *more)
        assert (status, told) == (1 if wrong else 0, wrong), (body, more)


async def test_the_record_tells_a_changed_id_and_timestamp(api, sent, capsys, tmp_path):
    request, _ = sent
    timestamp, message_id = request.get("webhook-timestamp"), request.get("webhook-id")
    head = request.head
    request.head = head.replace(timestamp.encode(), b"%d" % (int(timestamp) - 100))
    assert (await verified(capsys, tmp_path, api, request, OTHER))[:2] == (1, ["timestamp"])
    request.head = head.replace(message_id.encode(), b"msg_" + b"0" * 32)
    assert (await verified(capsys, tmp_path, api, request, OTHER))[:2] == (1, ["id"])


async def test_an_api_that_cannot_be_asked_is_2(api, sent, capsys, tmp_path):
    request, secret = sent
    for more, told in (
        (("--api", api.base, "--key", "wrong"), "answers 401"),
        (("--api", api.base, "--key", OPERATOR_KEY), "answers 400"),
        (("--api", api.base + "/v0", "--key", OPERATOR_KEY, "--tenant", "t1"), "answers 404"),
        (("--api", "http://127.0.0.1:1", "--key", "k"), "cannot be asked"),
        (("--api", api.base), "needs --key"),
    ):
        status, _, shown = await verified(capsys, tmp_path, api, request, secret, None, *more)
        assert status == 2 and told in shown.err, (more, shown)
        assert "Traceback" not in shown.err
