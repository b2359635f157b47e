"""Which ingest transactions get a log line, and what it says."""

from datetime import UTC, datetime

import pytest

from service.domain.events import EventType, JobEvent
from service.domain.jobs import EventOutcome as Outcome
from service.ingest.announcing import Announcement
from service.ingest.lines import LineRules, TransactionLines
from service.ingest.poll import NOWHERE, Partition, Poll, PollResult, Record
from service.lifecycle import SystemClock

NINE = datetime(2026, 11, 30, 9, tzinfo=UTC)
JOBS = Partition("jobs", 3)
TRACES = [f"00-{digit * 32}-{'2' * 16}-01" for digit in "ab"]


class Clock(SystemClock):
    """Every look is a quarter of a second later."""

    def __init__(self, step=0.25):
        self.step, self.at = step, 0.0

    def monotonic(self):
        self.at += self.step
        return self.at


class Rng:
    def __init__(self, number):
        self.number = number

    def uniform(self):
        return self.number

    def token(self, size):
        return bytes(size)


def build_lines(written, *, sample=0.0, everything=False, step=0.25, drawn=0.0, trace_id=None):
    return TransactionLines(
        lambda event, **fields: written.append(("info", event, fields)),
        lambda event, **fields: written.append(("debug", event, fields)),
        Clock(step),
        Rng(drawn),
        LineRules(sample, everything=everything),
        lambda: trace_id,
    )


def build_poll(*traces, partition=JOBS):
    records = tuple(
        Record(partition, n, JobEvent(f"e{n}", EventType.JOB_COMPLETED, "native", NINE, "t", f"j{n}", trace=trace))
        for n, trace in enumerate(traces)
    )
    return Poll(records, {} if partition == NOWHERE else {partition: len(records)})


def write(poll=None, result=None, announcement=None, **how):
    written = []
    lines = build_lines(written, **how)
    lines.ingested(lines.begin(), poll or build_poll(None), result or PollResult((Outcome.APPLIED,)), announcement or Announcement())  # fmt: skip
    return written


def test_an_ordinary_transaction_costs_no_line():
    assert write() == []
    assert write(sample=0.1, drawn=0.1) == []
    assert [level for level, *_ in write(sample=0.1, drawn=0.09)] == ["info"]
    assert [level for level, *_ in write(everything=True)] == ["debug"]


@pytest.mark.parametrize("outcome", Outcome)
def test_what_an_operator_must_know_has_its_line(outcome):
    ordinary = outcome in {Outcome.APPLIED, Outcome.DUPLICATE, Outcome.STALE, Outcome.TOMBSTONE, Outcome.EXPIRED}
    written = write(build_poll(None, None), PollResult((Outcome.APPLIED, outcome)))
    assert [level for level, *_ in written] == ([] if ordinary else ["info"])


@pytest.mark.parametrize(
    "how",
    [
        {"step": 1.0},
        {"result": PollResult((None,), lost=frozenset({JOBS}))},
        {"result": PollResult((Outcome.APPLIED,), anomalies={"two_destinations": 1})},
    ],
)
def test_so_has_what_was_slow_lost_or_odd(how):
    assert [level for level, *_ in write(**how)] == ["info"]


def test_a_line_says_everything_of_one_transaction():
    announcement = Announcement(finishes=1, queued=3)
    announcement.messages["batch", False] = 1
    announcement.messages["job", True] = 2
    result = PollResult((Outcome.APPLIED, Outcome.APPLIED, Outcome.DEAD_LETTER), anomalies={"batch_conflict": 1})
    ((level, event, fields),) = write(build_poll(TRACES[0], TRACES[0], TRACES[0]), result, announcement)
    assert (level, event) == ("info", "ingested")
    assert fields == {
        "records": 3,
        "applied": 2,
        "dead_letter": 1,
        "anomalies": {"batch_conflict": 1},
        "partitions": ["jobs/3@3"],
        "finishes": 1,
        "messages": 3,
        "deliveries": 3,
        "handed_over": 0,
        "duration": 0.25,
        "trace_id": "a" * 32,
    }


def test_which_trace_a_line_names():
    def trace_of(*traces, trace_id=None):
        ((_, _, fields),) = write(build_poll(*traces), sample=1.0, trace_id=trace_id)
        return fields.get("trace_id")

    assert trace_of(TRACES[0]) == "a" * 32
    assert trace_of(None) is None
    assert trace_of(TRACES[0], None) is None
    assert trace_of(*TRACES) is None
    assert trace_of(*TRACES, trace_id="c" * 32) == "c" * 32


def test_a_request_names_no_partition():
    ((_, _, fields),) = write(build_poll(None, partition=NOWHERE), sample=1.0)
    assert fields["partitions"] == "http"


def test_settling_is_worth_a_line_when_something_finished():
    written = []
    lines = build_lines(written, sample=1.0)
    lines.settled(lines.begin(), Announcement())
    assert written == []
    lines.settled(lines.begin(), Announcement(finishes=2))
    assert [(level, event, fields["finishes"]) for level, event, fields in written] == [("info", "settled", 2)]
