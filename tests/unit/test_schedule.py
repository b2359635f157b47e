from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.schedule import (
    HOLD_CAP,
    LAST_INSTANT,
    MAX_TOTAL,
    RETRY_AFTER_CAP,
    RetryAfter,
    Schedule,
    find_hold_until,
    grow,
    later,
    parse_retry_after,
    parse_seconds,
)

NOW = datetime(2026, 11, 30, 9, 0, 0, tzinfo=UTC)
DEFAULT = Schedule(parse_seconds([5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400]))
units = st.floats(0, 1, exclude_max=True)
step_lists = st.lists(st.integers(1, 86_400), min_size=1, max_size=30)


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def wait_of(*values: str, now: datetime = NOW) -> timedelta | None:
    asked = parse_retry_after(values, now)
    return None if asked is None else asked.wait


@given(step_lists)
def test_seconds_and_steps_round_trip(values):
    steps = parse_seconds(values)
    assert Schedule(steps).seconds == values
    assert Schedule(steps).total == seconds(sum(values))


@pytest.mark.parametrize(
    "values", [[], [0], [-1], [1] * 31, [2_592_001], [1_296_000, 1_296_001], [True], [1.0], ["5"], [None], [10**400]]
)
def test_bad_step_lists_are_refused(values):
    with pytest.raises(ValueError, match=r"step|schedule"):
        parse_seconds(values)


def test_bounds_are_inclusive():
    assert len(parse_seconds([1] * 30)) == 30
    assert Schedule(parse_seconds([2_592_000])).total == MAX_TOTAL


@pytest.mark.parametrize("spread", [-0.1, 1.1, float("nan")])
def test_a_spread_is_a_share(spread):
    with pytest.raises(ValueError, match="jitter"):
        Schedule((seconds(5),), spread)


@pytest.mark.parametrize("step", [1.5, 2.000001, 86_400.25])
def test_a_step_is_whole_seconds_as_in_a_registration(step):
    with pytest.raises(ValueError, match="whole seconds"):
        Schedule((seconds(5), seconds(step)))


def test_a_schedule_checks_its_own_steps():
    with pytest.raises(ValueError, match="1 to 30"):
        Schedule(())


def test_f41_every_due_time_is_the_step_itself_in_the_middle_of_the_jitter():
    due = [DEFAULT.find_due_at(attempt, NOW, 0.5) for attempt in range(1, 11)]
    assert due == [*(NOW + step for step in DEFAULT.steps), None]


@given(step_lists, st.integers(1, 30), units, st.floats(0, 1))
def test_f35_delays_spread_over_the_jitter_window(values, attempt, unit, spread):
    schedule = Schedule(parse_seconds(values), spread)
    delay = schedule.find_delay(attempt, unit)
    if attempt > len(values):
        assert delay is None
        return
    step = schedule.steps[attempt - 1]
    assert step * (1 - spread) - seconds(1e-5) <= delay <= step * (1 + spread) + seconds(1e-5)


def test_f35_ten_thousand_deliveries_do_not_meet():
    schedule = Schedule((seconds(300),))
    due = {schedule.find_due_at(1, NOW, number / 10_000) for number in range(10_000)}
    assert len(due) == 10_000
    assert max(due) - min(due) > seconds(119)


@pytest.mark.parametrize("attempt", [47, 1_024, 10**6, 0, -1])
def test_f36_attempts_outside_the_schedule_have_no_delay(attempt):
    assert DEFAULT.find_delay(attempt, 0.5) is None
    assert DEFAULT.find_due_at(attempt, NOW, 0.5, seconds(5)) is None


@pytest.mark.parametrize("count", [47, 1_024, 10**6, 10**9])
def test_f36_growth_is_capped_before_it_can_overflow(count):
    assert grow(seconds(15), count, seconds(600)) == seconds(600)
    assert grow(seconds(10**9), count, timedelta.max) == timedelta.max
    assert grow(timedelta(), count, seconds(600)) == timedelta()


def test_growth_doubles_until_the_cap():
    assert [grow(seconds(15), count, seconds(600)) for count in range(7)] == [
        seconds(value) for value in (15, 30, 60, 120, 240, 480, 600)
    ]
    assert grow(seconds(900), 0, seconds(600)) == seconds(600)


def test_f36_no_instant_is_past_year_9999():
    assert later(NOW, timedelta.max) == LAST_INSTANT
    assert later(LAST_INSTANT, seconds(1)) == LAST_INSTANT
    assert later(NOW, seconds(5)) == NOW + seconds(5)


@pytest.mark.parametrize(
    "value",
    [
        "Mon, 30 Nov 2026 09:02:00 GMT",
        "Mon, 30 Nov 2026 09:02:00 -0000",
        "Mon, 30 Nov 2026 09:02:00 +0000",
        "Mon, 30 Nov 2026 09:02:00 UTC",
        "Mon, 30 Nov 2026 09:02:00",
        "Monday, 30-Nov-26 09:02:00 GMT",
        "Mon Nov 30 09:02:00 2026",
        "120",
        " \t120 ",
        "000000000000000000120",
    ],
)
def test_f37_seconds_and_all_three_dates_are_read_in_utc(value):
    assert wait_of(value) == seconds(120)
    assert wait_of(value, now=NOW.astimezone(timezone(timedelta(hours=5)))) == seconds(120)


def test_f37_asctime_days_are_padded_with_a_space():
    assert wait_of("Tue Dec  1 08:00:00 2026") == seconds(23 * 3600)


def test_f37_two_digit_years_are_the_nearest_not_over_fifty_ahead():
    assert parse_retry_after(["Monday, 30-Nov-76 09:00:00 GMT"], NOW) == RetryAfter(RETRY_AFTER_CAP, clamped=True)
    assert wait_of("Wednesday, 30-Nov-77 09:00:00 GMT") == timedelta()


@given(st.integers(0, 86_400))
def test_f37_any_date_this_day(offset):
    assert wait_of(format_datetime(NOW + seconds(offset), usegmt=True)) == seconds(offset)


@pytest.mark.parametrize(
    "value",
    ["", " ", "-5", "1.5", "+120", "1_000", "१२०", "²", "1e3", "0x10", "120s", "120, 60", "soon", "\x00", "12\n", "inf",
     "Mon, 30 Feb 2026 09:02:00 GMT", "Mon, 30 Nov 2026 25:02:00 GMT", "Mon, 30 Nov 0000 09:02:00 GMT",
     "Mon, 30 Nov 2026 09:02:61 GMT", "mon, 30 nov 2026 09:02:00 gmt", "Mon, ३० Nov 2026 09:02:00 GMT",
     "Mon, 30 Nov 2026 09:02:00 +0200", "2026-11-30T09:02:00Z"],
)  # fmt: skip
def test_f38_malformed_values_are_ignored(value):
    assert parse_retry_after([value], NOW) is None
    assert wait_of(value, "7") == seconds(7)


@pytest.mark.parametrize("value", ["9" * 5_000, "9999999999", "86401", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_f38_large_values_are_clamped_and_say_so(value):
    assert parse_retry_after([value], NOW) == RetryAfter(RETRY_AFTER_CAP, clamped=True)


def test_f38_several_headers_the_longest_valid_one_counts():
    assert wait_of("5", "60", "-9") == seconds(60)
    assert wait_of("-5", "+1") is None
    assert parse_retry_after([], NOW) is None


def test_a_date_in_the_past_is_no_wait_and_a_leap_second_is_read():
    assert wait_of("Sun, 06 Nov 1994 08:49:37 GMT") == timedelta()
    assert wait_of("Mon, 30 Nov 2026 09:00:60 GMT") == seconds(59)


@given(st.lists(st.text(max_size=40), max_size=3), st.datetimes(timezones=st.just(UTC)))
def test_f38_nothing_raises(values, now):
    asked = parse_retry_after(values, now)
    assert asked is None or timedelta() <= asked.wait <= RETRY_AFTER_CAP


@given(step_lists, units, st.integers(0, 100_000))
def test_f37_f38_never_earlier_than_asked_or_than_our_own_schedule(values, unit, asked):
    schedule = Schedule(parse_seconds(values))
    wait = parse_retry_after([str(asked)], NOW).wait
    due = schedule.find_due_at(1, NOW, unit, wait)
    assert due >= NOW + wait
    assert due >= schedule.find_due_at(1, NOW, unit)


def test_jitter_comes_after_what_was_asked():
    schedule = Schedule((seconds(5),))
    assert schedule.find_due_at(1, NOW, 0.0, seconds(100)) == NOW + seconds(100)
    assert schedule.find_due_at(1, NOW, 0.5, seconds(100)) == NOW + seconds(110)


@pytest.mark.parametrize(
    ("status", "holds"),
    [(200, False), (301, False), (408, False), (429, True), (500, False), (503, True), (None, False)],
)
def test_f39_only_429_and_503_hold_the_whole_webhook(status, holds):
    expected = NOW + seconds(90) if holds else None
    assert find_hold_until(status, RetryAfter(seconds(90)), NOW) == expected


def test_f39_a_hold_is_at_most_an_hour_and_needs_a_wait():
    assert find_hold_until(429, RetryAfter(RETRY_AFTER_CAP), NOW) == NOW + HOLD_CAP
    assert find_hold_until(429, None, NOW) is None
    assert find_hold_until(429, RetryAfter(timedelta()), NOW) is None
