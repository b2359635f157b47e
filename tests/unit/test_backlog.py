"""Which lanes are behind, and since when the others have had nothing due."""

from __future__ import annotations

from service.delivery.backlog import LATEST_COMMIT, LONG_AGO, Backlog

NOW = 1_800_000_000.0


def list_lanes(backlog):
    return dict(iter(backlog))


def test_at_first_nothing_is_known_of_any_instant():
    backlog = Backlog()
    backlog.mark(7)
    assert backlog.since == LONG_AGO
    assert list_lanes(backlog) == {7: LONG_AGO}


def test_a_claim_that_has_seen_everything_moves_the_instant_up_but_for_late_commits():
    backlog = Backlog()
    backlog.note_full_claim(NOW)
    assert backlog.since == NOW - LATEST_COMMIT
    backlog.note_full_claim(NOW + 1)
    assert backlog.since == NOW + 1 - LATEST_COMMIT


def test_lanes_stay_behind_until_a_claim_has_emptied_them():
    backlog = Backlog()
    for lane in (1, 2):
        backlog.mark(lane)
    backlog.begin_claim()
    backlog.note_claim([1, 2], [1], [3], NOW)
    assert list_lanes(backlog) == {2: LONG_AGO, 3: NOW}
    backlog.begin_claim()
    backlog.note_claim([3], [3], [], NOW + 1)
    assert 3 not in backlog


def test_what_is_marked_during_a_claim_may_have_come_too_late_for_it():
    backlog = Backlog()
    backlog.mark(7)
    backlog.begin_claim()
    backlog.mark(7)
    backlog.note_claim([7], [7], [], NOW)
    assert 7 in backlog
    backlog.begin_claim()
    backlog.note_claim([7], [7], [], NOW)
    assert 7 not in backlog


def test_what_a_survey_finds_during_a_claim_may_have_come_too_late_for_it():
    backlog = Backlog()
    backlog.mark(7)
    backlog.begin_claim()
    backlog.note_survey([7], [NOW - 100])
    backlog.note_claim([7], [7], [], NOW)
    assert 7 in backlog


def test_lanes_that_a_full_claim_did_not_come_to_are_the_first_of_the_next_one():
    backlog = Backlog()
    for lane in (1, 2, 3):
        backlog.mark(lane)
    backlog.begin_claim()
    backlog.note_claim([1, 2], [], [4], NOW)
    assert [lane for lane, _ in backlog] == [3, 1, 2, 4]


def test_a_lane_keeps_the_instant_from_which_on_it_is_behind():
    backlog = Backlog()
    backlog.note_full_claim(NOW)
    backlog.mark(7)
    backlog.note_full_claim(NOW + 60)
    backlog.note_claim([], [], [7], NOW + 60)
    backlog.mark(7)
    assert list_lanes(backlog) == {7: NOW - LATEST_COMMIT}


def test_a_survey_knows_the_oldest_of_each_lane():
    backlog = Backlog()
    backlog.note_full_claim(NOW)
    backlog.mark(7)
    backlog.note_survey([7, 8], [NOW - 100, NOW])
    backlog.raise_since(NOW + 1)
    assert backlog.since == NOW + 1 - LATEST_COMMIT
    assert NOW - 100.1 < list_lanes(backlog)[7] < NOW - 100
    assert NOW - 0.1 < list_lanes(backlog)[8] < NOW


def test_a_survey_that_took_long_does_not_move_the_instant_back():
    backlog = Backlog()
    backlog.note_full_claim(NOW + 30)
    backlog.raise_since(NOW)
    assert backlog.since == NOW + 30 - LATEST_COMMIT


def test_a_clock_that_is_put_back_makes_all_instants_unknown():
    backlog = Backlog()
    backlog.note_full_claim(NOW)
    backlog.mark(7)
    backlog.note_full_claim(NOW - 3_600)
    assert backlog.since == NOW - 3_600 - LATEST_COMMIT
    assert list_lanes(backlog) == {7: LONG_AGO}


def test_a_lane_that_something_was_moved_into_has_the_older_instant_of_both():
    backlog = Backlog()
    backlog.raise_since(NOW)
    backlog.mark(1)
    backlog.begin_claim()
    for lane in (1, 2):
        backlog.move(lane, NOW - 60)
        backlog.move(lane, NOW - 30)
    assert list_lanes(backlog) == {1: NOW - 60, 2: NOW - 60}
    backlog.note_claim([2], [2], [], NOW)
    assert backlog.find_instant(2) == NOW - 60, "moved after the claim was asked"
    assert backlog.find_instant(3) is None
