"""The product's sender: keeping and closing connections, deadlines, cancellation, our own faults, the proxy."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
import time

import pytest
import uvloop

from service.domain.attempts import Flag, OutcomeClass, OwnFault
from service.sender import SenderLimits, build_tls_context
from service.sender.pool import PoolLimits
from service.sender.proxy import Proxy, parse_proxy
from tests.support.ports import find_free_port
from tests.support.receivers import NO_CONTENT, OK, Visit, answering, in_turn, receive, silent
from tests.support.senders import Names, loopback_policy, open_client

H = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
async def client():
    async with open_client() as client:
        yield client


def limits(**more) -> SenderLimits:
    return SenderLimits(pool=PoolLimits(**more))


@pytest.mark.parametrize(
    "said",
    [NO_CONTENT, OK, H + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"HTTP/1.1 500 No\r\ncontent-length: 1\r\n\r\n!"],
)  # fmt: skip
async def test_a_connection_is_kept_after_an_answer_that_is_read_to_its_end(client, said):
    async with receive(answering(said)) as receiver:
        for _ in range(5):
            assert (await client.post(receiver.url())).status
    assert receiver.visits == 1


@pytest.mark.parametrize(
    "said",
    [
        H + b"connection: close\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        H + b"\r\nx",
    ],
)
async def test_a_connection_is_not_kept_when_the_answer_says_so(client, said):
    async with receive(answering(said)) as receiver:
        for _ in range(3):
            assert (await client.post(receiver.url())).delivered
    assert receiver.visits == 3


async def test_a_slow_body_is_drained_in_the_background_and_the_connection_kept(client):
    concluded = asyncio.Event()

    async def late(visit: Visit):
        while True:
            await visit.request()
            await visit.say(H + b"content-length: 4\r\n\r\n")
            await concluded.wait()
            await visit.say(b"late")

    async with receive(late) as receiver:
        outcome = await client.post(receiver.url())
        concluded.set()
        assert (outcome.delivered, outcome.flags, outcome.excerpt) == (True, {Flag.BODY_INCOMPLETE}, b"")
        while not client.sender.connections[1]:
            await asyncio.sleep(0.005)
        assert (await client.post(receiver.url())).delivered
    assert receiver.visits == 1


async def test_a_body_in_a_second_segment_right_behind_is_in_the_excerpt():
    said = answering(H + b"content-length: 4\r\n\r\n", b"soon", pause=0.001)
    async with open_client(limits=SenderLimits(body_grace=30)) as client, receive(said) as receiver:
        outcome = await client.post(receiver.url())
    assert (outcome.excerpt, outcome.flags) == (b"soon", frozenset())


async def test_connections_are_bounded_in_number_idle_time_and_age(monkeypatch):
    monkeypatch.setattr("service.sender.pool.PRUNE_SECONDS", 0.0)
    async with receive(answering(NO_CONTENT)) as receiver:
        async with open_client(limits=limits(idle_per_hop=2)) as client:
            outcomes = await asyncio.gather(*(client.post(receiver.url()) for _ in range(5)))
            assert all(outcome.delivered for outcome in outcomes)
            assert client.sender.connections[1] == 2
        async with open_client(limits=limits(idle_seconds=0.05)) as client:
            await client.post(receiver.url())
            while client.sender.connections != (0, 0):
                await asyncio.sleep(0.01)
        before = receiver.visits
        async with open_client(limits=limits(age_seconds=-1.0)) as client:
            await client.post(receiver.url())
            await client.post(receiver.url())
        assert receiver.visits == before + 2


async def test_leaving_the_sender_closes_every_connection(client):
    async with receive(answering(NO_CONTENT)) as receiver:
        async with open_client() as other:
            await other.post(receiver.url())
            assert receiver.live == 1
        while receiver.live:
            await asyncio.sleep(0.005)


async def test_f22_bytes_on_an_idle_connection_close_it_and_cost_the_receiver_its_kept_ones(client):
    async with receive(
        answering(NO_CONTENT, b"HTTP/1.1 500 Late\r\ncontent-length: 0\r\n\r\n", pause=0.01)
    ) as receiver:
        assert (await client.post(receiver.url())).delivered
        while client.sender.connections != (0, 0):
            await asyncio.sleep(0.005)
        assert (await client.post(receiver.url())).delivered
        assert client.sender.connections[1] == 0
    assert receiver.visits == 2


async def test_f22_a_receiver_of_surplus_bytes_gets_a_fresh_connection_each_time_for_a_while(client):
    async with receive(in_turn(answering(NO_CONTENT + b"hello"), answering(NO_CONTENT))) as receiver:
        for _ in range(3):
            assert (await client.post(receiver.url())).delivered
    assert receiver.visits == 3


async def test_a_connection_is_dialled_again_only_once_and_only_if_it_was_kept(client):
    async def dies(visit: Visit):
        await visit.request()
        if visit.number == 1:
            await visit.say(OK)
            await visit.request()

    async with receive(dies) as receiver:
        assert (await client.post(receiver.url())).delivered
        outcome = await client.post(receiver.url())
    assert (outcome.kind, outcome.detail, outcome.flags) == (OutcomeClass.RESET, "closed", {Flag.REDIALED})
    assert (len(receiver.requests), receiver.visits) == (3, 2)


async def test_no_second_dial_after_the_first_byte_of_an_answer(client):
    async def dies(visit: Visit):
        await visit.request()
        await visit.say(OK)
        await visit.request()
        await visit.say(b"HTTP/1.1 100 Continue\r\n\r\n")

    async with receive(dies) as receiver:
        await client.post(receiver.url())
        outcome = await client.post(receiver.url())
    assert (outcome.kind, outcome.detail, receiver.visits) == (OutcomeClass.PROTOCOL_ERROR, "head_cut_short", 1)


async def test_an_early_answer_counts_and_its_connection_is_dropped(client):
    async def early(visit: Visit):
        await visit.reader.readuntil(b"\r\n\r\n")
        await visit.say(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await visit.wait_closed()

    async with receive(early) as receiver:
        outcome = await client.post(receiver.url(), body=b"x" * 20_000_000)
    assert (outcome.kind, outcome.status) == (OutcomeClass.HTTP_ERROR, 413)


async def test_a_large_body_arrives_whole(client):
    body = bytes(range(256)) * 4096
    async with receive(answering(NO_CONTENT)) as receiver:
        assert (await client.post(receiver.url(), body=body)).delivered
    assert receiver.requests[0].body == body


async def test_a_deadline_that_has_passed_sends_nothing(client):
    async with receive(answering(NO_CONTENT)) as receiver:
        outcome = await client.post(receiver.url(), seconds=-1)
    assert (outcome.kind, receiver.visits) == (OutcomeClass.TIMEOUT, 0)


async def test_a_cancelled_attempt_takes_its_connection_along(client):
    async with receive(silent) as receiver:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(client.post(receiver.url()))
            while not receiver.requests:
                await asyncio.sleep(0.005)
            task.cancel()
        assert task.cancelled()
        while receiver.live or client.sender.connections != (0, 0):
            await asyncio.sleep(0.005)


async def test_a_connect_that_hangs_ends_at_the_connect_deadline_and_the_next_address_is_tried():
    with socket.socket() as full:  # a listener whose queue is full drops what comes
        full.bind(("127.0.0.2", 0))
        full.listen(0)
        port = full.getsockname()[1]
        with socket.socket() as filler:
            filler.connect(("127.0.0.2", port))
            names = Names({"hooks.example": ("127.0.0.2",), "two.example": ("127.0.0.2", "127.0.0.3")})
            policy = loopback_policy(allow=" 127.0.0.0/8")
            async with open_client(names=names, policy=policy) as client:
                started = time.monotonic()
                outcome = await client.post(f"http://hooks.example:{port}/", connect=0.3)
                assert (outcome.kind, outcome.detail) == (OutcomeClass.CONNECT_TIMEOUT, "tcp")
                assert 0.25 < time.monotonic() - started < 20  # and not at the end of it all, after 30
                outcome = await client.post(f"http://two.example:{port}/", connect=8)
                assert (outcome.kind, outcome.detail) == (OutcomeClass.CONNECT_ERROR, "refused")


async def test_the_second_address_is_dialled_when_the_first_refuses():
    async with receive(answering(NO_CONTENT)) as receiver:
        names = Names({"hooks.example": ("::1", "127.0.0.1")})
        async with open_client(names=names) as client:
            outcome = await client.post(receiver.url(host="hooks.example"))
            assert outcome.delivered
            assert outcome.address == "127.0.0.1"
            assert (await client.post(receiver.url(host="hooks.example"))).delivered
    assert receiver.visits == 1
    assert receiver.requests[0].get("host") == f"hooks.example:{receiver.port}"


async def test_an_ipv6_receiver(client):
    async with receive(answering(NO_CONTENT), host="::1") as receiver:
        outcome = await client.post(f"http://[::1]:{receiver.port}/")
    assert outcome.delivered
    assert receiver.requests[0].get("host") == f"[::1]:{receiver.port}"


async def test_no_descriptors_left_is_our_own_fault_and_idle_connections_give_theirs_back(client):
    async with receive(answering(NO_CONTENT)) as receiver, receive(answering(NO_CONTENT)) as other:
        assert (await client.post(receiver.url())).delivered
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = socket.socket()
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest.fileno(), hard))
        lowest.close()
        held = []
        try:
            with contextlib.suppress(OSError):
                while True:
                    held.append(socket.socket())
            with pytest.raises(OwnFault) as caught:
                await client.post(other.url())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for each in held:
                each.close()
        assert caught.value.kind == "descriptors"
        while client.sender.connections != (0, 0):
            await asyncio.sleep(0.005)
        assert other.visits == 0


@pytest.mark.parametrize(
    ("name", "value"), [("x", "a\r\nb: c"), ("x", "a\x00"), ("x", "a\n"), ("x y", "a"), ("x:", "a"), ("webhook-id", "a\r\nb: c"), ("webhook-id", "a\x00")]
)  # fmt: skip
async def test_f14_a_header_that_could_break_out_of_its_line_is_never_sent(client, name, value):
    async with receive(answering(NO_CONTENT)) as receiver:
        with pytest.raises(ValueError, match="header"):
            await client.post(receiver.url(), headers=[(name, value)])
    assert receiver.visits == 0


async def test_f15_the_senders_own_headers_cannot_be_replaced(client):
    theirs = ["HOST", "Content-Length", "Transfer-Encoding", "Connection", "accept-encoding", "Te", "content-length "]
    async with receive(answering(NO_CONTENT)) as receiver:
        headers = [("User-Agent", "x"), *((name, "0") for name in theirs), ("X-Api-Key", "k"), ("webhook-id", "msg_1")]
        assert (await client.post(receiver.url(), headers=headers)).delivered
    (request,) = receiver.requests
    assert request.headers == [
        ("host", f"127.0.0.1:{receiver.port}"),
        ("User-Agent", "x"),
        ("X-Api-Key", "k"),
        ("webhook-id", "msg_1"),
        ("accept-encoding", "identity"),
        ("content-length", str(len(request.body))),
    ]


async def test_f02_f03_a_hundred_hanging_attempts_do_not_hold_up_another(client):
    async with receive(silent) as hanging, receive(answering(NO_CONTENT)) as fast, asyncio.TaskGroup() as group:
        stuck = [group.create_task(client.post(hanging.url(), seconds=120)) for _ in range(100)]
        while len(hanging.requests) < 100:
            await asyncio.sleep(0.01)
        assert (await client.post(fast.url())).delivered
        assert not any(task.done() for task in stuck)  # it waited for none of them
        for task in stuck:
            task.cancel()


async def test_the_duration_is_that_of_the_receiver(client):
    async def slow(visit: Visit):
        await visit.request()
        await asyncio.sleep(0.2)
        await visit.say(OK)

    async with receive(slow) as receiver:
        started = time.monotonic()
        outcome = await client.post(receiver.url())
        took = time.monotonic() - started
    assert 0.19 < outcome.duration <= took


async def test_f56_the_duration_leaves_out_the_look_up():
    class Slow(Names):
        async def __call__(self, name):
            await asyncio.sleep(0.3)
            return await super().__call__(name)

    names = Slow({"hooks.example": ("127.0.0.1",)})
    async with receive(answering(NO_CONTENT)) as receiver, open_client(names=names) as client:
        started = time.monotonic()
        outcome = await client.post(receiver.url(host="hooks.example"))
        took = time.monotonic() - started
    assert outcome.delivered
    assert outcome.duration <= took - 0.29


async def proxying(visit: Visit):
    """A proxy that pretends: it answers CONNECT and then is the receiver itself."""
    await visit.request()
    await visit.say(b"HTTP/1.1 200 Connected\r\n\r\n")
    await answering(OK)(visit)


async def test_a_proxy_is_asked_for_the_checked_address_and_then_tunnels():
    async with receive(proxying) as proxy:
        names = Names({"hooks.example": ("127.0.0.9",)})
        policy = loopback_policy(allow=" 127.0.0.9")
        via = parse_proxy(f"http://us%40er:p%3Aw@127.0.0.1:{proxy.port}")
        async with open_client(names=names, policy=policy, proxy=via) as client:
            for _ in range(2):
                outcome = await client.post("http://hooks.example:8080/x")
                assert (outcome.delivered, outcome.address) == (True, "127.0.0.9")
    connect, first, second = proxy.requests
    assert connect.line == b"CONNECT 127.0.0.9:8080 HTTP/1.1"
    assert connect.get("proxy-authorization") == "Basic dXNAZXI6cDp3"
    assert first.get("host") == second.get("host") == "hooks.example:8080"
    assert proxy.visits == 1


@pytest.mark.parametrize(
    "said",
    [b"HTTP/1.1 407 Who\r\ncontent-length: 0\r\n\r\n", b"HTTP/1.1 500 No\r\n\r\n", b"nonsense\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\n\r\nsurplus"],
)  # fmt: skip
async def test_a_proxy_that_fails_is_our_own_fault(said):
    async with (
        receive(answering(said, then="close")) as proxy,
        open_client(proxy=Proxy("127.0.0.1", proxy.port)) as client,
    ):
        with pytest.raises(OwnFault) as caught:
            await client.post("http://127.0.0.1:9/")
    assert caught.value.kind == "egress_proxy"


async def test_a_proxy_that_is_down_is_our_own_fault():
    for host in ("127.0.0.1", "does-not-exist.invalid"):
        async with open_client(proxy=Proxy(host, find_free_port())) as client:
            with pytest.raises(OwnFault) as caught:
                await client.post("http://127.0.0.1:9/")
        assert caught.value.kind == "egress_proxy"


@pytest.mark.parametrize(("status", "kind"), [(502, "connect_error"), (503, "connect_error"), (504, "connect_timeout")])
async def test_a_proxy_that_cannot_reach_the_receiver_speaks_for_it(status, kind):
    said = answering(b"HTTP/1.1 %d No\r\n\r\n" % status, then="close")
    async with receive(said) as proxy, open_client(proxy=Proxy("127.0.0.1", proxy.port)) as client:
        outcome = await client.post("http://127.0.0.1:9/")
    assert (outcome.kind, outcome.detail) == (kind, f"proxy_{status}")


async def test_a_proxy_that_does_not_answer_connect_in_time_is_a_connect_timeout():
    async with receive(silent) as proxy, open_client(proxy=Proxy("127.0.0.1", proxy.port)) as client:
        outcome = await client.post("http://127.0.0.1:9/", connect=3)
    assert (outcome.kind, outcome.detail) == (OutcomeClass.CONNECT_TIMEOUT, "proxy")


@pytest.mark.parametrize("url", ["https://proxy:1", "socks5://proxy", "proxy:3128", "http://proxy/x", "http://"])
def test_a_malformed_proxy_is_refused_without_its_password(url):
    with pytest.raises(ValueError, match="EGRESS_PROXY"):
        parse_proxy(url)


def test_no_proxy_and_its_usual_port():
    assert parse_proxy("") is None
    assert parse_proxy("http://proxy") == Proxy("proxy", 3128)


def test_the_same_on_uvloop():
    async def scene() -> None:
        async with open_client() as client, receive(answering(OK)) as receiver, receive(silent) as mute:
            for _ in range(3):
                assert (await client.post(receiver.url())).delivered
            assert receiver.visits == 1
            assert (await client.post(mute.url(), seconds=3)).kind is OutcomeClass.TIMEOUT
            outcome = await client.post(f"http://127.0.0.1:{find_free_port()}/")
            assert (outcome.kind, outcome.detail) == (OutcomeClass.CONNECT_ERROR, "refused")
            async with receive(answering(OK, then="reset")) as liar:
                for _ in range(5):
                    assert (await client.post(liar.url())).delivered

    uvloop.run(scene())


async def test_an_unreachable_network_is_a_connect_error_and_too_few_ports_our_own_fault(client, monkeypatch):
    async def fail(code: int) -> object:
        async def sock_connect(sock, address):
            raise OSError(code, "no")

        monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", sock_connect)
        return await client.post("http://127.0.0.1:9/")

    assert (await fail(errno.ENETUNREACH)).detail == "unreachable"
    assert (await fail(errno.ECONNABORTED)).detail == "other"
    assert (await fail(errno.ETIMEDOUT)).kind is OutcomeClass.CONNECT_TIMEOUT
    for code, word in ((errno.EADDRNOTAVAIL, "local_ports"), (errno.ENOBUFS, "memory"), (errno.ENFILE, "descriptors")):
        with pytest.raises(OwnFault) as caught:
            await fail(code)
        assert caught.value.kind == word


def test_the_trust_store_of_this_machine_is_not_empty():
    assert build_tls_context().cert_store_stats()["x509_ca"] > 0


async def test_a_hop_that_was_lost_before_its_request_is_a_reset(client):
    async with receive(answering(NO_CONTENT)) as receiver:
        await client.post(receiver.url())
        (kept,) = client.sender._pool._open
        kept.abort()
        await asyncio.sleep(0.01)
        result = await kept.post(b"x", 0.0)
        assert (result.kind, result.detail) == (OutcomeClass.RESET, "closed")


async def test_the_deadline_during_a_body_keeps_the_outcome():
    said = answering(H + b"content-length: 9\r\n\r\npart")
    async with open_client(limits=SenderLimits(body_grace=30)) as client, receive(said) as receiver:
        outcome = await client.post(receiver.url(), seconds=3)
    assert (outcome.status, outcome.excerpt, outcome.flags) == (200, b"part", {Flag.BODY_INCOMPLETE})


async def test_without_grace_the_outcome_is_there_with_the_head():
    said = answering(H + b"content-length: 4\r\n\r\n", b"late", pause=0.02)
    async with open_client(limits=SenderLimits(body_grace=0)) as client, receive(said) as receiver:
        outcome = await client.post(receiver.url())
    assert (outcome.status, outcome.excerpt, outcome.flags) == (200, b"", {Flag.BODY_INCOMPLETE})


async def test_leaving_the_sender_cancels_what_is_in_flight():
    async with receive(silent) as receiver:
        async with open_client() as client:
            task = asyncio.get_running_loop().create_task(client.post(receiver.url()))
            while not receiver.requests:
                await asyncio.sleep(0.005)
        with pytest.raises(asyncio.CancelledError):
            await task
