"""A sender for tests that decide themselves when an attempt ends, and as what."""

import asyncio

from service.domain.outbound import Hop, Route
from tests.support.delivering import until


class Scripted:
    """A sender whose attempts end when, and as, the test says."""

    def __init__(self) -> None:
        self.requests = []
        self.open: list[asyncio.Future] = []

    def find_route(self, target, tenant_id):
        return Route((Hop(target.host, target.port, "192.0.2.1", tls=False),), 1e12)

    async def locate(self, target, tenant_id, deadline):
        return self.find_route(target, tenant_id)

    async def send(self, request, deadline):
        self.requests.append((request, deadline))
        future = asyncio.get_running_loop().create_future()
        self.open.append(future)
        return await future

    def end(self, outcome, number=0) -> None:
        future = self.open.pop(number)
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    async def wait(self, count: int = 1) -> None:
        await until(lambda: len(self.open) >= count)
