"""``webhookd serve``: the process around the composition root.

Belongs here: settings, signals, exit status. Does not belong here: which part knows which (``app``).
"""

from __future__ import annotations

import argparse
import sys
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

from pydantic import SecretStr

from service.app import ROLES, open_service
from service.config import EMBEDDED, SERVE, ConfigError, Configuration, SecretSource, load_configuration
from service.lifecycle import Rng, Stop, SystemClock, SystemRng, WorkerFailed, run_on_uvloop, stop_on_signals
from service.store.database import Database
from service.store.migrating import SchemaUnfit, migrate
from service.store.partitions import Partitions
from service.tools.embedded import embedded_postgres

KEY_FILE = "encryption.key"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--role", action="append", choices=ROLES, help="only this role; may be given several times")
    parser.add_argument("--embedded", action="store_true", help="with an own PostgreSQL; events by HTTP, no Kafka")


def run(arguments: argparse.Namespace) -> int:
    """Run the service: 0 after a clean stop, 1 when it could not go on, 2 when settings or schema are unusable."""
    roles = frozenset(arguments.role or ROLES)
    try:
        configuration = load_configuration(needs=EMBEDDED if arguments.embedded else SERVE)
        if arguments.embedded:
            key = _read_or_make_key(configuration.settings.data_dir.expanduser(), SystemRng())
            return run_on_uvloop(_serve_embedded(configuration, roles, key))
        return run_on_uvloop(_serve(configuration, roles))
    except (ConfigError, SchemaUnfit) as refusal:
        return _refuse(str(refusal), 2)
    except OSError as error:
        return _refuse(f"webhookd cannot start: {error.strerror}", 2)
    except WorkerFailed:
        return 1


async def _serve(configuration: Configuration, roles: frozenset[str]) -> int:
    stop = Stop(SystemClock(), configuration.settings.drain_timeout)
    with stop_on_signals(stop):
        async with open_service(configuration, roles, stop) as service:
            await service.run(stop)
    return 1 if stop.forced else 0


async def _serve_embedded(configuration: Configuration, roles: frozenset[str], key: str) -> int:
    async with embedded_postgres(configuration.settings.data_dir.expanduser()) as dsn:
        await migrate(dsn)
        async with Database(dsn) as database:
            await Partitions(database).make_ahead()
        return await _serve(_embed(configuration, dsn, key), roles)


def _embed(configuration: Configuration, dsn: str, key: str) -> Configuration:
    """Point the settings at the embedded database; the encryption key is the data directory's unless one is set."""
    settings = configuration.settings
    keys = settings.encryption_keys if settings.sealing_keys else SecretStr(key)
    changes = {"database_url": SecretStr(dsn), "encryption_keys": keys, "kafka_bootstrap_servers": ()}
    own = {"database_url": SecretSource("database_url", dsn), "database_listen_url": SecretSource("listen", "")}
    secrets = {**configuration.secrets, **own}
    return replace(configuration, settings=settings.model_copy(update=changes), secrets=secrets)


def _read_or_make_key(data_dir: Path, rng: Rng) -> str:
    """Return the encryption key that lies beside the embedded database, made at its first start."""
    data_dir.mkdir(parents=True, exist_ok=True)
    path = data_dir / KEY_FILE
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(f"embedded:{b64encode(rng.token(32)).decode()}", encoding="ascii")
    return path.read_text(encoding="ascii").strip()


def _refuse(line: str, status: int) -> int:
    sys.stderr.write(line + "\n")
    return status
