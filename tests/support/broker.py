"""The embedded broker: one a worker, so topics and groups need names of their own (`topic`)."""

import secrets
from collections.abc import Iterator

import pytest
from anyio.from_thread import BlockingPortal

from service.tools.embedded import embedded_broker


@pytest.fixture(scope="session")
def broker(portal: BlockingPortal) -> Iterator[str]:
    """Bootstrap servers of the embedded broker."""
    with portal.wrap_async_context_manager(embedded_broker()) as bootstrap_servers:
        yield bootstrap_servers


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses; also good for a group."""
    return f"t-{secrets.token_hex(6)}"
