"""``webhookd keys create|list|revoke``: API keys from the command line.

Belongs here: the commands' arguments, their work, and what they print.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from service.config import MIGRATE, load_configuration, parse_duration
from service.domain.names import is_name
from service.lifecycle import Rng, SystemRng
from service.store import keys
from service.store.audit import Entry, write_entry
from service.store.database import Database, Session
from service.store.keys import NewKey, Role, StoredKey, fits_owner
from service.tools.terminal import escape, refuse, run_with_database, show_instant

ROLES = tuple(role.value for role in Role)
ACTOR = "cli"
_PAGE = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="action")
    create = commands.add_parser("create", help="make a key and print it, this once")
    create.add_argument("--tenant", help="whose key it is; an operator key has none")
    create.add_argument("--role", action="append", required=True, choices=ROLES, help="may be given several times")
    create.add_argument("--description")
    create.add_argument("--expires-in", type=parse_duration, metavar="DURATION", help="such as 90d")
    listing = commands.add_parser("list", help="list keys, newest first")
    listing.add_argument("--tenant", help="only this tenant's")
    revoke = commands.add_parser("revoke", help="revoke a key for good")
    revoke.add_argument("key_id")


def run(arguments: argparse.Namespace) -> int:
    """Run the command: 0 done, 1 no such key or database away, 2 arguments or settings unusable."""
    return run_with_database(lambda: asyncio.run(_run(arguments, load_configuration(needs=MIGRATE).database_url())))


async def _run(arguments: argparse.Namespace, dsn: str) -> int:
    async with Database(dsn, size=1) as database:
        if arguments.action == "list":
            print("\n".join(await list_keys(database, arguments.tenant)))
            return 0
        if arguments.action == "create":
            print(await _create(arguments, database))
            return 0
        if await revoke_key(database, arguments.key_id):
            return 0
    refuse(f"there is no key {arguments.key_id}")
    return 1


async def _create(arguments: argparse.Namespace, database: Database) -> str:
    return await create_key(
        database,
        SystemRng(),
        tenant_id=arguments.tenant,
        roles=arguments.role,
        description=arguments.description,
        expires_in=arguments.expires_in,
    )


def check_roles(tenant_id: str | None, roles: Sequence[str]) -> None:
    """Raise ValueError, one clear line, for roles that are unknown or do not fit the tenant, or no tenant id."""
    if tenant_id is not None and not is_name(tenant_id):
        raise ValueError("a tenant id has 1 to 255 characters, no control characters, and is not . or ..")
    unknown = sorted(set(roles) - set(ROLES))
    if unknown or not roles:
        raise ValueError(f"roles are {', '.join(ROLES)}")
    if not fits_owner(roles, tenant_id):
        raise ValueError("an operator key has no tenant; every other key has one")


async def create_key(
    database: Database,
    rng: Rng,
    *,
    tenant_id: str | None,
    roles: Sequence[str],
    description: str | None = None,
    expires_in: timedelta | None = None,
) -> str:
    """Make a key and return it whole; nobody can read it again. Raises ValueError, StoreUnavailable."""
    check_roles(tenant_id, roles)
    async with database.transaction() as session:
        now = await session.value("transaction_now")  # which the service compares it with
        new = NewKey(tenant_id, sorted(set(roles)), description, None if expires_in is None else now + expires_in)
        stored, key = await keys.create_key(session, new, ACTOR, rng.token)
        await _audit(session, now, stored, "key_create", {"roles": list(stored.roles)})
    return key


async def _audit(session: Session, now: datetime, key: StoredKey, action: str, after: Mapping[str, Any]) -> None:
    entry = Entry(now, key.tenant_id, ACTOR, action, f"key {key.key_id}", None, after)
    await write_entry(session, entry)


async def list_keys(database: Database, tenant_id: str | None = None) -> list[str]:
    """Return one line a key, newest first, control characters escaped. Raises StoreUnavailable."""
    lines, before = ["key_id\ttenant\troles\tcreated\texpires\tlast used\tstate\tdescription"], 2**63 - 1
    async with database.session() as session:
        while page := await keys.list_keys(session, before, tenant_id, _PAGE):
            lines += [_line(key) for key in page]
            before = page[-1].key_seq
    return lines


def _line(key: StoredKey) -> str:
    state = "revoked" if key.revoked_at else "live"
    times = (show_instant(at) for at in (key.created_at, key.expires_at, key.last_used_at))
    fields = (key.key_id, key.tenant_id or "(operator)", ",".join(key.roles), *times, state, key.description or "")
    return "\t".join(escape(field) for field in fields)


async def revoke_key(database: Database, key_id: str) -> bool:
    """Revoke a key for good; False when there is none. Raises StoreUnavailable."""
    async with database.transaction() as session:
        now = await session.value("transaction_now")
        revoked = await keys.revoke_key(session, key_id, now)
        if revoked is not None:
            await _audit(session, now, revoked, "key_revoke", {"revoked": True})
    return revoked is not None
