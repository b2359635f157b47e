"""Messages: ``/v1/messages/{id}`` and the expunging of bodies."""

from __future__ import annotations

from service.api import answers
from service.api.calls import Answer, Call, Change
from service.api.problems import not_found
from service.store import message_store
from service.store.codes import Scope


def _message_id(call: Call) -> str:
    message_id = call.path["message_id"]
    if "\0" in message_id:
        raise not_found("message")
    return message_id


async def get(call: Call) -> Answer:
    """Show a message and its body, byte for byte."""
    found = await message_store.find_message(call.session, call.tenant_id, _message_id(call))
    if found is None:
        raise not_found("message")
    row = found.row
    names = ("message_id", "type", "generation", "source", "job_id", "finished_at", "created_at", "size", "renotified")
    answer = answers.Message(
        **{name: row[name] for name in names},
        scope=Scope(row["scope"]).word,
        expunged_at=row["expunged_at"],
        body=None if found.body is None else found.body.decode("utf-8", "replace"),
    )
    return Answer(200, answer)


async def expunge(call: Call) -> Answer:
    """Destroy a body; deliveries of it that wait are canceled."""
    message_id = _message_id(call)
    first = await message_store.expunge_body(call.session, call.parts.registry, call.tenant_id, message_id)
    return Answer(204, change=Change(f"message {message_id}", {"expunged": not first}, {"expunged": True}))
