"""The start warns of a database that answers before a commit is on disk."""

import pytest

from service.app.basics import warn_of_loose_commits
from service.store.database import Database


@pytest.mark.parametrize(("setting", "warned"), [("on", []), ("local", []), ("off", ["commits_not_durable"])])
async def test_only_commits_that_may_be_lost_are_warned_of(database, setting, warned):
    lines = []
    parts, _, options = database.partition("?")
    chosen = f"{parts}?{options}{'&' if options else ''}options=-c%20synchronous_commit%3D{setting}"
    async with Database(chosen, size=1) as own:
        await warn_of_loose_commits(own, lambda event, **_: lines.append(event))
    assert lines == warned
