"""Many wakes make one notification."""

import asyncio
from datetime import timedelta

from service.delivery.waking import Waker
from service.lifecycle import Stop, SystemClock


class Notifier:
    def __init__(self) -> None:
        self.count = 0
        self.heard = asyncio.Event()

    async def notify_due(self):
        self.count += 1
        self.heard.set()


async def test_many_wakes_are_one_notification():
    notifier = Notifier()
    waker = Waker(notifier)
    stop = Stop(SystemClock(), timedelta(seconds=1))
    async with asyncio.TaskGroup() as group:
        group.create_task(waker.run(stop))
        for _ in range(100):
            waker.wake()
        await notifier.heard.wait()
        notifier.heard.clear()
        waker.wake()
        await notifier.heard.wait()
        stop.set()
    assert notifier.count == 2
