"""``webhookd verify``: check a captured request and say which part is wrong.

Belongs here: the command's arguments, reading captures, and what is printed. Does not belong here: the judgement
(``checking``), receiving (``listen``).
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from datetime import datetime
from pathlib import Path

from service.lifecycle import Clock, SystemClock
from service.tools.checking import Verdict, check_request
from service.tools.guesses import ID, Headers, find_named
from service.tools.records import RecordUnavailable, fetch_record
from service.tools.terminal import escape, refuse
from service.tools.traces import SPAN, Record

MAX_BYTES = 64 << 20
STDIN = Path("-")
_REQUEST_LINE = re.compile(r"[A-Z]+ \S+ HTTP/[0-9.]+")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "--secret", action="append", required=True, help="whsec_… (or whpk_… for v1a); several: any of them may fit"
    )
    parser.add_argument(
        "--headers", type=Path, default=STDIN, metavar="FILE", help="'name: value' lines (default: standard input)"
    )
    parser.add_argument(
        "--body",
        type=Path,
        metavar="FILE",
        help="the raw bytes (default: what follows the first empty line of the headers)",
    )
    parser.add_argument(
        "--at", type=parse_instant, metavar="TIME", help="when it arrived: unix seconds or RFC 3339 (default: now)"
    )
    parser.add_argument(
        "--api", metavar="URL", help="the service's admin API: compare with its own record of the message"
    )
    parser.add_argument("--key", help="a key with the role read, for --api")
    parser.add_argument("--tenant", metavar="ID", help="the tenant, where --key is an operator's")


def run(arguments: argparse.Namespace) -> int:
    """Run the command: 0 valid, 1 something is wrong, 2 arguments or files unusable."""
    try:
        headers, body = read_capture(arguments.headers, arguments.body)
        record = _fetch_record(arguments, headers)
    except (OSError, ValueError, RecordUnavailable) as error:
        refuse(error)
        return 2
    now = _now(SystemClock()) if arguments.at is None else arguments.at
    verdict = check_request(headers, body, arguments.secret, now, record=record, span=SPAN)
    print("\n".join(describe(verdict)))
    return 0 if verdict.valid else 1


def _fetch_record(arguments: argparse.Namespace, headers: Headers) -> Record | None:
    """Ask for the record of the id in the headers. Raises RecordUnavailable, and ValueError without a key."""
    if not arguments.api:
        return None
    if not arguments.key:
        raise ValueError("--api needs --key")
    named, _ = find_named(headers)
    if ID not in named:
        return None
    return asyncio.run(fetch_record(arguments.api, arguments.key, arguments.tenant, named[ID]))


def parse_instant(text: str) -> int:
    """Read unix seconds or an RFC 3339 instant. Raises ValueError."""
    if re.fullmatch(r"[0-9]{1,11}", text):
        return int(text)
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("an instant has a zone")
    return int(at.timestamp())


def _now(clock: Clock) -> int:
    return int(clock.now().timestamp())


def read_capture(headers_file: Path, body_file: Path | None) -> tuple[list[tuple[str, str]], bytes]:
    """Read the two files, or both from the one. Raises OSError, and ValueError for lines that are no headers."""
    head, rest = _split(_read(headers_file))
    body = rest if body_file is None else _read(body_file)
    if body is None:
        raise ValueError("there is no body: name it with --body, or let it follow the headers after an empty line")
    return parse_headers(head), body


def _read(file: Path) -> bytes:
    if file == STDIN:
        content = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{file} has more than {MAX_BYTES} bytes")
    return content


def _split(content: bytes) -> tuple[bytes, bytes | None]:
    """Part head and body at the first empty line; None without one."""
    end = re.search(rb"\r?\n\r?\n", content)
    return (content, None) if end is None else (content[: end.start()], content[end.end() :])


def parse_headers(head: bytes) -> list[tuple[str, str]]:
    """Read ``name: value`` lines; a request line in front is skipped. Raises ValueError."""
    lines = head.decode("utf-8", "replace").removeprefix("\N{BYTE ORDER MARK}").replace("\r\n", "\n").split("\n")
    headers = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or (number == 1 and _REQUEST_LINE.fullmatch(line)):
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ValueError(f"line {number} of the headers is no 'name: value'")
        headers.append((name.strip(), value.strip(" \t")))
    return headers


def describe(verdict: Verdict) -> list[str]:
    """One line a finding, the wrong ones first, and the verdict last; control characters escaped."""
    ordered = sorted(verdict.findings, key=lambda finding: finding.right)
    lines = [f"{'ok   ' if f.right else 'WRONG'}  {f.part:<15} {escape(f.text)}" for f in ordered]
    return [*lines, "valid" if verdict.valid else "NOT VALID"]
