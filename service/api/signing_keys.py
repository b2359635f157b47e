"""The tenant's default secret and the public keys of its webhooks: ``/v1/signing-keys``."""

from __future__ import annotations

from service.api import answers
from service.api.calls import Answer, Call, Change, News
from service.api.cursors import cut, read_number, write_number
from service.api.models import Page, RotateSecret
from service.api.problems import Problem
from service.api.webhook_calls import describe_rotation, read_rotation
from service.domain.signing import list_live
from service.sealing import Undecryptable
from service.store import operating
from service.store.signing_keys import public_key

_LIST = "pairs"


def _broken() -> Problem:
    return Problem(409, "undecryptable", "A stored secret cannot be decrypted with the keys that are configured.")


async def get(call: Call) -> Answer:
    """Show when the default secret was made, and public keys, newest webhook first."""
    page, registry = call.query(Page), call.parts.registry
    before = read_number(_LIST, page.cursor)
    try:
        secrets = await operating.find_default_secrets(call.session, registry, call.tenant_id)
        found = await operating.list_pairs(call.session, registry, call.tenant_id, before, page.limit + 1)
    except Undecryptable:
        raise _broken() from None
    pairs, more = cut(found, page.limit, lambda pair: write_number(_LIST, pair[0]["webhook_key"]))
    now = call.parts.clock.now()
    shown = [
        answers.PublicKey(
            webhook_id=row["webhook_id"],
            public_keys=[public_key(pair.key) for pair in list_live(held.ed25519, now)],
        )
        for row, held in pairs
    ]
    until = [secret.expires_at for secret in secrets if secret.expires_at is not None]
    default = answers.DefaultSecret(
        created_at=secrets[0].created_at if secrets else None,
        live=len(secrets),
        previous_valid_until=max(until, default=None),
    )
    return Answer(200, answers.SigningKeys(default_secret=default, data=shown, next_cursor=more))


async def rotate(call: Call) -> Answer:
    """Make a new default secret, and show it; the first one lets one-shot deliveries go."""
    body = call.body(RotateSecret)
    try:
        rotated = await operating.rotate_default_secret(
            call.session, call.parts.registry, call.tenant_id, read_rotation(body)
        )
    except Undecryptable:
        raise _broken() from None
    answer = answers.SecretAnswer(secret=rotated.secret, previous_valid_until=rotated.previous_until)
    after = describe_rotation(body)
    change = Change("signing-keys", None, after, news=(News("default_secret_rotated", after),))
    return Answer(200, answer, change=change)
