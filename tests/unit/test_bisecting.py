"""Only the culprit of a poll is put aside, whatever the poll looks like and wherever the culprits are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.jobs import EventOutcome
from service.ingest.bisecting import Offer, split
from service.ingest.parsing import Parser
from service.ingest.poison import TOMBSTONE, DeadLetter, Reason, Skipped
from service.ingest.poll import NOWHERE, Partition, Poll, PollResult, Record
from service.ports import Conflict, StoreUnavailable
from service.profiles import load_profiles

EVENT = Parser(load_profiles()).parse(
    b'{"event_id": "e", "event_type": "job.queued", "occurred_at": "2026-11-30T09:00:00Z", "tenant_id": "t", "job_id": "j"}'
)
ONE, TWO = Partition("t", 0), Partition("t", 1)


def build_poll(*sizes):
    records = tuple(
        Record(Partition("t", p), offset, EVENT) for p, size in enumerate(sizes) for offset in range(10, 10 + size)
    )
    return Poll(records, {Partition("t", p): 11 + size for p, size in enumerate(sizes) if size}, "owner")


class Store:
    """Keeps what it takes; refuses culprits as events, and is away every `away`th time."""

    def __init__(self, culprits=(), away=0):
        self.culprits = set(culprits)
        self.away = away
        self.calls = 0
        self.records, self.offsets = [], {}

    async def ingest(self, poll):
        self.calls += 1
        if self.away and self.calls % self.away == 0:
            raise StoreUnavailable
        for record in poll.records:
            if (record.partition, record.offset) in self.culprits and not isinstance(record.content, DeadLetter):
                raise ZeroDivisionError
        for partition, offset in poll.positions.items():
            assert offset > self.offsets.get(partition, 0)
            self.offsets[partition] = offset
        self.records += poll.records
        return PollResult((EventOutcome.APPLIED,) * len(poll.records))


async def offer_all(store, poll):
    done, culprits = [], []
    offer = Offer(poll, lambda part, result: done.append(part), lambda record, error: culprits.append(record))
    for _ in range(1000):
        try:
            await offer.run(store.ingest)
        except StoreUnavailable:
            continue
        return done, culprits
    raise AssertionError("never done")


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.data(), st.sampled_from([0, 2, 3]))
async def test_exactly_the_culprits_are_put_aside(sizes, data, away):
    poll = build_poll(*sizes)
    places = [(record.partition, record.offset) for record in poll.records]
    guilty = data.draw(st.sets(st.sampled_from(places))) if places else set()
    store = Store(guilty, away)
    done, culprits = await offer_all(store, poll)
    assert [(record.partition, record.offset) for record in store.records] == places
    assert {(r.partition, r.offset) for r in store.records if isinstance(r.content, DeadLetter)} == guilty
    assert {(r.partition, r.offset) for r in culprits} == guilty
    assert store.offsets == poll.positions
    assert sum(len(part.records) for part in done) == len(places)


async def test_one_culprit_in_500_costs_few_transactions():
    store = Store({(ONE, 333)})
    await offer_all(store, build_poll(500))
    assert store.calls < 25


async def test_events_without_a_place_are_halved_too():
    records = tuple(Record(NOWHERE, n, EVENT) for n in range(5))
    store = Store({(NOWHERE, 3)})
    await offer_all(store, Poll(records))
    assert [r.content.reason for r in store.records if isinstance(r.content, DeadLetter)] == [Reason.INTERNAL_ERROR]
    assert store.offsets == {}


@pytest.mark.parametrize("content", [DeadLetter(Reason.SCHEMA, "x"), TOMBSTONE, Skipped(EventOutcome.EXPIRED, EVENT)])
async def test_what_cannot_be_the_records_fault_is_raised(content):
    async def refuse(poll):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Offer(Poll((Record(ONE, 1, content),), {ONE: 2}), print, print).run(refuse)


async def test_a_conflict_without_end_waits_like_an_outage():
    async def refuse(poll):
        raise Conflict

    with pytest.raises(StoreUnavailable):
        await Offer(build_poll(3), print, print).run(refuse)


def test_halves_stop_before_each_other():
    first, second = split(build_poll(3, 1))
    assert (first.positions, second.positions) == ({ONE: 12}, {ONE: 14, TWO: 12})
    assert (len(first.records), len(second.records)) == (2, 2)
