"""`webhookd migrate`: which address it goes by, and what it says."""

import argparse
import asyncio

from service.tools import migrate
from tests.support.postgres import connected
from tests.support.service import run_program

NOWHERE = "postgresql://127.0.0.1:1/none"


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    migrate.add_arguments(parser)
    return migrate.run(parser.parse_args(words))


def test_it_goes_by_the_direct_address_where_there_is_one(worker_database, monkeypatch, capsys):
    monkeypatch.setenv("WEBHOOKD_DATABASE_URL", NOWHERE)
    monkeypatch.setenv("WEBHOOKD_DATABASE_LISTEN_URL", worker_database)
    assert run("--check") == 0
    assert run() == 0
    assert capsys.readouterr().out == "the schema is up to date\n" * 2


def test_what_keeps_it_from_working(monkeypatch, capsys):
    monkeypatch.setenv("WEBHOOKD_DATABASE_URL", NOWHERE)
    assert run() == 1
    assert "see WEBHOOKD_DATABASE_URL" in capsys.readouterr().err
    monkeypatch.delenv("WEBHOOKD_DATABASE_URL")
    assert run() == 2
    assert "WEBHOOKD_DATABASE_URL: is not set" in capsys.readouterr().err


async def test_two_at_once_both_end_well(new_database):
    settings = {"WEBHOOKD_DATABASE_URL": await new_database(migrated=False)}
    ended = await asyncio.gather(*(run_program("migrate", settings=settings) for _ in range(2)))
    assert [(each.status, each.stdout, each.stderr) for each in ended] == [(0, "the schema is up to date\n", "")] * 2


async def test_a_lock_that_is_not_to_be_had_is_one_line(new_database):
    dsn = await new_database()
    async with connected(dsn) as connection:
        for row in await connection.fetch("DELETE FROM partitions WHERE parent = 'attempts' RETURNING name"):
            await connection.execute(f"DROP TABLE {row['name']}")
        async with connection.transaction():
            await connection.execute("SELECT FROM attempts")
            ended = await run_program("migrate", settings={"WEBHOOKD_DATABASE_URL": dsn})
    assert (ended.status, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1
    assert "another transaction holds" in ended.stderr


async def test_a_schema_that_is_ahead_is_up_to_date_only_where_it_serves_this_release(new_database):
    dsn = await new_database()
    async with connected(dsn) as connection:
        await connection.execute("UPDATE alembic_version SET version_num = '9999_later'")
        assert (await run_program("migrate", "--check", settings={"WEBHOOKD_DATABASE_URL": dsn})).status == 0
        await connection.execute("UPDATE schema_info SET oldest_code = '9.0'")
    for options in ((), ("--check",)):
        ended = await run_program("migrate", *options, settings={"WEBHOOKD_DATABASE_URL": dsn})
        assert (ended.status, ended.stdout) == (2, "")
        assert "serves releases from 9.0 on" in ended.stderr
