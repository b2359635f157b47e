"""Registers what tests share, and marks every test with the kind that its directory stands for."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = (
    "tests.support.require",  # first: the others import it
    "tests.support.background",
    "tests.support.broker",
    "tests.support.kafka",
    "tests.support.postgres",
)

TESTS = Path(__file__).parent

# How long an example takes is the machine's affair. CI judges a change, so it asks the same questions each time;
# everybody else's runs look for new answers.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("tests"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "tests")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        kind = item.path.relative_to(TESTS).parts[0]
        item.add_marker(kind)
        if kind in {"kafka", "survive"}:  # one real broker is enough for two cores
            item.add_marker(pytest.mark.xdist_group("kafka"))
    if "survive" not in config.getoption("markexpr"):  # it takes an hour: only who asks for it by name gets it
        long = [item for item in items if item.get_closest_marker("survive")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    _longest_first(items)


def _longest_first(items: list[pytest.Item]) -> None:
    """Modules that may take longest first, by the limit they set themselves: no worker is alone with one at the end."""
    limits: dict[Path, float] = {}
    for item in items:
        mark = item.get_closest_marker("timeout")
        limits[item.path] = max(limits.get(item.path, 0), mark.args[0] if mark else 0)
    items.sort(key=lambda item: -limits[item.path])
