"""What producers really write, in the orders in which it really arrives."""

import pytest

from tests.e2e.story import completed, queued


@pytest.mark.parametrize("no_time", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"])
async def test_the_times_of_programs_that_have_none(tenant, receiver, no_time):
    """Go marshals a zero time as an instant; it is no more than a missing decoration, and the service lives on."""
    batch = tenant.batch("zero")
    secret = (await batch.register(receiver))["secret"]
    times = dict.fromkeys(("created_at", "started_at", "completed_at"), no_time)
    await batch.produce(queued("A", **times), completed("A", **times))
    await receiver.wait_for(1)
    (job,) = receiver.arrivals[0].verify(secret).data["jobs"]
    assert (job["created_at"], job["started_at"]) == (None, None)
    assert job["completed_at"] == receiver.arrivals[0].document["timestamp"] == (await batch.get())["completed_at"]
    assert job["completed_at"][:2] == "20"  # when the event occurred
