"""The rotating cursor over lanes: rounds, and what is known to be left in the database."""

from __future__ import annotations

from service.delivery.scanning import FIRST_LANE, Scan


def look(scan, lanes=(), *, ends_at=None, limit=100, rooms=None, default=4):
    scan.begin()
    return scan.note(list(lanes), ends_at, limit, rooms or {}, default)


def test_a_round_over_more_lanes_than_a_claim_looks_at_ends_too():
    scan = Scan()
    assert look(scan, ends_at=500)
    assert scan.after == 500
    assert look(scan, ends_at=1_000)
    assert not look(scan)
    assert (scan.after, scan.took) == (FIRST_LANE, 0)


def test_a_round_counts_what_all_its_claims_took():
    scan = Scan()
    look(scan, [1, 2], ends_at=500)
    look(scan, [501])
    assert scan.took == 3
    look(scan)
    assert scan.took == 0


def test_a_claim_that_was_filled_goes_on_after_its_last_lane():
    scan = Scan()
    assert look(scan, [1, 1, 2, 2], limit=4, default=2)
    assert scan.after == 2
    assert scan.is_behind(2)
    assert not look(scan, [3], limit=4)
    assert scan.is_behind(2), "it was not looked at again"
    look(scan, limit=4)
    assert not scan.is_behind(2)


def test_lanes_are_behind_while_a_claim_leaves_something_of_theirs():
    scan = Scan()
    look(scan, [1, 1, 1, 1, 2, 3], rooms={3: 1, 4: 0})
    assert [lane for lane in range(6) if scan.is_behind(lane)] == [1, 3, 4]
    look(scan, [1], rooms={4: 0}, ends_at=3)
    assert [lane for lane in range(6) if scan.is_behind(lane)] == [4]


def test_a_lane_is_not_behind_any_more_when_a_later_claim_has_emptied_it():
    scan = Scan()
    scan.mark(7)
    look(scan, [7])
    assert not scan.is_behind(7)


def test_what_is_marked_during_a_claim_may_have_come_too_late_for_it():
    scan = Scan()
    scan.begin()
    scan.mark(7)
    scan.note([7], None, 100, {}, 4)
    assert scan.is_behind(7)


def test_lanes_that_a_claim_did_not_come_to_stay_behind():
    scan = Scan()
    for lane in (3, 7):
        scan.mark(lane)
    look(scan, ends_at=5)
    assert not scan.is_behind(3)
    assert scan.is_behind(7)
