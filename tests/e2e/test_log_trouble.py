"""What cannot be logged does not stop what would have been: a full disk, a reader of the log that is gone."""

import os
from pathlib import Path

import pytest

from tests.e2e.story import QUICK, completed, new_tenant
from tests.support.service import build_settings, eventually


@pytest.fixture
def full_disk(tmp_path):
    """A log whose disk is full from the start."""
    log = tmp_path / "service.log"
    log.symlink_to("/dev/full")
    return log, lambda: None


@pytest.fixture
def lost_reader(tmp_path):
    """A log that goes into a pipe; the second thing that is given ends its reader."""
    log = tmp_path / "service.log"
    os.mkfifo(log)
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    return log, lambda: os.close(reader)


@pytest.mark.parametrize("log", ["full_disk", "lost_reader"])
async def test_deliveries_go_on_without_a_log(log, request, new_database, new_service, receiver):
    path, begin = request.getfixturevalue(log)
    service = new_service(build_settings(await new_database(), log_success_sample=1))
    service.log = Path(path)
    await service.start()
    begin()
    receiver.script.append(500)
    async with new_tenant(service, None) as tenant:
        webhook = await tenant.register(receiver, retry_schedule=QUICK)
        await tenant.api.post("/v1/events", tenant.complete(completed("A", webhook_id=webhook["webhook_id"])))
        await receiver.wait_for(2)

        async def is_recorded():
            return await service.fetch_metric("deliveries_finished_total", state="delivered") == 1

        await eventually(is_recorded)
    assert await service.stop() == 0
