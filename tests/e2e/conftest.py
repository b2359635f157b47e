"""Fixtures of the end-to-end tests: one service a module for the tests that do it no harm, own ones for the others."""

import itertools
import os
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal

from tests.e2e.story import Tenant, Topic, create_topic, new_tenant, opened_topic
from tests.support.postgres import create_database, drop_database
from tests.support.receiving import Receiver
from tests.support.service import NewService, Service, build_settings

PARTITIONS = 3
NEW_SERVICE = pytest.StashKey[NewService]()  # of a test that asks for it, or for a fixture that does


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what the services said."""
    report = yield
    if report.failed:
        for number, service in enumerate(_services_of(item)):
            report.sections.append((f"log of service {number}", service.tail()))
    return report


def _services_of(item: pytest.Item) -> list[Service]:
    fixtures = getattr(item, "funcargs", {})
    shared = [fixtures["service"]] if "service" in fixtures else []
    return shared + (item.stash[NEW_SERVICE].made if NEW_SERVICE in item.stash else [])


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:  # a module's service is started by one worker
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="module")
def shared_database(portal: BlockingPortal, postgres: str, database_template: str) -> Iterator[str]:
    name = f"shared_{next(_numbers)}"
    yield portal.call(create_database, postgres, name, database_template)
    portal.call(drop_database, postgres, name)


@pytest.fixture(scope="module")
def shared_topic(portal: BlockingPortal, broker: str) -> str:
    name = f"shared-{os.getpid()}-{next(_numbers)}"
    portal.call(create_topic, broker, name, PARTITIONS)
    return name


@pytest.fixture(scope="module")
def more_settings() -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def service(
    portal: BlockingPortal,
    shared_database: str,
    broker: str,
    shared_topic: str,
    more_settings: dict[str, str],
    tmp_path_factory,
) -> Iterator[Service]:
    """All roles in one process, for tests that leave it alive; a module's `more_settings` add to its settings."""
    settings = build_settings(
        shared_database, kafka_bootstrap_servers=broker, kafka_topics=shared_topic, kafka_group_id=shared_topic
    )
    service = Service({**settings, **more_settings}, tmp_path_factory.mktemp("service") / "service.log")
    try:
        service.launch()
        portal.call(service.wait_until_ready)
        yield service
        assert portal.call(service.stop) == 0, service.tail()
    finally:
        service.end()


@pytest.fixture
def new_service(request: pytest.FixtureRequest, tmp_path) -> Iterator[NewService]:
    """`new_service(settings, *roles)` makes a service that ends with the test, at the latest."""
    maker = request.node.stash[NEW_SERVICE] = NewService(tmp_path)
    yield maker
    maker.end()


@pytest.fixture
async def topic_of_service(broker: str, shared_topic: str) -> AsyncIterator[Topic]:
    async with opened_topic(broker, shared_topic, PARTITIONS) as topic:
        yield topic


@pytest.fixture
async def tenant(service: Service, topic_of_service: Topic) -> AsyncIterator[Tenant]:
    """A tenant of the module's service that no other test uses."""
    async with new_tenant(service, topic_of_service) as tenant:
        yield tenant


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


_numbers = itertools.count(1)
