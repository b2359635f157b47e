"""`webhookd dlq`: list, show, replay through the real pipeline, drop."""

import argparse
import re
from datetime import timedelta

import pytest

from service.ingest.parsing import Parser
from service.ingest.poison import DeadLetter, Reason
from service.ingest.poll import NOWHERE, Partition, Record
from service.ingest.reading import Reader
from service.lifecycle import SystemClock
from service.profiles import load_profiles
from service.store.database import Database
from service.store.dead_letters import DeadLetters, insert_dead_letters
from service.tools import dlq
from tests.support.ingest import build_ingestor, finish, query


@pytest.fixture
async def store(database):
    async with Database(database) as store:
        yield store


@pytest.fixture
async def letters(store):
    values = [finish("fixed"), b"{", b"x" * (1 << 20) + b"y", b"\x1b[31m\0"]
    reasons = [Reason.INTERNAL_ERROR, Reason.INVALID_JSON, Reason.OVERSIZE, Reason.INVALID_UTF8]
    records = [
        Record(
            Partition("t\x1b", 0), n, DeadLetter(reason, "why\x07"), value, b"\x1b]0;k", (("h\n", b"\x9b"), ("n", None))
        )
        for n, (value, reason) in enumerate(zip(values, reasons, strict=True))
    ]
    async with store.transaction() as session:
        await insert_dead_letters(session, [*records, Record(NOWHERE, 0, DeadLetter(Reason.SCHEMA, "over HTTP"), b"{")])
        await insert_dead_letters(session, records)  # the same places again
    return DeadLetters(store)


@pytest.fixture
def reader():
    return Reader(
        Parser(load_profiles()), SystemClock(), notify_max_age=timedelta(hours=24), retention_state=timedelta(days=400)
    )


async def ids(letters):
    return [summary.dead_letter_id for summary in await letters.list_newest(100)]


async def test_lists_in_pages(letters):
    assert [s.reason for s in await letters.list_newest(2)] == ["invalid_utf8", "oversize"]
    last = (await letters.list_newest(2))[-1]
    assert [s.offset for s in await letters.list_newest(2, before=last.dead_letter_id)] == [1, 0]
    assert [s.offset for s in await letters.list_newest(9, reason="oversize")] == [2]


async def test_output_escapes_control_characters(letters, capsys):
    found = await letters.list_newest(100)
    lines = [dlq.describe_summary(summary) for summary in found]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line.split("  ")[1]) for line in lines)
    for summary in found:
        assert await dlq.show(letters, summary.dead_letter_id, raw=False) == 0
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in [*lines, *shown.splitlines()])
    assert "\\x1b" in shown
    assert "not all of it kept" in shown


async def test_raw_is_raw(letters, capfdbinary):
    newest = (await ids(letters))[0]
    assert await dlq.show(letters, newest, raw=True) == 0
    assert capfdbinary.readouterr().out == b"\x1b[31m\0"
    assert await dlq.show(letters, 10**9, raw=True) == 1


async def test_replay_takes_the_ordinary_way(letters, store, database, reader, capsys):
    await make_partitions(store)
    ingestor = build_ingestor(store)
    every = sorted(await ids(letters))
    assert await dlq.replay(letters, [*every, 10**9], reader, ingestor.ingest) == 1
    told = capsys.readouterr().out.splitlines()
    assert [line.split(" ", 1)[1] for line in told] == [
        "applied",
        "still refused: invalid_json: Input data was truncated",
        "cannot be replayed: its bytes are not all here",
        "still refused: invalid_json: JSON is malformed: invalid character (byte 0)",
        "not found",
    ]
    assert [row["job_id"] for row in await query(database, "SELECT job_id FROM jobs")] == ["fixed"]
    assert len(await query(database, "SELECT FROM deliveries")) == 1
    replayed = [s.dead_letter_id for s in await letters.list_newest(9) if s.replayed_at]
    assert replayed == every[:1]
    assert await letters.list_unreplayed("internal_error", 9) == []
    assert await dlq.replay(letters, every[:1], reader, ingestor.ingest) == 0  # no harm
    assert len(await query(database, "SELECT FROM deliveries")) == 1


async def test_a_replay_that_fails_stays(letters, reader, capsys):
    async def refuse(poll):
        raise ZeroDivisionError

    first = min(await ids(letters))
    assert await dlq.replay(letters, [first], reader, refuse) == 1
    assert capsys.readouterr().out == f"{first} failed: ZeroDivisionError\n"
    assert await letters.list_unreplayed("internal_error", 9) == [first]


async def test_drop(letters):
    every = await ids(letters)
    assert await letters.drop([every[0], 10**9]) == 1
    assert await ids(letters) == every[1:]


async def make_partitions(store):
    from service.store.partitions import Partitions

    await Partitions(store).make_ahead()


@pytest.mark.parametrize("number", ["0", "-1", "9223372036854775808", "9" * 5000, "²", "1e3", ""])
@pytest.mark.parametrize(
    "arguments", [["list", "--limit"], ["list", "--before"], ["show"], ["replay"], ["drop"]], ids=" ".join
)
def test_a_number_that_no_column_holds_is_refused_in_a_line(arguments, number, capsys):
    parser = argparse.ArgumentParser()
    dlq.add_arguments(parser)
    with pytest.raises(SystemExit) as refused:
        parser.parse_args([*arguments, number])
    assert refused.value.code == 2 and "Traceback" not in capsys.readouterr().err
    assert parser.parse_args(["show", "9223372036854775807"]).id == 2**63 - 1
