"""The guide for integrators: its receivers accept what the service signs, and nothing else."""

import http.client
import json
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from service.domain.batches import Batch
from service.domain.jobs import Job, Phase
from service.domain.messages import build_batch_body, build_job_body
from service.domain.operational import DeliveryExhausted, WebhookDisabled
from service.domain.signing import KeyPair, Secret, build_signer, format_secret, rotate
from service.ingest.bodies import encode_json
from service.ingest.parsing import Parser
from service.profiles import load_profiles
from tests.support.documents import ROOT
from tests.support.ports import find_free_port
from tests.support.require import require_program
from tests.support.service import PROGRAM

PAGE = ROOT / "service" / "INTEGRATING.md"
GUIDE = PAGE.read_text()
NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)
KEY = bytes(range(100, 132))
SECRETS = (Secret(KEY, datetime.now(UTC)),)
NAMES = ["plain", "é", "\u2028", "😀", "Zoë 🎉", "naïve – Größe", "日本", '\\ " / <&>']
LANGUAGES = {"python": "python", "node": "js"}


def find_block(language):
    (code,) = re.findall(rf"```{language}\n(.*?)```", GUIDE, flags=re.DOTALL)
    return code


def body_of(name):
    document = {"type": "extraction.completed", "timestamp": None, "data": {"name": name, "metadata": {"n": 1.10}}}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def sign(body, secrets=SECRETS, at=None):
    timestamp = int(time.time()) if at is None else at
    signature = build_signer(secrets, [KeyPair(lambda signed: b"e" * 64)]).sign("msg_1", timestamp, body)
    return {"webhook-id": "msg_1", "webhook-timestamp": str(timestamp), "webhook-signature": signature}


@contextmanager
def running(command, port):
    environment = {**os.environ, "WEBHOOK_SECRET": format_secret(KEY), "PORT": str(port)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def post(port, body, headers, within=60.0):
    """The status of the answer, as soon as somebody listens."""
    end = time.monotonic() + within
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", "/hooks", body, headers)
            return connection.getresponse().status
        except ConnectionRefusedError:
            assert time.monotonic() < end, "nobody listens"
            time.sleep(0.05)
        finally:
            connection.close()


def shape_of(value):
    """The names of objects at every depth, in order; of a list, those of its first."""
    if isinstance(value, dict):
        return {name: shape_of(each) for name, each in value.items()}
    return [shape_of(value[0])] if isinstance(value, list) and value else None


def test_the_bodies_that_it_shows_have_the_fields_of_those_that_are_sent():
    batch = Batch(1, "acct_42", "invoices-nov", 1, "bat_1", members=1, succeeded=1, completed_at=NOW)
    job = Job("acct_42", "doc_7f31", 1, Phase.SUCCEEDED, completed_at=NOW, batch_generation=1)
    made = (
        build_batch_body(batch, [job], message_type="t", link="https://x/y", cap=10_000, encode=encode_json),
        build_job_body(job, batch, message_type="t", link=None, encode=encode_json),
    )
    shown = re.findall(r"```jsonc\n(.*?)```", GUIDE, flags=re.DOTALL)
    for ours, theirs in zip(map(json.loads, made), map(json.loads, shown), strict=True):
        assert shape_of(theirs) == shape_of(ours)
        assert list(theirs["data"]) == list(ours["data"])


def test_the_operational_messages_have_the_data_that_it_names():
    told = (
        WebhookDisabled("t", "w", "h", "gone", NOW),
        DeliveryExhausted("t", "w", "h", "exhausted", NOW, "dlv_1", "msg_1", "b", None, 3, None),
        DeliveryExhausted("t", "w", "h", "exhausted", NOW, "dlv_1", "msg_1", None, "j", 3, None),
    )
    rows = dict(re.findall(r"^\| `(webhook\.disabled|delivery\.exhausted)` \| (.*) \|$", GUIDE, flags=re.MULTILINE))
    four = set(re.findall(r"`(\w+)`", rows[told[0].type])) - {"gone", "failing"}
    assert four == set(told[0].data)
    more = set(re.findall(r"`(\w+)`", rows[told[1].type])) | four
    assert more == set(told[1].data) | set(told[2].data)


@pytest.fixture(scope="module", params=LANGUAGES)
def receiver(request, tmp_path_factory):
    """The port and the process of the guide's receiver."""
    program = sys.executable if request.param == "python" else require_program(request.param)
    file = tmp_path_factory.mktemp("guide") / ("receiver.py" if request.param == "python" else "receiver.cjs")
    file.write_text(find_block(LANGUAGES[request.param]))
    port = find_free_port()
    with running([program, str(file)], port) as process:
        yield port, process


@pytest.mark.parametrize("name", NAMES)
def test_f44_the_receivers_accept_names_with_accents_and_emoji(receiver, name):
    port, process = receiver
    body = body_of(name)
    assert post(port, body, sign(body)) == 204
    assert process.stdout.readline() == b"extraction.completed msg_1\n"


def test_the_receivers_accept_both_secrets_of_a_rotation(receiver):
    port, process = receiver
    body = body_of("é")
    rotated = rotate(SECRETS, b"n" * 32, datetime.now(UTC), overlap=timedelta(hours=1))
    assert post(port, body, sign(body, rotated)) == 204
    assert process.stdout.readline()


@pytest.mark.parametrize(
    "change",
    [
        lambda body: (json.dumps(json.loads(body)).encode(), sign(body)),
        lambda body: (body + b"\n", sign(body)),
        lambda body: (b"", sign(body)),
        lambda body: (b"\xff", sign(body)),
        lambda body: (body, sign(body, (Secret(b"o" * 32, datetime.now(UTC)),))),
        lambda body: (body, sign(body, at=int(time.time()) - 302)),
        lambda body: (body, sign(body, at=int(time.time()) + 400)),
        lambda body: (body, {**sign(body), "webhook-id": "msg_2"}),
        lambda body: (body, {**sign(body), "webhook-timestamp": "soon"}),
        lambda body: (body, {**sign(body), "webhook-signature": "v1"}),
        lambda body: (body, {**sign(body), "webhook-signature": "v1,  ,"}),
        lambda body: (body, {**sign(body), "webhook-signature": "v1," + "\xe9" * 44}),
        lambda body: (body, {}),
    ],
)
def test_the_receivers_refuse_everything_else_and_live(receiver, change):
    port, process = receiver
    body = body_of("é")
    assert post(port, *change(body)) == 401
    assert post(port, body, sign(body)) == 204
    assert process.stdout.readline()
    assert process.poll() is None


@pytest.mark.parametrize("language", LANGUAGES.values())
def test_the_receivers_are_as_short_as_they_say(language):
    lines = [line for line in find_block(language).splitlines() if line.strip()]
    assert len(lines) <= 15


def test_the_guides_event_is_a_valid_one():
    (event,) = re.findall(r"```json\n(.*?)```", GUIDE, flags=re.DOTALL)
    read = Parser(load_profiles()).parse(event.encode())
    assert (read.event_id, read.anomalies) == ("evt_1", ())


def test_every_profile_has_a_section():
    for name, title in {
        "imagetotable": "ImageToTable",
        "oatmilk": "Oatmilk",
        "datadistillers": "Data Distillers",
    }.items():
        profile = load_profiles().by_name[name]
        section = GUIDE.split(f"## {title}\n")[1].split("\n## ")[0]
        assert f"`{name}`" in section
        for word in profile.status:
            assert word in section, f"{title} says {word}"


def test_every_call_and_command_in_the_guide_exists():
    from service.__main__ import COMMANDS
    from service.api.operations import OPERATIONS

    known = {(op.method, re.sub(r"\{\w+\}", "{}", op.path)) for op in OPERATIONS}
    named = re.findall(r"\b(GET|PUT|POST|DELETE|PATCH) (/v1/[\w/{}-]+)", GUIDE)
    assert len(named) > 8
    assert {(m, p) for m, p in named if (m, re.sub(r"\{\w+\}", "{}", p)) not in known} == set()
    assert set(re.findall(r"webhookd (\w+)", GUIDE)) - set(COMMANDS) <= {"knows", "calls"}


def test_the_whole_round_on_one_machine_is_as_the_guide_says(tmp_path):
    ports = {name: str(find_free_port()) for name in ("8080", "9000")}
    script = re.sub("8080|9000", lambda match: ports[match[0]], find_block("bash"))
    script = script.replace("webhookd serve --embedded", f"WEBHOOKD_API_PORT={ports['8080']} webhookd serve --embedded")
    environment = {
        "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "WEBHOOKD_API_HOST": "127.0.0.1",
        "WEBHOOKD_OPS_HOST": "127.0.0.1",
        "WEBHOOKD_OPS_PORT": str(find_free_port()),
    }
    end = "\ntrap - EXIT; kill $(jobs -p); wait"
    process = subprocess.run(
        ["bash", "-c", f"trap 'kill $(jobs -p)' EXIT\nset -m\n{script}{end}"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    said = process.stdout
    assert '"outcome":"applied"' in said, process.stderr
    assert said.count("signature: valid") == 2, said
    lists = [json.loads(line)["data"][0] for line in re.findall(r'\{"data".*?"next_cursor":null\}', said)]
    assert [(one["state"], one["last_class"]) for one in lists] == [
        ("delivered", "delivered"), ("retrying", "connect_error"), ("delivered", "delivered"),
    ]  # fmt: skip
    assert [one["attempt_count"] for one in lists] == sorted(one["attempt_count"] for one in lists)
