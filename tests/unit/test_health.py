from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.health import (
    DEFAULT_RULES,
    Breaker,
    Health,
    HealthEvent,
    build_health,
    find_allowance,
    is_failing,
    observe,
)

START = datetime(2026, 11, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
FRESH = build_health(START)


def run(health: Health, *steps: tuple[timedelta, bool], rules=DEFAULT_RULES):
    """Observe at these times after START; returns the health and every event in order."""
    events = []
    for after, delivered in steps:
        health, new = observe(health, delivered=delivered, now=START + after, rules=rules)
        events += new
    return health, events


def failing(count: int, every: timedelta, start: timedelta = timedelta()):
    return [(start + number * every, False) for number in range(count)]


def test_a_webhook_that_keeps_failing_opens_its_breaker():
    health, events = run(FRESH, *failing(10, 4 * SECOND))
    assert health.breaker is Breaker.OPEN
    assert events == [HealthEvent.OPENED]
    assert health.probe_at == START + 36 * SECOND + 15 * SECOND


def test_f59_one_burst_of_concurrent_failures_opens_nothing():
    health, events = run(FRESH, *failing(50, timedelta(milliseconds=1)))
    assert (health.breaker, events) == (Breaker.CLOSED, [])
    assert find_allowance(health, START) is None


def test_a_count_alone_opens_the_breaker_though_the_clock_is_corrected_between_two_failures():
    rules = replace(DEFAULT_RULES, open_failures=3, open_after=timedelta())
    steps = [(MINUTE, False), (MINUTE, False), (MINUTE - timedelta(milliseconds=20), False)]
    assert run(FRESH, *steps, rules=rules)[1] == [HealthEvent.OPENED]


def test_f59_a_few_failures_over_a_long_time_open_nothing():
    health, events = run(FRESH, *failing(9, HOUR))
    assert (health.breaker, events) == (Breaker.CLOSED, [])


def test_f59_404_for_a_minute_recovers_and_disables_nothing():
    health, events = run(FRESH, *failing(60, SECOND))
    assert events == [HealthEvent.OPENED]
    at = timedelta(minutes=2)
    assert find_allowance(health, START + at) == 1
    for expected in (2, 4, 8, 16, 32):
        told = [HealthEvent.HALF_OPENED] if health.breaker is Breaker.OPEN else []
        health, events = run(health, (at, True))
        assert (health.breaker, find_allowance(health, START + at), events) == (Breaker.HALF_OPEN, expected, told)
        at += SECOND
    health, events = run(health, (at, True))
    assert (health.breaker, health.probes, events) == (Breaker.CLOSED, 0, [HealthEvent.CLOSED])


def test_f59_one_success_in_fifty_failures_neither_flaps_nor_disables():
    health, events, attempts = FRESH, [], 0
    for number in range(40 * 24 * 10):
        at = number * 6 * MINUTE
        if find_allowance(health, START + at) != 0:
            attempts += 1
            health, new = run(health, (at, attempts % 50 == 0))
            events += new
    assert HealthEvent.DISABLE not in events
    assert HealthEvent.CLOSED not in events
    assert events.count(HealthEvent.OPENED) < 250
    assert health.probes > 5  # back-off is kept until recovery is over


def test_f59_one_broken_event_type_among_good_ones_opens_nothing():
    steps = [(number * SECOND, number % 5 == 0) for number in range(1_000)]
    health, events = run(FRESH, *steps)
    assert (health.breaker, events) == (Breaker.CLOSED, [])


def test_f59_one_bad_hour_disables_nothing():
    health, events = run(FRESH, *failing(3_600, SECOND))
    assert HealthEvent.DISABLE not in events
    quiet = replace(health, breaker=Breaker.CLOSED)
    _, events = run(quiet, (6 * DAY, False))
    assert HealthEvent.DISABLE not in events


def test_disable_needs_five_days_without_a_success():
    _, events = run(FRESH, *failing(5 * 24, HOUR))
    assert HealthEvent.DISABLE not in events
    _, events = run(FRESH, *failing(5 * 24 + 1, HOUR))
    assert events[-1] is HealthEvent.DISABLE
    _, events = run(FRESH, (DAY, True), *failing(5 * 24, HOUR, DAY))
    assert HealthEvent.DISABLE not in events


def test_disable_needs_ten_failed_attempts():
    steps = [*failing(5, DAY), *failing(4, HOUR, 5 * DAY)]
    health, events = run(FRESH, *steps)
    assert HealthEvent.DISABLE not in events
    _, events = run(health, (5 * DAY + 5 * HOUR, False))
    assert events[-1] is HealthEvent.DISABLE


@pytest.mark.parametrize("missing", [3, 4, 5])
def test_disable_needs_a_failure_in_each_of_the_last_three_windows(missing):
    _, events = run(FRESH, *(step for step in failing(6 * 24, HOUR) if step[0] // DAY != missing))
    assert HealthEvent.DISABLE not in events
    _, events = run(FRESH, *failing(6 * 24, HOUR))
    assert events[-1] is HealthEvent.DISABLE


def test_disable_is_judged_when_an_attempt_fails_and_can_be_asked():
    health, _ = run(FRESH, *failing(5 * 24 + 1, HOUR))
    assert is_failing(health, START + 5 * DAY)
    assert not is_failing(health, START + 7 * DAY)
    assert not is_failing(FRESH, START + 9 * DAY)


def test_a_one_shot_is_never_disabled():
    _, events = run(FRESH, *failing(20 * 24, HOUR), rules=replace(DEFAULT_RULES, disable_after=None))
    assert HealthEvent.DISABLE not in events


def test_enabling_starts_the_span_again_with_one_trial():
    health = build_health(START, trial=True)
    assert find_allowance(health, START) == 1
    ramping, events = run(health, (SECOND, True))
    assert (find_allowance(ramping, START), events) == (2, [])
    opened, events = run(health, (SECOND, False))
    assert (opened.breaker, events) == (Breaker.OPEN, [HealthEvent.OPENED])
    assert find_allowance(opened, START + 2 * SECOND) == 0


def test_probes_back_off_to_the_cap():
    health, _ = run(FRESH, *failing(10, 4 * SECOND))
    waits = []
    for _ in range(8):
        at = health.probe_at
        assert find_allowance(health, at - SECOND) == 0
        assert find_allowance(health, at) == 1
        health, events = observe(health, delivered=False, now=at)
        assert events == ()
        waits.append((health.probe_at - at) / SECOND)
    assert waits == [30, 60, 120, 240, 480, 600, 600, 600]


def test_late_failures_of_an_open_breaker_do_not_move_the_probe():
    health, _ = run(FRESH, *failing(10, 4 * SECOND))
    later, events = run(health, *failing(10, timedelta(), 37 * SECOND))
    assert (later.probe_at, later.probes, events) == (health.probe_at, health.probes, [])
    assert later.failures == 20


def test_a_failure_during_recovery_slows_it_down_before_it_opens_again():
    health = replace(FRESH, breaker=Breaker.HALF_OPEN, ramp=8, probes=3)
    ramps = []
    for number in range(3):
        health, events = run(health, (number * SECOND, False))
        ramps.append(health.ramp)
        assert events == []
    assert ramps == [4, 2, 1]
    health, events = run(health, (4 * SECOND, False))
    assert (health.breaker, health.probes, events) == (Breaker.OPEN, 4, [HealthEvent.OPENED])


def test_a_success_clears_failures_and_windows():
    health, events = run(FRESH, *failing(5, SECOND), (DAY, True))
    assert health == replace(FRESH, last_success_at=START + DAY)
    assert events == []


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_stepped_clock_breaks_nothing(hours):
    health, _ = run(FRESH, *failing(10, 4 * SECOND), *failing(3, 10 * MINUTE, HOUR))
    stepped = START + 2 * HOUR + hours * HOUR
    if hours < 0:
        stepped = START - HOUR
        assert find_allowance(health, stepped) == 1  # the probe is further off than any probe is put
    health, _ = observe(health, delivered=False, now=stepped)
    assert health.breaker is Breaker.OPEN
    assert find_allowance(health, health.probe_at) == 1
    first, _ = observe(health, delivered=True, now=START + HOUR)
    second, _ = observe(first, delivered=True, now=START)
    assert second.last_success_at == START + HOUR
    assert second.span_start_at == START + HOUR


def model_failing(history, now) -> bool:
    """The rule as chapter 5 states it, on the whole history."""
    start = max([START, *(at for at, delivered in history if delivered)])
    failures = [at for at, delivered in history if not delivered and at >= start]
    windows = {(at - start) // DAY for at in failures}
    last = (now - start) // DAY
    return now - start >= 5 * DAY and len(failures) >= 10 and {last, last - 1, last - 2} <= windows


@given(st.lists(st.tuples(st.integers(1, 30), st.sampled_from([False] * 19 + [True])), max_size=60))
def test_the_disable_rule_agrees_with_a_model(gaps):
    health, now, history = FRESH, START, []
    for hours, delivered in gaps:
        now += hours * HOUR
        history.append((now, delivered))
        health, events = observe(health, delivered=delivered, now=now)
        assert (HealthEvent.DISABLE in events) == (not delivered and model_failing(history, now))


@given(st.lists(st.tuples(st.integers(0, 10_000), st.booleans()), max_size=80))
def test_the_breaker_always_lets_somebody_through_in_the_end(steps):
    health, now = FRESH, START
    for gap, delivered in steps:
        now += gap * SECOND
        health, _ = observe(health, delivered=delivered, now=now)
        assert find_allowance(health, now + DEFAULT_RULES.probe_cap) != 0
        assert 1 <= health.ramp <= DEFAULT_RULES.ramp_limit
        assert (health.breaker is Breaker.OPEN) <= (health.probe_at is not None)
