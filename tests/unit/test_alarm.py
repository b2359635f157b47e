"""The earliest instant wins, and the event loop of production is one that forgets."""

import asyncio

import pytest
import uvloop

from service.delivery.alarm import Alarm


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request):
    def run(main):
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main)

    return run


def test_it_rings_once_for_all_and_at_the_earliest(run):
    async def main():
        rung = asyncio.Queue()
        alarm = Alarm(lambda: rung.put_nowait("now"))
        for seconds in (3600, 0.001, 0, 60):
            alarm.set(seconds)
        await asyncio.wait_for(rung.get(), 30)
        asyncio.get_running_loop().call_later(0.01, rung.put_nowait, "later")
        assert await asyncio.wait_for(rung.get(), 30) == "later"

    run(main())


def test_it_may_be_set_again_after_it_rang_and_not_ring_when_it_was_cleared(run):
    async def main():
        rung = asyncio.Queue()
        alarm = Alarm(lambda: rung.put_nowait("now"))
        for _ in range(2):
            alarm.set(-1)
            assert await asyncio.wait_for(rung.get(), 30) == "now"
        alarm.set(0.001)
        alarm.clear()
        asyncio.get_running_loop().call_later(0.01, rung.put_nowait, "later")
        assert await asyncio.wait_for(rung.get(), 30) == "later"

    run(main())


def test_it_is_set_anew_at_every_moment_of_a_millisecond(run):
    """Between the look at the clock and the call a millisecond may end, and what the loop returns is no timer then."""

    async def main():
        alarm = Alarm(lambda: None)
        for _ in range(20_000):
            alarm.set(0.002)
            alarm.set(0)
            alarm.clear()

    run(main())
