"""A due delivery becomes a POST and a record; failures follow the schedule."""

from tests.support.delivering import Queue, deliver, until
from tests.support.receivers import NO_CONTENT, answering, receive


async def test_a_due_delivery_is_sent_and_recorded(database):
    async with receive(answering(NO_CONTENT)) as receiver, Queue(database) as queue, deliver(database) as role:
        hook = await queue.webhook(receiver.url(), headers=[("X-Api-Key", "k")])
        (delivery_id,) = await queue.deliveries(hook, body=b'{"b":1}')
        await queue.wait("deliveries_done", "delivery_id = $1", delivery_id)
        done = await queue.done(delivery_id)
        (attempt,) = await queue.attempts(delivery_id)
        (request,) = receiver.requests
    assert (done["state"], done["attempts"], done["webhook_id"]) == (4, 1, "whk_1")
    assert (attempt["outcome"], attempt["status"], attempt["superfluous"]) == ("delivered", 204, False)
    assert request.body == b'{"b":1}'
    assert request.get("webhook-attempt") == "1"
    assert request.get("X-Api-Key") == "k"
    assert role.watcher.finished == {"delivered": 1}
