"""Operator pauses: what they name keeps its state, and its clocks stand still until they end."""

from datetime import timedelta
from urllib.parse import quote

import pytest

from service.domain.health import Breaker, Health
from service.profiles import load_profiles
from service.store.admin_upkeep import AdminUpkeep, Kept
from service.store.database import Database
from service.store.gauges import QueueLook
from tests.support.api import running_api
from tests.support.delivering import Queue
from tests.support.releasing import run_release

PAUSES = "/v1/operator/pauses"


@pytest.fixture
async def queue(database):
    async with Queue(database) as queue:
        yield queue


@pytest.fixture
async def waiting(queue):
    """Two deliveries that have waited 150 seconds, in a schedule of 100: behind an open breaker and a paused webhook."""
    tried = await queue.webhook("http://receiver.test:8080/x")
    held = await queue.webhook("http://receiver.test:8080/y", state=1)
    await queue.store_health(tried, Health(await queue.now(), breaker=Breaker.OPEN))
    ids = [*await queue.deliveries(tried), *await queue.deliveries(held, state=2, reason="paused")]
    await queue.execute("UPDATE deliveries SET due_at = NULL, held_at = now() WHERE state = 2")
    await queue.shift(150)
    return ids


async def pause(queue, began, ended=None, scope="tenant", tenant="t1", host=None):
    """A pause that began so many seconds ago and, unless it still holds, ended so many ago."""
    await queue.execute(
        """INSERT INTO operator_pauses (scope, tenant_id, host, created_by, created_at, ended_at)
        VALUES ($1, $2, $3, 'x', now() - make_interval(secs => $4), now() - make_interval(secs => $5))""",
        *(scope, tenant if scope == "tenant" else None, host if scope == "host" else None, began, ended),
    )


async def list_ended(queue, database, waiting):
    await run_release(database)
    return [await queue.done(each) is not None for each in waiting]


async def test_without_a_pause_they_end(queue, database, waiting):
    assert await list_ended(queue, database, waiting) == [True, True]


@pytest.mark.parametrize(
    "named",
    [{"scope": "all"}, {"scope": "tenant"}, {"scope": "host", "host": "receiver.test"}],
    ids=lambda n: n["scope"],
)
async def test_while_they_are_paused_nothing_ends(queue, database, waiting, named):
    """Not even what was due to end before the pause began."""
    await pause(queue, 1, **named)
    assert await list_ended(queue, database, waiting) == [False, False]
    assert await queue.count("deliveries", "state IN (0, 2) AND attempts = 0") == 2


@pytest.mark.parametrize(
    ("named", "others"),
    [
        ({"tenant": "t2"}, "tenant"),
        ({"scope": "host", "host": "test"}, "host"),
        ({"scope": "host", "host": "%"}, "all"),
    ],
)
async def test_pauses_of_others_change_nothing(queue, database, waiting, named, others):
    await pause(queue, 140, **named)
    await pause(queue, 149, 141, **named)
    assert await list_ended(queue, database, waiting) == [True, True], others


@pytest.mark.parametrize(
    ("pauses", "ended"),
    [
        ([(120, 60)], False),  # 90 of 150 seconds have counted
        ([(120, 80)], True),  # 110 have
        ([(9_000, 120)], True),  # only what lies within counts
        ([(9_000, 90)], False),
        ([(140, 110), (60, 30)], False),
        ([(130, 100), (120, 90)], True),  # 40 seconds, though two pauses of 30
    ],
)
async def test_the_time_of_pauses_that_are_over_does_not_count(queue, database, waiting, pauses, ended):
    scopes = iter([{"scope": "tenant"}, {"scope": "all"}])
    for began, over in pauses:
        await pause(queue, began, over, **next(scopes))
    assert await list_ended(queue, database, waiting) == [ended, ended]


@pytest.mark.parametrize(
    ("host", "origin", "named"),
    [
        ("a.example", "https://a.example:443", True),
        ("a.example", "https://a.example", True),
        ("a.example", "https://b.a.example:443", False),
        ("a_example", "https://a.example:443", False),
        ("192.0.2.1", "http://192.0.2.1:80", True),
        ("2001:db8::1", "https://[2001:db8::1]:8443", True),
        ("2001:db8::1", "https://[2001:db8::1]", True),
        ("2001:db8:", "https://[2001:db8::1]:8443", False),
        ("refused", "refused", False),
    ],
)
async def test_a_host_is_named_whatever_its_port(queue, host, origin, named):
    await pause(queue, 1, None, "host", host=host)
    found = await queue.connection.fetchval("SELECT names_webhook(p, 't', $1) FROM operator_pauses AS p", origin)
    assert bool(found) is named


@pytest.mark.parametrize(
    ("given", "paused"),
    [
        ("A.Example.", "a.example"),
        ("b\u00fccher.example", "xn--bcher-kva.example"),
        ("[2001:DB8:0::1]", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
    ],
)
async def test_a_host_is_paused_as_webhooks_name_it_however_it_is_spelled(database, given, paused):
    async with running_api(database) as api:
        made = await api.post(PAUSES, {"host": given})
        assert (made.status, made.json["host"]) == (201, paused)
        assert (await api.post(PAUSES, {"host": paused})).status == 200
        assert (await api.delete(f"{PAUSES}?host={quote(given)}")).status == 204


@pytest.mark.parametrize(
    "host", ["a.example:443", "https://a.example", "a.example/x", "[2001:db8::1", "a b", "0x7f.1", "%"]
)
async def test_what_no_webhook_can_name_is_no_host_to_pause(database, host):
    async with running_api(database) as api:
        refused = await api.post(PAUSES, {"host": host})
        assert (refused.status, refused.json["errors"][0]["field"]) == (422, "host")
        assert (await api.get(PAUSES)).json["data"] == []


async def test_pauses_are_forgotten_when_no_delivery_can_have_waited_for_them(queue, database):
    await pause(queue, 101 * 86_400, 100 * 86_400 + 60)
    await pause(queue, 99 * 86_400, 98 * 86_400)
    await pause(queue, 200 * 86_400)
    async with running_api(database) as api:
        kept = Kept(timedelta(days=400), timedelta(days=90))
        await AdminUpkeep(api.database, api.parts.registry, load_profiles(), kept).prune()
    assert await queue.count("operator_pauses") == 2


async def test_a_paused_host_is_no_late_delivery(queue, database):
    hook = await queue.webhook("http://receiver.test:8080/x")
    await queue.deliveries(hook)
    await queue.shift(50)
    async with Database(database, size=1) as db:
        look = QueueLook(db)
        assert (await look.look())["oldest_due_seconds"] >= 50
        await pause(queue, 10, 5, "host", host="receiver.test")
        assert (await look.look())["oldest_due_seconds"] >= 50
        await pause(queue, 1, None, "host", host="receiver.test")
        assert (await look.look())["oldest_due_seconds"] == 0


async def test_a_pause_that_is_over_is_not_shown_and_may_come_again(database):
    async with running_api(database) as api:
        for _ in range(2):
            assert [(await api.post(PAUSES, {"tenant_id": "t1"})).status for _ in range(2)] == [201, 200]
            assert len((await api.get(PAUSES)).json["data"]) == 1
            assert [(await api.delete(f"{PAUSES}?tenant_id=t1")).status for _ in range(2)] == [204, 404]
            assert (await api.get(PAUSES)).json["data"] == []
        assert await api.value("SELECT count(*) FROM operator_pauses WHERE ended_at >= created_at") == 2
