"""When is a consumer stuck? Only while records wait and Kafka says so."""

from datetime import timedelta

from service.ingest.broker import BrokerUnavailable
from service.ingest.placing import Holding, place
from service.ingest.poll import LogBounds, Partition, StoredOffset
from service.ingest.watching import Watchdog

P = Partition("t", 0)


class Hand:
    """A clock that is moved by hand."""

    def __init__(self):
        self.seconds = 0.0

    def monotonic(self):
        return self.seconds


class Watched:
    def __init__(self):
        self.joined, self.assigned = True, frozenset({P})
        self.end, self.position, self.away = 10, 10, False

    async def find_ends(self, partitions):
        self.raise_if_away()
        return {P: self.end}

    async def find_positions(self, partitions):
        return {P: self.position}

    async def ping(self):
        self.raise_if_away()

    def raise_if_away(self):
        if self.away:
            raise BrokerUnavailable


class Gauge(dict):
    def records_behind(self, topic, partition, count):
        self[topic, partition] = count

    def partition_lost(self, topic, partition):
        self.pop((topic, partition), None)  # it may never have been shown


def build():
    clock, consumer, gauge = Hand(), Watched(), Gauge()
    return clock, consumer, gauge, Watchdog(clock, gauge, lambda: consumer, 1.0)


async def look(watchdog, clock, times=10):
    for _ in range(times):
        clock.seconds += 10
        await watchdog.look()


async def test_idle_is_not_stuck():
    clock, _, gauge, watchdog = build()
    await look(watchdog, clock)
    assert watchdog.stuck_for == 0
    assert gauge == {("t", 0): 0}
    assert watchdog.answers(1)


async def test_waiting_records_that_nobody_reads_are():
    clock, consumer, gauge, watchdog = build()
    await look(watchdog, clock, 1)
    consumer.end = 15
    await look(watchdog, clock)
    assert watchdog.stuck_for == 100
    assert gauge == {("t", 0): 5}


async def test_slow_is_not_stuck():
    clock, consumer, _, watchdog = build()
    consumer.end = 100
    for _ in range(10):
        consumer.position += 1
        await look(watchdog, clock, 1)
        assert watchdog.stuck_for == 0


async def test_a_broker_that_is_away_is_no_stuck_consumer():
    clock, consumer, _, watchdog = build()
    consumer.end, consumer.away = 15, True
    await look(watchdog, clock)
    assert watchdog.stuck_for == 0
    assert not watchdog.answers(20)


async def test_back_off_is_progress():
    clock, consumer, _, watchdog = build()
    consumer.end = 15
    for _ in range(5):
        await look(watchdog, clock)
        watchdog.progressed()
    assert watchdog.stuck_for == 0


async def test_a_member_without_partitions_is_ready():
    clock, consumer, gauge, watchdog = build()
    await look(watchdog, clock, 1)
    consumer.assigned = frozenset()
    await look(watchdog, clock)
    assert watchdog.answers(1)
    assert gauge == {}
    consumer.away = True
    await look(watchdog, clock)
    assert not watchdog.answers(20)


class Rows:
    """Offsets that only remember what was written."""

    def __init__(self):
        self.started, self.restarted = {}, {}

    async def start(self, owner, bounds):
        self.started |= bounds

    async def restart(self, owner, bounds):
        self.restarted |= bounds


async def test_places():
    stored = {
        Partition("t", 0): StoredOffset(None, 0),
        Partition("t", 1): StoredOffset(50, 7),
        Partition("t", 2): StoredOffset(3, 7),
        Partition("t", 3): StoredOffset(200, 7),
        Partition("t", 4): StoredOffset(100, 7),
        Partition("t", 5): StoredOffset(5, 7),
    }
    bounds = dict.fromkeys(stored, LogBounds(5, 100))
    rows, holding = Rows(), Holding("me")
    missed = await place(rows, holding, stored, bounds)
    assert list(holding.next_offsets.values()) == [5, 50, 5, 5, 100, 5]
    assert [holding.catch_up[p] for p in (Partition("t", 0), Partition("t", 1))] == [100, 7]
    assert [(lost.partition.number, lost.records) for lost in missed] == [(2, 2), (3, None)]
    assert [p.number for p in rows.started] == [0]
    assert [p.number for p in rows.restarted] == [2, 3]


def test_limits_leave_a_frozen_database_time():
    from service.ingest.worker import Limits

    limits = Limits()
    assert limits.stuck_after > 40  # a pool's wait and a command's timeout
    assert limits.heartbeat > timedelta(seconds=2 * limits.look_every)
