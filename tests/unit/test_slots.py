"""Who sends next: round robin by tenant and lane, and what keeps one bad receiver from hurting others."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.delivery.lanes import BUFFER_UNPROVEN, Trust
from service.delivery.ready import ReadyDelivery
from service.delivery.roster import PER_HOST, LaneTerms
from service.delivery.slots import Slots
from service.delivery.unproven import SLOW_AFTER

_ids = itertools.count(1)


def make_row(lane=1, tenant="t", group=None) -> ReadyDelivery:
    number = next(_ids)
    return ReadyDelivery(
        token=1,
        expires=1e9,
        delivery_id=number,
        webhook_key=lane,
        lane=lane,
        tenant_id=tenant,
        message_id=f"msg_{number}",
        type="extraction.completed",
        generation=1,
        group_key=group,
        attempts=0,
        created=0.0,
        first_due=0.0,
        revision=1,
        body=b"{}",
    )


def proven(host="h", limit=10, **more) -> LaneTerms:
    return LaneTerms(host, limit, proven=True, **more)


def new(host="h", limit=10, **more) -> LaneTerms:
    return LaneTerms(host, limit, **more)


def fill(slots, lane, count, terms, tenant="t"):
    for _ in range(count):
        slots.add(make_row(lane, tenant), terms)


def take_all(slots, now=0.0):
    taken = []
    while (row := slots.take(now)) is not None:
        taken.append(row)
    return taken


def test_tenants_take_turns_and_so_do_their_lanes():
    slots = Slots(100)
    for lane, tenant in ((1, "a"), (2, "a"), (3, "b")):
        fill(slots, lane, 4, proven(host=f"h{lane}"), tenant)
    order = [slots.take(0.0).lane for _ in range(8)]
    assert order == [1, 3, 2, 3, 1, 3, 2, 3]


def test_a_lane_runs_no_more_than_its_limit():
    slots = Slots(100)
    fill(slots, 1, 5, proven(limit=2))
    first, second = take_all(slots)
    slots.done(first, Trust.PROVEN)
    assert len(take_all(slots)) == 1
    slots.done(second)
    assert slots.in_flight == 1


def test_an_unproven_lane_runs_one_at_a_time_until_it_accepts():
    slots = Slots(100)
    fill(slots, 1, 4, new())
    (only,) = take_all(slots)
    slots.done(only)
    (again,) = take_all(slots)
    slots.done(again, Trust.PROVEN)
    assert len(take_all(slots)) == 2


def test_a_timeout_makes_a_proven_lane_run_one_at_a_time():
    slots = Slots(100)
    fill(slots, 1, 5, proven())
    first, second, *_ = take_all(slots)
    slots.done(first, Trust.SUSPECT)
    slots.done(second)
    fill(slots, 1, 3, proven())
    assert take_all(slots) == []


def test_who_waits_at_a_full_host_is_let_in_though_others_before_it_have_nothing_left_to_send():
    slots = Slots(1_000)
    for lane in range(200):
        fill(slots, lane, 1, proven())
    running = take_all(slots)
    assert len(running) == 50
    for lane in range(50, 199):
        slots.empty(lane)
    for row in running:
        slots.done(row, Trust.PROVEN)
    assert [row.lane for row in take_all(slots)] == [199]


def test_who_waits_at_a_full_host_is_let_in_though_those_before_it_lose_their_turn():
    slots = Slots(1_000)
    for lane in range(200):
        fill(slots, lane, 1, proven())
    for row in take_all(slots):
        slots.done(row, Trust.PROVEN)
    for lane in range(50, 199):
        slots.empty(lane)
    assert [row.lane for row in take_all(slots)] == [199]


def test_who_waits_at_a_shared_address_is_let_in_though_others_before_it_have_nothing_left_to_send():
    slots = Slots(4)
    for lane in range(6):
        fill(slots, lane, 1, proven(host=f"h{lane}"), f"t{lane}")
    running, waiting = [], []
    while rows := take_all(slots):
        for row in rows:
            (running if slots.enter(row, "a") else waiting).append(row)
    assert (len(running), len(waiting)) == (2, 4)
    for row in waiting[:3]:
        slots.empty(row.lane)
    for row in running:
        slots.done(row, Trust.PROVEN)
    assert take_all(slots) == waiting[3:]
    assert slots.enter(waiting[3], "a")


def test_an_attempt_that_starts_again_is_slow_once():
    slots = Slots(8)
    for lane in range(3):
        fill(slots, lane, 1, new(host=f"h{lane}"), f"t{lane}")
    before, again = slots.take(0.0), slots.take(0.1)
    slots.step_aside(again)
    slots.step_back(again, again=True)
    assert [slots.take(0.5), slots.take(0.5)].count(again) == 1
    fill(slots, 9, 1, new(host="h9"), "t9")
    slots.take(SLOW_AFTER + 0.3)
    assert slots.unproven.slow == 1, "of the others none runs for so long"
    fill(slots, 10, 1, new(host="h10"), "t10")
    slots.take(SLOW_AFTER + 0.6)
    assert slots.unproven.slow == 3
    for row in (before, again):
        slots.done(row)
    assert slots.unproven.slow == 1


@pytest.mark.parametrize(
    ("terms", "waits"),
    [
        (proven(limit=2), [False, False, True, True]),
        (proven(limit=9), [False, False, False, False]),
        (proven(limit=9, allowance=1), [False, True, True, True]),
        (new(limit=9), [False, True, True, True]),
        (proven(limit=9, rated=True), [True, True, True, True]),
    ],
    ids=["max_in_flight", "free", "health", "unproven", "rate"],
)
def test_what_waits_for_its_lanes_own_limits_is_known_by_that(terms, waits):
    slots = Slots(1)
    fill(slots, 2, 1, proven(host="busy"))
    slots.take(0.0)  # no slot is free: that is no limit of the lane's
    rows = [make_row() for _ in waits]
    for row in rows:
        slots.add(row, terms)
    assert [row.waited_for_limits for row in rows] == waits


def test_attempts_that_run_count_for_a_lanes_limits_too():
    slots = Slots(100)
    fill(slots, 1, 2, proven(limit=2))
    first, _ = take_all(slots)
    row = make_row()
    slots.add(row, proven(limit=2))
    assert row.waited_for_limits
    slots.done(first, Trust.PROVEN)
    taken = slots.take(0.0)
    slots.done(taken, Trust.PROVEN)
    row = make_row()
    slots.add(row, proven(limit=2))
    assert not row.waited_for_limits


def test_slow_suspects_hold_a_quarter_of_the_slots_and_slow_new_lanes_half():
    slots = Slots(8)
    for lane in range(8):
        fill(slots, lane, 2, new(host=f"h{lane}"), f"t{lane}")
    for row in take_all(slots):
        slots.done(row, Trust.SUSPECT)
    assert len(take_all(slots)) == 8  # nobody is known to be slow yet
    slots = Slots(8)
    for lane in range(20):
        fill(slots, lane, 1, new(host=f"h{lane}"), f"t{lane}")
    held = [slots.take(0.0) for _ in range(4)]
    assert slots.take(SLOW_AFTER + 0.1) is None
    assert slots.unproven.slow == 4
    fill(slots, 99, 1, proven(host="fast"), "fast")
    assert slots.take(SLOW_AFTER + 0.1).lane == 99
    for row in held:
        slots.done(row)
    assert slots.unproven.slow == 0


def test_a_suspect_is_left_out_once_a_quarter_is_slow():
    slots = Slots(8)
    for lane in range(4):
        fill(slots, lane, 2, new(host=f"h{lane}"), f"t{lane}")
    for row in take_all(slots):
        slots.done(row, Trust.SUSPECT)
    first, second = slots.take(0.0), slots.take(0.0)
    assert slots.take(SLOW_AFTER + 0.1) is None
    fill(slots, 50, 1, new(host="n"), "n")
    assert slots.take(SLOW_AFTER + 0.1).lane == 50  # a new one may still show what it is
    slots.done(first)
    slots.done(second)
    assert len(take_all(slots, SLOW_AFTER + 0.2)) == 2


def test_one_tenant_has_half_of_the_slots_while_another_waits():
    slots = Slots(10)
    for lane in range(10):
        fill(slots, lane, 5, proven(host=f"h{lane}"), "big")
    fill(slots, 50, 10, proven(host="x", limit=10), "small")
    counts = [row.tenant_id for row in take_all(slots)]
    assert (counts.count("big"), counts.count("small")) == (5, 5)


def test_one_tenant_has_every_slot_while_it_is_alone():
    slots = Slots(10)
    for lane in range(10):
        fill(slots, lane, 5, proven(host=f"h{lane}"), "big")
    assert len(take_all(slots)) == 10


def test_one_tenant_and_host_have_fifty_at_most():
    slots = Slots(1_000)
    for lane in range(20):
        fill(slots, lane, 10, proven(host="same"), "a")
        fill(slots, 100 + lane, 1, proven(host="same"), "b")
    taken = take_all(slots)
    of_a = [row for row in taken if row.tenant_id == "a"]
    assert len(of_a) == PER_HOST
    assert len(taken) == PER_HOST + 20
    for row in of_a:
        slots.done(row, Trust.PROVEN)
    assert len(take_all(slots)) == PER_HOST


def test_an_address_that_receivers_share_has_half_of_the_slots():
    slots = Slots(8)
    for lane in range(8):
        fill(slots, lane, 1, proven(host=f"h{lane}"), f"t{lane}")
    passed = [row for row in take_all(slots) if slots.enter(row, "192.0.2.1")]
    assert (len(passed), slots.in_flight, slots.waiting) == (4, 4, 4)
    slots.done(passed[0])
    assert slots.enter(slots.take(0.0), "192.0.2.1")
    assert slots.take(0.0) is None


def test_a_lane_that_steps_aside_starts_nothing_and_holds_no_slot():
    slots = Slots(8)
    fill(slots, 1, 3, proven())
    row = slots.take(0.0)
    slots.step_aside(row)
    assert (slots.in_flight, slots.take(0.0)) == (0, None)
    slots.step_back(row, again=True)
    assert slots.take(0.0) is row


def test_one_delivery_of_a_group_and_webhook_is_on_the_wire():
    slots = Slots(8)
    slots.add(make_row(1, group=7), proven())
    slots.add(make_row(1, group=7), proven())
    slots.add(make_row(2, group=7), proven(host="other"))
    taken = take_all(slots)
    assert sorted(row.lane for row in taken) == [1, 2]
    slots.done(next(row for row in taken if row.lane == 1))
    assert len(take_all(slots)) == 1


def test_a_rate_limited_lane_waits_for_tokens():
    slots = Slots(8)
    fill(slots, 1, 5, proven(rated=True))
    assert take_all(slots) == []
    assert [lane.key for lane in slots.list_thirsty()] == [1]
    slots.grant(1, 2)
    assert len(take_all(slots)) == 2


def test_an_allowance_closes_and_opens_a_lane():
    slots = Slots(8)
    fill(slots, 1, 5, proven(allowance=0))
    assert take_all(slots) == []
    slots.allow(1, 1)
    assert len(take_all(slots)) == 1
    slots.allow(1, None)
    assert len(take_all(slots)) == 4


def test_a_buffer_has_room_until_it_is_full():
    slots = Slots(50, buffer=100)
    assert slots.share_out([]).rooms == {}
    fill(slots, 1, 2, new())
    assert slots.share_out([]).rooms == {1: BUFFER_UNPROVEN - 2}
    fill(slots, 1, 2, new())
    assert (slots.share_out([]).rooms, slots.may_claim(1), slots.may_claim(2)) == ({1: 0}, False, True)
    fill(slots, 2, 96, proven())
    assert slots.buffer.free == 0
    assert not slots.reserve(3, "t", None)


def test_greedy_lanes_leave_room_for_one_more_however_many_they_are():
    slots = Slots(500, buffer=1_000)
    for lane in range(100):
        while (room := slots.share_out([]).rooms.get(lane, 1)) > 0:
            fill(slots, lane, room, proven(host=f"h{lane}"), f"t{lane}")
    assert slots.buffer.free >= 100
    assert slots.reserve(999, "other", proven())
    assert slots.share_out([]).rooms[0] == 0


@pytest.mark.parametrize(("trust", "share"), [(Trust.NEW, 50), (Trust.SUSPECT, 25)])
def test_lanes_that_have_not_proven_themselves_have_a_part_of_the_buffer(trust, share):
    slots = Slots(50, buffer=100)
    for lane in range(200):
        terms = new(host=f"h{lane}")
        fill(slots, lane, 1, terms, f"t{lane}")
        slots.done(slots.take(0.0), trust)
    for lane in range(200):
        row = make_row(lane, f"t{lane}")
        if slots.find_crowd(row, terms) is None:
            slots.add(row, terms)
    assert slots.waiting == share
    assert slots.find_crowd(make_row(199, "t199"), terms) is trust
    assert not slots.reserve(199, "t199", terms)
    assert slots.find_crowd(make_row(777, "late"), proven()) is None
    assert not slots.buffer.has_eased(trust)
    slots.withdraw(lambda row: row.lane % 2 == 0)
    assert slots.buffer.has_eased(trust)


def test_lanes_that_have_not_proven_themselves_leave_proven_ones_half_of_the_buffer():
    slots = Slots(500, buffer=1_000)
    for lane in range(1_000):
        terms = new(host=f"h{lane}")
        if slots.find_crowd(make_row(lane, f"t{lane}"), terms) is None:
            fill(slots, lane, 1, terms, f"t{lane}")
        if lane % 2:
            row = slots.take(0.0)
            slots.done(row, Trust.SUSPECT)
            if slots.find_crowd(row, terms) is None:
                slots.add(row, terms)
    assert slots.waiting == 500
    fill(slots, 7_777, 1, proven(), "well")
    assert slots.share_out([]).rooms[7_777] >= 10


def test_attempts_of_lanes_that_are_not_proven_start_apart_once_there_are_many():
    slots = Slots(1_000)
    for lane in range(300):
        fill(slots, lane, 1, new(host=f"h{lane}"), f"t{lane}")
    first = take_all(slots)
    assert len(first) == 100
    assert slots.find_pause(0.0) == pytest.approx(0.02)
    assert slots.take(0.01) is None
    assert slots.take(0.02) is not None
    assert slots.take(0.02) is None
    fill(slots, 999, 1, proven(), "well")
    assert slots.take(0.02).lane == 999
    slots.done(first[0], Trust.PROVEN)
    slots.done(first[1], Trust.PROVEN)
    assert slots.find_pause(0.02) == 0.0, "there are fewer than a hundred again"
    assert slots.take(0.02) is not None


def test_who_waits_for_a_slot_does_not_wait_for_time():
    slots = Slots(110)
    for lane in range(300):
        fill(slots, lane, 1, new(host=f"h{lane}") if lane < 105 else proven(host=f"h{lane}"), f"t{lane}")
    assert len(take_all(slots)) == 110
    assert slots.find_pause(0.0) == 0.0


def test_lanes_that_have_not_proven_themselves_share_what_is_claimed_for_them():
    slots = Slots(500, buffer=1_000)
    for lane in range(40):
        fill(slots, lane, 1, new(host=f"h{lane}"), f"t{lane}")
        slots.empty(lane)
    shares = slots.share_out(reversed(range(50)))
    assert sum(shares.rooms.values()) == 64
    assert list(shares.rooms.items())[:17] == [(39 - place, BUFFER_UNPROVEN) for place in range(16)] + [(23, 0)]
    assert shares.denied == {Trust.NEW}


def test_lanes_of_one_tenant_share_what_it_may_have():
    slots = Slots(50, buffer=100)
    for lane in range(30):
        fill(slots, lane, 1, proven(host=f"h{lane}"), "big")
    assert sum(slots.share_out([]).rooms.values()) == 20
    fill(slots, 99, 8, proven(), "big")
    shares = slots.share_out([])
    assert set(shares.rooms.values()) == {0}, "over three quarters of its half"
    assert [crowd.tenant_id for crowd in shares.denied] == ["big"]
    assert not slots.may_claim(0)


def test_one_tenant_has_half_of_the_buffer():
    slots = Slots(50, buffer=100)
    fill(slots, 1, 50, proven(), "big")
    assert slots.find_crowd(make_row(2, "big"), proven(host="x")).tenant_id == "big"
    assert not slots.reserve(2, "big", proven(host="x"))
    assert slots.reserve(3, "small", proven())
    crowd = slots.find_crowd(make_row(2, "big"), proven(host="x"))
    assert not slots.buffer.has_eased(crowd)
    slots.empty(1)
    assert slots.buffer.has_eased(crowd)


def test_what_waits_is_counted_through_every_way_in_and_out():
    slots = Slots(8, buffer=100)
    terms = {lane: (proven if lane % 2 else new)(host=f"h{lane % 3}") for lane in range(6)}
    for turn in range(300):
        lane = turn % 6
        slots.add(make_row(lane, f"t{lane % 2}", group=turn % 4), terms[lane])
        row = slots.take(float(turn))
        if row is None:
            continue
        if turn % 5 == 0:
            slots.step_aside(row)
            slots.step_back(row, again=turn % 2 == 0)
        elif turn % 7 == 0 and not slots.enter(row, "192.0.2.1"):
            continue
        else:
            slots.done(row, Trust(turn % 3))
    lanes = slots._roster._lanes.values()
    behind = sum(map(len, slots._behind_wire.values()))
    assert slots.waiting == sum(len(lane.rows) for lane in lanes) + behind
    for trust in Trust:
        assert slots.buffer._in_lanes[trust] == sum(len(x.rows) for x in lanes if x.trust is trust)
    for tenant in {lane.tenant.tenant_id: lane.tenant for lane in lanes}.values():
        assert tenant.waiting == sum(len(lane.rows) for lane in lanes if lane.tenant is tenant)


def test_receivers_that_hang_hold_half_of_an_address_which_others_share():
    slots = Slots(16)
    for lane in range(12):
        fill(slots, lane, 1, new(host=f"h{lane}"), f"t{lane}")
    passed = [row for row in take_all(slots) if slots.enter(row, "192.0.2.1")]
    assert len(passed) == 4
    fill(slots, 50, 6, proven(host="fast"), "fast")
    fast = [row for row in take_all(slots) if row.lane == 50 and slots.enter(row, "192.0.2.1")]
    assert len(fast) == 4  # the address has no more than half of the slots
    assert (slots.in_flight, slots.waiting) == (8, 10)
    slots.done(passed[0], Trust.SUSPECT)
    woken = [row for row in take_all(slots) if slots.enter(row, "192.0.2.1")]
    assert len(woken) == 1


def test_receivers_that_hang_hold_half_of_a_tenants_host():
    slots = Slots(1_000)
    for lane in range(60):
        fill(slots, lane, 1, new(host="same"), "a")
    assert len(take_all(slots)) == PER_HOST // 2
    fill(slots, 99, 40, proven(host="same", limit=40), "a")
    assert [row.lane for row in take_all(slots)] == [99] * (PER_HOST // 2)


def test_reserved_room_counts_until_it_is_given_back():
    slots = Slots(4)
    room = slots.buffer.free
    assert slots.reserve(1, "t", None)
    assert slots.buffer.free == room - 1
    slots.unreserve(1)
    assert slots.buffer.free == room
    assert slots.share_out([]).rooms == {}


def test_withdrawing_takes_waiting_deliveries_out():
    slots = Slots(4)
    slots.add(make_row(1, group=7), proven())
    slots.add(make_row(1, group=7), proven())
    take_all(slots)
    fill(slots, 2, 3, new())
    gone = slots.withdraw(lambda _: True)
    assert (len(gone), slots.waiting, list(slots.list_waiting())) == (4, 0, [])


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_few_slots_are_used_all_the_same(limit):
    slots = Slots(limit)
    for lane in range(4):
        fill(slots, lane, 2, new(host=f"h{lane}"), f"t{lane}")
    served = 0
    while taken := take_all(slots, served * 10.0):
        assert len(taken) <= limit
        served += len(taken)
        for row in taken:
            slots.done(row, Trust.SUSPECT)
    assert served == 8


def test_idle_lanes_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr("service.delivery.roster.KEPT_LANES", 10)
    slots = Slots(100)
    for lane in range(50):
        fill(slots, lane, 1, new(host=f"h{lane}"), f"t{lane}")
        slots.done(slots.take(0.0))
    assert len(slots._roster._lanes) <= 11


# Whatever happens


class Turmoil:
    """Deliveries, attempts, look-ups, shared addresses, pauses and withdrawals in any order."""

    def __init__(self, chance):
        self.chance = chance
        self.slots = Slots(chance.choice([2, 4, 8]))
        self.now = 0.0
        self.running, self.aside = [], []

    def draw(self, rows):
        return rows.pop(self.chance.randrange(len(rows))) if rows else None

    def arrive(self):
        lane = self.chance.randrange(12)
        terms = (proven if lane % 3 else new)(host=f"h{lane % 2}", limit=self.chance.choice([1, 3]))
        self.slots.add(make_row(lane, f"t{lane % 2}", group=self.chance.choice([None, lane % 4])), terms)

    def start(self):
        if row := self.slots.take(self.now):
            self.running.append(row)

    def look_up(self):
        if self.running and not self.running[-1].address:
            self.aside.append(self.running.pop())
            self.slots.step_aside(self.aside[-1])

    def find(self):
        if row := self.draw(self.aside):
            self.slots.step_back(row, again=self.chance.random() < 0.7)

    def enter(self):
        if self.running and not self.running[-1].address:
            row = self.running.pop()
            if self.slots.enter(row, f"a{self.chance.randrange(2)}"):
                self.running.append(row)

    def end(self):
        if row := self.draw(self.running):
            self.slots.done(row, self.chance.choice([None, Trust.PROVEN, Trust.SUSPECT]))

    def stop(self):
        self.slots.allow(self.chance.randrange(12), self.chance.choice([0, 1]))
        self.slots.empty(self.chance.randrange(12))

    def withdraw(self):
        which = self.chance.randrange(5)
        self.slots.withdraw(lambda row: row.lane % 5 == which)

    def calm_down(self):
        for lane in range(12):
            self.slots.allow(lane, None)
        while self.aside:
            self.find()
        self.running += take_all(self.slots, self.now)
        while self.running:
            self.end()
            self.now += 1.0
            self.running += take_all(self.slots, self.now)


@settings(max_examples=50)
@given(st.randoms(use_true_random=False))
def test_in_the_end_nothing_waits_or_counts(chance):
    made = Turmoil(chance)
    happen = [made.arrive] * 6 + [made.start] * 4 + [made.enter, made.end] * 2
    happen += [made.look_up, made.find, made.stop, made.withdraw]
    for _ in range(chance.choice([20, 100])):
        made.now += chance.random() * 0.3
        chance.choice(happen)()
    made.calm_down()
    slots = made.slots
    assert (slots.waiting, slots.in_flight, slots.unproven.slow) == (0, 0, 0)
    assert not slots._addresses
