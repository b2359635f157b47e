"""The guard on the way out: resolving within bounds, judging every address, and no packet before that."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from ipaddress import ip_address
from types import SimpleNamespace

import pytest
import uvloop

from service.domain.attempts import OutcomeClass, OwnFault
from service.domain.egress import EgressPolicy, parse_policy
from service.domain.outbound import Hop, Route
from service.domain.targets import Target, parse_url
from service.sender.dns import AresLookup
from service.sender.guard import Guard
from service.sender.names import ascii_host
from service.sender.resolver import Found, Resolver, ResolverLimits
from tests.support.dns import SERVFAIL, A, serve_names
from tests.support.receivers import NO_CONTENT, answering, receive
from tests.support.senders import Names, loopback_policy, open_client

PUBLIC = "93.184.216.34"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def soon() -> float:
    return time.monotonic() + 30


def target(url: str, policy: EgressPolicy | None = None) -> Target:
    parsed = parse_url(url, policy or EgressPolicy())
    assert isinstance(parsed, Target)
    return parsed


@pytest.fixture
async def no_dialling(monkeypatch):
    async def refuse(*args):
        raise AssertionError("dialled")

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", refuse)


@pytest.mark.parametrize("kind", ["product", "reference"])
@pytest.mark.parametrize(
    "addresses",
    [
        ("169.254.169.254",),
        ("10.0.0.1",),
        (PUBLIC, "127.0.0.1"),
        ("::1", PUBLIC),
        ("64:ff9b::a9fe:a9fe",),
        ("fe80::1%eth0",),
    ],
)
async def test_f65_f66_a_name_with_any_private_address_is_refused_before_any_packet(kind, addresses, no_dialling):
    names = Names({"169.254.169.254.nip.io": addresses})
    async with open_client(kind, names=names, policy=EgressPolicy()) as client:
        outcome = await client.post("https://169.254.169.254.nip.io/")
    assert outcome.kind is OutcomeClass.BLOCKED_ADDRESS
    assert outcome.detail.endswith("_address")
    assert (outcome.status, outcome.address, outcome.duration, outcome.excerpt) == (None, "", 0.0, b"")


async def test_f66_each_new_look_up_is_judged_anew_and_an_error_fails_closed():
    clock, names = Clock(), Names({"hooks.example": (PUBLIC,)})
    guard = Guard(EgressPolicy(), Resolver(names, ResolverLimits(), clock), clock)
    where = target("https://hooks.example/")
    assert isinstance(await guard.locate(where, "t", 2000), Route)
    names.table["hooks.example"] = ("10.0.0.1",)
    clock.now += 9.1
    assert (await guard.locate(where, "t", 2000)).kind is OutcomeClass.BLOCKED_ADDRESS
    del names.table["hooks.example"]
    clock.now += 9.1
    assert (await guard.locate(where, "t", 2000)).kind is OutcomeClass.DNS_ERROR
    names.table["hooks.example"] = ("192.168.0.1",)
    clock.now += 9.1
    assert (await guard.locate(where, "t", 2000)).kind is OutcomeClass.BLOCKED_ADDRESS


async def test_f66_only_checked_addresses_are_dialled():
    async with receive(answering(NO_CONTENT)) as receiver:
        names = Names({"hooks.example": ("127.0.0.1",)})
        async with open_client(names=names) as client:
            assert (await client.post(receiver.url(host="hooks.example"))).address == "127.0.0.1"
    assert names.asked == ["hooks.example"]


async def test_f66_the_socket_itself_must_say_that_it_reached_the_checked_address(monkeypatch):
    async with receive(answering(NO_CONTENT)) as receiver, open_client() as client:

        async def elsewhere(sock, address):
            sock.setblocking(True)
            sock.connect(("127.0.0.1", receiver.port))
            sock.setblocking(False)

        monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", elsewhere)
        other = parse_policy(allow_http=True, allow="127.0.0.2")
        client.policy = other
        client.sender._guard._policy = other
        outcome = await client.post(f"http://127.0.0.2:{receiver.port}/")
    assert outcome.kind is OutcomeClass.CONNECT_ERROR
    assert receiver.requests == []


async def test_f69_closed_filtered_and_open_ports_of_a_blocked_target_look_the_same(no_dialling):
    async with receive(answering(NO_CONTENT)) as receiver:
        names = Names({"a.example": ("127.0.0.1",), "b.example": ("10.255.255.1",)})
        policy = parse_policy(allow_http=True, ports="1-65535")
        async with open_client(names=names, policy=policy) as client:
            outcomes = [
                await client.post(f"http://{host}:{port}/")
                for host in ("a.example", "b.example")
                for port in (receiver.port, 9)
            ]
    assert {(o.kind, o.status, o.duration, o.address) for o in outcomes} == {
        (OutcomeClass.BLOCKED_ADDRESS, None, 0.0, "")
    }
    assert receiver.visits == 0


async def test_f67_every_literal_is_judged_and_never_resolved():
    names = Names()
    clock = Clock()
    guard = Guard(EgressPolicy(), Resolver(names, ResolverLimits(), clock), clock)
    route = await guard.locate(target(f"https://{PUBLIC}/"), "t", 2000)
    assert isinstance(route, Route)
    assert route.address == PUBLIC
    loopback = target("http://127.0.0.1/", loopback_policy())
    assert (await guard.locate(loopback, "t", 2000)).detail == "loopback_address"
    assert names.asked == []


async def test_a_verdict_is_shared_between_tenants_unless_an_entry_names_one():
    clock, names = Clock(), Names({"hooks.example": ("10.0.0.1",)})
    policy = parse_policy(allow="acct_1=10.0.0.0/8")
    guard = Guard(policy, Resolver(names, ResolverLimits(), clock), clock)
    where = target("https://hooks.example/")
    assert isinstance(await guard.locate(where, "acct_1", 2000), Route)
    assert guard.find_route(where, "acct_1") is not None
    assert guard.find_route(where, "acct_2") is None
    assert (await guard.locate(where, "acct_2", 2000)).kind is OutcomeClass.BLOCKED_ADDRESS
    assert names.asked == ["hooks.example"]


async def test_f05_the_cache_is_bounded_and_so_are_routes(monkeypatch):
    monkeypatch.setattr("service.sender.guard.MAX_ROUTES", 100)
    clock = Clock()

    async def lookup(name):
        return Found((PUBLIC,), 60)

    resolver = Resolver(lookup, ResolverLimits(cached_names=100), clock)
    guard = Guard(EgressPolicy(), resolver, clock)
    for number in range(300):
        await guard.locate(target(f"https://h{number}.example/"), "t", 2000)
    assert len(resolver) == 100
    assert len(guard._routes) == 100
    assert guard.find_route(target("https://h299.example/"), "t")
    assert not guard.find_route(target("https://h0.example/"), "t")


@pytest.mark.parametrize(("ttl", "kept"), [(0, 2), (5, 5), (3600, 9)])
async def test_f04_an_answer_is_kept_for_its_time_to_live_within_bounds(ttl, kept):
    clock, names = Clock(), Names({"hooks.example": (PUBLIC,)}, ttl=ttl)
    resolver = Resolver(names, ResolverLimits(), clock)
    resolved = await resolver.resolve("hooks.example", "t", 2000)
    assert (resolved.addresses, resolved.fresh_until) == ((ip_address(PUBLIC),), 1000 + kept)
    clock.now += kept - 0.1
    await resolver.resolve("hooks.example", "t", 2000)
    assert len(names.asked) == 1
    clock.now += 0.2
    await resolver.resolve("hooks.example", "t", 2000)
    assert len(names.asked) == 2


async def test_f09_a_problem_is_kept_for_a_moment_only():
    clock, names = Clock(), Names()
    resolver = Resolver(names, ResolverLimits(), clock)
    assert (await resolver.resolve("later.example", "t", 2000)).problem == "nxdomain"
    names.table["later.example"] = (PUBLIC,)
    assert (await resolver.resolve("later.example", "t", 2000)).problem == "nxdomain"
    clock.now += 3.1
    assert (await resolver.resolve("later.example", "t", 2000)).problem == ""


async def test_one_flight_per_name_and_a_new_one_when_it_is_cancelled():
    gate, asked = asyncio.Event(), []

    async def lookup(name):
        asked.append(name)
        await gate.wait()
        return Found((PUBLIC,), 60)

    resolver = Resolver(lookup, ResolverLimits(), time.monotonic)
    async with asyncio.TaskGroup() as group:
        leader = group.create_task(resolver.resolve("a.example", "t", soon()))
        await asyncio.sleep(0)
        others = [group.create_task(resolver.resolve("a.example", "t", soon())) for _ in range(5)]
        await asyncio.sleep(0)
        others[0].cancel()
        leader.cancel()
        while len(asked) < 2:
            await asyncio.sleep(0)
        assert asked == ["a.example"] * 2
        gate.set()
    assert {task.result().addresses for task in others[1:]} == {(ip_address(PUBLIC),)}
    assert len(asked) == 2


async def test_a_tenant_has_a_cap_of_flights_and_others_do_not_wait_for_it():
    gate, asked = asyncio.Event(), []

    async def lookup(name):
        asked.append(name)
        if name != "fast.example":
            await gate.wait()
        return Found((PUBLIC,), 60)

    resolver = Resolver(lookup, ResolverLimits(lookups_per_tenant=3), time.monotonic)
    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(resolver.resolve(f"h{number}.example", "slow", soon()))
        while len(asked) < 3:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert len(asked) == 3
        assert (await resolver.resolve("fast.example", "other", soon())).problem == ""
        with pytest.raises(OwnFault) as caught:
            await resolver.resolve("h99.example", "slow", time.monotonic() + 0.01)
        assert caught.value.kind == "dns_busy"
        gate.set()
    assert not resolver._tenants
    assert not resolver._flights


async def test_a_look_up_has_two_seconds_and_its_silence_is_a_dns_error():
    async def lookup(name):
        await asyncio.Event().wait()

    resolver = Resolver(lookup, ResolverLimits(lookup_seconds=0.02), time.monotonic)
    assert (await resolver.resolve("a.example", "t", soon())).problem == "timeout"
    assert ResolverLimits().lookup_seconds == 2.0


async def test_the_senders_locate_gives_a_route_for_the_send_or_the_outcome():
    names = Names({"hooks.example": ("127.0.0.1",)})
    async with receive(answering(NO_CONTENT)) as receiver, open_client(names=names) as client:
        where = target(receiver.url(host="hooks.example"), client.policy)
        assert client.sender.find_route(where, "t") is None
        route = await client.sender.locate(where, "t", soon())
        assert client.sender.find_route(where, "t") == route
        assert (await client.post(receiver.url(host="hooks.example"), route=route)).delivered
        assert (await client.sender.locate(target("https://no.example/"), "t", soon())).kind is OutcomeClass.DNS_ERROR
    assert names.asked == ["hooks.example", "no.example"]


async def test_f04_a_route_that_is_not_fresh_any_more_is_not_taken():
    names = Names({"hooks.example": ("127.0.0.1",)})
    async with receive(answering(NO_CONTENT)) as receiver, open_client(names=names) as client:
        retired = Route((Hop("hooks.example", receiver.port, "127.0.0.2", tls=False),), time.monotonic())
        outcome = await client.post(receiver.url(host="hooks.example"), route=retired)
    assert (outcome.delivered, outcome.address) == (True, "127.0.0.1")


# The real resolver against a name server of our own.


async def test_f09_each_kind_of_no_is_a_dns_error_with_a_word(monkeypatch):
    async with serve_names() as server:
        server.table["empty.example"] = ()
        server.codes["broken.example"] = SERVFAIL
        lookup = AresLookup([server.address])
        async with open_client(names=lookup) as client:
            details = {}
            for name in ("missing.example", "empty.example", "broken.example"):
                outcome = await client.post(f"https://{name}/")
                assert outcome.kind is OutcomeClass.DNS_ERROR
                details[name] = outcome.detail
        await lookup.close()
    assert details == {"missing.example": "nxdomain", "empty.example": "no_address", "broken.example": "servfail"}


LOOPBACK_RECORD = struct.pack(">HHIH", A, 1, 60, 4) + b"\x7f\0\0\1"
ALIAS = b"\x04loop\x07example\0"
FORGERIES = {
    "an alias of a name with a private address": b"\xc0\x0c"
    + struct.pack(">HHIH", 5, 1, 60, len(ALIAS))
    + ALIAS
    + ALIAS
    + LOOPBACK_RECORD,
    "an alias of localhost": b"\xc0\x0c" + struct.pack(">HHIH", 5, 1, 60, 11) + b"\x09localhost\0",
    "the address of another name": b"\x03www\x05other\0" + LOOPBACK_RECORD,
    "a name that points at itself": b"\xc0\x1f" * 6,
    "no record at all": b"\xff" * 40,
}


@pytest.mark.parametrize("records", FORGERIES.values(), ids=FORGERIES)
async def test_f66_what_a_name_server_makes_up_leads_to_no_packet(records, no_dialling):
    async with serve_names() as server:
        server._answer = lambda ident, name, kind, question: (
            ident + struct.pack(">HHHHH", 0x8180, 1, 2 if ALIAS in records else 1, 0, 0) + question + records
        )
        lookup = AresLookup([server.address])
        async with open_client(names=lookup, policy=parse_policy(to_ascii=ascii_host)) as client:
            outcome = await client.post("https://forged.example/")
        await lookup.close()
    assert outcome.kind in {OutcomeClass.DNS_ERROR, OutcomeClass.BLOCKED_ADDRESS}
    assert server.asked


async def test_names_are_asked_for_as_absolute_ones_in_both_families(monkeypatch):
    monkeypatch.setenv("LOCALDOMAIN", "corp.example")
    monkeypatch.setenv("RES_OPTIONS", "ndots:15")
    async with serve_names() as server:
        server.table["my_hooks.example"] = ("127.0.0.1", "::1")
        lookup = AresLookup([server.address])
        found = await lookup("my_hooks.example")
        assert (await lookup("missing.example")).problem == "nxdomain"
        await lookup.close()
    assert set(found.addresses) == {"127.0.0.1", "::1"}
    assert found.ttl == 3600
    assert {name for name, _ in server.asked} == {"my_hooks.example", "missing.example"}


async def test_f04_the_cache_inside_c_ares_does_not_keep_a_retired_address(monkeypatch):
    monkeypatch.setattr("service.sender.dns.FORGET_SECONDS", 0.02)
    async with serve_names() as server:
        server.table["hooks.example"] = ("127.0.0.1",)
        lookup = AresLookup([server.address])
        assert (await lookup("hooks.example")).addresses == ("127.0.0.1",)
        server.table["hooks.example"] = ("127.0.0.2",)
        async with asyncio.timeout(20):
            while (await lookup("hooks.example")).addresses == ("127.0.0.1",):
                await asyncio.sleep(0.05)
        assert (await lookup("hooks.example")).addresses == ("127.0.0.2",)
        await lookup.close()


async def test_f04_a_kept_connection_to_a_retired_address_is_not_used():
    clock = Clock()
    names = Names({"hooks.example": ("127.0.0.1",)})
    async with (
        receive(answering(NO_CONTENT)) as old,
        open_client(names=names, policy=loopback_policy(allow=" 127.0.0.2")) as client,
    ):
        client.sender._guard._clock = client.sender._resolver._clock = clock
        assert (await client.post(old.url(host="hooks.example"))).address == "127.0.0.1"
        names.table["hooks.example"] = ("127.0.0.2",)
        clock.now += 10
        outcome = await client.post(old.url(host="hooks.example"))
    assert (outcome.kind, outcome.address, len(old.requests)) == (OutcomeClass.CONNECT_ERROR, "127.0.0.2", 1)


async def test_a_silent_name_server_costs_two_seconds_at_most(monkeypatch):
    async with serve_names() as server:
        server.silent.add("silent.example")
        lookup = AresLookup([server.address])
        resolver = Resolver(lookup, ResolverLimits(lookup_seconds=0.3), time.monotonic)
        started = time.monotonic()
        assert (await resolver.resolve("silent.example", "t", soon())).problem == "timeout"
        assert time.monotonic() - started < 15  # and not at the deadline, after 30
        await lookup.close()


async def test_no_descriptors_for_a_look_up_is_our_own_fault(monkeypatch):
    with socket.socket(type=socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        lookup = AresLookup([f"127.0.0.1:{closed.getsockname()[1]}"])
    assert (await lookup("a.example")).problem in {"unreachable", "timeout"}

    def no_sockets(*args):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("service.sender.failures.socket", SimpleNamespace(socket=no_sockets, AF_INET=2, SOCK_DGRAM=2))
    with pytest.raises(OwnFault):
        await lookup("b.example")
    await lookup.close()


def test_the_systems_resolver_knows_localhost_and_works_on_uvloop():
    async def scene() -> None:
        lookup = AresLookup()
        policy = parse_policy(allow_http=True, allow="localhost")
        async with receive(answering(NO_CONTENT)) as receiver, open_client(names=lookup, policy=policy) as client:
            outcome = await client.post(receiver.url(host="localhost"))
            assert outcome.delivered, outcome
        await lookup.close()

    uvloop.run(scene())
