"""``webhookd dlq list|show|replay|drop``: what an operator does with records that could not become events.

Belongs here: the commands' arguments, their work, and what they print, control characters escaped. Does not belong here:
the rows (``store.dead_letters``) and what a replayed record does: it takes the way of every record (``service.ingest``).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

from service.config import SERVE, Configuration, load_configuration
from service.delivery.arrivals import NoEngine
from service.domain.batches import Settling
from service.domain.egress import parse_policy
from service.ingest.announcing import Announcer
from service.ingest.applying import Ingestor
from service.ingest.parsing import Parser
from service.ingest.poison import DeadLetter, Reason
from service.ingest.poll import Poll, PollResult
from service.ingest.reading import Reader
from service.lifecycle import SystemClock, SystemRng
from service.ports import StoreUnavailable
from service.profiles import load_profiles
from service.sealing import Sealer
from service.sender.names import ascii_host
from service.store.database import Database
from service.store.dead_letters import LAST_ID, DeadLetters, DeadLetterSummary, StoredDeadLetter
from service.store.ingesting import PostgresIngestStore
from service.store.routing import OneShots, RoutingCopy
from service.telemetry import Telemetry
from service.tools.terminal import escape, refuse, run_with_database, show_instant

Ingest = Callable[[Poll], Awaitable[PollResult]]

_PAGE = 50
_SHOWN_BYTES = 4096
_REPLAYED = 200  # letters of one reason that one call replays


def parse_number(text: str) -> int:
    """Read an id or a count: what the database's column can hold."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(LAST_ID)) and 1 <= int(text) <= LAST_ID):
        msg = f"must be a whole number from 1 to {LAST_ID}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="action")
    reasons = sorted(Reason)
    listing = commands.add_parser("list", help="list dead letters, newest first")
    listing.add_argument("--reason", choices=reasons)
    listing.add_argument("--limit", type=parse_number, default=_PAGE)
    listing.add_argument(
        "--before", type=parse_number, default=LAST_ID, metavar="ID", help="go on after a page's last id"
    )
    show = commands.add_parser("show", help="show one with its key, headers and value")
    show.add_argument("id", type=parse_number)
    show.add_argument("--raw", action="store_true", help="write the value's bytes to the standard output, nothing else")
    replay = commands.add_parser("replay", help="put records through the pipeline again, after a fix")
    replay.add_argument("id", type=parse_number, nargs="*")
    replay.add_argument(
        "--reason", choices=reasons, help=f"all of this reason not replayed yet, oldest {_REPLAYED} first"
    )
    drop = commands.add_parser("drop", help="delete dead letters for good")
    drop.add_argument("id", type=parse_number, nargs="+")


def run(arguments: argparse.Namespace) -> int:
    """Run the command: 0 done, 1 not all of it or the database is away, 2 settings unusable."""
    return run_with_database(lambda: asyncio.run(_run(arguments, load_configuration(needs=SERVE))))


async def _run(arguments: argparse.Namespace, configuration: Configuration) -> int:
    async with Database(configuration.database_url(), size=2, name="webhookd dlq") as database:
        letters = DeadLetters(database)
        match arguments.action:
            case "list":
                found = await letters.list_newest(arguments.limit, before=arguments.before, reason=arguments.reason)
                print("\n".join(describe_summary(summary) for summary in found))
                return 0
            case "show":
                return await show(letters, arguments.id, raw=arguments.raw)
            case "drop":
                print(f"{await letters.drop(arguments.id)} of {len(arguments.id)} dropped")
                return 0
            case _:
                ids = arguments.id or await _list_unreplayed(letters, arguments.reason)
                async with _open_pipeline(configuration, database) as (reader, ingest):
                    return await replay(letters, ids, reader, ingest)


async def show(letters: DeadLetters, dead_letter_id: int, *, raw: bool) -> int:
    """Print one dead letter; 1 if there is none."""
    letter = await letters.find(dead_letter_id)
    if letter is None:
        refuse(f"there is no dead letter {dead_letter_id}")
        return 1
    if raw:
        sys.stdout.buffer.write(letter.value or b"")
        sys.stdout.buffer.flush()
    else:
        print("\n".join(describe(letter)))
    return 0


async def replay(letters: DeadLetters, dead_letter_ids: Sequence[int], reader: Reader, ingest: Ingest) -> int:
    """Put dead letters through the pipeline, each in a transaction of its own; print what became of each.

    One that is refused again stays as it is. Replaying twice does no harm: events are merged. 0 when all were applied.
    """
    status = 0
    for dead_letter_id in dead_letter_ids:
        letter = await letters.find(dead_letter_id)
        applied, verdict = (False, "not found") if letter is None else await _replay_one(letter, reader, ingest)
        if applied:
            await letters.mark_replayed(dead_letter_id)
        print(f"{dead_letter_id} {verdict}")
        status |= not applied
    return status


async def _replay_one(letter: StoredDeadLetter, reader: Reader, ingest: Ingest) -> tuple[bool, str]:
    if letter.value is None or not letter.whole:
        return False, "cannot be replayed: its bytes are not all here"
    record = reader.read_alone(letter.value, letter.headers)
    if isinstance(record.content, DeadLetter):
        return False, f"still refused: {record.content.reason}: {escape(record.content.detail)}"
    try:
        result = await ingest(Poll((record,)))
    except StoreUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - the one record fails; the next may not
        return False, f"failed: {type(error).__name__}"
    return True, str(result.outcomes[0])


async def _list_unreplayed(letters: DeadLetters, reason: str | None) -> list[int]:
    if reason is None:
        raise ValueError("name ids, or a --reason")
    found = await letters.list_unreplayed(reason, _REPLAYED)
    if not found:
        raise ValueError("there is nothing to replay")
    return found


def describe_summary(summary: DeadLetterSummary) -> str:
    """One line of the list."""
    place = f"{summary.partition.topic}[{summary.partition.number}]@{summary.offset}"
    done = "  replayed" if summary.replayed_at else ""
    when = show_instant(summary.received_at)
    return escape(
        f"{summary.dead_letter_id}  {when}  {place}  {summary.size} B  {summary.reason}: {summary.detail}{done}"
    )


def describe(letter: StoredDeadLetter) -> Iterator[str]:
    """All of a dead letter as lines; bytes as text where they are text, else escaped, the value cut."""
    yield escape(f"id      {letter.dead_letter_id}")
    yield escape(f"place   {letter.partition.topic}[{letter.partition.number}]@{letter.offset}")
    yield escape(f"reason  {letter.reason}: {letter.detail}")
    yield f"size    {letter.size} B, sha256 {letter.sha256.hex()}{'' if letter.whole else ', not all of it kept'}"
    yield f"key     {_describe_bytes(letter.key)}"
    for name, value in letter.headers:
        yield f"header  {escape(name)}: {_describe_bytes(value)}"
    yield f"value   {_describe_bytes(letter.value)}"


def _describe_bytes(data: bytes | None) -> str:
    if data is None:
        return "(none)"
    more = f" … {len(data) - _SHOWN_BYTES} B more: show --raw" if len(data) > _SHOWN_BYTES else ""
    return escape(data[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")) + more


@asynccontextmanager
async def _open_pipeline(configuration: Configuration, database: Database) -> AsyncIterator[tuple[Reader, Ingest]]:
    """The pipeline as the service has it; deliveries go to the queue, where the deliver role finds them by its poll."""
    settings, rng = configuration.settings, SystemRng()
    profiles = load_profiles([settings.profiles_dir] if settings.profiles_dir else [])
    policy = parse_policy(
        allow_http=settings.allow_http,
        allow=settings.egress_allow,
        deny=settings.egress_deny,
        ports=settings.egress_ports,
        nat64_prefixes=settings.nat64_prefixes,
        to_ascii=ascii_host,
    )
    sealer = Sealer([(key.key_id, key.material) for key in settings.sealing_keys])
    ingestor = Ingestor(
        PostgresIngestStore(database, RoutingCopy(), OneShots(sealer, policy, lambda: f"whk_{rng.token(16).hex()}")),
        profiles,
        Announcer(profiles, settings.max_body_bytes, NoEngine(lambda: None)),
        Settling(settings.batch_settle_seconds, settings.cancel_grace),
        Telemetry(request_timeout=settings.request_timeout, retry_schedule=settings.retry_schedule),
    )
    reader = Reader(
        Parser(profiles),
        SystemClock(),
        notify_max_age=settings.notify_max_age,
        retention_state=settings.retention_state,
    )
    yield reader, ingestor.ingest
