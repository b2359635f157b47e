"""Registers what tests share, and marks every test with the kind that its directory stands for."""

from pathlib import Path

import pytest

pytest_plugins = (
    "tests.support.require",  # first: the others import it
    "tests.support.background",
    "tests.support.broker",
    "tests.support.kafka",
    "tests.support.postgres",
)

TESTS = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        kind = item.path.relative_to(TESTS).parts[0]
        item.add_marker(kind)
        if kind == "kafka":  # one real broker is enough for two cores
            item.add_marker(pytest.mark.xdist_group("kafka"))
