"""API keys: ``/v1/keys``."""

from __future__ import annotations

from service.api import answers
from service.api.calls import Answer, Call, Change
from service.api.cursors import cut, read_number, write_number
from service.api.models import KeyPage, KeyPost
from service.api.problems import not_found, rule_broken
from service.api.views import describe_key
from service.store import keys
from service.store.keys import NewKey, Role, fits_owner

_LIST = "keys"


def check_key(body: KeyPost) -> None:
    """Raise Problem (422) for a key that is of no use."""
    if not fits_owner(body.roles, body.tenant_id):
        raise rule_broken("tenant_id", "key_owner", "An operator key has no tenant; every other key has one.")


async def create(call: Call) -> Answer:
    """Make a key, and show it this once."""
    body = call.body(KeyPost)
    if body.tenant_id is None and Role.OPERATOR not in body.roles:
        body = body.model_copy(update={"tenant_id": call.caller.tenant_id})
    check_key(body)
    now = call.parts.clock.now()
    if body.expires_at is not None and body.expires_at <= now:
        raise rule_broken("expires_at", "in_the_past", "The key would have expired already.")
    new = NewKey(body.tenant_id, sorted(set(body.roles)), body.description, body.expires_at)
    stored, key = await keys.create_key(call.session, new, call.caller.key_id, call.parts.registry.rng.token)
    shown = describe_key(stored)
    answer = answers.NewKey(**shown, key=key, secret=keys.split_key(key)[1])
    return Answer(201, answer, change=Change(f"key {stored.key_id}", None, shown, stored.tenant_id))


async def list_(call: Call) -> Answer:
    """List keys, newest first; of one tenant if one is named."""
    page = call.query(KeyPage)
    tenant_id = page.tenant_id or call.caller.tenant_id
    found = await keys.list_keys(call.session, read_number(_LIST, page.cursor), tenant_id, page.limit + 1)
    listed, more = cut(found, page.limit, lambda key: write_number(_LIST, key.key_seq))
    shown = [answers.Key(**describe_key(key)) for key in listed]
    return Answer(200, answers.KeyList(data=shown, next_cursor=more))


async def revoke(call: Call) -> Answer:
    """Revoke a key for good."""
    key_id = call.path["key_id"]
    found = await keys.find_key(call.session, key_id)
    stored = found and await keys.revoke_key(call.session, key_id, call.parts.clock.now())
    if found is None or stored is None:
        raise not_found("key")
    change = Change(f"key {key_id}", describe_key(found), describe_key(stored), stored.tenant_id)
    return Answer(204, change=change)
