"""`webhookd listen`: verifies what it gets, shows it harmlessly, and answers as it is told."""

import argparse
import asyncio
import io
import os
import re
import signal
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from aiohttp import ClientSession, ServerDisconnectedError, web
from rich.console import Console

from service.domain.signing import Secret, build_signer, parse_secret
from service.lifecycle import SystemClock
from service.tools import listen
from service.tools.listen import Listener, Manners, pretty
from tests.support.ports import find_free_port
from tests.support.service import PROGRAM

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
BODY = '{"type":"extraction.completed","timestamp":null,"data":{"name":"Zoë 🎉 \u202e[bold]\u009b31m","n":1}}'.encode()


def signed(body=BODY, secret=SECRET, message_id="msg_1", at=None):
    timestamp = int(datetime.now(UTC).timestamp()) if at is None else at
    signer = build_signer([Secret(parse_secret(secret), datetime.now(UTC))])
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signer.sign(message_id, timestamp, body),
        "webhook-attempt": "2",
    }


class Listening:
    """A client of a listener, and what it printed."""

    def __init__(self, url, http, printed):
        self.url, self.http, self._printed = url, http, printed

    async def post(self, headers=None, body=BODY, path="/hooks?a=1"):
        headers = signed(body) if headers is None else headers
        async with self.http.post(self.url + path, data=body, headers=headers) as answer:
            return answer.status

    @property
    def printed(self):
        return re.sub(r"\x1b\[[0-9;]*m", "", self._printed.getvalue())


@asynccontextmanager
async def listening(*secrets, **manners):
    printed = io.StringIO()
    console = Console(file=printed, width=80, force_terminal=True, highlight=False)
    listener = Listener(list(secrets) or [SECRET], Manners(**manners), SystemClock(), console)
    runner = web.AppRunner(listener.build(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with ClientSession() as http:
            yield Listening(f"http://127.0.0.1:{runner.addresses[0][1]}", http, printed)
    finally:
        await runner.cleanup()


async def test_valid_is_204_and_shown():
    async with listening() as listener:
        assert await listener.post() == 204
        assert await listener.post() == 204
        assert await listener.post(signed(message_id="msg_2"), path="/") == 204
    assert "POST /hooks?a=1" in listener.printed
    assert listener.printed.count("signature: valid") == 3
    assert listener.printed.count("seen 1 times before") == 1
    assert "webhook-attempt: 2" in listener.printed
    assert '"type": "extraction.completed"' in listener.printed
    assert "Zoë 🎉 \\u202e[bold]\\x9b31m" in listener.printed


async def test_what_does_not_verify_is_401_and_says_why():
    async with listening() as listener:
        for headers, says in (
            (signed(secret=OTHER), "secret: does not fit"),
            (signed(at=1), "too old"),
            ({}, "webhook-id is missing"),
            (signed(BODY + b"\n"), "bytes: its last line end was cut off"),
        ):
            assert await listener.post(headers) == 401
            assert says in listener.printed
    assert "signature: valid" not in listener.printed


async def test_any_of_several_secrets_may_fit():
    async with listening(OTHER, SECRET) as listener:
        assert await listener.post() == 204


async def test_statuses_come_in_turn_and_the_last_stays():
    async with listening(statuses=(503, 429, 200)) as listener:
        assert [await listener.post() for _ in range(4)] == [503, 429, 200, 200]
        assert await listener.post(signed(secret=OTHER)) == 200


async def test_delay_and_drop():
    async with listening(delay=0.2) as listener:
        began = asyncio.get_running_loop().time()
        await listener.post()
        assert asyncio.get_running_loop().time() - began >= 0.2
    async with listening(drop=True) as listener:
        with pytest.raises((ServerDisconnectedError, ConnectionResetError)):
            await listener.post()
    assert "dropped" in listener.printed and "signature: valid" in listener.printed


async def test_hostile_requests_are_shown_harmlessly():
    async with listening() as listener:
        for body in (b"", b"\xff\x1b[2J\x07", b"[" * 100_000, b'"\\u001b]0;x"', b"1e400", b"\n" * 5000):
            assert await listener.post({"webhook-id": "[red]x"}, body, "/%1b[31m") == 401
        async with listener.http.get(listener.url) as answer:
            assert answer.status == 401
    assert all(line.isprintable() for line in listener.printed.splitlines())
    assert "\\x1b[2J" in listener.printed and "webhook-id: [red]x" in listener.printed
    assert "lines more" in listener.printed


def test_json_is_indented_and_the_rest_is_as_it_is():
    assert pretty(b'{"a":[1]}') == ["{", '  "a": [', "    1", "  ]", "}"]
    assert pretty(b"a\tb\nc") == ["a\\tb", "c"]


# The command


def parse(*words):
    parser = argparse.ArgumentParser()
    listen.add_arguments(parser)
    return parser.parse_args(words)


def test_arguments():
    given = parse("--secret", SECRET, "--status", "503,200", "--delay", "1.5", "--drop")
    assert (given.status, given.delay, given.drop, given.host) == ((503, 200), 1.5, True, "127.0.0.1")
    for bad in (
        ("--status", "99"),
        ("--status", "x"),
        ("--delay", "-1"),
        ("--delay", "nan"),
        ("--port", "x"),
        ("--port", "65536"),
    ):
        with pytest.raises(SystemExit):
            parse("--secret", SECRET, *bad)
    with pytest.raises(SystemExit):
        parse()


def test_unusable_secrets_and_ports_are_said(capsys):
    assert listen.run(parse("--secret", "whsec_!!!!")) == 2
    assert "padded standard base64" in capsys.readouterr().err
    assert listen.run(parse("--secret", SECRET, "--host", "192.0.2.1", "--port", "0")) == 1
    assert "cannot listen on 192.0.2.1:0" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_command_ends_with_0_on_ctrl_c(number):
    port = find_free_port()
    process = await asyncio.create_subprocess_exec(
        str(PROGRAM), "listen", "--port", str(port), "--secret", SECRET, "--delay", "30",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        first = await asyncio.wait_for(process.stdout.readline(), 60)
        assert f"Listening on http://127.0.0.1:{port}/" in first.decode()
        async with ClientSession() as http:
            waiting = asyncio.ensure_future(http.post(f"http://127.0.0.1:{port}/", data=BODY, headers=signed()))
            while b"signature: valid" not in await asyncio.wait_for(process.stdout.readline(), 60):
                pass
            process.send_signal(number)
            assert await asyncio.wait_for(process.wait(), 60) == 0
            with pytest.raises((ServerDisconnectedError, ConnectionResetError)):
                await waiting
        assert await process.stderr.read() == b""
    finally:
        if process.returncode is None:
            process.kill()
