"""Fixtures of the tests that run the service over a real Apache Kafka."""

import pytest

from tests.e2e.story import create_topic, opened_topic
from tests.support.receiving import Receiver
from tests.support.service import NewService, build_settings

PARTITIONS = 4


@pytest.fixture
def new_service(tmp_path):
    maker = NewService(tmp_path)
    yield maker
    maker.end()


@pytest.fixture
async def receiver():
    async with Receiver() as receiver:
        yield receiver


@pytest.fixture
async def settings(kafka, topic, new_database):
    await create_topic(kafka.bootstrap_servers, topic, PARTITIONS)
    names = {"kafka_topics": topic, "kafka_group_id": topic}
    return build_settings(await new_database(), kafka_bootstrap_servers=kafka.bootstrap_servers, **names)


@pytest.fixture
async def opened(kafka, topic, settings):
    """The service's topic, as producers use it."""
    async with opened_topic(kafka.bootstrap_servers, topic, PARTITIONS) as opened:
        yield opened
