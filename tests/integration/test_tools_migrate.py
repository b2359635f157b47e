"""`webhookd migrate`: which address it goes by, and what it says."""

import argparse

from service.tools import migrate

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
