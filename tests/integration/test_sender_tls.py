"""TLS: whom the sender trusts, and the words for why it does not (F07, F08, and P11's names)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

import pytest
import uvloop

from service.domain.attempts import OutcomeClass
from service.sender import build_tls_context
from tests.support.certs import DAY, Authority, issue
from tests.support.receivers import NO_CONTENT, OK, answering, receive
from tests.support.senders import Names, loopback_policy, open_client

HOST = "hooks.example"
NAMES = Names({HOST: ("127.0.0.1",), "my_hooks.example": ("127.0.0.1",), "xn--mnchen-3ya.example": ("127.0.0.1",)})


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def tls(authority):
    return build_tls_context(str(authority.ca_file), system_trust=False)


async def attempt(tls, server, url=f"https://{HOST}", kind="product"):
    script = answering(NO_CONTENT)
    async with receive(script, tls=server) as receiver, open_client(kind, names=NAMES, tls=tls) as client:
        return await client.post(f"{url}:{receiver.port}/"), receiver


SERVERS = {
    "expired": lambda a: a.server(HOST, ends=-DAY),
    "name": lambda a: a.server("other.example"),
    "self-signed": lambda a: a.server(HOST, self_signed=True),
    "chain": lambda a: a.server(HOST, through=issue("intermediate", a.root, authority=True)),
}


@pytest.mark.parametrize("kind", ["product", "reference"])
@pytest.mark.parametrize("word", SERVERS)
async def test_f08_each_bad_certificate_has_a_word_and_nothing_is_sent(authority, tls, word, kind):
    outcome, receiver = await attempt(tls, SERVERS[word](authority), kind=kind)
    assert (outcome.kind, outcome.detail) == (OutcomeClass.TLS_ERROR, word)
    assert receiver.requests == []


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("kind", ["product", "reference"])
async def test_f08_tls_1_0_only_is_a_protocol_error(authority, tls, kind):
    server = authority.server(HOST)
    server.set_ciphers("ALL:@SECLEVEL=0")
    server.minimum_version = server.maximum_version = ssl.TLSVersion.TLSv1

    def shake_hands(listener: socket.socket) -> None:
        """A server of asyncio would close before its alert is sent."""
        sock, _ = listener.accept()
        with sock, contextlib.suppress(OSError):
            server.wrap_socket(sock, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with open_client(kind, names=NAMES, tls=tls) as client, asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(shake_hands, listener))
            outcome = await client.post(f"https://{HOST}:{listener.getsockname()[1]}/")
    assert (outcome.kind, outcome.detail) == (OutcomeClass.TLS_ERROR, "protocol")


async def test_f08_an_unknown_root_is_a_chain_error_and_an_ip_address_must_be_named_too(authority, tls):
    outcome, _ = await attempt(build_tls_context(), authority.server(HOST))
    assert (outcome.kind, outcome.detail) == (OutcomeClass.TLS_ERROR, "chain")
    outcome, _ = await attempt(tls, authority.server(HOST), "https://127.0.0.1")
    assert (outcome.kind, outcome.detail) == (OutcomeClass.TLS_ERROR, "name")


async def test_f08_never_plain_instead(tls):
    async def plain(visit):
        await visit.reader.read(1)
        await visit.say(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await visit.wait_closed()

    async with receive(plain) as receiver, open_client(names=NAMES, tls=tls) as client:
        outcome = await client.post(f"https://{HOST}:{receiver.port}/")
    assert (outcome.kind, outcome.detail) == (OutcomeClass.TLS_ERROR, "protocol")
    assert receiver.requests == []


async def test_a_receiver_that_hangs_up_on_the_handshake_or_never_shakes_hands(tls):
    async def hangs_up(visit):
        await visit.reader.read(1)

    async def waits(visit):
        await visit.wait_closed()

    async with receive(hangs_up) as rude, receive(waits) as mute, open_client(names=NAMES, tls=tls) as client:
        outcome = await client.post(f"https://{HOST}:{rude.port}/")
        assert (outcome.kind, outcome.detail) == (OutcomeClass.TLS_ERROR, "other")
        outcome = await client.post(f"https://{HOST}:{mute.port}/", connect=3)
        assert (outcome.kind, outcome.detail) == (OutcomeClass.CONNECT_TIMEOUT, "tls")


async def test_f07_a_receiver_signed_by_the_extra_ca_is_reached_and_kept(authority, tls):
    script, server = answering(OK), authority.server(HOST)
    async with receive(script, tls=server) as receiver, open_client(names=NAMES, tls=tls) as client:
        for _ in range(3):
            assert (await client.post(f"https://{HOST}:{receiver.port}/")).delivered
    assert receiver.visits == 1


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://127.0.0.1", "127.0.0.1"),
        ("https://my_hooks.example", "my_hooks.example"),
        ("https://münchen.example", "xn--mnchen-3ya.example"),
        (f"https://{HOST}.", HOST),
    ],
)
async def test_f61_the_certificate_is_checked_for_the_name_that_is_dialled(authority, tls, url, name):
    outcome, _ = await attempt(tls, authority.server(name), url)
    assert outcome.delivered, outcome


async def test_a_connection_is_not_shared_between_host_names_at_one_address(authority, tls):
    server = authority.server(HOST, "my_hooks.example")
    async with receive(answering(OK), tls=server) as receiver, open_client(names=NAMES, tls=tls) as client:
        for host in (HOST, "my_hooks.example", HOST):
            assert (await client.post(f"https://{host}:{receiver.port}/")).delivered
    assert receiver.visits == 2


async def test_f01_a_kept_tls_connection_that_was_closed_is_dialled_again(authority, tls):
    script, server = answering(OK, then="close"), authority.server(HOST)
    async with receive(script, tls=server) as receiver, open_client(names=NAMES, tls=tls) as client:
        for _ in range(5):
            assert (await client.post(f"https://{HOST}:{receiver.port}/")).delivered
    assert len(receiver.requests) == 5


def test_f08_the_same_words_on_uvloop(authority, tls):
    async def scene() -> None:
        for word in ("expired", "name", "self-signed", "chain"):
            outcome, _ = await attempt(tls, SERVERS[word](authority))
            assert (outcome.kind, outcome.detail) == (OutcomeClass.TLS_ERROR, word)
        outcome, _ = await attempt(tls, authority.server(HOST))
        assert outcome.delivered
        await asyncio.sleep(0.05)

    uvloop.run(scene())


def test_f07_an_empty_trust_store_stops_the_start(tmp_path, monkeypatch, authority):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    with pytest.raises(ValueError, match="no trusted certificate authorities"):
        build_tls_context()
    assert build_tls_context(str(authority.ca_file))
    (tmp_path / "0a1b2c3d.0").write_bytes(authority.root.pem())
    assert build_tls_context()


def test_f07_a_ca_file_that_cannot_be_used_stops_the_start(tmp_path, authority):
    leaf = issue("leaf", authority.root, names=("x.example",))
    for name, content in (("none", None), ("text", b"no certificate"), ("empty", b""), ("leaf", leaf.pem())):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ValueError, match="WEBHOOKD_CA_FILE"):
            build_tls_context(str(path), system_trust=False)


def test_f06_keys_of_connections_are_not_logged_to_a_file_named_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    assert build_tls_context().keylog_filename is None
    assert loopback_policy().allow_http


async def test_after_a_tls_failure_no_other_address_is_tried(authority, tls):
    names = Names({HOST: ("127.0.0.1", "127.0.0.2")})
    policy = loopback_policy(allow=" 127.0.0.0/8")
    script, server, kind = answering(OK), authority.server("other.example"), "product"
    async with (
        receive(script, tls=server) as receiver,
        open_client(kind, names=names, tls=tls, policy=policy) as client,
    ):
        outcome = await client.post(f"https://{HOST}:{receiver.port}/")
    assert (outcome.kind, outcome.detail) == (OutcomeClass.TLS_ERROR, "name")
