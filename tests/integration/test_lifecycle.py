"""What moves a delivery between attempts is written in SQL; the table of the domain says what it has to do."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from service.domain.deliveries import LIFECYCLE, Event, Reason, Recall, State, combine_recalls
from service.domain.health import Breaker, Health
from service.store.codes import STATES, LiveState, WireFlag
from service.store.deliveries import read_recall
from service.store.statements import statement
from tests.support.delivering import Queue

LIVE = (State.PENDING, State.RETRYING, State.HELD, State.IN_FLIGHT)
EVENTS = [event for event in Event if event is not Event.CLAIM]  # which is all that the tests of claiming are about
RECALLING = (Event.SUPERSEDE, Event.CANCEL, Event.PAUSE, Event.DISABLE, Event.RESTART)
FLAGS = {
    Recall.CANCELED: (WireFlag.CANCELED, "by_request"),
    Recall.SUPERSEDED: (WireFlag.SUPERSEDED, None),
    Recall.PAUSED: (WireFlag.HELD, "paused"),
    Recall.DISABLED: (WireFlag.HELD, "disabled"),
    Recall.RESTART: (WireFlag.RESTART, None),
}
LONG_AGO = timedelta(seconds=150)
TOTAL = 100.0  # seconds of the schedule
GROUP = 7


@pytest.fixture
async def queue(database):
    async with Queue(database) as queue:
        yield queue


async def make(queue, state, recall=None):
    """A webhook whose breaker is open, and a delivery that has been in this state for longer than its schedule."""
    hook = await queue.webhook("http://receiver.test/x")
    flag, reason = FLAGS[recall] if recall else (WireFlag.NONE, None)
    columns = {
        State.HELD: {"state": int(LiveState.HELD), "reason": "paused"},
        State.RETRYING: {"state": int(LiveState.RETRYING)},
        State.IN_FLIGHT: {
            "lease_token": 1, "lease_until": datetime.now(UTC) + timedelta(minutes=1), "flag": int(flag),
            "flag_reason": reason,
        },
    }.get(state, {})  # fmt: skip
    (delivery_id,) = await queue.deliveries(hook, group_key=GROUP, **columns)
    await queue.execute("UPDATE deliveries SET first_due_at = now() - $1::interval", LONG_AGO)
    if state is State.HELD:
        await queue.execute("UPDATE deliveries SET due_at = NULL, held_at = now() - $1::interval", LONG_AGO)
    await queue.store_health(hook, Health(datetime.now(UTC), breaker=Breaker.OPEN))
    return hook, delivery_id


async def happen(queue, event, hook, delivery_id):
    name, *arguments = {
        Event.SUPERSEDE: ("deliveries_supersede", [GROUP], [hook], [2], ["msg_newer"]),
        Event.CANCEL: ("deliveries_cancel", [delivery_id], "by_request"),
        Event.PAUSE: ("deliveries_hold_webhook", hook, "paused", 100),
        Event.DISABLE: ("deliveries_hold_webhook", hook, "disabled", 100),
        Event.RELEASE: ("webhook_release_deliveries", hook, ["paused", "disabled"]),
        Event.RESTART: ("webhook_restart_deliveries", hook),
        Event.EXPIRE: ("breaker_expire", TOTAL, 100),
        Event.AGE_OUT: ("held_age_out", TOTAL, 100),
    }[event]
    await queue.connection.fetch(statement(name), *arguments)


async def look(queue, delivery_id):
    """State, reason and flag, as the domain calls them."""
    row = await queue.live(delivery_id)
    if row is None:
        row = await queue.done(delivery_id)
        return STATES[row["state"]], row["reason"], None
    recall, _ = read_recall(row["flag"], row["flag_reason"])
    state = State.IN_FLIGHT if row["lease_token"] is not None else STATES[row["state"]]
    return state, row["reason"], recall


@pytest.mark.parametrize(("state", "event"), [*product(LIVE, EVENTS)])
async def test_sql_does_what_the_table_says(queue, state, event):
    recall = Recall.PAUSED if (state, event) == (State.IN_FLIGHT, Event.RELEASE) else None
    hook, delivery_id = await make(queue, state, recall)
    before = await look(queue, delivery_id)
    await happen(queue, event, hook, delivery_id)
    after = await look(queue, delivery_id)
    change = LIFECYCLE.get((state, event))
    if change is None:
        assert after == before
    elif change.state is None:
        assert after == (State.IN_FLIGHT, None, None if before[2] in change.clears else change.recall)
    else:
        reason = Reason.BY_REQUEST if event is Event.CANCEL else change.reason
        assert after == (change.state, reason, None)


@pytest.mark.parametrize(("old", "event"), [*product(Recall, RECALLING)])
async def test_the_more_final_of_two_flags_stays(queue, old, event):
    hook, delivery_id = await make(queue, State.IN_FLIGHT, old)
    await happen(queue, event, hook, delivery_id)
    new = LIFECYCLE[State.IN_FLIGHT, event].recall
    assert (await look(queue, delivery_id))[2] is combine_recalls(old, new)
