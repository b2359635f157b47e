"""The time that all processes agree on."""

from datetime import UTC, datetime, timedelta

from service.app.probing import AgreedClock

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Machine:
    """A machine whose wall clock is an hour fast, and whose monotonic clock is right."""

    def __init__(self):
        self.seconds = 100.0

    def monotonic(self):
        return self.seconds

    def now(self):
        return NOON + timedelta(hours=1, seconds=self.seconds - 100)


def test_until_the_database_answers_it_is_the_machines():
    assert AgreedClock(Machine()).now() == NOON + timedelta(hours=1)


def test_the_databases_time_goes_on_by_the_monotonic_clock():
    clock = AgreedClock(machine := Machine())
    clock.agree(NOON, 99.5, 100.5)
    machine.seconds += 30
    assert clock.now() == NOON + timedelta(seconds=30)
    assert clock.monotonic() == 130


def test_a_slow_answer_is_better_than_none_and_worse_than_a_prompt_one():
    clock = AgreedClock(Machine())
    clock.agree(NOON, 80, 100)
    assert clock.now() == NOON + timedelta(seconds=10)
    clock.agree(NOON, 99.9, 100.1)
    clock.agree(NOON + timedelta(seconds=7), 80, 100)
    assert clock.now() == NOON
